"""The abstract simulator: what it refuses and where it points, what it keeps, what it stores."""

from __future__ import annotations

import datetime
import re
from enum import IntEnum

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdps import quick, worlds
from tasid.files import ArtifactError, write_artifact
from tasid.maps import AbstractSimulator, SimulatorError

SUCCESSOR = [[0, 1], [1, 2], [2, 0]]
REWARD = [[0.0, 1.0], [0.5, 0.0], [0.0, -1.0]]


def built(successor=SUCCESSOR, reward=REWARD, **others):
    return AbstractSimulator(successor, reward, **{"horizon": 2, **others})


def with_entries(table, entries, *, steps=False, dtype=None):
    table = np.array([table, table] if steps else table, dtype=dtype)
    for place, value in entries.items():
        table[place] = value
    return table


# ---------------------------------------------------------------- bad input


BAD_TABLES = {
    "successor too high": (
        {"successor": with_entries(SUCCESSOR, {(1, 1): 3, (2, 0): 7})},
        "successor: 3 at (s, a) = (1, 1) should be in 0 … 2; 2 such entries in all",
    ),
    "successor negative": (
        {"successor": with_entries(SUCCESSOR, {(0, 1): -1})},
        "successor: -1 at (s, a) = (0, 1) should be in 0 … 2; 1 such entries in all",
    ),
    "successor too high at a step": (
        {"successor": with_entries(SUCCESSOR, {(1, 0, 1): 3, (1, 2, 0): -4}, steps=True)},
        "successor: 3 at (h, s, a) = (1, 0, 1) should be in 0 … 2; 2 such entries in all",
    ),
    "successor huge": (
        {"successor": with_entries(SUCCESSOR, {(0, 0): 2**63}, dtype=np.uint64)},
        "successor: 9223372036854775808 at (s, a) = (0, 0) should be in 0 … 2",
    ),
    "successor float": (
        {"successor": np.array(SUCCESSOR, float)},
        "successor: dtype float64 is not an integer type; state indices are whole numbers",
    ),
    "successor bool": (
        {"successor": np.zeros((3, 2), bool)},
        "successor: dtype bool is not an integer type",
    ),
    "successor words": ({"successor": [["a", "b"]] * 3}, "successor: dtype <U1 is not an integer"),
    "successor ragged": (
        {"successor": [[0, 1], [1], [2, 0]]},
        "successor: its rows do not make one table (",
    ),
    "successor flat": (
        {"successor": [0, 1, 2]},
        "successor: shape (3,) is neither [S, A] nor [H, S, A] with H = 2",
    ),
    "successor 4-d": (
        {"successor": np.zeros((1, 2, 3, 2), int)},
        "successor: shape (1, 2, 3, 2) is neither [S, A] nor [H, S, A] with H = 2",
    ),
    "successor steps": (
        {"successor": np.zeros((3, 3, 2), int)},
        "successor: 3 steps in a table of shape (3, 3, 2), but horizon is 2",
    ),
    "no actions": (
        {"successor": np.zeros((3, 0), int)},
        "successor: shape (3, 0) has no states or no actions",
    ),
    "no states": (
        {"successor": np.zeros((0, 2), int), "reward": np.zeros((0, 2))},
        "successor: shape (0, 2) has no states or no actions",
    ),
    "reward nan": (
        {"reward": with_entries(REWARD, {(1, 1): np.nan, (2, 0): np.inf})},
        "reward: nan at (s, a) = (1, 1) should be finite; 2 such entries in all",
    ),
    "reward infinite at a step": (
        {"reward": with_entries(REWARD, {(1, 2, 0): -np.inf}, steps=True)},
        "reward: -inf at (h, s, a) = (1, 2, 0) should be finite; 1 such entries in all",
    ),
    "reward bool": ({"reward": np.ones((3, 2), bool)}, "reward: dtype bool is not a real number"),
    "reward complex": (
        {"reward": np.ones((3, 2), complex)},
        "reward: dtype complex128 is not a real number type",
    ),
    "reward ragged": ({"reward": [[0], [0, 1], [0]]}, "reward: its rows do not make one table ("),
    "reward flat": ({"reward": np.zeros(6)}, "reward: shape (6,) is neither [S, A] nor [H, S, A]"),
    "reward steps": (
        {"reward": np.zeros((1, 3, 2))},
        "reward: 1 steps in a table of shape (1, 3, 2), but horizon is 2",
    ),
    "reward for other states": (
        {"reward": np.zeros((2, 2))},
        "reward: [S, A] is (2, 2), but successor's is (3, 2)",
    ),
    "reward for other actions": (
        {"reward": np.zeros((2, 3, 4))},
        "reward: [S, A] is (3, 4), but successor's is (3, 2)",
    ),
}

BAD_REST = {
    "horizon 0": ({"horizon": 0}, "horizon: 0 is below 1; an episode has at least one step"),
    "horizon negative": ({"horizon": -3}, "horizon: -3 is below 1"),
    "horizon float": ({"horizon": 2.0}, "horizon: 2.0 is not a whole number"),
    "horizon bool": ({"horizon": True}, "horizon: True is not a whole number"),
    "horizon words": ({"horizon": "2"}, "horizon: '2' is not a whole number"),
    "horizon none": ({"horizon": None}, "horizon: None is not a whole number"),
    "start too high": ({"start": 3}, "start: 3 is not a state; indices run 0 … 2"),
    "start negative": ({"start": -1}, "start: -1 is not a state; indices run 0 … 2"),
    "second start": ({"start": [0, 5, 9]}, "start: 5 is not a state; indices run 0 … 2"),
    "start twice": ({"start": [1, 0, 1]}, "start: [1, 0, 1] names a state twice"),
    "start float": ({"start": 1.0}, "start: 1.0 is neither a state index nor a list of them"),
    "start bool": ({"start": True}, "start: True is neither a state index nor a list"),
    "start words": ({"start": "S"}, "start: 'S' is neither a state index nor a list"),
    "no start": ({"start": []}, "start: [] is neither a state index nor a list of them"),
    "start nested": ({"start": [[0], [1]]}, "start: [[0], [1]] is neither a state index nor"),
    "start ragged": ({"start": [0, [1]]}, "start: its rows do not make one table ("),
    "too few probabilities": (
        {"start": [0, 1], "start_probabilities": [1.0]},
        "start_probabilities: 1 numbers for 2 start states",
    ),
    "probabilities below 1": (
        {"start": [0, 1], "start_probabilities": [0.5, 0.25]},
        "start_probabilities: [0.5, 0.25] are not positive numbers that sum to 1",
    ),
    "probability 0": (
        {"start": [0, 1], "start_probabilities": [1.0, 0.0]},
        "start_probabilities: [1.0, 0.0] are not positive numbers that sum to 1",
    ),
    "probability negative": (
        {"start": [0, 1], "start_probabilities": [1.5, -0.5]},
        "start_probabilities: [1.5, -0.5] are not positive numbers",
    ),
    "probability nan": (
        {"start": [0, 1], "start_probabilities": [1.0, float("nan")]},
        "start_probabilities: [1.0, nan] are not positive numbers",
    ),
    "probability words": (
        {"start": [0, 1], "start_probabilities": ["half", "half"]},
        "start_probabilities: ['half', 'half'] are not numbers",
    ),
    "too few labels": ({"states": ["a", "b"]}, "states: 2 labels for 3 states; give one label per"),
    "one label twice": (
        {"states": ["a", "b", "a"]},
        "states: 'a' is the label of state 0 and of state 2; each needs one of its own",
    ),
    "labels nothing is found by": (
        {"states": [(0,), [1], (2,)]},
        "states: label [1] of state 1 is a list, which nothing can be found by; use numbers",
    ),
    "too many labels": ({"states": range(4)}, "states: 4 labels for 3 states; give one label per"),
}


@pytest.mark.parametrize("case", [*BAD_TABLES, *BAD_REST])
def test_bad_input_is_refused_with_its_place(case):
    arguments, message = (BAD_TABLES | BAD_REST)[case]
    with pytest.raises(SimulatorError, match="^" + re.escape(message)):
        built(**arguments)


def test_a_simulator_error_is_a_value_error():
    assert issubclass(SimulatorError, ValueError)


@quick
@given(worlds(per_step=True), st.data())
def test_the_first_of_the_bad_entries_is_named_and_all_are_counted(sim, data):
    successor, reward = sim.successor.copy(), sim.reward.copy()
    places = list(np.ndindex(successor.shape))
    bad = data.draw(st.sets(st.sampled_from(places), min_size=1))
    for place in bad:
        successor[place] = data.draw(st.sampled_from([-1, sim.num_states, 10**6]))
        reward[place] = data.draw(st.sampled_from([np.nan, np.inf, -np.inf]))
    first = min(bad)
    where = re.escape(f"at (h, s, a) = {first} should be")
    count = f"; {len(bad)} such entries in all$"
    horizon = sim.horizon
    with pytest.raises(SimulatorError, match=f"^successor: {successor[first]} {where}.*{count}"):
        AbstractSimulator(successor, sim.reward, horizon=horizon)
    with pytest.raises(SimulatorError, match=f"^reward: {reward[first]} {where}.*{count}"):
        AbstractSimulator(sim.successor, reward, horizon=horizon)


# ---------------------------------------------------------------- what it keeps


@pytest.mark.parametrize("steps", [False, True])
def test_later_writes_to_the_callers_arrays_do_not_reach_it(steps):
    # Already of the final types: the case in which a conversion would not copy.
    successor = with_entries(SUCCESSOR, {}, steps=steps, dtype=np.int32)
    reward = with_entries(REWARD, {}, steps=steps, dtype=np.float64)
    starts, mu = np.array([0, 2], np.int32), np.array([0.25, 0.75])
    labels = ["a", "b", "c"]
    sim = built(successor, reward, start=starts, start_probabilities=mu, states=labels)
    successor[...], reward[...], starts[...], mu[...] = 1, np.nan, 1, 0
    labels[0] = "z"
    assert sim.successor_at(1).tolist() == SUCCESSOR
    assert sim.reward_at(1).tolist() == REWARD
    assert sim.starts.tolist() == [0, 2]
    assert sim.start_probabilities.tolist() == [0.25, 0.75]
    assert sim.states == ("a", "b", "c")


def test_it_cannot_be_written_to():
    sim = built()
    for array in (sim.successor, sim.reward, sim.starts, sim.start_probabilities):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    with pytest.raises(AttributeError):
        sim.horizon = 7


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.uint64, np.int32])
def test_any_whole_numbers_become_int32_and_any_reals_float64(dtype):
    sim = built(np.array(SUCCESSOR, dtype), np.array(REWARD, np.float32), horizon=np.int64(2))
    assert sim.successor.dtype == np.int32
    assert sim.reward.dtype == np.float64
    assert type(sim.horizon) is int
    assert built(reward=np.array([[0, 1]] * 3, dtype)).reward.dtype == np.float64


def test_shapes_may_be_mixed_and_are_read_step_by_step():
    later = np.roll(SUCCESSOR, 1, axis=0)
    sim = built(np.array([SUCCESSOR, later]), REWARD)
    assert (sim.num_states, sim.num_actions) == (3, 2)
    assert sim.successor_at(0).tolist() == SUCCESSOR
    assert sim.successor_at(1).tolist() == later.tolist()
    assert sim.reward_at(0).tolist() == sim.reward_at(1).tolist() == REWARD
    assert sim.replay([1, 1]) == [0, 1, later[1, 1]]
    other = built(SUCCESSOR, np.array([REWARD, np.negative(REWARD)]))
    assert other.reward_at(1).tolist() == np.negative(REWARD).tolist()


def test_one_start_is_a_number_and_several_are_asked_for_by_name():
    assert built(start=2).start == 2
    assert built(start=[2]).start == 2
    assert built(start=np.int64(1)).starts.tolist() == [1]
    several = built(start=[2, 0])
    assert several.starts.tolist() == [2, 0]
    assert several.start_probabilities.tolist() == [0.5, 0.5]
    with pytest.raises(SimulatorError, match=r"this simulator has 2 starts: use \.starts"):
        _ = several.start


def test_states_are_their_labels_or_their_indices():
    assert list(built().states) == [0, 1, 2]
    assert built(states=[(0, "N"), (0, "E"), None]).states[1] == (0, "E")


# ---------------------------------------------------------------- on disk


class Heading(IntEnum):
    EAST = 3


LABELS = {
    "none": None,
    "indices": [0, 1, 2],
    "tuples": [(0, 1), (0, (2.5, "N")), ()],
    "plain": [None, "zwölf", -1.5],
    "booleans": [True, 0, "True"],
    "numpy": [np.int64(4), (np.float64(0.5), np.str_("N")), np.bool_(True)],
    "enumeration": [Heading.EAST, (1, Heading.EAST), 1],
}


@pytest.mark.parametrize("labels", LABELS)
def test_labels_survive_saving(tmp_path, labels):
    sim = built(states=LABELS[labels])
    loaded = AbstractSimulator.load(sim.save(tmp_path / "map"))
    assert list(loaded.states) == list(sim.states)
    assert (loaded.labels is None) == (labels == "none")
    assert len({*loaded.states}) == len({*sim.states})  # hashable again


def test_labels_keep_their_plain_types(tmp_path):
    sim = built(states=[True, (0, 1.0), "True"])
    loaded = AbstractSimulator.load(sim.save(tmp_path / "map"))
    assert repr(loaded.states) == "(True, (0, 1.0), 'True')"


def test_tables_starts_and_horizon_survive_saving(tmp_path):
    @quick
    @given(worlds())
    def check(sim):
        path = sim.save(tmp_path / "map")
        loaded = AbstractSimulator.load(path)
        assert path == tmp_path / "map"
        assert loaded.horizon == sim.horizon
        for name in ("successor", "reward", "starts", "start_probabilities"):
            before, after = getattr(sim, name), getattr(loaded, name)
            assert after.dtype == before.dtype
            assert after.tobytes() == before.tobytes()
            assert after.shape == before.shape
            assert not after.flags.writeable

    check()


@pytest.mark.parametrize(
    ("label", "message"),
    [
        (frozenset({1}), "states: label frozenset({1}) of type frozenset cannot be saved; use"),
        ((0, b"N"), "states: label b'N' of type bytes cannot be saved; use numbers, strings or"),
        (1j, "states: label 1j of type complex cannot be saved"),
        (np.complex128(1j), "states: label 1j of type complex cannot be saved"),
        (np.datetime64("2020-01-01"), f"states: label {datetime.date(2020, 1, 1)!r} of type date"),
    ],
)
def test_labels_that_cannot_be_saved_say_so_when_saving(tmp_path, label, message):
    sim = built(states=["a", "b", label])
    assert sim.states[2] == label
    with pytest.raises(SimulatorError, match="^" + re.escape(message)):
        sim.save(tmp_path / "map")
    assert not (tmp_path / "map").exists()


def test_a_label_that_is_no_number_json_knows_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(ArtifactError, match=re.escape("metadata['states'][2][1] is inf")):
        built(states=[0, 1, (2, float("inf"))]).save(tmp_path / "map")
    assert not (tmp_path / "map").exists()


def test_another_kind_of_artifact_is_not_a_simulator(tmp_path):
    write_artifact(tmp_path / "other", kind="policy", metadata={}, arrays={})
    with pytest.raises(ArtifactError, match="holds an artifact of kind 'policy'"):
        AbstractSimulator.load(tmp_path / "other")


@pytest.mark.parametrize(
    ("metadata", "arrays", "message"),
    [
        ({}, {"simulator.successor": np.full((3, 2), 9)}, "successor: 9 at (s, a) = (0, 0) should"),
        ({}, {"simulator.starts": np.array([0.5])}, "start: array([0.5]) is neither a state index"),
        ({}, {"simulator.start_probabilities": np.ones(2)}, "start_probabilities: 2 numbers for 1"),
        ({}, {"simulator.reward": None}, "the stored simulator lacks 'simulator.reward'"),
        ({"horizon": 1.5}, {}, "horizon: 1.5 is not a whole number"),
        ({"horizon": None}, {}, "the stored simulator lacks 'horizon'"),
        ({"states": 3}, {}, "states: 3 is stored where a list of labels should be"),
        ({"states": ["a"]}, {}, "states: 1 labels for 3 states"),
    ],
)
def test_stored_parts_are_validated_again(tmp_path, metadata, arrays, message):
    """An artifact may be intact and still not be a simulator; None stands for a missing part."""
    sim = built()
    metadata, arrays = (
        {name: part for name, part in parts.items() if part is not None or name == "states"}
        for parts in (sim.metadata() | metadata, sim.arrays() | arrays)
    )
    write_artifact(tmp_path / "map", kind="simulator", metadata=metadata, arrays=arrays)
    with pytest.raises(SimulatorError, match="^" + re.escape(message)):
        AbstractSimulator.load(tmp_path / "map")
