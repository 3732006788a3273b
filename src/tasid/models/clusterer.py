"""φ̂: X → [N], which of N groups a first observation belongs to; a small network, kept as data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tasid.models.convolution import BRIGHTEST
from tasid.models.networks import Dense

POOL = 4
"""Images are looked at in squares of POOL × POOL pixels."""


@dataclass(frozen=True)
class ClusterNetwork:
    """Scores of N groups for one observation: a dense network, over averaged squares of images."""

    observation_shape: tuple[int, ...]
    clusters: int
    hidden: tuple[int, ...] = ()

    @property
    def inputs(self) -> int:
        """How many numbers of an observation the network sees."""
        if len(self.observation_shape) == 3:
            rows, columns, channels = self.observation_shape
            return (rows // POOL) * (columns // POOL) * channels
        return int(np.prod(self.observation_shape))

    @property
    def dense(self) -> Dense:
        """The network over those numbers."""
        return Dense(self.inputs, self.clusters, self.hidden)

    def features(self, observations: jax.Array) -> jax.Array:
        """What the network sees, float32 [B, inputs]: images coarsely, in 0 … 1."""
        width = observations.shape[0]
        if len(self.observation_shape) != 3:
            return observations.reshape(width, -1).astype(jnp.float32)
        rows, columns, channels = self.observation_shape
        high, wide = rows // POOL, columns // POOL
        used = observations[:, : high * POOL, : wide * POOL].astype(jnp.float32) / BRIGHTEST
        squares = used.reshape(width, high, POOL, wide, POOL, channels)
        return squares.mean(axis=(2, 4)).reshape(width, -1)

    def describe(self) -> dict[str, Any]:
        """The network as JSON."""
        return {
            **asdict(self),
            "observation_shape": list(self.observation_shape),
            "hidden": list(self.hidden),
        }

    @classmethod
    def from_description(cls, fields: dict[str, Any]) -> ClusterNetwork:
        """The inverse of `describe`."""
        shape = tuple(int(size) for size in fields["observation_shape"])
        return cls(shape, int(fields["clusters"]), tuple(int(n) for n in fields["hidden"]))


@partial(jax.tree_util.register_dataclass, data_fields=["parameters"], meta_fields=["network"])
@dataclass(frozen=True)
class Clusterer:
    """φ̂ as a pytree: a network and its parameters [P]."""

    parameters: jax.Array
    network: ClusterNetwork

    def __call__(self, observations: jax.Array) -> jax.Array:
        """The groups of first observations [W, …], int32 [W]."""
        features = self.network.features(observations)
        return jnp.argmax(self.network.dense.apply(self.parameters, features), axis=-1)
