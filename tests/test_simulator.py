"""Validation, sparse storage and round trips of simulators and layouts."""

from __future__ import annotations

import numpy as np
import pytest

from tasid.layout import FREE, WALL, GridLayout, LayoutError
from tasid.simulator import AbstractSimulator, SimulatorError


def random_dense(rng, shape, sparsity=0.5):
    """Random transition probabilities with some zeros."""
    table = rng.random(shape) * (rng.random(shape) > sparsity)
    table[..., 0] += 1e-3
    return table / table.sum(axis=-1, keepdims=True)


def dense_of(sim, h):
    """P(s' | s, a) at step h, by an explicit loop."""
    table = np.zeros((sim.num_states, sim.num_actions, sim.num_states))
    successor, probabilities = sim.transitions_at(h)
    for s, a, b in np.ndindex(successor.shape):
        table[s, a, successor[s, a, b]] += probabilities[s, a, b]
    return table


@pytest.mark.parametrize("reward_shape", [(4, 2), (3, 4, 2), (4, 2, 4), (3, 4, 2, 4)])
@pytest.mark.parametrize("by_step", [False, True])
def test_dense_probabilities_are_stored_sparsely_without_loss(reward_shape, by_step):
    rng = np.random.default_rng(1)
    transition = random_dense(rng, (3, 4, 2, 4) if by_step else (4, 2, 4))
    reward = rng.random(reward_shape)
    sim = AbstractSimulator(transition, reward, horizon=3)
    assert sim.stochastic
    assert sim.successor.shape[-1] == (transition > 0).sum(axis=-1).max()
    for h in range(3):
        p = transition[h] if by_step else transition
        r = reward[h] if reward_shape[0] == 3 else reward
        np.testing.assert_allclose(dense_of(sim, h), p)
        np.testing.assert_allclose(sim.reward_at(h), (p * r).sum(-1) if r.ndim == 3 else r)
        if r.ndim == 3:
            rewards = np.take_along_axis(r, sim.successor_at(h), axis=-1)
            np.testing.assert_array_equal(sim.transition_reward_at(h), rewards)
        np.testing.assert_array_equal(sim.intended(h), p.argmax(axis=-1))


def test_deterministic_tables_in_any_form_are_the_same_map():
    successor, reward = np.array([[1, 0], [1, 2], [2, 2]]), np.arange(6.0).reshape(3, 2)
    plain = AbstractSimulator(successor, reward, horizon=2)
    dense = AbstractSimulator(np.eye(3)[successor], reward, horizon=2)
    padded = np.stack([successor, np.zeros_like(successor)], axis=-1)
    sparse = AbstractSimulator(
        padded, reward, probabilities=np.broadcast_to([1.0, 0.0], padded.shape), horizon=2
    )
    for sim in (plain, dense, sparse):
        assert not sim.stochastic
        np.testing.assert_array_equal(sim.successor, successor)
    assert (plain.num_states, plain.num_actions, plain.start) == (3, 2, 0)


def test_dropping_padding_does_not_change_the_meaning_of_rewards():
    """[H, S, A] rewards that have the shape [S, A, B] after padding is dropped."""
    successor = np.broadcast_to([0, 1, 1], (2, 2, 3))
    probabilities = np.broadcast_to([0.5, 0.0, 0.5], (2, 2, 3))
    reward = np.arange(8.0).reshape(2, 2, 2)
    sim = AbstractSimulator(successor, reward, probabilities=probabilities, horizon=2)
    assert sim.successor.shape == (2, 2, 2)
    for version in (sim, AbstractSimulator.from_parts(sim.metadata(), sim.arrays())):
        for h in range(2):
            np.testing.assert_allclose(version.reward_at(h), reward[h])


@pytest.mark.parametrize(
    ("argument", "changes"),
    [
        ("horizon", {"horizon": 0}),
        ("horizon", {"horizon": 2.0}),
        ("horizon", {"horizon": True}),
        ("successor", {"successor": [[0, 2], [0, 1]]}),
        ("successor", {"successor": [[0.0, 1.0], [0.0, 1.0]]}),
        ("successor", {"successor": [[0, 1], [0]]}),
        ("successor", {"successor": np.zeros((5, 2, 2), int)}),
        ("successor", {"successor": np.full((2, 2, 2), 0.3)}),
        ("successor", {"successor": np.full((2, 2, 3), 1 / 3)}),
        (
            "probabilities",
            {"successor": np.zeros((2, 2, 2), int), "probabilities": np.ones((2, 2))},
        ),
        (
            "probabilities",
            {"successor": np.zeros((2, 2, 1), int), "probabilities": [[[2], [1]]] * 2},
        ),
        ("reward", {"reward": [[0, np.nan], [0, 0]]}),
        ("reward", {"reward": np.zeros((2, 3))}),
        ("reward", {"reward": [["a", "b"], ["c", "d"]]}),
        ("start", {"start": 2}),
        ("start", {"start": [0, 0]}),
        ("start", {"start": "x"}),
        ("start_probabilities", {"start": [0, 1], "start_probabilities": [0.5, 0.6]}),
        ("start_probabilities", {"start": [0, 1], "start_probabilities": [1.0, np.nan]}),
        ("states", {"states": ["a"]}),
        ("states", {"states": ["a", "a"]}),
        ("states", {"states": [[1], [2]]}),
        ("action_names", {"action_names": ["left"]}),
        ("hazards", {"hazards": [True]}),
        ("layout", {"layout": GridLayout(np.zeros((1, 1), int), np.zeros((1, 2), int))}),
    ],
)
def test_errors_name_the_argument(argument, changes):
    valid = {"successor": [[0, 1], [0, 1]], "reward": np.zeros((2, 2)), "horizon": 3}
    AbstractSimulator(**valid)
    with pytest.raises(SimulatorError, match=f"^{argument}: "):
        AbstractSimulator(**{**valid, **changes})


def test_tables_are_private_and_read_only():
    reward = np.zeros((2, 1))
    sim = AbstractSimulator([[1], [0]], reward, horizon=1)
    reward[:] = 7.0
    assert sim.reward.sum() == 0
    with pytest.raises(ValueError, match="read-only"):
        sim.reward[0, 0] = 1.0


def test_permitted_masks_hazards_only_where_another_action_avoids_them():
    successor = [[0, 1], [1, 1], [1, 1]]  # state 1 is a hazard; state 2 has no way around it
    sim = AbstractSimulator(successor, np.zeros((3, 2)), horizon=2, hazards=[False, True, False])
    np.testing.assert_array_equal(sim.permitted(0), [[True, False], [True, True], [True, True]])
    assert sim.replace(hazards=None).permitted(0) is None
    likely_hazard = np.array([[[0.4, 0.6], [0.6, 0.4]], [[0.0, 1.0], [0.0, 1.0]]])
    stochastic = AbstractSimulator(likely_hazard, np.zeros((2, 2)), horizon=2, hazards=[0, 1])
    np.testing.assert_array_equal(stochastic.permitted(1), [[False, True], [True, True]])


def test_with_horizon_and_start():
    sim = AbstractSimulator([[1], [0]], [[1.0], [2.0]], horizon=3, explored=4)
    assert sim.with_horizon(4).horizon == 4
    with pytest.raises(SimulatorError, match="explored"):
        sim.with_horizon(5)
    by_step = AbstractSimulator([[1], [0]], np.zeros((3, 2, 1)), horizon=3)
    with pytest.raises(SimulatorError, match="exactly 3"):
        by_step.with_horizon(2)
    several = sim.with_start([0, 1], [0.25, 0.75])
    assert several.starts.tolist() == [0, 1]
    with pytest.raises(SimulatorError, match="start"):
        _ = several.start


def test_save_and_load(tmp_path):
    rng = np.random.default_rng(0)
    layout = GridLayout(
        np.zeros((2, 3), int),
        [[0, 0], [1, 2]],
        headings=[0, 3],
        cell_size=0.5,
        corner=(1.0, -2.0),
        backdrop=np.zeros((4, 6), int),
        points=[[1.2, -1.2], [2.3, -1.7]],
    )
    sim = AbstractSimulator(
        random_dense(rng, (2, 3, 2), 0.0),
        rng.random((2, 3, 2)),
        horizon=5,
        start=[1, 0],
        start_probabilities=[0.3, 0.7],
        states=[("a", 1), "b"],
        action_names=["x", "y", "z"],
        layout=layout,
        hazards=[False, True],
        source="a test",
        explored=9,
    )
    sim.save(tmp_path / "map")
    loaded = AbstractSimulator.load(tmp_path / "map")
    assert loaded.metadata() == sim.metadata()
    assert loaded.labels == (("a", 1), "b")
    assert loaded.arrays().keys() == sim.arrays().keys()
    for name, array in sim.arrays().items():
        np.testing.assert_array_equal(loaded.arrays()[name], array)
    with pytest.raises(SimulatorError, match="stored"):
        AbstractSimulator.from_parts({**sim.metadata(), "states": 5}, sim.arrays())
    with pytest.raises(LayoutError, match="layout"):
        AbstractSimulator.from_parts(sim.metadata(), {})
    with pytest.raises(SimulatorError, match="starts"):
        AbstractSimulator.from_parts({**sim.metadata(), "layout": None}, {})
    with pytest.raises(SimulatorError, match="states"):
        sim.replace(states=[frozenset({1}), "b"]).metadata()


def room(size=9, **options):
    """A square room with walls around it and one state in the middle per heading."""
    cells = np.full((size, size), FREE)
    cells[[0, -1]] = cells[:, [0, -1]] = WALL
    cells[2, 2] = WALL
    middle = np.full((4, 2), size // 2)
    return GridLayout(cells, middle, headings=np.arange(4), **options)


def test_views_measure_the_distance_to_walls_and_turn_with_the_heading():
    views = room().views(rays=32)
    assert views.shape == (4, 32)
    np.testing.assert_allclose(views[:, [0, 8, 16, 24]], 3.5, atol=0.3)
    for heading in range(4):  # ray j of heading 0 is ray j + 8·heading of the others
        np.testing.assert_allclose(views[heading], np.roll(views[0], 8 * heading), atol=0.3)
    diagonal = views[0, 4]  # to the north-west, where the pillar is
    assert diagonal < 3.5 * np.sqrt(2) - 1
    metres = room(cell_size=0.5, corner=(0.0, 0.0)).views()
    np.testing.assert_allclose(metres, views / 2)
    assert GridLayout(np.zeros((1, 1), int), [[0, 0]]).views() is None


def test_views_start_at_the_points_of_states():
    shifted = room(cell_size=1.0, corner=(0.0, 0.0), points=np.full((4, 2), [4.5, 5.5]))
    np.testing.assert_allclose(shifted.views()[0, [0, 16]], [2.5, 4.5], atol=0.3)


def test_centres_and_extent():
    in_cells = GridLayout(np.zeros((2, 3), int), [[0, 2]])
    assert in_cells.extent == (-0.5, 2.5, 1.5, -0.5)
    assert in_cells.centres([0]).tolist() == [[2.0, 0.0]]
    in_metres = GridLayout(np.zeros((2, 3), int), [[0, 2]], cell_size=2.0, corner=(10.0, 20.0))
    assert in_metres.extent == (10.0, 16.0, 20.0, 24.0)
    assert in_metres.centres([0]).tolist() == [[15.0, 23.0]]


@pytest.mark.parametrize(
    ("argument", "changes"),
    [
        ("cells", {"cells": np.full((2, 2), 9)}),
        ("positions", {"positions": [[0, 2]]}),
        ("positions", {"positions": [0, 1]}),
        ("headings", {"headings": [4]}),
        ("backdrop", {"backdrop": np.zeros((3, 4), int)}),
        ("points", {"points": [[0.0, np.inf]]}),
    ],
)
def test_layout_errors_name_the_argument(argument, changes):
    valid = {"cells": np.zeros((2, 2), int), "positions": [[0, 1]], "headings": [3]}
    with pytest.raises(LayoutError, match=f"^{argument}: "):
        GridLayout(**{**valid, **changes})
