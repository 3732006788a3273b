"""A network for pairs of images that needs fewer of them than the paper's, and far less time.

Both pictures pass the same first layer, which reads patches. It is not learned but measured: the
principal components of the patches in the first pictures, which tell what things look like without
a label. Only then do the pictures meet, in layers that learn. What the first layer sees of a
picture never changes, so it is computed once, and training works on that.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tasid.learning.convolution import Convolution, convolve

_COARSE = 10
"""Grids wider than this are halved before the last convolution."""
_PATCHES = 50_000
"""Patches that are looked at to measure the first layer."""
_ONE_COLOUR = 0.1
"""How much patches of one colour are expected to vary, if none did so far, as a part of the
largest variance: what was not in the first pictures may differ from them by its colour."""
_NOISE = 1.2
"""Components whose variance is not so many times the median one are noise."""


@dataclass(frozen=True)
class SiameseCNN:
    """Measured patches of either image, convolutions over both side by side, one hidden layer.

    Images are [rows, columns, channels], uint8 or float. In the parameter vector every layer has
    its kernel and its biases, the measured one first.
    """

    observation_shape: tuple[int, int, int]
    num_labels: int
    patch: int = 8
    features: int = 8
    channels: int = 32
    hidden: int = 128

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
        """Kernels and biases of all layers."""
        return sum(math.prod(shape) + shape[-1] for shape in self._shapes)

    @property
    def num_measured(self) -> int:
        """How many of them the first layer has."""
        shape = self._shapes[0]
        return math.prod(shape) + shape[-1]

    @property
    def comparison(self) -> Comparison:
        """The layers that learn."""
        return Comparison(self)

    def init(self, key: jax.Array) -> jax.Array:
        """Every entry of a layer uniform in ±1/√fan_in."""
        parts = []
        for number, shape in enumerate(self._shapes):
            bound = 1.0 / math.sqrt(math.prod(shape[:-1]))
            size = (math.prod(shape) + shape[-1],)
            layer_key = jax.random.fold_in(key, number)
            parts.append(jax.random.uniform(layer_key, size, jnp.float32, -bound, bound))
        return jnp.concatenate(parts)

    def measure(self, images: NDArray[Any]) -> NDArray[np.float32]:
        """The first layer's parameters, from images [n, rows, columns, channels].

        With the variance λ of each principal component and the variance ν of noise, components are
        scaled by √((λ−ν)/λ): what is noise for the most part is let through as little.
        """
        patches = self._patches(images)
        centre, covariance = patches.mean(axis=0), np.cov(patches, rowvar=False)
        variances = np.linalg.eigvalsh(covariance)
        largest, noise = float(variances[-1]), _NOISE * max(float(np.median(variances)), 0.0)
        colours = np.tile(np.eye(self.observation_shape[2]), (self.patch**2, 1)) / self.patch
        variances, components = np.linalg.eigh(
            covariance + _ONE_COLOUR * largest * colours @ colours.T
        )
        variances, components = variances[::-1][: self.features], components[:, ::-1]
        if variances[0] <= 0.0:  # one picture in one colour: there is nothing to measure
            return np.zeros(self.num_measured, np.float32)
        passed = np.sqrt(np.maximum(variances - noise, 0.0) / np.maximum(variances, 1e-12))
        kernel = components[:, : self.features] * passed / math.sqrt(variances[0])
        return np.concatenate([kernel.ravel(), -centre @ kernel]).astype(np.float32)

    def look(self, measured: jax.Array, images: jax.Array) -> jax.Array:
        """What the first layer sees of images, [B, rows / patch, columns / patch, features]."""
        first = self._convolutions[0]
        (kernel, shift), *_ = self._parts(measured, self._shapes[:1])
        return convolve(first, [images], kernel) + shift[None, None, None]

    def compare(self, learned: jax.Array, seen: jax.Array, seen_next: jax.Array) -> jax.Array:
        """Scores [B, L] for what was seen of two pictures."""
        *layers, (hidden, shift), (weights, bias) = self._parts(learned, self._shapes[1:])
        image = jnp.concatenate([seen, seen_next], axis=-1)
        for layer, (kernel, start) in zip(self._convolutions[1:], layers, strict=True):
            image = jax.nn.relu(convolve(layer, [image], kernel) + start[None, None, None])
        flat = jax.nn.relu(image.reshape(seen.shape[0], -1) @ hidden + shift[None])
        return flat @ weights + bias[None]

    def apply(self, parameters: jax.Array, x: jax.Array, x_next: jax.Array) -> jax.Array:
        """Scores [B, L]."""
        measured, learned = jnp.split(parameters, [self.num_measured])
        seen = self.look(measured, jnp.concatenate([x, x_next]))
        return self.compare(learned, seen[: x.shape[0]], seen[x.shape[0] :])

    def _patches(self, images: NDArray[Any]) -> NDArray[np.float64]:
        """Patches of some of the images, as rows."""
        rows, columns = self._convolutions[0].output
        few = images[:: max(1, len(images) * rows * columns // _PATCHES)]
        cut = few[:, : rows * self.patch, : columns * self.patch]
        parted = cut.reshape(len(few), rows, self.patch, columns, self.patch, -1)
        grouped = parted.transpose(0, 1, 3, 2, 4, 5)
        return grouped.reshape(len(few) * rows * columns, -1).astype(np.float64)

    @staticmethod
    def _parts(
        parameters: jax.Array, shapes: list[tuple[int, ...]]
    ) -> list[tuple[jax.Array, jax.Array]]:
        found, offset = [], 0
        for shape in shapes:
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


@dataclass(frozen=True)
class Comparison:
    """The layers of a network that learn, as a network of what its first layer sees."""

    whole: SiameseCNN

    @property
    def num_labels(self) -> int:
        """As of the whole."""
        return self.whole.num_labels

    @property
    def num_parameters(self) -> int:
        """All but the measured ones."""
        return self.whole.num_parameters - self.whole.num_measured

    def init(self, key: jax.Array) -> jax.Array:
        """Fresh parameters [P]."""
        return self.whole.init(key)[self.whole.num_measured :]

    def apply(self, parameters: jax.Array, x: jax.Array, x_next: jax.Array) -> jax.Array:
        """Scores [B, L] for what the first layer saw."""
        return self.whole.compare(parameters, x, x_next)

    def describe(self) -> dict[str, Any]:
        """It is saved as a part of the whole."""
        return self.whole.describe()


def fits(shape: tuple[int, ...], patch: int = 8) -> bool:
    """Is this the shape of an image with at least one patch?"""
    return len(shape) == 3 and min(shape[:2]) >= patch and shape[2] <= 4
