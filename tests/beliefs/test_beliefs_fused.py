"""The expectation step for large maps against the smoother, which is that of all paths."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from test_beliefs_smoother import Shown, a_case, few

from mdps import seeds
from tasid.beliefs.chain import Chain
from tasid.beliefs.classes import Classes
from tasid.beliefs.episodes import Episodes
from tasid.beliefs.fused import expect_fused, is_fused
from tasid.beliefs.smoother import Weights, expect
from tasid.maps import AbstractSimulator

PLACES, STEPS, EPISODES = 400, 60, 7


def agree(found, expected, *, rtol=1e-4, atol=1e-4) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=rtol, atol=atol)


@few
@given(
    seeds,
    st.booleans(),
    st.fixed_dictionaries(
        {},
        optional={
            "temper": st.sampled_from([0.3, 0.7]),
            "upto": st.integers(0, 4),
            "told": st.just(0.0),
        },
    ),
)
def test_sums_are_those_of_the_smoother(seed, told, weights):
    case = a_case(seed, "place", told=told)
    assume(not case.chain.layered)
    shape = (3, case.chain.num_slots, 3)
    advantage = jnp.asarray(-np.random.default_rng(seed).random(shape), jnp.float32)
    given_ = *case.smoother(eta=0.2, **weights), advantage, 2 * case.arrays.features
    found, expected = expect_fused(*given_), expect(*given_)
    padding = np.asarray(case.arrays.weight) == 0
    for one, other in zip(found[2:], expected[2:], strict=True):
        np.testing.assert_allclose(one[~padding], np.asarray(other)[~padding], atol=1e-4)
    agree(found[:2], expected[:2])


def a_large_case(sharp: float) -> tuple:
    """A ring with shortcuts, and looks that contradict each other and the map."""
    rng = np.random.default_rng(7)
    here = np.arange(PLACES)
    leads = np.stack([here, (here + 1) % PLACES, (here - 1) % PLACES, (7 * here) % PLACES], axis=1)
    reward = rng.choice([0.0, 1.0], size=leads.shape)
    sim = AbstractSimulator(leads, reward, horizon=STEPS, start=[0, 5, 9])
    chain = Chain.of(sim)
    classes = Classes.of(chain, "place", sim)
    logs = sharp * rng.normal(size=(STEPS + 1, EPISODES, classes.number))
    ended = rng.integers(STEPS // 2, STEPS + 1, EPISODES)
    episodes = Episodes(
        features=jnp.asarray(logs, jnp.float32),
        commands=jnp.asarray(rng.integers(4, size=(STEPS, EPISODES)), jnp.int32),
        paid=jnp.asarray(rng.integers(-1, 2, size=(STEPS, EPISODES)), jnp.int32),
        ended=jnp.asarray(ended, jnp.int32),
        tells=jnp.bool_(True),
        own=jnp.ones((STEPS, EPISODES)),
        weight=jnp.ones(EPISODES),
    )
    advantage = jnp.asarray(-rng.random((STEPS, chain.num_slots, 4)), jnp.float32)
    weights = Weights(eta=0.1).arrays()
    return chain, classes, Shown(jnp.zeros(())), episodes, weights, advantage, episodes.features


@pytest.mark.parametrize("sharp", [0.5, 4.0, 20.0])
def test_a_large_map(sharp):
    case = a_large_case(sharp)
    assert is_fused(*case[:2])
    agree(expect_fused(*case), expect(*case), rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("step", [expect, expect_fused])
def test_every_observation_is_of_somebody(step):
    """All looks are of the far end of a corridor, and one is told to stay at this end of it.

    From the far end they are more likely than from here by more than float32 can hold, and yet one
    was here.
    """
    here = np.arange(30)
    leads = np.stack([here, np.minimum(here + 1, 29)], axis=1)
    sim = AbstractSimulator(leads, np.zeros(leads.shape), horizon=40)
    chain = Chain.of(sim)
    logs = np.where(here == 29, 0.0, -60.0)
    episodes = Episodes(
        features=jnp.broadcast_to(jnp.asarray(logs, jnp.float32), (41, 2, 30)),
        commands=jnp.zeros((40, 2), jnp.int32),
        paid=jnp.full((40, 2), -1, jnp.int32),
        ended=jnp.full(2, 40, jnp.int32),
        tells=jnp.bool_(False),
        own=jnp.ones((40, 2)),
        weight=jnp.ones(2),
    )
    advantage = jnp.zeros((40, 30, 2))
    found = step(
        chain,
        Classes.of(chain, "place", sim),
        Shown(jnp.zeros(())),
        episodes,
        Weights(eta=0.1).arrays(),
        advantage,
        episodes.features,
    )
    assert float(np.sum(found.counts)) == pytest.approx(82, rel=1e-4)
