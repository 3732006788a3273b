"""The benchmarks measure what they say, at the smallest sizes."""

from __future__ import annotations

import random
import subprocess
import sys

import numpy as np
import pytest

import tasid
from benchmarks import auto, belief_table, building, planning, worlds
from benchmarks.__main__ import NAMES
from benchmarks.faults import mutated

ROOM = "########\n#S.....#\n#.####.#\n#.....G#\n########"


def test_every_benchmark_is_listed_with_what_it_measures():
    command = [sys.executable, "-m", "benchmarks", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    described = {line.split()[0] for line in done.stdout.splitlines()[1:] if len(line.split()) > 3}
    assert described == set(NAMES)


@pytest.mark.parametrize("make", [planning.random_map, planning.grid_map])
def test_yardsticks_plan_as_we_do(make):
    sim = make(400, 5)
    for yardstick in (planning.numba_loop, planning.plain_numpy):
        np.testing.assert_array_equal(yardstick(sim), planning.ours(sim))


@pytest.mark.parametrize("name", ["DoorKey-5x5", "SimpleCrossingS9N1"])
def test_maps_of_minigrid_rooms_are_right(name):
    world = worlds.minigrid(name, 3)
    room = worlds.SlipperyRoom(name, 3, range(world.simulator.num_actions), 0.0)
    room.actions = (0, 1, 2, 3, 5)[: world.simulator.num_actions]
    sim, rng = world.simulator, np.random.default_rng(0)
    arrived = 0
    for _ in range(30):
        room.reset(seed=0)
        state = sim.start
        plan = tasid.robust_dp(sim, eta=0.1)
        for h in range(sim.horizon):
            action = plan.action(h, state) if rng.random() < 0.7 else rng.integers(sim.num_actions)
            _, reward, done, _, _ = room.step(action)
            assert reward == sim.reward[state, action]
            state = sim.successor[state, action]
            label = sim.states[state]
            pose = label[0] if isinstance(label[0], tuple) else label
            assert pose[:3] == (*room.unwrapped.agent_pos, room.unwrapped.agent_dir)
            if done:
                break
        arrived += done
    assert arrived > 20


def test_tables_resume_and_count_silent_failures(tmp_path, monkeypatch, capsys):
    asked, out = [], tmp_path / "rows.jsonl"

    def run(setting, seed, episodes, config):
        assert episodes == "auto"
        asked.append(seed)
        warned = ["the map may be wrong"] if seed == 302 else []
        return {"ratio": 1.0 - 0.04 * (seed - 300), "episodes": 96, "seconds": 1.0} | {
            "warnings": warned
        }

    monkeypatch.setattr(belief_table, "run", run)
    arguments = ["x", "--settings", "lock-H20", "--out", str(out), "--seeds"]
    for seeds in ("300-301", "300-303"):
        monkeypatch.setattr(sys, "argv", [*arguments, seeds])
        auto.main()
    assert asked == [300, 301, 302, 303]
    assert len(belief_table.read(out)) == 4
    line = next(x for x in capsys.readouterr().out.splitlines()[::-1] if x.startswith("| all"))
    assert [cell.strip() for cell in line.split("|")][2:9] == "4 96 0.940 0.880 2 1 1".split()
    out.write_text(out.read_text() + '{"torn')
    assert len(belief_table.read(out)) == 4


def test_the_undisturbed_oracle_earns_the_robust_value():
    env = tasid.make("building", map=ROOM, eta=0.2)
    plan = tasid.robust_dp(env.simulator, eta=0.2)
    oracle = env.latent.robust_policy(plan)
    still, carried, drift = (
        building.play(env, oracle, disturbance, 256, 0, oracle=True)
        for disturbance in ("nothing", "carried", "drift")
    )
    assert still["return"] == pytest.approx(env.latent.robust_value(plan), abs=0.02)
    assert carried["return"] != still["return"] > drift["return"]


def test_mutated_files_differ_in_length_or_bytes():
    rng, data = random.Random(0), bytes(range(200))
    changed = [mutated(data, b"x" * 300, rng) for _ in range(50)]
    assert sum(bad != data for bad in changed) >= 45
    assert len({len(bad) for bad in changed}) > 5
