"""The pruned frontier: what is kept, what is reported, dead ends, and a map of a million states."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from mdps import seeds
from paths import a_world
from tasid.beliefs import Frontier, filter_beliefs, smooth_beliefs
from tasid.beliefs.chain import MOST_CELLS, Chain
from tasid.maps import AbstractSimulator

few = settings(max_examples=20, deadline=None)


def four_starts() -> AbstractSimulator:
    """Every state stays where it is."""
    leads = np.arange(5)[:, None] * np.ones((1, 2), int)
    return AbstractSimulator(
        leads,
        np.zeros((5, 2)),
        horizon=1,
        start=[4, 2, 1, 3],
        start_probabilities=[0.15, 0.5, 0.05, 0.3],
    )


@pytest.mark.parametrize(
    ("frontier", "kept", "discarded"),
    [
        (Frontier(size=8, epsilon=0.0), {2: 0.5, 3: 0.3, 4: 0.15, 1: 0.05}, 0.0),
        (Frontier(size=8, epsilon=0.06), {2: 0.5 / 0.95, 3: 0.3 / 0.95, 4: 0.15 / 0.95}, 0.05),
        (Frontier(size=8, epsilon=0.04), {2: 0.5, 3: 0.3, 4: 0.15, 1: 0.05}, 0.0),
        (Frontier(size=8, epsilon=0.21), {2: 0.625, 3: 0.375}, 0.2),
        (Frontier(size=1, epsilon=0.06), {2: 1.0}, 0.5),
    ],
)
def test_the_smallest_set_with_the_mass_is_kept(frontier, kept, discarded):
    found = filter_beliefs(four_starts(), [[0]], np.zeros((1, 2, 5)), eta=0.1, frontier=frontier)
    assert found.at(0, 0) == pytest.approx(kept)
    assert found.discarded[0, 0] == pytest.approx(discarded, abs=1e-6)
    assert found.log_evidence[0] == pytest.approx(np.log(1 - discarded), abs=1e-6)


@few
@given(seeds)
def test_pruned_evidence_is_a_lower_bound_and_beliefs_are_beliefs(seed):
    rng = np.random.default_rng(seed)
    sim = a_world(rng)
    commands, logs = rng.integers(3, size=(2, 3)), rng.normal(size=(2, 4, 4))
    full = filter_beliefs(sim, commands, logs, eta=0.3)
    two, three = (
        smooth_beliefs(
            sim, commands, logs, eta=0.3, frontier=Frontier(size=size, epsilon=0.0, widest=size)
        )
        for size in (2, 3)
    )
    for pruned in (two, three):
        assert (pruned.log_evidence <= full.log_evidence + 1e-5).all()
        np.testing.assert_allclose(pruned.weights.sum(axis=2), 1, atol=1e-5)
        np.testing.assert_allclose(pruned.outcomes.counts.sum(), 6, rtol=1e-5)
        lost = pruned.discarded.max(axis=1) > 1e-6
        gap = full.log_evidence - pruned.log_evidence
        assert (gap[~lost] < 1e-5).all()
    assert two.states.shape == (2, 4, 2)


def a_fork() -> AbstractSimulator:
    """Action 0 leads from 0 to 1 and on to 1, action 1 to 2 and on to 2."""
    leads = np.array([[1, 2], [1, 1], [2, 2]])
    return AbstractSimulator(leads, np.zeros((3, 2)), horizon=3)


def test_a_dead_end_is_tried_again_wider():
    """The likely branch is kept, until it turns out to be impossible."""
    logs = np.zeros((2, 4, 3))
    logs[0, 3, 1] = -np.inf
    commands = [[0, 0, 0]] * 2
    full = smooth_beliefs(a_fork(), commands, logs, eta=0.1)
    narrow = Frontier(size=1, epsilon=0.0)
    found = smooth_beliefs(a_fork(), commands, logs, eta=0.1, frontier=narrow)
    np.testing.assert_allclose(found.dense[0], full.dense[0], atol=1e-6)
    assert found.log_evidence[0] == pytest.approx(np.log(0.05), abs=1e-5)
    assert not found.discarded[0].any()
    # The other episode met no dead end, and keeps its single branch.
    assert found.likeliest[1].tolist() == [0, 1, 1, 1]
    assert found.discarded[1, 1] == pytest.approx(0.05, abs=1e-6)
    assert found.log_evidence[1] == pytest.approx(np.log(0.95), abs=1e-5)


def test_a_dead_end_that_an_epsilon_made_is_tried_again_without_it():
    logs = np.zeros((1, 4, 3))
    logs[0, 3, 1] = -np.inf
    rough = Frontier(size=3, epsilon=0.2)
    found = filter_beliefs(a_fork(), [[0, 0, 0]], logs, eta=0.1, frontier=rough)
    assert found.likeliest[0].tolist()[-1] == 2


def test_a_dead_end_at_the_widest_is_reported_with_what_was_discarded():
    logs = np.zeros((1, 4, 3))
    logs[0, 3, 1] = -np.inf
    narrow = Frontier(size=1, epsilon=0.0, widest=1)
    found = filter_beliefs(a_fork(), [[0, 0, 0]], logs, eta=0.1, frontier=narrow)
    assert found.log_evidence[0] == -np.inf
    assert found.discarded[0].max() == pytest.approx(0.05, abs=1e-6)


def test_retries_ask_a_function_for_the_right_episodes():
    """Only the second of three episodes comes to a dead end; the function sees all three."""

    def seen(h: int, states: np.ndarray) -> np.ndarray:
        impossible = (h == 3) & (states == 1) & (np.arange(3)[:, None] == 1)
        assert states.shape[0] in (1, 3)
        return np.where(impossible, -np.inf, 0.0)

    narrow = Frontier(size=1, epsilon=0.0)
    found = filter_beliefs(a_fork(), [[0, 0, 0]] * 3, seen, eta=0.1, frontier=narrow)
    assert found.likeliest[:, -1].tolist() == [1, 2, 1]


def a_grid(side: int, horizon: int) -> AbstractSimulator:
    """Free but for a wall here and there; from the upper left."""
    rng = np.random.default_rng(side)
    cells = np.where(rng.random((side, side)) < 0.1, "#", ".")
    cells[0, :2], cells[1, 0], cells[-1, -1] = ["S", "."], ".", "G"
    text = "\n".join("".join(row) for row in cells)
    return AbstractSimulator.from_text_map(text, horizon=horizon)


def walked(sim: AbstractSimulator, commands: np.ndarray, eta: float, seed: int) -> np.ndarray:
    """True states [H+1] of one episode."""
    rng = np.random.default_rng(seed)
    slips = rng.random(sim.horizon) < eta
    happened = np.where(slips, rng.integers(sim.num_actions, size=sim.horizon), commands)
    return np.array(sim.replay(happened))


def test_on_a_large_grid_the_frontier_tracks_as_the_full_filter_does():
    sim = a_grid(60, 150)
    rng = np.random.default_rng(1)
    commands = rng.integers(sim.num_actions, size=(1, 150))
    truth = walked(sim, commands[0], 0.2, seed=2)
    look = rng.normal(size=(sim.num_states, 3))
    shown = look[truth] + 0.7 * rng.normal(size=(151, 3))

    def seen(h: int, states: np.ndarray) -> np.ndarray:
        return -((shown[h] - look[states]) ** 2).sum(axis=-1)

    full = smooth_beliefs(sim, commands, seen, eta=0.2)
    pruned = smooth_beliefs(sim, commands, seen, eta=0.2, frontier=Frontier(256, 1e-6))
    assert pruned.discarded.max() < 1e-5
    np.testing.assert_allclose(pruned.dense, full.dense, atol=1e-3)
    np.testing.assert_allclose(pruned.log_evidence, full.log_evidence, atol=1e-3)
    assert (full.likeliest[0] == truth).mean() > 0.8


@pytest.mark.slow
def test_a_map_of_a_million_states_from_a_known_start():
    sim = a_grid(1000, 2100)
    rng = np.random.default_rng(3)
    commands = rng.integers(sim.num_actions, size=(2, 2100))
    truth = np.stack([walked(sim, row, 0.1, seed=n) for n, row in enumerate(commands)])
    look = rng.normal(size=(sim.num_states, 4)).astype(np.float32)
    shown = look[truth] + 0.5 * rng.normal(size=(2, 2101, 4))

    def seen(h: int, states: np.ndarray) -> np.ndarray:
        return -2 * ((shown[:, h, None] - look[states]) ** 2).sum(axis=-1)

    found = smooth_beliefs(sim, commands, seen, eta=0.1, frontier=Frontier(size=256))
    assert found.states.shape == (2, 2101, 256)
    assert (found.likeliest == truth).mean() > 0.95
    assert found.discarded.max() < 1e-5


def test_the_tables_of_a_large_chain_are_not_laid_out_for_every_step():
    """A torus without standing still: each step reaches half of it, and a layer would be narrow."""
    side, horizon = 200, 900
    i, j = np.divmod(np.arange(side * side), side)
    ahead = [(i + 1) % side * side + j, (i - 1) % side * side + j]
    aside = [i * side + (j + 1) % side, i * side + (j - 1) % side]
    leads = np.stack(ahead + aside, axis=1)
    sim = AbstractSimulator(leads, np.zeros(leads.shape), horizon=horizon)
    assert horizon * leads.size / 2 > MOST_CELLS
    assert Chain.of(sim).successor.shape == (1, side * side, 4)
