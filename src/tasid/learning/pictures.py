"""Pairs of pictures: a layer that is measured, and a network that learns from what it sees.

Both pictures pass the same first layer, which reads patches. It is not learned but measured: the
principal components of the patches in the first pictures, which tell what things look like without
a label. Only then do the pictures meet, in a head that learns. What the first layer sees of a
picture never changes, so it is computed once, and training works on that.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tasid.learning.convolution import Convolution, convolve

if TYPE_CHECKING:
    from tasid.learning.networks import Network

_FINE = 8
"""Patches are as many pixels high and wide, or as many blocks of pixels in large pictures, …"""
_COARSE = 10
"""… so that there are no more than so many of them in a row."""
_PATCHES = 50_000
"""Patches that are looked at to measure the layer."""
_ONE_COLOUR = 0.1
"""How much patches of one colour are expected to vary, if none did so far, as a part of the
largest variance: what was not in the first pictures may differ from them by its colour."""
_NOISE = 1.2
"""Components whose variance is not so many times the median one are noise."""


@dataclass(frozen=True)
class Patches:
    """The measured layer, for pictures [rows, columns, channels] of uint8 or float.

    Its parameters are a kernel and a bias for every feature, in one vector.
    """

    shape: tuple[int, int, int]
    features: int = 8

    def __post_init__(self) -> None:
        if not is_picture(self.shape):
            raise ValueError(
                f"shape: {self.shape} is no picture of at least one patch; give "
                f"(rows, columns, channels) with {_FINE} rows and columns or more"
            )

    @property
    def block(self) -> int:
        """Pixels, in a row, that are averaged before patches are measured."""
        rows, columns, _ = self.shape
        return min(-(-max(rows, columns) // (_COARSE * _FINE)), min(rows, columns) // _FINE)

    @property
    def grid(self) -> tuple[int, int, int]:
        """Rows and columns of patches, and features of each."""
        return (*self._layer.output, self.features)

    @property
    def num_parameters(self) -> int:
        """A weight for every pixel of a patch and channel, and a bias, for every feature."""
        return (self._layer.fan_in + 1) * self.features

    def measure(self, pictures: NDArray[Any]) -> NDArray[np.float32]:
        """The layer's parameters, from pictures [n, rows, columns, channels].

        With the variance λ of each principal component and the variance ν of noise, components are
        scaled by √((λ−ν)/λ): what is noise for the most part is let through as little.
        """
        patches, channels = self._cut(pictures), self.shape[2]
        centre, covariance = patches.mean(axis=0), np.cov(patches, rowvar=False)
        variances = np.linalg.eigvalsh(covariance)
        largest, noise = float(variances[-1]), _NOISE * max(float(np.median(variances)), 0.0)
        colours = np.tile(np.eye(channels), (_FINE**2, 1)) / _FINE
        variances, components = np.linalg.eigh(
            covariance + _ONE_COLOUR * largest * colours @ colours.T
        )
        variances, components = variances[::-1][: self.features], components[:, ::-1]
        if variances[0] <= 0.0:  # one picture in one colour: there is nothing to measure
            return np.zeros(self.num_parameters, np.float32)
        passed = np.sqrt(np.maximum(variances - noise, 0.0) / np.maximum(variances, 1e-12))
        kernel = components[:, : self.features] * passed / math.sqrt(variances[0])
        fine = kernel.reshape(_FINE, _FINE, channels, self.features) / self.block**2
        fine = fine.repeat(self.block, axis=0).repeat(self.block, axis=1)
        return np.concatenate([fine.ravel(), -centre @ kernel]).astype(np.float32)

    def look(self, parameters: jax.Array, pictures: jax.Array) -> jax.Array:
        """What the layer sees of pictures [B, rows, columns, channels], [B, *grid]."""
        layer = self._layer
        shape = (layer.size, layer.size, layer.channels_in, layer.channels)
        kernel, bias = parameters[: -self.features].reshape(shape), parameters[-self.features :]
        return convolve(layer, [pictures], kernel) + bias[None, None, None]

    @property
    def _layer(self) -> Convolution:
        rows, columns, channels = self.shape
        patch = _FINE * self.block
        return Convolution(rows, columns, channels, patch, self.features, patch)

    def _cut(self, pictures: NDArray[Any]) -> NDArray[np.float64]:
        """Patches of some of the pictures, blocks averaged, as rows."""
        rows, columns = self._layer.output
        few = pictures[:: max(1, len(pictures) * rows * columns // _PATCHES)]
        high, wide = rows * _FINE, columns * _FINE
        used = few[:, : high * self.block, : wide * self.block]
        blocks = used.reshape(len(few), high, self.block, wide, self.block, -1)
        pixels = blocks.mean(axis=(2, 4), dtype=np.float64)
        parted = pixels.reshape(len(few), rows, _FINE, columns, _FINE, -1)
        return parted.transpose(0, 1, 3, 2, 4, 5).reshape(len(few) * rows * columns, -1)


@dataclass(frozen=True)
class GridCNN:
    """A head: one convolution over both grids of features side by side, and one hidden layer."""

    grid: tuple[int, int, int]
    num_labels: int
    channels: int = 32
    hidden: int = 128

    @property
    def _convolutions(self) -> list[Convolution]:
        """None where the grid is too small for one."""
        rows, columns, features = self.grid
        found = Convolution(rows, columns, 2 * features, 3, self.channels, 1)
        return [found] if min(rows, columns) >= found.size else []

    @property
    def _shapes(self) -> list[tuple[int, ...]]:
        """The convolution's kernel, then weights of the dense layers."""
        flat, kernels = 2 * math.prod(self.grid), []
        for one in self._convolutions:
            kernels.append((one.size, one.size, one.channels_in, one.channels))
            flat = math.prod(one.output) * one.channels
        return [*kernels, (flat, self.hidden), (self.hidden, self.num_labels)]

    @property
    def num_parameters(self) -> int:
        """Kernels and biases of all layers."""
        return sum(math.prod(shape) + shape[-1] for shape in self._shapes)

    def init(self, key: jax.Array) -> jax.Array:
        """Every entry of a layer uniform in ±1/√fan_in."""
        parts = []
        for number, shape in enumerate(self._shapes, start=1):
            bound = 1.0 / math.sqrt(math.prod(shape[:-1]))
            size = (math.prod(shape) + shape[-1],)
            layer_key = jax.random.fold_in(key, number)
            parts.append(jax.random.uniform(layer_key, size, jnp.float32, -bound, bound))
        return jnp.concatenate(parts)

    def apply(self, parameters: jax.Array, x: jax.Array, x_next: jax.Array) -> jax.Array:
        """Scores [B, L] for what was seen of two pictures."""
        *layers, (hidden, shift), (weights, bias) = self._parts(parameters)
        image = jnp.concatenate([x, x_next], axis=-1)
        for layer, (kernel, start) in zip(self._convolutions, layers, strict=True):
            image = jax.nn.relu(convolve(layer, [image], kernel) + start[None, None, None])
        flat = jax.nn.relu(image.reshape(x.shape[0], -1) @ hidden + shift[None])
        return flat @ weights + bias[None]

    def _parts(self, parameters: jax.Array) -> list[tuple[jax.Array, jax.Array]]:
        found, offset = [], 0
        for shape in self._shapes:
            middle, end = offset + math.prod(shape), offset + math.prod(shape) + shape[-1]
            found.append((parameters[offset:middle].reshape(shape), parameters[middle:end]))
            offset = end
        return found

    def describe(self) -> dict[str, Any]:
        """The network as JSON."""
        return {"kind": "grid", **asdict(self), "grid": [*self.grid]}

    @classmethod
    def from_description(cls, fields: dict[str, Any]) -> GridCNN:
        """The inverse of `describe`, its kind left out."""
        rows, columns, features = fields["grid"]
        return cls(**{**fields, "grid": (rows, columns, features)})


@dataclass(frozen=True)
class PictureNetwork:
    """The measured layer and a head: a network of pictures, the layer's parameters first."""

    patches: Patches
    head: Network

    @property
    def num_labels(self) -> int:
        """The head's."""
        return self.head.num_labels

    @property
    def num_parameters(self) -> int:
        """Measured and learned ones."""
        return self.patches.num_parameters + self.head.num_parameters

    def init(self, key: jax.Array) -> jax.Array:
        """A layer that sees nothing, as long as nothing was measured, and a fresh head."""
        return jnp.concatenate([jnp.zeros(self.patches.num_parameters), self.head.init(key)])

    def apply(self, parameters: jax.Array, x: jax.Array, x_next: jax.Array) -> jax.Array:
        """Scores [B, L]."""
        measured, learned = jnp.split(parameters, [self.patches.num_parameters])
        seen = self.patches.look(measured, jnp.concatenate([x, x_next]))
        return self.head.apply(learned, seen[: x.shape[0]], seen[x.shape[0] :])

    def describe(self) -> dict[str, Any]:
        """The network as JSON."""
        patches = {"shape": [*self.patches.shape], "features": self.patches.features}
        return {"kind": "pictures", "patches": patches, "head": self.head.describe()}


def is_picture(shape: tuple[int, ...]) -> bool:
    """Is this the shape of a picture with at least one patch?"""
    return len(shape) == 3 and min(shape[:2]) >= _FINE and shape[2] <= 4
