"""Arrays have the shapes and types that their classes say, wherever they come from."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tasid
from shapes import misshapen, shaped
from tasid.beliefs import smooth_beliefs
from tasid.beliefs.episodes import Episodes
from tasid.beliefs.fitting import one_look
from tasid.beliefs.smoother import expect, tally
from tasid.learning.belief.method import belief
from tasid.models.fit import Transitions
from tasid.targets.rollout import begin
from tasid.targets.target import episode_keys, seed_key


@pytest.fixture(scope="module")
def env() -> tasid.BlockMDP:
    return tasid.make("combination-lock", horizon=3, num_actions=3, seed=1)


@pytest.fixture(scope="module")
def learnt(env):
    return belief(env, tasid.robust_dp(env.simulator, eta=0.1), episodes=16, seed=0)


def test_what_learning_by_beliefs_holds(learnt):
    best, setting = learnt.best, learnt.setting
    assert not misshapen(setting.chain, best.classes)
    assert not misshapen(learnt.recorded)
    for chunk in learnt.chunks:
        assert not misshapen(chunk)
    assert not misshapen(best.emission)
    assert not misshapen(one_look(learnt.chunks))
    assert not misshapen(learnt.actor())


def test_what_the_smoother_gives(learnt):
    best, setting = learnt.best, learnt.setting
    [chunk] = learnt.chunks
    parts = setting.chain, best.classes, best.emission, chunk, setting.weights()
    assert not misshapen(expect(*parts, setting.advantage, chunk.features), best.emission)
    assert not misshapen(tally(*parts), setting.chain)
    assert not misshapen(setting.expect(best.classes, best.emission, [chunk]), best.emission)


def test_what_anybody_gets(env):
    sim = env.simulator
    looks = np.zeros((2, sim.horizon + 1, sim.num_states))
    found = smooth_beliefs(sim, np.zeros((2, sim.horizon), int), looks, eta=0.1)
    assert not misshapen(found)
    assert not misshapen(found.outcomes)


def test_what_an_actor_carries(env, learnt):
    keys = episode_keys(seed_key(0), 0, jnp.arange(5))
    moment = begin(env, learnt.actor(), keys)
    assert not misshapen(moment)
    assert not misshapen(moment.carry)


def test_the_check_sees_what_it_should():
    rows = {"x": jnp.zeros((4, 2)), "x_next": jnp.zeros((4, 2))}
    right = Transitions(**rows, label=jnp.zeros(4, int), weight=jnp.ones(4))
    assert not misshapen(right)
    assert misshapen(right._replace(label=jnp.zeros(5, int)))
    assert misshapen(right._replace(label=jnp.zeros(4)))
    assert misshapen(right._replace(x=jnp.zeros(())))
    assert set(shaped(Episodes)) == set(Episodes._fields)
    assert all(isinstance(one, jax.Array) for one in right)
