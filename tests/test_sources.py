"""Map sources against tables computed by hand, by brute force or by Gymnasium."""

from __future__ import annotations

import zipfile
from itertools import product
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from PIL import Image

from tasid.layout import FREE, GOAL, HAZARD
from tasid.planning import simulator_problems
from tasid.simulator import AbstractSimulator, SimulatorError
from tasid.sources.occupancy import Lattice, read_map
from tasid.targets.registry import load_source


def greedy_route(sim: AbstractSimulator) -> list[str]:
    """Actions of an optimal plan from the start, by backward induction."""
    values, plan = np.zeros(sim.num_states), []
    for h in reversed(range(sim.horizon)):
        q = sim.reward_at(h) + values[sim.successor_at(h)]
        plan.append(q.argmax(axis=1))
        values = q.max(axis=1)
    state, route = sim.start, []
    for actions in reversed(plan):
        route.append(sim.action_names[actions[state]])
        state = sim.successor[state, actions[state]]
    return route


def dense(sim: AbstractSimulator) -> tuple[np.ndarray, np.ndarray]:
    """P(s' | s, a) and the expected reward."""
    p = np.zeros((sim.num_states, sim.num_actions, sim.num_states))
    weights = np.ones(sim.successor.shape) if sim.probabilities is None else sim.probabilities
    table = sim.successor.reshape(*p.shape[:2], -1), weights.reshape(*p.shape[:2], -1)
    for s, a in product(range(sim.num_states), range(sim.num_actions)):
        np.add.at(p[s, a], table[0][s, a], table[1][s, a])
    return p, sim.reward_at(0)


# Text maps


def test_a_text_map_by_hand():
    sim = AbstractSimulator.from_text_map("SL\n.G")
    assert sim.states == ((0, 0), (1, 0), (0, 1), (1, 1))
    assert sim.action_names == ("north", "east", "south", "west")
    assert_array_equal(sim.successor, [[0, 1, 2, 0], [1] * 4, [0, 3, 2, 2], [3] * 4])
    step = -0.01
    assert_array_equal(
        sim.reward, [[step, -1, step, step], [0] * 4, [step, 1, step, step], [0] * 4]
    )
    assert_array_equal(sim.hazards, [False, True, False, False])
    assert_array_equal(sim.permitted(0)[0], [True, False, True, True])
    assert sim.horizon == 6  # three times the shortest way
    assert_array_equal(sim.layout.cells, [[FREE, HAZARD], [FREE, GOAL]])


def test_moves_that_turn():
    sim = AbstractSimulator.from_text_map("S.\n..", horizon=9, moves="turn")
    at = {label: i for i, label in enumerate(sim.states)}
    assert sim.num_states == 16
    after = [sim.states[s] for s in sim.successor[at[0, 0, "E"]]]
    assert after == [(1, 0, "E"), (0, 0, "N"), (0, 0, "S"), (0, 0, "N"), (0, 1, "S")]
    drive = AbstractSimulator.from_text_map("S#\n..", horizon=9, moves="drive")
    at = {label: i for i, label in enumerate(drive.states)}
    after = [drive.states[s] for s in drive.successor[at[0, 0, "S"]]]
    assert after == [(0, 1, "S"), (0, 0, "S"), (0, 0, "E"), (0, 0, "W"), (0, 0, "S")]


def test_an_optimal_plan_turns_round_instead_of_reversing():
    text = "G......S"
    route = greedy_route(AbstractSimulator.from_text_map(text, moves="drive", heading="E"))
    assert "back" not in route
    near = AbstractSimulator.from_text_map("GS", moves="drive", heading="E")
    assert greedy_route(near)[0] == "back"  # a single cell is cheaper to reverse


@pytest.mark.parametrize(
    ("text", "options", "match"),
    [
        ("S?G", {}, "line 1, column 2"),
        ("SG\n.", {}, "line 2"),
        ("..G", {}, "'S'"),
        ("S#G", {}, "horizon"),
        ("SG", {"moves": "fly"}, "moves"),
        ("SG", {"moves": "turn", "heading": "up"}, "heading"),
    ],
)
def test_wrong_text_maps_are_named(text, options, match):
    with pytest.raises(SimulatorError, match=match):
        AbstractSimulator.from_text_map(text, **options)


# Toy text


@pytest.mark.parametrize("name", ["FrozenLake-v1", "CliffWalking-v1", "Taxi-v4"])
@pytest.mark.parametrize("stochastic", [True, False])
def test_a_toy_text_map_is_gymnasiums_table(name, stochastic):
    option = {
        "FrozenLake-v1": "is_slippery",
        "CliffWalking-v1": "is_slippery",
        "Taxi-v4": "is_rainy",
    }
    env = gymnasium.make(name, **{option[name]: stochastic})
    sim = AbstractSimulator.from_toy_text(env, horizon=30)
    p, r = dense(sim)
    assert sim.stochastic == stochastic
    assert_allclose(
        np.bincount(sim.starts, sim.start_probabilities, sim.num_states)[: len(env.unwrapped.P)],
        env.unwrapped.initial_state_distrib,
    )
    final = {
        t for row in env.unwrapped.P.values() for o in row.values() for _, t, _, end in o if end
    }
    for s, row in env.unwrapped.P.items():
        for a, outcomes in row.items():
            if s in final:
                assert p[s, a, s] == 1.0
                assert r[s, a] == 0.0
                continue
            expected = np.zeros(sim.num_states)
            for q, t, _, _ in outcomes:
                expected[t] += q
            assert_allclose(p[s, a], expected, atol=1e-12)
            assert_allclose(r[s, a], sum(q * x for q, _, x, _ in outcomes), atol=1e-12)


class Loop:
    """Action 1 in state 0 ends the episode in state 0; action 0 goes on through it."""

    def __init__(self) -> None:
        self.initial_state_distrib = np.array([1.0, 0.0])
        self.P = {
            0: {0: [(1.0, 1, 0.5, False)], 1: [(1.0, 0, 2.0, True)]},
            1: {0: [(1.0, 0, 0.0, False)], 1: [(0.25, 1, 0.0, False), (0.75, 0, 4.0, True)]},
        }


def test_a_state_that_episodes_end_in_and_pass_through_gets_an_absorbing_copy():
    sim = AbstractSimulator.from_toy_text(Loop(), horizon=5)
    p, r = dense(sim)
    assert sim.states == (0, 1, (0, "done"))
    assert_array_equal(p[0], [[0, 1, 0], [0, 0, 1]])
    assert_array_equal(p[1], [[1, 0, 0], [0, 0.25, 0.75]])
    assert_array_equal(p[2], [[0, 0, 1]] * 2)
    assert_allclose(r, [[0.5, 2.0], [0.0, 3.0], [0.0, 0.0]])


@pytest.mark.parametrize("lake", [None, ["SFG"]])  # in a channel both slips stay put
def test_the_most_likely_map_of_a_slippery_lake_is_the_lake_without_slips(lake):
    slippery, dry = (
        AbstractSimulator.from_toy_text(
            "FrozenLake-v1", horizon=9, desc=lake, is_slippery=slips, deterministic="most-likely"
        )
        for slips in (True, False)
    )
    assert_array_equal(slippery.successor, dry.successor)
    assert_array_equal(slippery.reward, dry.reward)
    assert not slippery.stochastic
    rainy = AbstractSimulator.from_toy_text("Taxi-v4", is_rainy=True, deterministic="most-likely")
    assert rainy.horizon == 200


# Functions


def walk(x: int, action: str) -> tuple[int, float, bool]:
    after = x + (1 if action == "up" else -1)
    return after, float(after == 3), after == 3


def test_a_function_by_hand():
    sim = AbstractSimulator.from_function(walk, 2, ["up", "down"], horizon=2)
    assert sim.states == (2, 3, 1, 0)
    assert_array_equal(sim.successor, [[1, 2], [1, 1], [0, 3], [3, 3]])
    assert_array_equal(sim.reward, [[1, 0], [0, 0], [0, 0], [0, 0]])
    assert sim.explored == 2
    with pytest.raises(SimulatorError, match="horizon"):
        sim.with_horizon(3)
    ring = AbstractSimulator.from_function(lambda s, a: ((s + a) % 3, 0.0), [0, 2], 2, horizon=9)
    assert ring.explored is None
    assert ring.states == (0, 2, 1)
    assert_array_equal(ring.starts, [0, 1])


def test_a_stochastic_function_by_hand():
    def step(s, a):
        if s == "b":
            return "a", 0.0
        return [(0.25, "b", 1.0), (0.25, "b", 1.0), (0.5, "a", -1.0, True)]

    sim = AbstractSimulator.from_function(step, "a", 1, horizon=4)
    assert sim.states == ("a", "b", ("a", "done"))
    p, r = dense(sim)
    assert_array_equal(p[:, 0], [[0, 0.5, 0.5], [1, 0, 0], [0, 0, 1]])
    assert_array_equal(r[:, 0], [0.0, 0.0, 0.0])


@pytest.mark.parametrize(
    ("step", "options", "match"),
    [
        (lambda s, a: (s + 1, 0.0), {"max_states": 3}, "max_states"),
        (lambda s, a: s, {}, "next_state, reward"),
        (lambda s, a: (s, float("nan")), {}, "finite"),
        (lambda s, a: ([s], 0.0), {}, "hashable"),
        (lambda s, a: (object(), 0.0), {}, "and then"),
        (lambda s, a: [(0.5, s, 0.0)], {}, "sums to 1"),
        (lambda s, a: [(1.5, s, 0.0), (-0.5, s, 1.0)], {}, "sums to 1"),
    ],
)
def test_wrong_functions_are_named(step, options, match):
    with pytest.raises(SimulatorError, match=match):
        AbstractSimulator.from_function(step, 0, 2, horizon=5, **options)


def test_tables_round_trip(tmp_path):
    path = tmp_path / "map.npz"
    table = {"successor": [[1, 0], [1, 1]], "reward": [[0.0, 1.0], [0.0, 0.0]]}
    np.savez(path, **table, horizon=4, start=1, states=["a", "b"], hazards=[True, False])
    sim = AbstractSimulator.from_tables(path)
    assert (sim.horizon, sim.start, sim.states) == (4, 1, ("a", "b"))
    assert_array_equal(sim.successor, table["successor"])
    assert_array_equal(sim.hazards, [True, False])
    assert load_source(str(path), horizon=7).horizon == 7
    np.savez(
        path,
        successor=[[[0, 1]], [[0, 1]]],
        reward=[[0.0], [1.0]],
        probabilities=[[[0.5, 0.5]]] * 2,
    )
    assert AbstractSimulator.from_tables(path, horizon=3).stochastic
    np.savez(path, successor=[[0]], reward=[[0.0]], horizon=2, extra=1)
    with pytest.raises(SimulatorError, match="extra"):
        AbstractSimulator.from_tables(path)


def test_hostile_tables_are_refused(tmp_path):
    path = tmp_path / "map.npz"
    np.savez(path, successor=np.array([[{}]], dtype=object), reward=[[0.0]], horizon=2)
    with pytest.raises(SimulatorError, match="plain numeric tables"):
        AbstractSimulator.from_tables(path)
    header = b"{'descr': '<i8', 'fortran_order': False, 'shape': (1000000, 1000000), }"
    with zipfile.ZipFile(path, "w") as archive:
        data = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
        archive.writestr("successor.npy", data)
    with pytest.raises(SimulatorError, match="plain numeric tables"):
        AbstractSimulator.from_tables(path)
    path.write_bytes(b"no archive")
    with pytest.raises(SimulatorError, match=r"map\.npz"):
        AbstractSimulator.from_tables(path)


# Occupancy maps


def write_map(path: Path, walls: np.ndarray, resolution: float = 0.1) -> Path:
    """A map_server pair of free pixels (0), walls (1) and unknown ones (2), row 0 on top."""
    grey = np.array([254, 0, 205], np.uint8)[walls]
    Image.fromarray(grey).save(path.with_suffix(".png"))
    path.with_suffix(".yaml").write_text(
        f"image: {path.stem}.png\nresolution: {resolution}\norigin: [-1.0, 2.0, 0.0]\n"
        "negate: 0\noccupied_thresh: 0.65\nfree_thresh: 0.196\n"
    )
    return path.with_suffix(".yaml")


def rooms(door: slice) -> np.ndarray:
    """Two rooms of 4 m × 2 m, the wall between them 0.2 m thick, with a door."""
    pixels = np.zeros((42, 40), np.uint8)
    pixels[20:22] = 1
    pixels[20:22, door] = 0
    return pixels


@pytest.mark.parametrize("first", range(0, 20, 2))
@pytest.mark.parametrize("cell_size", [0.4, 0.7, 1.0])
def test_no_position_of_cells_loses_a_door(tmp_path, first, cell_size):
    """The door is 0.9 m wide, the robot 0.6 m, wherever it lies relative to the cells."""
    pixels = rooms(slice(first, first + 9))
    sim = AbstractSimulator.from_occupancy_map(
        write_map(tmp_path / "m", pixels), start=(0.5, 5.5), goal=(0.5, 2.5), moves="turn",
        cell_size=cell_size, robot_radius=0.3,
    )  # fmt: skip
    assert simulator_problems(sim) == []
    row, column = np.nonzero(pixels)
    walls = np.stack([-1.0 + (column + 0.5) / 10, 2.0 + (42 - row - 0.5) / 10], axis=1)
    places = np.unique(sim.layout.centres(np.arange(sim.num_states)), axis=0)
    assert np.linalg.norm(places[:, None] - walls, axis=-1).min() > 0.3


def test_representatives_are_centres_in_open_space_and_keep_away_from_walls(tmp_path):
    picture = read_map(write_map(tmp_path / "m", rooms(slice(0, 0))))
    lattice = Lattice.build(picture, cell_size=1.0, robot_radius=0.2)
    assert lattice.cells.shape == (5, 4)
    assert_allclose(lattice.points[4, 1], (0.5, 2.5), atol=0.06)
    # The wall covers y = 4.0 … 4.2; the cell above is moved away until clearance is 0.4 m.
    assert lattice.points[2, 1, 1] == pytest.approx(4.55, abs=0.06)
    assert_array_equal(lattice.passages[3, 1], [False, True, True, True])


def test_unreachable_goals_name_both_ends_and_the_reason(tmp_path):
    def reason(pixels: np.ndarray, **options: object) -> str:
        path = write_map(tmp_path / "m", pixels)
        ends = {"start": (0.5, 5.5), "goal": (0.5, 2.5), "cell_size": 0.5, "robot_radius": 0.3}
        with pytest.raises(SimulatorError, match=r"\(0\.5, 2\.5\).*\(0\.5, 5\.5\)") as error:
            AbstractSimulator.from_occupancy_map(path, **(ends | options))
        return str(error.value)

    assert "radius 0.3" in reason(rooms(slice(20, 25)))
    assert "hazard" in reason(rooms(slice(20, 30)), hazards=[(-1.0, 4.0, 3.0, 4.2)])


def test_hazards_are_marked_and_the_map_is_drawn_below(tmp_path):
    path = write_map(tmp_path / "m", rooms(slice(15, 25)))
    sim = AbstractSimulator.from_occupancy_map(
        path, start=(-0.5, 5.5), goal=(2.5, 2.5), cell_size=0.5, robot_radius=0.1,
        hazards=[(0.0, 5.0, 0.2)],
    )  # fmt: skip
    x, y = sim.layout.centres(np.flatnonzero(sim.hazards)).T
    assert len(x) == 4
    assert (np.hypot(x, y - 5.0) < 0.6).all()
    backdrop = sim.layout.backdrop
    assert backdrop.shape == (9 * 5, 8 * 5)
    assert_array_equal(backdrop[3:], read_map(path).pixels)  # a pixel for each pixel
    assert sim.layout.extent == (-1.0, 3.0, 2.0, 6.5)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"start": (9.0, 9.0)}, "start"),
        ({"goal": (0.5, 4.1)}, "goal.*nearest"),
        ({"goal": "here"}, "goal"),
        ({"goal": (0.5, 5.4)}, "goal"),
        ({"cell_size": 0.01}, "cell_size"),
        ({"robot_radius": -1.0}, "robot_radius"),
        ({"unknown": "maybe"}, "unknown"),
        ({"hazards": [(1.0, 2.0)]}, "hazards"),
    ],
)
def test_wrong_arguments_of_occupancy_maps_are_named(tmp_path, options, match):
    path = write_map(tmp_path / "m", rooms(slice(0, 9)))
    right = {"start": (0.5, 5.5), "goal": (0.5, 2.5), "cell_size": 0.2}
    with pytest.raises(SimulatorError, match=match):
        AbstractSimulator.from_occupancy_map(path, **(right | options))


@pytest.mark.parametrize(
    "text",
    ["", "image: m.png", "{", "a: &a [1]\nimage: *a", "[" * 200],
)
def test_files_that_are_no_maps_are_refused(tmp_path, text):
    path = write_map(tmp_path / "m", rooms(slice(0, 9)))
    whole = path.read_text()
    path.write_text(text)
    with pytest.raises(SimulatorError, match=r"m\.yaml"):
        read_map(path)
    path.write_text(whole)
    path.with_suffix(".png").write_bytes(b"\x89PNG")
    with pytest.raises(SimulatorError, match=r"m\.png"):
        read_map(path)


# Names and checks


def test_sources_by_name(tmp_path):
    text = tmp_path / "map.txt"
    text.write_text("S.G\n")
    sim = load_source(str(text), moves="turn")
    assert sim.action_names[0] == "forward"
    again = load_source(str(sim.save(tmp_path / "saved")), horizon=4)
    assert_array_equal(again.successor, sim.successor)
    assert again.horizon == 4
    assert load_source("gym:FrozenLake-v1").horizon == 100
    path = write_map(tmp_path / "m", rooms(slice(0, 9)))
    assert load_source(str(path), start=(0.5, 5.5), goal=(2.5, 2.5), cell_size=0.5).num_states > 50
    for source, options, match in (
        (str(text), {"colour": 1}, "colour"),
        (str(path), {"goal": (0, 0)}, "start"),
        (str(tmp_path / "none.txt"), {}, r"none\.txt"),
        ("gym:NoSuch-v0", {}, "NoSuch"),
        ("gym:CartPole-v1", {}, "table P"),
    ):
        with pytest.raises(SimulatorError, match=match):
            load_source(source, **options)


def test_maps_on_which_actions_change_nothing_are_detected():
    good = AbstractSimulator.from_text_map("S.G")
    assert simulator_problems(good) == []
    closed = AbstractSimulator.from_text_map("S#G", horizon=5)
    assert len(simulator_problems(closed)) == 2
    short = AbstractSimulator.from_text_map("SL..\n...G", horizon=3)
    assert simulator_problems(short) == ["no goal can be reached within 3 steps"]
    # A function that compares actions with names it is never called with.
    deaf = AbstractSimulator.from_function(walk, 2, ["UP", "DOWN"], horizon=4)
    assert "every plan earns 0" in simulator_problems(deaf)[0]
    # Rewards differ, but each plan earns the same: 1 now and 0 later, or the other way round.
    even = AbstractSimulator(
        [[1, 2], [3, 3], [3, 3], [3, 3]], [[1, 0], [0, 0], [1, 1], [0, 0]], horizon=3
    )
    assert "every plan earns 1" in simulator_problems(even)[0]
    lake = AbstractSimulator.from_toy_text("FrozenLake-v1", horizon=20)
    assert simulator_problems(lake) == []
