"""How much memory learning will take, told before it is taken."""

from __future__ import annotations

import math
import os

import numpy as np

from tasid.beliefs.features import LARGEST_VECTOR

_SPARE = 0.9
"""The share of the free memory that may be planned with."""
GIB = float(2**30)


def free_bytes() -> int | None:
    """Memory that could be had without swapping; None where the system does not tell."""
    try:
        with open("/proc/meminfo") as lines:
            told = dict(line.split(":", 1) for line in lines)
        return int(told["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return None


def bytes_of_learning(
    method: str, episodes: int, *, horizon: int, shape: tuple[int, ...], dtype: str
) -> int:
    """What the data of a run take at least.

    By beliefs all observations are kept, with a second copy while batches are joined, and their
    features; by the paper's method the two observations of every episode of a step.
    """
    size, item = math.prod(shape), np.dtype(dtype).itemsize
    if method == "belief":
        return episodes * (horizon + 1) * (2 * size * item + 4 * min(size, LARGEST_VECTOR))
    return (episodes // horizon) * 2 * size * item


def check_memory(
    method: str, episodes: int, *, horizon: int, shape: tuple[int, ...], dtype: str
) -> None:
    """Refuse a number of episodes whose data would not fit, with what would."""
    free = free_bytes()
    needed = bytes_of_learning(method, episodes, horizon=horizon, shape=shape, dtype=dtype)
    if free is None or needed <= _SPARE * free:
        return
    one = bytes_of_learning(method, horizon, horizon=horizon, shape=shape, dtype=dtype) / horizon
    most = int(_SPARE * free / one)
    instead = "episodes='auto' takes as many as help" if method == "belief" else "use 'belief'"
    raise ValueError(
        f"episodes: {episodes} episodes of {horizon} steps with observations {shape} of {dtype} "
        f"take at least {needed / GIB:.1f} GiB, and {free / GIB:.1f} are free; give at most "
        f"{most}, or smaller observations; {instead}"
    )
