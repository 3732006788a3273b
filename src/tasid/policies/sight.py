"""What agents see: the shape and type of observations, checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tasid.maps.size import refuse_larger

_ROWS = 128
"""As many observations as an agent may compute on at once."""


def checked_sight(meta: Mapping[str, Any]) -> tuple[tuple[int, ...], str]:
    """Shape and dtype of a stored policy's observations, of which agents make batches."""
    shape = tuple(int(n) for n in meta["observation_shape"])
    dtype = np.dtype(meta["observation_dtype"])
    if min(shape, default=1) < 1 or dtype.kind not in "biuf":
        raise ValueError(f"observations are of shape {shape} and dtype {dtype}")
    refuse_larger("observation_shape", (_ROWS, *shape), dtype.itemsize, "no target shows as much")
    return shape, dtype.name


def checked_observation(
    observation: ArrayLike, *, shape: tuple[int, ...], dtype: str, step: int
) -> np.ndarray:
    """The observation of a step as an agent takes it, or an error that says what is wrong."""
    array = np.asarray(observation)
    if array.shape != shape:
        raise ValueError(
            f"observation: shape {array.shape} at step {step}, but the policy was "
            f"learned on {shape}"
        )
    if array.dtype.kind not in "biuf":
        raise TypeError(f"observation: dtype {array.dtype} at step {step} is no number")
    if not np.isfinite(array).all():
        raise ValueError(f"observation: not finite at step {step}")
    return array.astype(dtype)
