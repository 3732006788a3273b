"""One step down a gradient on a flat parameter vector: Adam, with the gradient's norm clipped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import optax


class NetworkState(NamedTuple):
    """A network's parameters [P] and what its optimiser remembers."""

    parameters: jax.Array
    optimiser: optax.OptState


@dataclass(frozen=True)
class Descent:
    """Adam for one network; hashable, so that it can be compiled in."""

    learning_rate: float = 3e-4
    clip: float = 0.25
    """Bound on the gradient's global norm."""

    @property
    def _optimiser(self) -> optax.GradientTransformation:
        return optax.chain(optax.clip_by_global_norm(self.clip), optax.adam(self.learning_rate))

    def start(self, parameters: jax.Array) -> NetworkState:
        """The parameters with a fresh optimiser."""
        return NetworkState(parameters, self._optimiser.init(parameters))

    def step(self, weights: NetworkState, loss: Callable[[jax.Array], jax.Array]) -> NetworkState:
        """One step down the gradient of `loss`, a function of the parameters."""
        gradient = jax.grad(loss)(weights.parameters)
        change, state = self._optimiser.update(gradient, weights.optimiser, weights.parameters)
        return NetworkState(optax.apply_updates(weights.parameters, change), state)


ADAM = Descent()
"""The paper's, for the lock."""
