"""The one backward sweep under every dynamic programme of this floor.

All of them share Q_h(s, a) = R°_h(s, a) + V_{h+1}(T°_h(s, a)) and differ only in how V_h is made
from Q_h: by a max–min mixture, by a policy, by a perturbation. This is the sweep in NumPy; large
maps have `tasid.maps.planning.fused` for the two that matter most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from tasid.maps.simulator import AbstractSimulator

Rows = NDArray[np.intp] | slice
Combine = Callable[[int, Rows, NDArray[np.float64]], NDArray[np.float64]]
"""(h, rows, Q [A, n]) → V_h on those rows [n]."""

Frontier = Sequence[Rows]
"""The states that matter at each step."""

ALL: slice = slice(None)
_SMALL = 2_000_000
"""Below this many (h, s, a) a full sweep takes milliseconds: finding the frontier cannot pay."""


def backward(
    sim: AbstractSimulator,
    combine: Combine,
    *,
    frontier: Frontier | None = None,
    keep: bool = False,
) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
    """Sweep h = H−1 … 0; return V_0 [S] and, if `keep`, V for all h as [H+1, S].

    With a `frontier` only those states are touched; kept values are NaN elsewhere, and V_0 means
    nothing there.
    """
    rows_at: Sequence[Rows] = [ALL] * sim.horizon if frontier is None else frontier
    value = np.zeros(sim.num_states)
    kept = np.full((sim.horizon + 1, sim.num_states), np.nan) if keep else None
    if kept is not None:
        kept[sim.horizon] = 0.0
    tables = _ActionMajor(sim)
    for h in reversed(range(sim.horizon)):
        rows = rows_at[h]
        new = combine(h, rows, tables.lookahead(h, rows, value))
        value[rows] = new
        if kept is not None:
            kept[h][rows] = new
    return value, kept


def start_value(sim: AbstractSimulator, value: NDArray[np.float64]) -> float:
    """V at the start, or its mean over the starts."""
    return float(sim.start_probabilities @ value[sim.starts])


class _ActionMajor:
    """Tables laid out [A, S] with native index type: each action's gather is one pass."""

    def __init__(self, sim: AbstractSimulator) -> None:
        self._sim = sim
        self._homogeneous = sim.successor.ndim == 2 and sim.reward.ndim == 2
        self._step: tuple[int, NDArray[np.intp], NDArray[np.float64]] | None = None

    def lookahead(self, h: int, rows: Rows, value: NDArray[np.float64]) -> NDArray[np.float64]:
        if not isinstance(rows, slice):
            return value[self._sim.successor_at(h)[rows].T] + self._sim.reward_at(h)[rows].T
        step = self._step
        if step is None or not (self._homogeneous or step[0] == h):
            step = self._step = (
                h,
                np.ascontiguousarray(self._sim.successor_at(h).T.astype(np.intp)),
                np.ascontiguousarray(self._sim.reward_at(h).T),
            )
        _, successor, reward = step
        q = np.array(reward[:, rows])
        looked = np.empty(q.shape[1])
        for a, leads in enumerate(successor):
            # Successors were checked on entry; "clip" only spares a buffer.
            q[a] += np.take(value, leads[rows], out=looked, mode="clip")
        return q


def frontier_when_cheaper(sim: AbstractSimulator, *, force: bool | None = None) -> Frontier | None:
    """The states reachable at each step, or None where sweeping all of them costs no more.

    Any action may come out as any other, so every action's successor is reachable.
    """
    cells = sim.horizon * sim.num_states
    if force is False or (force is None and cells * sim.num_actions <= _SMALL):
        return None
    first = None if force else _in_order_of_distance(sim)
    if first is not None:
        return first
    frontier: list[NDArray[np.intp]] = []
    touched = 0
    for rows in islice(_layers(sim), sim.horizon):
        frontier.append(rows)
        touched += rows.size
        if force is None and 3 * touched > cells:
            return None
    return frontier


def reachable(sim: AbstractSimulator) -> Frontier:
    """The states reachable at each step, perhaps with some that are only reachable before it."""
    return _in_order_of_distance(sim) or layers(sim)[:-1]


def swept(sim: AbstractSimulator, frontier: Frontier | None) -> int:
    """How many (step, state) pairs a frontier has; without one, how many there are."""
    return sim.horizon * sim.num_states if frontier is None else sum(map(count, frontier))


def count(rows: Rows) -> int:
    """How many states of a frontier these are."""
    return int(rows.stop) if isinstance(rows, slice) else rows.size


def _in_order_of_distance(sim: AbstractSimulator) -> list[slice] | None:
    """The states within 0, 1, … steps of the start, if these are always the first so many.

    Maps that were explored from their start are numbered so. Slices are several times faster than
    picked rows, and states that can be reached before a step but not at it do no harm.
    """
    if sim.successor.ndim == 3:
        return None
    new = np.unique(sim.starts)
    seen, number, rows = np.zeros(sim.num_states, dtype=bool), 0, []
    for _ in range(sim.horizon):
        if new.size and (new[0] != number or new[-1] != number + new.size - 1):
            return None
        seen[new] = True
        number += new.size
        rows.append(slice(0, number))
        after = sim.successor[new].ravel()
        new = np.unique(after[~seen[after]])
    return rows


def layers(sim: AbstractSimulator) -> list[NDArray[np.intp]]:
    """The states reachable at step 0, 1, …, H."""
    return list(_layers(sim))


def _layers(sim: AbstractSimulator) -> Iterator[NDArray[np.intp]]:
    rows = np.unique(sim.starts).astype(np.intp)
    yield rows
    for h in range(sim.horizon):
        reached = np.zeros(sim.num_states, dtype=bool)
        reached[sim.successor_at(h)[rows]] = True
        rows = np.flatnonzero(reached)
        yield rows
