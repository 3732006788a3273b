"""What a picture of a grid map shows: the ways of plans, where they change with η, and values.

Nothing is drawn here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tasid.mdp import AbstractSimulator, RobustPlan, robust_dp
from tasid.mdp.backward import Rows, backward, frontier_when_cheaper
from tasid.mdp.layout import GridLayout
from tasid.report.routes import Routes

Cell = tuple[int, int]

_FINEST = 0.01
"""A change of route is looked for until its η is known so well, as a part of that η."""
_NOTHING = 1e-3
"""And an η below this part of the range is 0."""
_MOST_PLANS = 24
_FEWEST_PLANS = 3
_SWEPT_PAIRS = 40_000_000
"""On large maps so many (step, state) pairs are spent on looking, then it is enough."""
_LARGEST_ETA = 0.5
_ROUGH = 0.06
"""An η not known better than this part of it is told as a range."""


def layout_of(sim: AbstractSimulator) -> GridLayout:
    """The layout of a map that has one."""
    if sim.layout is None:
        raise ValueError("simulator: has no layout; only grid maps can be drawn as grids")
    return sim.layout


@dataclass(frozen=True)
class Way:
    """The cells a plan leads through from each start, and how long until it stays for good."""

    cells: tuple[tuple[Cell, ...], ...]
    steps: int
    """From the likeliest start."""


def way_of(plan: RobustPlan, starts: tuple[int, ...]) -> Way:
    """The way of a plan if every action comes out as asked; turning on the spot does not show."""
    sim, positions = plan.simulator, layout_of(plan.simulator).positions
    paths, lengths = [], []
    for start in starts:
        state, cells, steps = start, [_cell(positions, start)], 0
        for h in range(sim.horizon):
            row = sim.successor_at(h)[state]
            if (row == state).all():
                break
            state, steps = int(row[plan.action(h, state)]), h + 1
            if _cell(positions, state) != cells[-1]:
                cells.append(_cell(positions, state))
        paths.append(tuple(cells))
        lengths.append(steps)
    return Way(tuple(paths), lengths[0])


def _cell(positions: NDArray[np.int32], state: int) -> Cell:
    row, column = positions[state].tolist()
    return row, column


@dataclass(frozen=True)
class Change:
    """Somewhere in `low` < η ≤ `high` the way becomes another one."""

    low: float
    high: float
    before: Way
    after: Way


def changes_of(routes: Routes) -> tuple[Change, ...]:
    """Where the way changes between η = 0 and the plan's η, by bisection.

    If it does not, the first change above the plan's η and up to ½ is looked for instead. A way
    that comes and goes between two η that agree is not noticed.
    """
    eta, sim = routes.plan.eta, routes.simulator
    most = _SWEPT_PAIRS // max(routes.plan.states_swept, 1)
    budget = min(max(most, _FEWEST_PLANS), _MOST_PLANS)

    def way(level: float) -> Way:
        return way_of(robust_dp(sim, eta=level), routes.starts)

    known = {
        0.0: way_of(routes.nominal, routes.starts),
        eta: way_of(routes.plan, routes.starts),
    }
    if known[0.0].cells != known[eta].cells:
        return bisected(way, known, budget)
    if eta >= _LARGEST_ETA:
        return ()
    above = {eta: known[eta], _LARGEST_ETA: way(_LARGEST_ETA)}
    return bisected(way, above, budget, only_first=True)[:1]


def bisected(
    way: Callable[[float], Way],
    known: dict[float, Way],
    budget: int,
    *,
    only_first: bool = False,
) -> tuple[Change, ...]:
    """The changes between the η whose ways are known, with at most `budget` more of them."""
    known = dict(known)
    zero = _NOTHING * max(known)
    for _ in range(budget):
        rough = [
            change
            for change in _changes(known)[: 1 if only_first else None]
            if change.high - change.low > max(_FINEST * change.high, 0 if change.low else zero)
        ]
        if not rough:
            break
        widest = max(rough, key=lambda change: change.high - change.low)
        middle = (widest.low + widest.high) / 2
        known[middle] = way(middle)
    return _changes(known)


def _changes(known: dict[float, Way]) -> tuple[Change, ...]:
    levels = sorted(known)
    return tuple(
        Change(low, high, known[low], known[high])
        for low, high in pairwise(levels)
        if known[low].cells != known[high].cells
    )


def changes_in_words(changes: tuple[Change, ...], eta: float) -> str:
    """Where the route changes, as a sentence: first of all where its length does."""
    if not changes:
        tried = dict.fromkeys((0.0, eta, max(eta, _LARGEST_ETA)))
        *most, last = (f"{level:g}" for level in tried)
        return f"The route is the same for η = {', '.join(most)} and {last}."
    if changes[0].low >= eta > 0:
        return f"The route stays the same until {_place(changes[0], bare=True)}."
    longer = [c for c in changes if c.before.steps != c.after.steps]
    if not longer:
        return (
            f"The route shifts {_place(changes[0])}{_times(len(changes) - 1, eta)}; "
            f"it always takes {changes[0].before.steps} steps."
        )
    places = [f"{_place(c)} ({c.before.steps} → {c.after.steps} steps)" for c in longer[:3]]
    return f"The route changes {', '.join(places)}{_times(len(changes) - len(places), eta)}."


def _place(change: Change, *, bare: bool = False) -> str:
    low, high = change.low, change.high
    if low == 0:
        return "as soon as η > 0"
    if high - low > _ROUGH * high:
        return f"between η = {low:.3g} and {high:.3g}"
    return f"{'' if bare else 'at '}η ≈ {high:.3g}"


def _times(number: int, eta: float) -> str:
    if number == 0:
        return ""
    return f" and shifts {number} time{'s' if number > 1 else ''} more up to η = {eta:g}"


def arrival_values(plan: RobustPlan) -> NDArray[np.float64]:
    """Ṽ of every state at the first step one can be there [S]; NaN where no decision is made.

    At that step all that can still happen is on the map, however short the horizon it was
    explored for.
    """
    sim, eta = plan.simulator, plan.eta
    values = np.full(sim.num_states, np.nan)

    def max_min(h: int, rows: Rows, q: NDArray[np.float64]) -> NDArray[np.float64]:
        best, worst = q[0].copy(), q[0].copy()
        for row in q[1:]:  # faster than along the axis
            np.maximum(best, row, out=best)
            np.minimum(worst, row, out=worst)
        new: NDArray[np.float64] = (1.0 - eta) * best + eta * worst
        values[rows] = new  # the sweep goes backward: the earliest step writes last
        return new

    backward(sim, max_min, frontier=frontier_when_cheaper(sim, force=True))
    return values
