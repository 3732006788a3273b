"""Which states look alike: an observation that two states share cannot tell them apart."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray


def looks_of(observations: Iterable[ArrayLike]) -> NDArray[np.int32]:
    """Numbers 0, 1, … of what each state looks like, [S], from its noiseless observation.

    States with exactly equal observations get the same number; numbers follow first appearance.
    """
    first: dict[tuple[tuple[int, ...], bytes], int] = {}
    looks = []
    for observation in observations:
        array = np.ascontiguousarray(observation)
        looks.append(first.setdefault((array.shape, array.tobytes()), len(first)))
    return np.array(looks, dtype=np.int32)
