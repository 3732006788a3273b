"""Belief policies as large as learned ones, without the time to learn them."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

import tasid
from tasid.beliefs.chain import Chain
from tasid.beliefs.classes import Classes
from tasid.beliefs.features import fit_features
from tasid.beliefs.gaussian import flat_gaussians
from tasid.learning.belief.fits import DIMENSIONS
from tasid.policies.belief_policy import BeliefPolicy
from tasid.targets.target import episode_keys, seed_key


def some_policy(env: tasid.BlockMDP, number: int = 256) -> tuple[BeliefPolicy, np.ndarray]:
    """A policy whose classes look at random, and observations [n, …] of the environment.

    How long a decision takes depends on sizes only, and these are the learned ones.
    """
    observations = np.asarray(env.target.reset(episode_keys(seed_key(0), 0, jnp.arange(number)))[1])
    looks = fit_features(observations)
    classes = Classes.of(Chain.of(env.simulator), "place", env.simulator)
    emission = flat_gaussians(classes.number, looks.components.shape[1], DIMENSIONS)
    rng = np.random.default_rng(0)
    emission = emission._replace(
        directions=_normal(rng, emission.directions.shape),
        linear=_normal(rng, emission.linear.shape),
        square=jnp.full_like(emission.square, -0.5),
        spread=jnp.ones_like(emission.spread),
        whitening=jnp.eye(emission.whitening.shape[0]),
    )
    plan = tasid.robust_dp(env.simulator, eta=0.1)
    shape, dtype = observations.shape[1:], observations.dtype.name
    return BeliefPolicy(plan, "place", looks, emission, 0.1, shape, dtype), observations


def _normal(rng: np.random.Generator, shape: tuple[int, ...]) -> jnp.ndarray:
    return jnp.asarray(rng.normal(size=shape) / 8, jnp.float32)
