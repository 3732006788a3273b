"""Networks as static descriptions over one flat parameter vector.

A network is hashable and knows its shapes; its parameters are a single float32 vector, which makes
Adam and clipping one operation each, stacks over steps and seeds, and maps 1:1 to a file.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from tasid.models.convolution import BRIGHTEST, CNN, Layers, fresh_parameters, num_parameters


class Network(Protocol):
    """Scores of every label for a transition x → x'; hashable, so that it can be compiled in."""

    @property
    def num_labels(self) -> int:
        """L."""

    @property
    def num_parameters(self) -> int:
        """The length of the flat parameter vector."""

    def init(self, key: jax.Array) -> jax.Array:
        """Fresh parameters [P]."""

    def apply(self, parameters: jax.Array, x: jax.Array, x_next: jax.Array) -> jax.Array:
        """Unnormalised log-scores [B, L] for observations [B, …] and [B, …]."""

    def describe(self) -> dict[str, Any]:
        """What `network_from` needs to build it again, as JSON."""


@dataclass(frozen=True)
class Dense:
    """ReLU layers over one flat input."""

    inputs: int
    outputs: int
    hidden: tuple[int, ...] = (56, 56)

    @property
    def _layers(self) -> Layers:
        return list(pairwise([self.inputs, *self.hidden, self.outputs]))

    @property
    def num_parameters(self) -> int:
        return num_parameters(self._layers)

    def init(self, key: jax.Array) -> jax.Array:
        return fresh_parameters(self._layers, key)

    def apply(self, parameters: jax.Array, x: jax.Array) -> jax.Array:
        """Outputs [B, outputs] for inputs [B, inputs]."""
        sizes = [size for rows, columns in self._layers for size in (rows * columns, columns)]
        # One split, because the gradient of many slices is a sum of as many padded vectors.
        parts = jnp.split(parameters, list(accumulate(sizes[:-1])))
        for number, shape in enumerate(self._layers):
            x = jax.nn.relu(x) if number else x
            x = x @ parts[2 * number].reshape(shape) + parts[2 * number + 1][None]
        return x

    def describe(self) -> dict[str, Any]:
        return {"kind": "dense", **asdict(self)}


@dataclass(frozen=True)
class Camera:
    """The paper's convolutions for images, over one image in a flat row of brightnesses 0 … 1."""

    shape: tuple[int, int, int]
    outputs: int

    @property
    def _cnn(self) -> CNN:
        return CNN(self.shape, self.outputs, images=1)

    @property
    def inputs(self) -> int:
        """How long a row is."""
        return math.prod(self.shape)

    @property
    def num_parameters(self) -> int:
        return self._cnn.num_parameters

    def init(self, key: jax.Array) -> jax.Array:
        return self._cnn.init(key)

    def apply(self, parameters: jax.Array, x: jax.Array) -> jax.Array:
        """Outputs [B, outputs] for rows [B, inputs]."""
        return self._cnn.apply(parameters, x.reshape(-1, *self.shape) * BRIGHTEST)

    def describe(self) -> dict[str, Any]:
        return {"kind": "camera", **asdict(self)}


POOL = 4
"""A `Clusterer` looks at images in squares of POOL × POOL pixels."""
_SMALLEST = 20
"""The shortest side of an image on which the kernels of a `Camera` fit."""
Sight = Dense | Camera
"""A network over single observations, which are flat rows."""


def sight_of(shape: tuple[int, ...], outputs: int, hidden: tuple[int, ...]) -> Sight:
    """Convolutions for images they fit on, dense layers for everything else."""
    if len(shape) == 3 and min(shape[:2]) >= _SMALLEST:
        return Camera((shape[0], shape[1], shape[2]), outputs)
    return Dense(math.prod(shape), outputs, hidden)


def sight_from(description: dict[str, Any]) -> Sight:
    """The inverse of `describe`."""
    fields = dict(description)
    kind = fields.pop("kind", None)
    if kind == "dense":
        inputs, outputs, *hidden = (
            int(size) for size in (fields["inputs"], fields["outputs"], *fields["hidden"])
        )
        if min(inputs, outputs, *hidden) < 1:
            raise ValueError(f"network: sizes {fields} are not all above 0")
        return Dense(inputs, outputs, tuple(hidden))
    if kind == "camera":
        rows, columns, channels = (int(size) for size in fields["shape"])
        return Camera((rows, columns, channels), int(fields["outputs"]))
    raise ValueError(f"network: kind {kind!r} is unknown; this version knows: dense, camera")


@dataclass(frozen=True)
class MLP:
    """A dense network over the two observations side by side."""

    observation_size: int
    num_labels: int
    hidden: tuple[int, ...] = (56, 56)

    @property
    def _dense(self) -> Dense:
        return Dense(2 * self.observation_size, self.num_labels, self.hidden)

    @property
    def num_parameters(self) -> int:
        return self._dense.num_parameters

    def init(self, key: jax.Array) -> jax.Array:
        return self._dense.init(key)

    def apply(self, parameters: jax.Array, x: jax.Array, x_next: jax.Array) -> jax.Array:
        width = x.shape[0]
        both = jnp.concatenate([x.reshape(width, -1), x_next.reshape(width, -1)], axis=1)
        return self._dense.apply(parameters, both)

    def describe(self) -> dict[str, Any]:
        return {"kind": "mlp", **asdict(self)}


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
        return math.prod(self.observation_shape)

    @property
    def dense(self) -> Dense:
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
        return asdict(self)

    @classmethod
    def from_description(cls, fields: dict[str, Any]) -> ClusterNetwork:
        """The inverse of `describe`."""
        shape = tuple(int(size) for size in fields["observation_shape"])
        return cls(shape, int(fields["clusters"]), tuple(int(n) for n in fields["hidden"]))


@partial(jax.tree_util.register_dataclass, data_fields=["parameters"], meta_fields=["network"])
@dataclass(frozen=True)
class Clusterer:
    """φ̂: X → [N], which of N groups a first observation belongs to: a network, and parameters [P].

    It is a pytree.
    """

    parameters: jax.Array
    network: ClusterNetwork

    def __call__(self, observations: jax.Array) -> jax.Array:
        """The groups of first observations [W, …], int32 [W]."""
        features = self.network.features(observations)
        return jnp.argmax(self.network.dense.apply(self.parameters, features), axis=-1)


def network_from(description: dict[str, Any]) -> Network:
    """The inverse of `describe`."""
    fields = dict(description)
    kind = fields.pop("kind", None)
    if kind == "mlp":
        return MLP(**{**fields, "hidden": tuple(fields["hidden"])})
    if kind == "cnn":
        return CNN.from_description(fields)
    raise ValueError(f"network: kind {kind!r} is unknown; this version knows: mlp, cnn")
