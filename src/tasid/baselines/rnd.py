"""Random network distillation (Burda et al., 2019): a bonus for observations unlike those before.

A predictor learns the outputs of a fixed random network; where it errs, little was seen so far:

    bonus(x') = coefficient · mean over outputs of (predictor(z) − random(z))²,
    z = x' with mean 0 and standard deviation 1 over all seen so far, clipped

It is paid for arriving at x'.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from tasid.models.fit import ADAM, Descent, NetworkState
from tasid.models.networks import Dense

_LEAST_VARIANCE = 1e-8


class RunningMoments(NamedTuple):
    """Mean and variance of everything seen so far, [d] or a scalar, and how much that is."""

    number: jax.Array
    mean: jax.Array
    variance: jax.Array

    @classmethod
    def none(cls, shape: tuple[int, ...]) -> RunningMoments:
        """Nothing seen yet."""
        return cls(jnp.zeros(()), jnp.zeros(shape), jnp.ones(shape))

    def including(self, values: jax.Array, weight: jax.Array) -> RunningMoments:
        """With the rows of weight 1 of values [N, …] added."""
        weight = weight.reshape(weight.shape + (1,) * (values.ndim - 1))
        new = weight.sum()
        total = jnp.maximum(self.number + new, 1.0)
        mean = (values * weight).sum(axis=0) / jnp.maximum(new, 1.0)
        squares = (((values - mean[None]) ** 2) * weight).sum(axis=0)
        apart = mean - self.mean
        # Weighted by shares, because sums over millions of rows would lose digits in float32.
        share = new / total
        variance = (1.0 - share) * self.variance + squares / total
        return RunningMoments(
            self.number + new,
            self.mean + share * apart,
            variance + share * (1.0 - share) * apart**2,
        )

    @property
    def deviation(self) -> jax.Array:
        """The standard deviation, never 0."""
        return jnp.sqrt(jnp.maximum(self.variance, _LEAST_VARIANCE))


class RNDState(NamedTuple):
    """What the bonus remembers."""

    predictor: NetworkState
    random: jax.Array
    """Parameters of the fixed random network."""
    observations: RunningMoments
    errors: RunningMoments


@dataclass(frozen=True)
class RND:
    """The bonus; the coefficient is the paper's choice among 0, 100 and 500.

    The paper gives neither the networks' outputs nor which norm the error has. `normalise` divides
    the errors by their standard deviation so far; the coefficient is meant for errors as they are.
    """

    coefficient: float = 500.0
    hidden: tuple[int, ...] = (56, 56)
    outputs: int = 56
    limit: float = 5.0
    """Standardised observations are clipped to ± this."""
    normalise: bool = False
    descent: Descent = ADAM

    def start(self, key: jax.Array, inputs: int) -> RNDState:
        """Two unrelated networks, and no statistics."""
        network = self._network(inputs)
        predicting, random = jax.random.split(key)
        return RNDState(
            self.descent.start(network.init(predicting)),
            network.init(random),
            RunningMoments.none((inputs,)),
            RunningMoments.none(()),
        )

    def score(
        self, state: RNDState, seen: jax.Array, weight: jax.Array
    ) -> tuple[RNDState, jax.Array]:
        """The bonus [N] for observations [N, d], standardised with these included."""
        state = state._replace(observations=state.observations.including(seen, weight))
        z = self._standardised(state, seen)
        errors = self._errors(state.predictor.parameters, self._goal(state, z), z)
        state = state._replace(errors=state.errors.including(errors, weight))
        scale = 1.0 / state.errors.deviation if self.normalise else 1.0
        return state, self.coefficient * scale * errors

    def learn(self, state: RNDState, seen: jax.Array, weight: jax.Array) -> RNDState:
        """One step of the predictor on a minibatch [b, d]."""
        z = self._standardised(state, seen)
        goal = self._goal(state, z)

        def loss(parameters: jax.Array) -> jax.Array:
            errors = self._errors(parameters, goal, z)
            return (errors * weight).sum() / jnp.maximum(weight.sum(), 1.0)

        return state._replace(predictor=self.descent.step(state.predictor, loss))

    def _network(self, inputs: int) -> Dense:
        return Dense(inputs, self.outputs, self.hidden)

    def _standardised(self, state: RNDState, seen: jax.Array) -> jax.Array:
        known = state.observations
        z = (seen - known.mean[None]) / known.deviation[None]
        return jnp.clip(z, -self.limit, self.limit)

    def _goal(self, state: RNDState, z: jax.Array) -> jax.Array:
        return self._network(z.shape[-1]).apply(state.random, z)

    def _errors(self, parameters: jax.Array, goal: jax.Array, z: jax.Array) -> jax.Array:
        predicted = self._network(z.shape[-1]).apply(parameters, z)
        return ((predicted - goal) ** 2).mean(axis=-1)
