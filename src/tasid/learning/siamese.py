"""A network for pairs of images that needs fewer of them than the paper's.

Both pictures pass the same first layer, which reads patches and so learns once what things look
like, from either picture; only then do they meet. Pixels are standardised per channel inside, by
numbers that are measured once and travel with the parameters.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import jax
import jax.numpy as jnp

from tasid.learning.convolution import Convolution, convolve

_COARSE = 10
"""Grids wider than this are halved before the last convolution."""


@dataclass(frozen=True)
class SiameseCNN:
    """Patches of either image, convolutions over both side by side, one hidden layer.

    Images are [rows, columns, channels], uint8 or float. The parameter vector starts with the
    centre and the scale of every channel, which no gradient moves; then every layer has its kernel
    and its biases.
    """

    observation_shape: tuple[int, int, int]
    num_labels: int
    patch: int = 8
    features: int = 16
    channels: int = 32
    hidden: int = 64

    def __post_init__(self) -> None:
        if not fits(self.observation_shape, self.patch):
            raise ValueError(
                f"observation_shape: {self.observation_shape} is no image of at least one patch; "
                f"give (rows, columns, channels) with {self.patch} rows and columns or more"
            )

    @property
    def _convolutions(self) -> list[Convolution]:
        """The shared layer first; then as many as the grid of patches calls for."""
        rows, columns, channels = self.observation_shape
        first = Convolution(rows, columns, channels, self.patch, self.features, self.patch)
        found = [first]
        channels = 2 * self.features
        while max(found[-1].output) > _COARSE and min(found[-1].output) >= 4:
            found.append(Convolution(*found[-1].output, channels, 4, self.channels, 2))
            channels = self.channels
        if min(found[-1].output) >= 3:
            found.append(Convolution(*found[-1].output, channels, 3, self.channels, 1))
        return found

    @property
    def _shapes(self) -> list[tuple[int, ...]]:
        """Kernels of the convolutions, then weights of the dense layers."""
        convolutions = self._convolutions
        last = convolutions[-1]
        pair = 2 if len(convolutions) == 1 else 1
        flat = pair * math.prod(last.output) * last.channels
        kernels = [(one.size, one.size, one.channels_in, one.channels) for one in convolutions]
        return [*kernels, (flat, self.hidden), (self.hidden, self.num_labels)]

    @property
    def num_parameters(self) -> int:
        """Centres and scales, and the kernels and biases of all layers."""
        sizes = [math.prod(shape) + shape[-1] for shape in self._shapes]
        return 2 * self.observation_shape[2] + sum(sizes)

    def init(self, key: jax.Array) -> jax.Array:
        """Every entry of a layer uniform in ±1/√fan_in; nothing is standardised yet."""
        channels = self.observation_shape[2]
        parts = [jnp.zeros(channels), jnp.ones(channels)]
        for number, shape in enumerate(self._shapes):
            bound = 1.0 / math.sqrt(math.prod(shape[:-1]))
            size = (math.prod(shape) + shape[-1],)
            layer_key = jax.random.fold_in(key, number)
            parts.append(jax.random.uniform(layer_key, size, jnp.float32, -bound, bound))
        return jnp.concatenate(parts)

    def standardised(self, parameters: jax.Array, centre: jax.Array, scale: jax.Array) -> jax.Array:
        """The parameters with the centre and the scale [channels] that pixels enter with."""
        rest = parameters[2 * self.observation_shape[2] :]
        return jnp.concatenate([jnp.asarray(centre), jnp.asarray(scale), rest])

    def apply(self, parameters: jax.Array, x: jax.Array, x_next: jax.Array) -> jax.Array:
        """Scores [B, L]."""
        channels, width = self.observation_shape[2], x.shape[0]
        centre, scale = jax.lax.stop_gradient(parameters[: 2 * channels]).reshape(2, channels)
        *layers, (hidden, shift), (weights, bias) = self._parts(parameters)
        first, *rest = self._convolutions
        (kernel, start), *others = layers
        # Standardising the kernel spares a pass over the pixels.
        kernel = kernel / scale[None, None, :, None]
        start = start - (kernel * centre[None, None, :, None]).sum(axis=(0, 1, 2))
        pixels = jnp.concatenate([x, x_next])
        seen = jax.nn.relu(convolve(first, [pixels], kernel) + start[None, None, None])
        image = jnp.concatenate([seen[:width], seen[width:]], axis=-1)
        for layer, (kernel, start) in zip(rest, others, strict=True):
            image = jax.nn.relu(convolve(layer, [image], kernel) + start[None, None, None])
        flat = jax.nn.relu(image.reshape(width, -1) @ hidden + shift[None])
        return flat @ weights + bias[None]

    def _parts(self, parameters: jax.Array) -> list[tuple[jax.Array, jax.Array]]:
        found, offset = [], 2 * self.observation_shape[2]
        for shape in self._shapes:
            middle, end = offset + math.prod(shape), offset + math.prod(shape) + shape[-1]
            found.append((parameters[offset:middle].reshape(shape), parameters[middle:end]))
            offset = end
        return found

    def describe(self) -> dict[str, Any]:
        """The network as JSON."""
        return {"kind": "siamese", **asdict(self), "observation_shape": [*self.observation_shape]}

    @classmethod
    def from_description(cls, fields: dict[str, Any]) -> SiameseCNN:
        """The inverse of `describe`, its kind left out."""
        rows, columns, channels = fields["observation_shape"]
        return cls(**{**fields, "observation_shape": (rows, columns, channels)})


def fits(shape: tuple[int, ...], patch: int = 8) -> bool:
    """Is this the shape of an image with at least one patch?"""
    return len(shape) == 3 and min(shape[:2]) >= patch and shape[2] <= 4
