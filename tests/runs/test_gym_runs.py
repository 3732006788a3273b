"""Gymnasium environments on the command line, and learning through them."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace

import gymnasium
import numpy as np
import pytest

import tasid
from commands import run
from tasid.checks.scoring import score, yardsticks
from tasid.cli import main
from tasid.report.text.command import rerun_command
from tasid.runs.train import _asked

LAKE = ["gym:FrozenLake-v1", "--simulator", "gym:FrozenLake-v1", "--set", "success_rate=0.9"]


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gym") / "run"
    arguments = ["train", *LAKE, "--horizon", "4", "--eta", "0.1", "--method", "paper"]
    more = ["--episodes", "80", "--evaluation-episodes", "30", "--set", "num_envs=40"]
    with pytest.raises(SystemExit):
        main([*arguments, *more, "--out", str(folder), "--json"])
    return folder


def test_training_is_recorded_and_can_be_evaluated_again(capsys, lake):
    summary = json.loads((lake / "result.json").read_text())
    assert summary["episodes"] == 60
    assert summary["evaluation_episodes"] == 30
    assert summary["decoder_accuracy"] is None
    assert tasid.load(lake / "policy").environment == {
        "name": "gym:FrozenLake-v1",
        "options": {"success_rate": 0.9},
    }
    again = json.loads(run(capsys, "evaluate", lake, "--episodes", 30, "--json").out)
    assert again["return_mean"] == summary["return_mean"]
    assert again["robust_value"] == summary["robust_value"]
    assert "return " in run(capsys, "evaluate", lake, "--episodes", 5).out
    assert run(capsys, "report", lake).out.startswith("report")


def test_eta_is_the_maps_own_if_something_slips(capsys):
    """Two lakes with one start; a third that slips more often than not."""
    asked = ["check", "gym:FrozenLake-v1", "--simulator", "gym:FrozenLake-v1", "--horizon", "4"]
    for options, planned in (
        (["--set", "success_rate=0.8"], "0.2"),
        (["--set", "is_slippery=false"], "0.1"),
        (["--set", "success_rate=0.8", "--eta", "0.3"], "0.3"),
    ):
        told = run(capsys, *asked, *options, "--episodes", 40).out
        assert f"planned for: {planned}\n" in told
    told = run(capsys, *asked, "--set", "success_rate=0.3", "--episodes", 4).out
    assert "slips with probability 0.65 on this map, more than the η = 0.1 planned for" in told
    told = run(capsys, "train", *asked[1:], "--set", "success_rate=0.3", code=2).err
    assert told.startswith("tasid: --eta: on this map the environment does something else")


def test_the_robust_value_is_that_of_the_environments_own_table(lake):
    """Counted by hand: walk P, act by the plan, never look at what a simulator says."""
    policy = tasid.load(lake / "policy")
    env = gymnasium.make("FrozenLake-v1", success_rate=0.9)
    table, value = env.unwrapped.P, np.zeros(16)
    for h in reversed(range(4)):
        value = np.array(
            [
                sum(
                    p * (r + (0 if done else value[after]))
                    for p, after, r, done in table[s][int(policy.plan.actions[h, s])]
                )
                for s in range(16)
            ]
        )
    summary = json.loads((lake / "result.json").read_text())
    assert summary["robust_value"] == pytest.approx(value[0], abs=1e-12)


def test_the_report_says_how_to_make_the_run_again(lake):
    command = rerun_command(json.loads((lake / "run.json").read_text()))
    words = shlex.split(command.replace("\\\n", " "))
    assert words[:3] == ["tasid", "train", "gym:FrozenLake-v1"]
    said = dict(zip(words[3::2], words[4::2], strict=True))
    assert said["--simulator"] == "gym:FrozenLake-v1"
    assert said["--horizon"] == "4"
    assert "deterministic=most-likely" in words
    assert "success_rate=0.9" in words


def test_options_of_resets_and_the_start_are_on_record(capsys, monkeypatch):
    """As `tasid train` orders it, and as the page says how to make the run again."""
    ordered = []
    monkeypatch.setattr(
        "tasid.runs.train.train", lambda order, *_, **__: ordered.append(order) or {}
    )
    how = ["--reset-option", "place=3", "--reset-option", "how=near", "--start-state", "3"]
    run(capsys, "train", *LAKE, "--horizon", "4", *how, "--json")
    [order] = ordered
    assert order.options["reset_options"] == {"place": 3, "how": "near"}
    assert order.simulator.start == 3
    assert order.source["options"]["start_state"] == 3
    command = rerun_command(_asked(order, tasid.wrap("FrozenLake-v1"), None))
    words = shlex.split(command.replace("\\\n", " "))
    assert {"place=3", "how=near", "start_state=3"} <= set(words)


def test_a_foreign_map_has_no_known_value(lake):
    policy = tasid.load(lake / "policy")
    same = tasid.wrap("FrozenLake-v1", success_rate=0.7)
    assert same.latent_on(policy.simulator) is not None
    larger = tasid.wrap("FrozenLake-v1", map_name="8x8")
    assert larger.latent_on(policy.simulator) is None
    assert tasid.wrap("CartPole-v1").latent_on(policy.simulator) is None
    sim = policy.simulator
    paid = tasid.AbstractSimulator(sim.successor, sim.reward + 1, horizon=4)
    assert same.latent_on(paid) is None
    assert yardsticks(policy, larger) is None
    plan = tasid.robust_dp(paid, eta=0.1)
    _, figures = score(replace(policy, plan=plan), same, episodes=2, seed=0)
    assert figures["robust_value"] is None
    assert figures["worst_case_value"] == plan.start_value, "the plan knows it by itself"


def test_bad_input_is_one_message_and_no_run(capsys, tmp_path):
    out = ["--out", tmp_path / "run", "--method", "paper", "--episodes", "80"]
    told = run(capsys, "train", "gym:FrozenLake-v1", *out, code=2).err
    assert "--simulator: gym:FrozenLake-v1 brings no map" in told
    told = run(capsys, "train", "combination-lock", "--map", "a=1", *out, code=2).err
    assert "--map: a without --simulator" in told
    told = run(capsys, "train", "combination-lock", "--reset-option", "a=1", *out, code=2).err
    assert "--reset-option: a=1 with combination-lock; only gym:ID has a reset()" in told
    told = run(capsys, "train", *LAKE, "--horizon", "200", *out, code=2).err
    assert "truncates episodes after 100 steps" in told
    (tmp_path / "map.txt").write_text("####\n#SG#\n####\n")
    source = ["--simulator", tmp_path / "map.txt", "--map", "moves=turn", "--horizon", "4"]
    told = run(capsys, "train", "gym:FrozenLake-v1", *source, *out, code=2).err
    assert "5 actions on the map, 4 in the target" in told
    told = run(capsys, "train", "gym:Pendulum-v1", *source, *out, code=2).err
    assert "continuous actions" in told
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_learning_through_gymnasium_is_as_good_as_natively():
    lock = {"horizon": 5, "num_actions": 4, "seed": 3}
    env = tasid.make("combination-lock", **lock)
    target = tasid.wrap("tasid/CombinationLock-v0", num_envs=64, **lock)
    results = [
        tasid.learn(world, env.simulator, eta=0.1, episodes=64, seed=3) for world in (env, target)
    ]
    assert [result.episodes for result in results] == [64, 64]
    robust = env.latent.robust_value(results[0].policy.plan)
    ratios = [tasid.evaluate(r.policy, env, episodes=4_000).mean / robust for r in results]
    assert min(ratios) > 0.95
    # And the wrapped lock is the same lock: the score does not depend on the way it is run.
    wrapped = tasid.evaluate(results[1].policy, target, episodes=1_000)
    low, high = wrapped.ci95
    assert low - 0.3 < ratios[1] * robust < high + 0.3
    assert results[1].policy.environment["options"] == lock


def test_a_single_agent_acts_as_the_batch_does(lake):
    """In the user's own loop, with raw observations, an episode is the one that was scored."""
    policy = tasid.load(lake / "policy")
    target = tasid.wrap("FrozenLake-v1", success_rate=0.9, num_envs=3)
    scored = tasid.evaluate(policy, target, episodes=6, seed=4).returns
    from tasid.targets.gym.target import episode_seeds
    from tasid.targets.streams import EVALUATION
    from tasid.targets.target import episode_keys, seed_key

    seeds = episode_seeds(episode_keys(seed_key(4), EVALUATION, np.arange(6)))
    env = gymnasium.make("FrozenLake-v1", success_rate=0.9)
    for episode, seed in enumerate(seeds):
        agent, paid = policy.agent(slot=episode), 0.0
        raw, _ = env.reset(seed=int(seed))
        for _ in range(policy.horizon):
            raw, reward, over, _, _ = env.step(agent.act(target.observe(raw)))
            paid += float(reward)
            if over:
                break
        assert paid == scored[episode]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gym:FrozenLek-v1", "no such id; nearest: FrozenLake-v1"),
        ("gym:FrozenLake-v9", "no such id; nearest: FrozenLake-v1"),
        ("gym:qqqq/zzzz-v0", "no such id; ids that a module registers are written module:id"),
        ("gym:MiniGrid-Empty-5x5-v0", "minigrid:MiniGrid-Empty-5x5-v0"),
        ("gym:not an id", "no such id"),
        ("gym:FrozenLake-v1", "brings no map"),
    ],
)
@pytest.mark.parametrize("command", ["train", "check"])
def test_an_id_that_nobody_registered_is_called_so(capsys, monkeypatch, command, name, words):
    monkeypatch.delitem(gymnasium.registry, "MiniGrid-Empty-5x5-v0", raising=False)
    said = run(capsys, command, name, code=2).err
    assert words in said
    assert ("brings no map" in said) == (name == "gym:FrozenLake-v1")
