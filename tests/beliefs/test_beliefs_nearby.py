"""Parts of large maps: what cannot leave them is smoothed as on the whole map."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tasid.beliefs.chain import Chain
from tasid.beliefs.classes import Classes
from tasid.beliefs.episodes import Episodes
from tasid.beliefs.fitting import BeliefSetting, schedule
from tasid.beliefs.nearby import is_large, near, part_of
from tasid.maps import AbstractSimulator

SIDE, HORIZON = 31, 32
EPISODES, STEPS = 3, 5


class Shown(NamedTuple):
    """An emission whose features are the log-likelihoods of all classes."""

    nothing: jax.Array

    def scores(self, features, members):
        return features[:, members].T


def plaza() -> AbstractSimulator:
    """A square that one can cross in all directions from its middle; nothing pays."""
    row, column = np.divmod(np.arange(SIDE * SIDE), SIDE)
    moves = [(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)]
    successor = np.stack(
        [
            np.clip(row + down, 0, SIDE - 1) * SIDE + np.clip(column + right, 0, SIDE - 1)
            for down, right in moves
        ],
        axis=1,
    )
    middle = SIDE * SIDE // 2
    return AbstractSimulator(successor, np.zeros(successor.shape), horizon=HORIZON, start=middle)


@pytest.fixture(scope="module")
def world():
    sim = plaza()
    chain = Chain.of(sim)
    assert is_large(chain)
    return sim, chain, Classes.of(chain, "place", sim)


def episodes(number_of_classes: int) -> Episodes:
    rng = np.random.default_rng(0)
    shape = (HORIZON + 1, EPISODES, number_of_classes)
    return Episodes(
        features=jnp.asarray(rng.normal(size=shape), jnp.float32),
        commands=jnp.asarray(rng.integers(5, size=(HORIZON, EPISODES)), jnp.int32),
        paid=jnp.full((HORIZON, EPISODES), -1, jnp.int32),
        ended=jnp.full(EPISODES, HORIZON, jnp.int32),
        tells=jnp.bool_(False),
        own=jnp.ones((HORIZON, EPISODES)),
        weight=jnp.ones(EPISODES),
    )


def test_what_is_seen_before_the_edge_is_seen_as_on_the_whole_map(world):
    _, chain, classes = world
    advantage = jnp.zeros((HORIZON, chain.num_slots, 5))
    whole = BeliefSetting(chain, advantage, 0.2, 8)
    part, those = whole.near(classes, np.zeros(classes.number), steps=STEPS)
    assert part.chain.num_slots == 256
    seen, found = (
        setting.expect(own, Shown(jnp.zeros(())), [episodes(classes.number)], upto=STEPS + 1)
        for setting, own in ((whole, classes), (part, those))
    )
    assert (seen.counts > 0).sum() == 2 * STEPS * (STEPS + 1) + 1
    np.testing.assert_allclose(found.counts, seen.counts, atol=1e-5)
    np.testing.assert_allclose(found.sums, seen.sums, atol=1e-4)
    np.testing.assert_allclose(found.evidence, seen.evidence, rtol=1e-5)


def test_a_part_is_what_lies_around_what_was_met(world):
    sim, chain, classes = world
    counts = np.zeros(classes.number)
    counts[3] = 1.0
    slots = near(chain, classes, counts, steps=2)
    row, column = np.divmod(np.asarray(chain.states[0])[slots[slots >= 0]], SIDE)
    centre = SIDE // 2
    from_corner, from_start = row + abs(column - 3), abs(row - centre) + abs(column - centre)
    assert (np.minimum(from_corner, from_start) <= 2).all()
    assert len(row) == (3 + 5 + 1) + 13
    assert near(chain, classes, np.ones(classes.number), steps=1) is None
    del sim


def test_the_edge_of_a_part_is_wall(world):
    _, chain, classes = world
    slots = near(chain, classes, np.zeros(classes.number), steps=1)
    part, those = part_of(chain, classes, slots)
    inside = slots >= 0
    states, after = np.asarray(part.states[0]), np.asarray(part.successor[0])
    assert inside.sum() == 5
    assert (states[~inside] == -1).all()
    assert inside[after[inside]].all()
    own = np.arange(slots.size)
    edge = inside & (states != SIDE * SIDE // 2)
    outward = (after[edge] == own[edge][:, None]).sum(axis=1)
    assert (outward == 4).all()  # staying, and three ways out
    assert float(part.start.sum()) == 1
    np.testing.assert_array_equal(
        np.asarray(those.members[0])[inside], np.asarray(classes.members[0])[slots[inside]]
    )


def test_small_maps_and_lists_by_step_are_left_whole(world):
    sim, chain, classes = world
    small = Chain.of(sim.with_horizon(8))
    assert not is_large(small)
    assert len(schedule("forward", small)) > len(schedule("forward", chain)) - 4
    setting = BeliefSetting(small, jnp.zeros((8, small.num_slots, 5)), 0.2, 8)
    own = Classes.of(small, "place", sim)
    assert setting.near(own, np.zeros(own.number), steps=0) == (setting, own)
    del classes
