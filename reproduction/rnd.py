"""Random network distillation (Burda et al., 2019): a bonus for observations unlike earlier ones.

A predictor learns the outputs of a fixed random network. Its error is large on observations that
are unlike those it was trained on:

    bonus(x') = c · mean over outputs of (predictor(z) − target(z))²,
    z = (x' − mean) / standard deviation over all observations so far, clipped

The bonus is added to the reward of the transition that leads to x'.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp

from reproduction.networks import MLP, Adam, Trained, weighted_mean

MIN_VARIANCE = 1e-8
"""Standard deviations are divisors."""


class Moments(NamedTuple):
    """Running mean and variance."""

    count: jax.Array
    mean: jax.Array
    variance: jax.Array

    @classmethod
    def empty(cls, shape: tuple[int, ...]) -> Moments:
        """Of no values."""
        return cls(jnp.zeros(()), jnp.zeros(shape), jnp.ones(shape))

    def update(self, values: jax.Array, weight: jax.Array) -> Moments:
        """With the rows of weight 1 of values [n, …] added (Chan et al., 1983)."""
        weight = weight.reshape(weight.shape + (1,) * (values.ndim - 1))
        added = weight.sum()
        total = jnp.maximum(self.count + added, 1.0)
        mean = (values * weight).sum(axis=0) / jnp.maximum(added, 1.0)
        squares = (((values - mean[None]) ** 2) * weight).sum(axis=0)
        difference = mean - self.mean
        # Weighted by shares: sums over millions of rows would lose digits in float32.
        share = added / total
        variance = (1.0 - share) * self.variance + squares / total
        return Moments(
            self.count + added,
            self.mean + share * difference,
            variance + share * (1.0 - share) * difference**2,
        )

    @property
    def deviation(self) -> jax.Array:
        """The standard deviation."""
        return jnp.sqrt(jnp.maximum(self.variance, MIN_VARIANCE))


class RNDState(NamedTuple):
    """Networks and running moments."""

    predictor: Trained
    target: jax.Array
    """Parameters of the fixed random network."""
    observations: Moments
    errors: Moments


@dataclass(frozen=True)
class RND:
    """The bonus. The paper searched coefficients 0, 100 and 500 and chose 500.

    It states neither the size of the outputs nor the norm of the error.
    """

    coefficient: float = 500.0
    hidden: tuple[int, ...] = (56, 56)
    outputs: int = 56
    clip: float = 5.0
    """Standardised observations are clipped to ± this."""
    normalise: bool = False
    """Divide errors by their running standard deviation? The coefficient is for raw errors."""
    adam: Adam = field(default_factory=Adam)

    def init(self, key: jax.Array, inputs: int) -> RNDState:
        """Two independent random networks."""
        network = MLP(inputs, self.outputs, self.hidden)
        predictor, target = (network.init(part) for part in jax.random.split(key))
        return RNDState(
            self.adam.init(predictor), target, Moments.empty((inputs,)), Moments.empty(())
        )

    def bonus(
        self, state: RNDState, observations: jax.Array, weight: jax.Array
    ) -> tuple[RNDState, jax.Array]:
        """Bonus [n] of observations [n, d], standardised with these included."""
        state = state._replace(observations=state.observations.update(observations, weight))
        errors = self._errors(state, state.predictor.parameters, observations)
        state = state._replace(errors=state.errors.update(errors, weight))
        scale = 1.0 / state.errors.deviation if self.normalise else 1.0
        return state, self.coefficient * scale * errors

    def train(self, state: RNDState, observations: jax.Array, weight: jax.Array) -> RNDState:
        """One step of the predictor on a minibatch [n, d]."""

        def loss(parameters: jax.Array) -> jax.Array:
            return weighted_mean(self._errors(state, parameters, observations), weight)

        return state._replace(predictor=self.adam.step(state.predictor, loss))

    def _errors(self, state: RNDState, predictor: jax.Array, observations: jax.Array) -> jax.Array:
        network = MLP(observations.shape[-1], self.outputs, self.hidden)
        moments = state.observations
        z = (observations - moments.mean[None]) / moments.deviation[None]
        z = jnp.clip(z, -self.clip, self.clip)
        return ((network(predictor, z) - network(state.target, z)) ** 2).mean(axis=-1)
