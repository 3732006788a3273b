"""Networks as static descriptions over one flat parameter vector.

A network is hashable and knows its shapes; its parameters are a single float32 vector, which makes
Adam and clipping one operation each, stacks over steps and seeds, and maps 1:1 to a file.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from tasid.learning.convolution import CNN


class Network(Protocol):
    """Scores of every label for a transition x → x'; hashable, so that it can be compiled in."""

    @property
    def num_parameters(self) -> int:
        """The length of the flat parameter vector."""

    def init(self, key: jax.Array) -> jax.Array:
        """Fresh parameters [P]."""

    def apply(self, parameters: jax.Array, x: jax.Array, x_next: jax.Array) -> jax.Array:
        """Unnormalised log-scores [B, L] for observations [B, …] and [B, …]."""

    def describe(self) -> dict[str, Any]:
        """What `network_from` needs to build it again."""


@dataclass(frozen=True)
class MLP:
    """ReLU layers over the two observations side by side; PyTorch's default initialisation."""

    observation_size: int
    num_labels: int
    hidden: tuple[int, ...] = (56, 56)

    @property
    def _layers(self) -> list[tuple[int, int]]:
        sizes = [2 * self.observation_size, *self.hidden, self.num_labels]
        return list(pairwise(sizes))

    @property
    def num_parameters(self) -> int:
        """Weights and biases of all layers."""
        return sum((rows + 1) * columns for rows, columns in self._layers)

    def init(self, key: jax.Array) -> jax.Array:
        """Every entry of a layer uniform in ±1/√fan_in."""
        keys = jax.random.split(key, len(self._layers))
        parts = []
        for layer_key, (rows, columns) in zip(keys, self._layers, strict=True):
            bound = 1.0 / math.sqrt(rows)
            shape = ((rows + 1) * columns,)
            parts.append(jax.random.uniform(layer_key, shape, jnp.float32, -bound, bound))
        return jnp.concatenate(parts)

    def apply(self, parameters: jax.Array, x: jax.Array, x_next: jax.Array) -> jax.Array:
        """Scores [B, L]."""
        width = x.shape[0]
        hidden = jnp.concatenate([x.reshape(width, -1), x_next.reshape(width, -1)], axis=1)
        offset = 0
        for number, (rows, columns) in enumerate(self._layers):
            if number:
                hidden = jax.nn.relu(hidden)
            weights = parameters[offset : offset + rows * columns].reshape(rows, columns)
            offset += rows * columns
            hidden = hidden @ weights + parameters[None, offset : offset + columns]
            offset += columns
        return hidden

    def describe(self) -> dict[str, Any]:
        """The network as JSON."""
        return {"kind": "mlp", **asdict(self), "hidden": list(self.hidden)}


def network_from(description: dict[str, Any]) -> Network:
    """The inverse of `describe`."""
    fields = dict(description)
    kind = fields.pop("kind", None)
    if kind == "cnn":
        return CNN.from_description(fields)
    if kind != "mlp":
        raise ValueError(f"network: kind {kind!r} is unknown; this version knows: mlp, cnn")
    return MLP(**{**fields, "hidden": tuple(fields["hidden"])})
