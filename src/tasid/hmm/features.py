"""From observations to features: vectors as they are, pictures by principal components."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Float64, Shaped
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class FeatureConfig:
    """How observations become features."""

    picture_components: int = 64
    """Principal components kept of a picture."""
    vector_components: int = 128
    """Longer vectors are reduced to this many principal components."""
    picture_side: int = 14
    """Pictures are averaged over squares down to about this many a side: pixels are noisy."""
    sample: int = 4_000
    """Observations that principal components are computed from."""


@dataclass(frozen=True, eq=False)
class FeatureMap:
    """An affine map of observations, after averaging squares of pixels."""

    centre: Float32[Array, " P"]
    components: Float32[Array, "P D"] | None
    """None keeps observations as they are (for models that compute their own features)."""
    step_means: Float32[Array, "layers D"]
    """Mean features of all steps or of each of H+1. Where states belong to steps, what all
    observations of a step have in common tells nothing."""
    pool: int
    """Side of the squares that are averaged; 0 for vectors."""

    @property
    def size(self) -> int:
        """D."""
        return int(self.step_means.shape[1])

    def __call__(self, observations: Shaped[Array, "n ..."], h: int) -> Float32[Array, "n D"]:
        """Features of observations of step h."""
        flat = flatten(observations, self.pool)
        if self.components is None:
            return flat
        step_mean = self.step_means[min(h, len(self.step_means) - 1)]
        return (flat - self.centre) @ self.components - step_mean

    def sequences(
        self, observations: Shaped[Array, "N frames ..."]
    ) -> Float32[Array, "N frames D"]:
        """Features of whole episodes."""
        steps = range(observations.shape[1])
        return np.stack([self(observations[:, h], h) for h in steps], axis=1)

    @classmethod
    def raw(cls, shape: tuple[int, ...]) -> FeatureMap:
        """Observations as they are, in flat rows."""
        size = math.prod(shape)
        return cls(np.zeros(size, np.float32), None, np.zeros((1, size), np.float32), 0)

    @classmethod
    def fit(cls, observations: Shaped[Array, "n ..."], config: FeatureConfig) -> FeatureMap:
        """Features for observations like these."""
        shape = observations.shape[1:]
        pool = max(1, min(shape[:2]) // config.picture_side) if is_picture(shape) else 0
        flat = flatten(observations, pool).astype(np.float64)
        centre, size = flat.mean(axis=0), flat.shape[1]
        most = config.picture_components if pool else config.vector_components
        if size <= most:
            components = np.eye(size) / (flat.std() or 1.0)
        else:
            kept = min(most, len(flat) - 1)
            squares, basis = _principal_components(flat - centre, kept)
            components = np.zeros((size, most))
            components[:, :kept] = basis / math.sqrt(max(squares.mean() / len(flat), 1e-12))
        step_means = np.zeros((1, components.shape[1]), np.float32)
        return cls(centre.astype(np.float32), components.astype(np.float32), step_means, pool)

    def centred_by_step(
        self, observations: Shaped[Array, "N frames ..."], valid: Bool[Array, "N frames"]
    ) -> FeatureMap:
        """The same, centred at every step on the valid observations."""
        assert self.components is not None
        means = np.tile(self.centre.astype(np.float64), (observations.shape[1], 1))
        for h in np.flatnonzero(valid.any(axis=0)):
            means[h] = flatten(observations[valid[:, h], h], self.pool).mean(axis=0, dtype=float)
        centred = (means - self.centre) @ self.components.astype(np.float64)
        return replace(self, step_means=centred.astype(np.float32))


def is_picture(shape: tuple[int, ...]) -> bool:
    """Is an observation of this shape a picture?"""
    return len(shape) == 3 and min(shape[:2]) >= 20


def flatten(observations: Shaped[Array, "n ..."], pool: int) -> Float32[Array, "n P"]:
    """Vectors of numbers, or of averaged pixels between 0 and 1."""
    n = len(observations)
    if pool == 0:
        return observations.astype(np.float32).reshape(n, -1)
    _, height, width, channels = observations.shape
    rows, columns = height // pool, width // pool
    # Sums of so few bytes fit into 16 bits, which are narrower than floats and exact.
    dtype = np.uint16 if observations.dtype == np.uint8 and pool <= 16 else np.float32
    x = observations[:, : rows * pool, : columns * pool]
    x = x.reshape(n, rows, pool, columns * pool * channels)
    x = reduce(add, [x[:, :, i].astype(dtype) for i in range(pool)])
    x = x.reshape(n, rows, columns, pool, channels)
    x = reduce(add, [x[:, :, :, i] for i in range(pool)])
    return (x.astype(np.float32) / np.float32(pool**2 * 255)).reshape(n, -1)


def _principal_components(
    centred: Float64[Array, "n P"], kept: int
) -> tuple[Float64[Array, " kept"], Float64[Array, "P kept"]]:
    """The largest squared singular values of rows, and their directions."""
    if len(centred) < centred.shape[1]:
        _, values, basis = np.linalg.svd(centred, full_matrices=False)
        return values[:kept] ** 2, basis[:kept].T
    values, vectors = np.linalg.eigh(centred.T @ centred)  # far quicker than by the rows
    return values[: -kept - 1 : -1], vectors[:, : -kept - 1 : -1]
