"""Random keys: every episode is a function of (seed, phase, index).

Keys are threefry-2x32 keys, computed on the host as uint32 arrays [..., 2]; `fold_in` gives the
same bits as `jax.random.fold_in`, whatever JAX's default generator is. A seed has a root key, a
phase derives from the root, an episode from its phase, and everything random inside an episode from
the episode's key.
"""

from __future__ import annotations

import enum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Keys = NDArray[np.uint32]
"""Keys, uint32 [..., 2]."""

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


class Phase(enum.IntEnum):
    """What episodes are for; step h of Algorithm 2 collects in phase h."""

    LEARNING = 0
    NETWORKS = 1 << 29
    """Initialisation and training of networks."""
    EVALUATION = 1 << 30
    DIAGNOSIS = EVALUATION + 1
    STARTS = EVALUATION + 4
    """Episodes from which first observations are clustered (Algorithm 4)."""
    ONLINE = EVALUATION + 6
    """Episodes of Algorithm 3."""
    RECORDING = EVALUATION + 7
    CONTINUED = EVALUATION + 8
    """Learning that continues from a policy."""
    DISCOVERY = EVALUATION + 9
    CERTIFICATION = EVALUATION + 32
    """Plus the number of the attempt."""


def seed_key(seed: Any) -> Keys:
    """The root key of a seed in 0 … 2³² − 1."""
    whole = isinstance(seed, int | np.integer) and not isinstance(seed, bool)
    if not whole or not 0 <= seed < 2**32:
        raise ValueError(f"seed: {seed!r} is not an integer in 0 … 2³² − 1")
    return np.array([0, seed], np.uint32)


def fold_in(key: Keys, numbers: ArrayLike) -> Keys:
    """Keys derived from a key [..., 2] for numbers [...], broadcast against each other."""
    numbers = np.asarray(numbers, np.uint32)
    return threefry(key, np.zeros_like(numbers), numbers)


def episode_keys(seed: int, phase: int, first: int, count: int) -> Keys:
    """Keys [count, 2] of the episodes first, first + 1, … of a phase."""
    return fold_in(fold_in(seed_key(seed), phase), np.arange(first, first + count))


def uniforms(keys: Keys, count: int) -> NDArray[np.float64]:
    """Numbers in [0, 1), two for every counter, [..., count, 2]."""
    counters = np.arange(count, dtype=np.uint32)
    bits = threefry(keys[..., None, :], counters, counters)
    return bits.astype(np.float64) * 2.0**-32


def threefry(keys: Keys, first: NDArray[np.uint32], second: NDArray[np.uint32]) -> Keys:
    """Threefry-2x32 with 20 rounds (Salmon et al., 2011) of counters (first, second)."""
    k0, k1 = keys[..., 0], keys[..., 1]
    schedule = (k0, k1, k0 ^ k1 ^ np.uint32(0x1BD11BDA))
    with np.errstate(over="ignore"):
        x0, x1 = first + k0, second + k1
        for block in range(5):
            for rotation in _ROTATIONS[block % 2]:
                x0 = x0 + x1
                x1 = (x1 << np.uint32(rotation)) | (x1 >> np.uint32(32 - rotation))
                x1 = x1 ^ x0
            x0 = x0 + schedule[(block + 1) % 3]
            x1 = x1 + schedule[(block + 2) % 3] + np.uint32(block + 1)
    return np.stack(np.broadcast_arrays(x0, x1), axis=-1)
