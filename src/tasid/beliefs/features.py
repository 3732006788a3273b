"""From raw observations to features: numbers as they are, pictures by principal components."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tasid.beliefs.chain import at
from tasid.beliefs.gaussian import summed_in_order
from tasid.targets.device import on_device

MOST_FEATURES = 64
"""Principal components kept of a picture."""
LARGEST_VECTOR = 128
"""Longer vectors are reduced to so many principal components."""
_GRID = 14
"""Pictures are averaged over squares down to about this many a side: pixels are noisy."""


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["centre", "components", "usual"],
    meta_fields=["shape", "pool"],
)
@dataclass(frozen=True)
class FeatureMap:
    """An affine map of observations, after averaging squares of pixels."""

    centre: jax.Array
    """[P]."""
    components: jax.Array
    """[P, D]."""
    usual: jax.Array
    """The mean features of every step, [1, D] or [H+1, D]: zeros where steps have no looks of their
    own. Where places belong to steps, what a whole step has in common tells nothing."""
    shape: tuple[int, ...]
    pool: int

    def __call__(self, observations: jax.Array, h: jax.Array) -> jax.Array:
        """Features [N, D] of observations [N, …] of step h."""
        centred = flattened(observations, self.pool) - self.centre[None]
        return centred @ self.components - at(self.usual, h)[None]

    def whole(self, observations: jax.Array) -> jax.Array:
        """Features [H+1, N, D] of whole episodes [N, H+1, …]."""
        centred = _whole(observations, self.pool) - self.centre[None, None]
        return centred @ self.components - self.usual[:, None]

    def exact(self, observations: jax.Array, h: jax.Array) -> jax.Array:
        """The same as for a call, the same bits for any number of rows."""
        rows = (flattened(observations, self.pool) - self.centre[None]).T
        return summed_in_order(rows, self.components).T - at(self.usual, h)[None]


@partial(jax.tree_util.register_dataclass, data_fields=[], meta_fields=["shape"])
@dataclass(frozen=True)
class AsSeen:
    """Observations as they are, in flat rows: for models that make their own features."""

    shape: tuple[int, ...]
    pool: ClassVar[int] = 0

    def __call__(self, observations: jax.Array, h: jax.Array) -> jax.Array:
        """Rows [N, P] of observations [N, …]."""
        return flattened(observations, 0)

    exact = __call__

    def whole(self, observations: jax.Array) -> jax.Array:
        """Rows [H+1, N, P] of whole episodes [N, H+1, …]."""
        return _whole(observations, 0)


def _whole(observations: jax.Array, pool: int) -> jax.Array:
    """Vectors [H+1, N, P] of whole episodes [N, H+1, …]."""
    number, steps, *shape = observations.shape
    rows = flattened(observations.reshape(-1, *shape), pool)
    return jnp.swapaxes(rows.reshape(number, steps, -1), 0, 1)


def flattened(observations: Any, pool: int) -> Any:
    """Vectors [N, P] of numbers, or of averaged pixels between 0 and 1; in NumPy or in JAX."""
    rows = observations.shape[0]
    if pool == 0:
        return observations.astype(np.float32).reshape(rows, -1)
    _, height, width, channels = observations.shape
    high, wide = height // pool, width // pool
    # Sums of so few bytes are whole numbers below 2¹⁶: narrower than floats, and as exact.
    kind = np.uint16 if observations.dtype == np.uint8 and pool <= 16 else np.float32
    x = observations[:, : high * pool, : wide * pool]
    x = x.reshape(rows, high, pool, wide * pool * channels)
    x = _added([x[:, :, k].astype(kind) for k in range(pool)])  # rows first: they are quicker
    x = x.reshape(rows, high, wide, pool, channels)
    x = _added([x[:, :, :, k] for k in range(pool)])
    return (x.astype(np.float32) / pool**2 / 255).reshape(rows, -1)


def _added(parts: list[Any]) -> Any:
    """Their sum; many times as fast in NumPy as along an axis that is short."""
    return reduce(operator.add, parts)


def is_picture(shape: tuple[int, ...]) -> bool:
    return len(shape) == 3 and min(shape[:2]) >= 20


def fit_features(observations: NDArray[np.generic]) -> FeatureMap:
    """The features for observations like these, [n, …], with no step unlike another."""
    shape = observations.shape[1:]
    pool = max(1, min(shape[:2]) // _GRID) if is_picture(shape) else 0
    flat = flattened(observations, pool).astype(np.float64)
    centre, size = flat.mean(axis=0), flat.shape[1]
    most = MOST_FEATURES if pool else LARGEST_VECTOR
    if size <= most:
        scale = flat.std()
        components = np.eye(size) / (scale if scale > 0 else 1.0)
    else:
        kept = min(most, len(flat) - 1)
        squares, basis = _principal(flat - centre, kept)
        scale = math.sqrt(max(squares.mean() / len(flat), 1e-12))
        components = np.zeros((size, most))
        components[:, :kept] = basis / scale
    return FeatureMap(
        centre=on_device(centre, np.float32),
        components=on_device(components, np.float32),
        usual=on_device(np.zeros((1, components.shape[1])), np.float32),
        shape=shape,
        pool=pool,
    )


def _principal(
    centred: NDArray[np.float64], kept: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The largest squared singular values of rows [n, P], and their directions, [P, kept]."""
    if len(centred) < centred.shape[1]:
        _, values, basis = np.linalg.svd(centred, full_matrices=False)
        return values[:kept] ** 2, basis[:kept].T
    values, vectors = np.linalg.eigh(centred.T @ centred)  # many times faster than of the rows
    return values[: -kept - 1 : -1], vectors[:, : -kept - 1 : -1]


def by_step(
    feature_map: FeatureMap, observations: NDArray[np.generic], live: NDArray[np.bool_]
) -> FeatureMap:
    """The same, centred step by step on observations [N, H+1, …], of which some are live."""
    centre = np.asarray(feature_map.centre, np.float64)
    means = np.tile(centre, (observations.shape[1], 1))
    for h in np.flatnonzero(live.any(axis=0)):
        seen = observations[live[:, h], h]
        means[h] = flattened(seen, feature_map.pool).mean(axis=0, dtype=np.float64)
    usual = (means - centre) @ np.asarray(feature_map.components, np.float64)
    return replace(feature_map, usual=on_device(usual, np.float32))
