"""When a state matters: not before it can be reached, nor once too little can come of it.

On most maps nearly every step costs the same, and something else is paid in a few places only. Who
cannot get to one of those in the steps that are left has the same value wherever he is, and nothing
to choose. On a large map with a horizon not much longer than the way, a state matters for a few
steps; all others can be left out, and plans and values have the bits they would have anyway.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from itertools import pairwise
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from tasid.maps.planning.backward import Frontier, count, swept
from tasid.maps.simulator import AbstractSimulator

_PAYS = 8
"""Times fewer pairs that there must be for picked rows to be faster than slices."""
_MOST_PAIRS = 20_000_000
"""(step, state) pairs that are listed at most."""
_NEVER = np.iinfo(np.int32).max


class Window(list[NDArray[np.intp]]):
    """The states that matter at each step, and what the others are worth."""

    def __init__(
        self, rows: Iterable[NDArray[np.intp]], away: NDArray[np.int32], usual: float
    ) -> None:
        super().__init__(rows)
        self.away = away
        """Steps from each state to the next place where something else may be paid, [S]."""
        self.usual = usual
        """What is paid everywhere else."""

    def worth(self, eta: Any) -> list[Any]:
        """V_h of states that do not matter any more, for h = 0 … H, rounded as a sweep rounds."""
        values = [0.0 * eta]
        for _ in self:
            q = self.usual + values[-1]
            values.append((1.0 - eta) * q + eta * q)
        return values[::-1]

    def edge(self, h: int) -> NDArray[np.intp]:
        """The states that do not matter at step h+1, but that those of step h may lead to."""
        order, cuts = self._by_distance
        near = len(self) - h - 1
        return order[cuts[near] : cuts[near + 2]]

    def outside(self, h: int) -> NDArray[np.bool_]:
        """The states that do not matter at step h or later, [S]."""
        return self.away > len(self) - h - 1

    @cached_property
    def _by_distance(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The states in order of `away`, and where those n away begin."""
        order = np.argsort(self.away, kind="stable")
        return order, np.searchsorted(self.away[order], np.arange(len(self) + 2))


_known: WeakKeyDictionary[AbstractSimulator, Window | None] = WeakKeyDictionary()
"""What was found of each map; plans for several η share it."""


def windowed(sim: AbstractSimulator, frontier: Frontier | None) -> Frontier | None:
    """The same frontier without states that do not matter any more, if these are most of it."""
    large = frontier is not None and swept(sim, frontier) > _MOST_PAIRS
    if frontier is None or not large or not isinstance(frontier[0], slice):
        return frontier
    if sim not in _known:
        _known[sim] = None if sim.reward.ndim == 3 else _window(sim, frontier)
    return _known[sim] or frontier


def _window(sim: AbstractSimulator, frontier: Frontier) -> Window | None:
    values, often = np.unique(sim.reward, return_counts=True)
    usual = float(values[often.argmax()])
    away = _away(sim, (sim.reward != usual).any(axis=1))
    if (away[sim.successor].max(axis=1) > np.where(away < _NEVER, away + 1, _NEVER)).any():
        return None  # a step may lead further away than one step: the edge would be anywhere
    own = np.arange(sim.num_states)
    first = np.searchsorted([count(rows) for rows in frontier], own, "right")
    length = np.maximum(len(frontier) - away.astype(np.int64) - first, 0)
    total = int(length.sum())
    if total > min(_MOST_PAIRS, swept(sim, frontier) // _PAYS):
        return None
    steps = np.repeat(first - np.cumsum(length) + length, length) + np.arange(total)
    order = np.argsort(steps, kind="stable")
    cuts = np.searchsorted(steps[order], np.arange(len(frontier) + 1))
    states = np.repeat(own, length)[order]
    return Window((states[a:b] for a, b in pairwise(cuts)), away, usual)


def _away(sim: AbstractSimulator, there: NDArray[np.bool_]) -> NDArray[np.int32]:
    """The fewest steps from each state to one of these, [S]."""
    order = np.argsort(sim.successor, axis=None, kind="stable")
    came = order // sim.num_actions
    cuts = np.searchsorted(sim.successor.ravel()[order], np.arange(sim.num_states + 1))
    away = np.full(sim.num_states, _NEVER, np.int32)
    new, steps = np.flatnonzero(there), 0
    while new.size:
        away[new] = steps
        number = cuts[new + 1] - cuts[new]
        ends = np.cumsum(number)
        before = came[np.repeat(cuts[new] - ends + number, number) + np.arange(number.sum())]
        new, steps = np.unique(before[away[before] == _NEVER]), steps + 1
    return away
