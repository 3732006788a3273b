"""The exploration bonus against a slow reference, and what it is for."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_ppo import Net

from probes import probe
from tasid.baselines.ppo import PPOConfig
from tasid.baselines.rnd import RND, RunningMoments
from tasid.baselines.training import ppo
from tasid.models.fit import Descent
from tasid.models.networks import Dense

SMALL = RND(coefficient=3.0, hidden=(6,), outputs=4, limit=1.5, descent=Descent(0.01, 0.2))


def batches(number, rows=40, size=5, seed=0):
    rng = np.random.default_rng(seed)
    scale = rng.uniform(0.2, 5.0, size=size)
    return [rng.normal(3.0 * i, scale, size=(rows, size)) for i in range(number)]


def test_scores_and_learning_agree_with_the_reference():
    """Statistics of all rows so far, clipped inputs, mean squared errors, clipped Adam steps."""
    bonus, size = SMALL, 5
    state = bonus.start(jax.random.key(0), size)
    network = Dense(size, 4, (6,))
    predictor = Net(network, state.predictor.parameters, bonus.descent)
    random = Net(network, state.random, bonus.descent)
    rng = np.random.default_rng(1)
    counted = []
    for x in batches(4):
        weight = (rng.random(40) < 0.6).astype(float)
        counted.append(x[weight > 0])
        known = np.concatenate(counted)
        z = np.clip((x - known.mean(axis=0)) / known.std(axis=0), -1.5, 1.5)
        assert (np.abs(z) == 1.5).any()
        goal, steps = random.forward(z)[-1], predictor.forward(z)
        error = ((steps[-1] - goal) ** 2).mean(axis=1)

        x, weight = jnp.asarray(x, jnp.float32), jnp.asarray(weight, jnp.float32)
        state, found = bonus.score(state, x, weight)
        np.testing.assert_allclose(found, 3.0 * error, rtol=2e-3, atol=1e-5)
        state = bonus.learn(state, x, weight)
        share = np.asarray(weight)[:, None] / np.asarray(weight).sum()
        predictor.descend(steps, 2.0 * (steps[-1] - goal) / 4 * share)
        np.testing.assert_allclose(state.predictor.parameters, predictor.flat, atol=2e-4)
    assert predictor.clipped > 0
    np.testing.assert_array_equal(state.random, random.flat.astype(np.float32))


def test_moments_are_those_of_all_rows():
    known = RunningMoments.none((5,))
    rows = batches(6, rows=300)
    for x in rows:
        known = known.including(jnp.asarray(x, jnp.float32), jnp.ones(300))
    everything = np.concatenate(rows)
    assert known.number == 1_800
    np.testing.assert_allclose(known.mean, everything.mean(axis=0), rtol=1e-4)
    np.testing.assert_allclose(known.deviation, everything.std(axis=0), rtol=1e-4)
    same = known.including(jnp.full((9, 5), 1e6), jnp.zeros(9))
    for one, other in zip(same, known, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_moments_of_constants():
    """What never changes is divided by something."""
    known = RunningMoments.none((2,)).including(jnp.full((10, 2), 7.0), jnp.ones(10))
    np.testing.assert_allclose(known.mean, 7.0)
    assert (known.deviation > 0).all()


def test_normalised_bonuses_have_deviation_one():
    bonus = RND(normalise=True, coefficient=2.0)
    state = bonus.start(jax.random.key(0), 5)
    x = jnp.asarray(np.concatenate(batches(3)), jnp.float32)
    _, found = bonus.score(state, x, jnp.ones(x.shape[0]))
    assert float(found.std()) == pytest.approx(2.0, rel=1e-3)


def test_the_familiar_gets_a_smaller_bonus_than_the_new():
    bonus = RND(descent=Descent(1e-3))
    rng = np.random.default_rng(0)
    centres = rng.choice([-1.0, 1.0], size=(2, 16))
    near, far = (centre + 0.1 * rng.normal(size=(256, 16)) for centre in centres)
    both = jnp.asarray(np.concatenate([near, far]), jnp.float32)
    state = bonus.start(jax.random.key(1), 16)
    state, before = bonus.score(state, both, jnp.ones(512))
    learn = jax.jit(bonus.learn)
    for _ in range(300):
        state = learn(state, both[:256], jnp.ones(256))
    _, after = bonus.score(state, both, jnp.ones(512))
    assert after[:256].mean() < 0.1 * before[:256].mean()
    assert after[256:].mean() > 5 * after[:256].mean()


def test_a_bonus_alone_makes_for_novelty():
    """No reward at all, and one action in eight shows something new: RND seeks it out."""
    target = probe(
        lambda coin, action, h: 0,
        lambda coin, action, h: np.where(action == 0, 5, coin),  # no coin shows 9 otherwise
        actions=8,
        horizon=1,
    )
    config = PPOConfig(batch=50, hidden=(16,), descent=Descent(3e-3), bonus=RND(hidden=(16,)))
    chances = []
    ppo(
        target,
        seed=1,
        episodes=1_000,
        config=config,
        every=50,
        evaluation_episodes=0,
        callbacks=[lambda here: chances.append(seeks(here.state, target, config))],
    )
    assert max(chances) > 0.5


def seeks(state, target, config):
    network = config.networks(target)[0]
    scores = network.apply(state.policy.parameters, jnp.asarray([[1.0, 0.0], [-1.0, 0.0]]))
    return float(jax.nn.softmax(scores)[:, 0].mean())


def test_bonuses_are_no_rewards():
    """Returns and evaluations are the target's alone."""
    target = probe(lambda coin, action, h: 1, actions=2, horizon=1)
    config = PPOConfig(batch=20, hidden=(8,), bonus=RND())
    seen = []
    ppo(target, seed=1, episodes=40, every=20, config=config, callbacks=[seen.append])
    assert all((here.returns == 1).all() for here in seen)
    assert [here.evaluation.mean for here in seen] == [1.0, 1.0]


def test_defaults_are_the_papers():
    bonus = RND()
    assert (bonus.coefficient, bonus.limit, bonus.normalise) == (500.0, 5.0, False)
    assert (bonus.hidden, bonus.descent) == ((56, 56), Descent(3e-4, 0.25))
