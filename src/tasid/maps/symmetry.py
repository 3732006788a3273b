"""Starts that a map cannot tell apart: the same commands are paid the same from both, for ever.

Who begins in one of them may as well believe to have begun in the other. That costs no return, but
which of the two it was, nothing that is learned without labels can say.
"""

from __future__ import annotations

from collections.abc import Hashable
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from tasid.maps.simulator import AbstractSimulator

_MOST_STARTS = 64
"""With more starts, symmetries are not looked for: pairs are too many."""


def symmetric_starts(sim: AbstractSimulator) -> tuple[tuple[Hashable, Hashable], ...]:
    """Pairs of starts, by their labels, of which a symmetry σ of the map leads one to the other.

    σ(one) = other is carried along all commands; it must stay consistent and one to one, keep
    rewards, and lead starts to starts that are as likely.
    """
    if not 1 < sim.starts.size <= _MOST_STARTS:
        return ()
    return tuple(
        (sim.states[one], sim.states[other])
        for one, other in combinations(sim.starts.tolist(), 2)
        if _led_over(sim, one, other)
    )


def _led_over(sim: AbstractSimulator, one: int, other: int) -> bool:
    likely = np.full(sim.num_states, -1.0)
    likely[sim.starts] = sim.start_probabilities
    if likely[one] != likely[other]:
        return False
    layered = sim.successor.ndim == 3
    image, origin = _nothing_yet(sim), _nothing_yet(sim)
    left, right = np.array([one]), np.array([other])
    image[left], origin[right] = right, left
    for h in range(sim.horizon):
        here = sim.reward_at(h)
        if not np.array_equal(here[left], here[right]):
            return False
        leads = sim.successor_at(h)
        after = np.unique(np.stack([leads[left].ravel(), leads[right].ravel()]), axis=1)
        if layered:  # every step may have a symmetry of its own
            image, origin = _nothing_yet(sim), _nothing_yet(sim)
        new = image[after[0]] < 0
        image[after[0][new]], origin[after[1][new]] = after[1][new], after[0][new]
        if (image[after[0]] != after[1]).any() or (origin[after[1]] != after[0]).any():
            return False
        left, right = (after if layered else after[:, new]).astype(np.int64)
        if not left.size:
            break
    return layered or bool((likely[image[image >= 0]] == likely[image >= 0]).all())


def _nothing_yet(sim: AbstractSimulator) -> NDArray[np.int64]:
    return np.full(sim.num_states, -1, np.int64)
