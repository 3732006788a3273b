"""Dense networks on one flat parameter vector, and Adam for them.

With one vector per network, an Adam step and a gradient clip are one operation each; inside
compiled loops on a CPU the number of small operations is what training costs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from tasid.keys import Keys


@dataclass(frozen=True)
class MLP:
    """ReLU layers between `inputs` and `outputs` numbers; hashable, a static argument of `jit`."""

    inputs: int
    outputs: int
    hidden: tuple[int, ...] = (56, 56)

    @property
    def layers(self) -> list[tuple[int, int]]:
        """Shapes of the weight matrices."""
        return list(pairwise((self.inputs, *self.hidden, self.outputs)))

    @property
    def num_parameters(self) -> int:
        """Length of the parameter vector."""
        return sum((rows + 1) * columns for rows, columns in self.layers)

    def init(self, key: jax.Array) -> jax.Array:
        """Weights and biases uniform in ±1/√fan_in, [P]."""
        limits = [jnp.full((rows + 1) * columns, rows**-0.5) for rows, columns in self.layers]
        limit = jnp.concatenate(limits)
        return limit * jax.random.uniform(key, limit.shape, minval=-1.0, maxval=1.0)

    def __call__(self, parameters: jax.Array, x: jax.Array) -> jax.Array:
        """Outputs [n, outputs] for inputs [n, inputs]."""
        sizes = [size for rows, columns in self.layers for size in (rows * columns, columns)]
        # One split: the gradient of many slices would be a sum of as many padded vectors.
        parts = jnp.split(parameters, list(accumulate(sizes[:-1])))
        for number, shape in enumerate(self.layers):
            x = jax.nn.relu(x) if number else x
            x = x @ parts[2 * number].reshape(shape) + parts[2 * number + 1][None]
        return x


class Trained(NamedTuple):
    """Parameters of a network and the state of its optimiser."""

    parameters: jax.Array
    optimiser: optax.OptState


@dataclass(frozen=True)
class Adam:
    """Adam with the gradient's global norm clipped; the defaults are the paper's for the lock."""

    learning_rate: float = 3e-4
    max_gradient_norm: float = 0.25

    @property
    def transformation(self) -> optax.GradientTransformation:
        """As Optax has it."""
        clip = optax.clip_by_global_norm(self.max_gradient_norm)
        return optax.chain(clip, optax.adam(self.learning_rate))

    def init(self, parameters: jax.Array) -> Trained:
        """The parameters with a fresh optimiser."""
        return Trained(parameters, self.transformation.init(parameters))

    def step(self, network: Trained, loss: Callable[[jax.Array], jax.Array]) -> Trained:
        """One step down the gradient of `loss`, a function of the parameters."""
        gradient = jax.grad(loss)(network.parameters)
        update, optimiser = self.transformation.update(
            gradient, network.optimiser, network.parameters
        )
        return Trained(optax.apply_updates(network.parameters, update), optimiser)


def jax_key(key: Keys) -> jax.Array:
    """A key of `tasid.keys` as JAX has it."""
    return jax.random.wrap_key_data(key, impl="threefry2x32")


def weighted_mean(values: jax.Array, weight: jax.Array) -> jax.Array:
    """Mean of values [n] with weights 0 or 1; 0 if all weights are 0."""
    return (values * weight).sum() / jnp.maximum(weight.sum(), 1.0)
