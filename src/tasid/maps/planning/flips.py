"""Where the way of the robust plan flips as η grows, and which way is taken for which η.

The plan is piecewise constant in η; its breakpoints are found by bisection.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasid.maps.layout import GOAL, HAZARD
from tasid.maps.planning.robust_dp import robust_dp
from tasid.maps.planning.thrifty import Plan, policy_is_huge, thrifty_plan
from tasid.maps.simulator import AbstractSimulator

Place = tuple[int, ...]
"""Row and column on a grid map, else the state."""

LARGEST_ETA = 0.5
MAX_STARTS = 8
_FINEST = 0.01
"""A flip is looked for until its η is known so well, as a part of that η."""
_NOTHING = 2e-4
"""And an η below this part of the range is 0."""
_MOST_PLANS = 40
_FEWEST_PLANS = 4
_COARSE = 10
"""So many equal parts of the range are told apart before bisection."""
_SWEPT_PAIRS = 120_000_000
"""On large maps so many (step, state) pairs are spent on looking, then it is enough."""
_ROUGH = 0.06
"""An η not known better than this part of it is told as a range."""


@dataclass(frozen=True)
class Way:
    """The places a plan leads through from each start, and how long until it stays for good."""

    cells: tuple[tuple[Place, ...], ...]
    steps: int
    """From the likeliest start."""
    trouble: str = ""
    """What is to be said of its end on a grid map, if that is not a goal."""

    @property
    def told(self) -> str:
        """Its length in words."""
        return f"{self.steps} steps{self.trouble}"


def likeliest_starts(sim: AbstractSimulator) -> tuple[int, ...]:
    """The start states, likeliest first; of very many only some."""
    order = np.argsort(-sim.start_probabilities, kind="stable")[:MAX_STARTS]
    return tuple(int(s) for s in sim.starts[order])


def way_of(plan: Plan, starts: Sequence[int]) -> Way:
    """The way of a plan if every action comes out as asked; turning on the spot does not show."""
    sim = plan.simulator
    place = _places(sim)
    paths, lengths = [], []
    for start in starts:
        state, cells, steps = start, [place(start)], 0
        for h in range(sim.horizon):
            row = sim.successor_at(h)[state]
            if (row == state).all():
                break
            state, steps = int(row[plan.action(h, state)]), h + 1
            if place(state) != cells[-1]:
                cells.append(place(state))
        paths.append(tuple(cells))
        lengths.append(steps)
    return Way(tuple(paths), lengths[0], _trouble(sim, paths[0][-1], lengths[0]))


def _trouble(sim: AbstractSimulator, last: Place, steps: int) -> str:
    if sim.layout is None:
        return ""
    if sim.layout.cells[last] == HAZARD:
        return " into a hazard"
    return "" if sim.layout.cells[last] == GOAL or steps < sim.horizon else " without arriving"


def arrives(plan: Plan, start: int) -> bool | None:
    """Whether the plan's way from there ends on a goal; None where the map has no goals."""
    layout = plan.simulator.layout
    if layout is None or not (layout.cells == GOAL).any():
        return None
    return bool(layout.cells[way_of(plan, (start,)).cells[0][-1]] == GOAL)


def leads_to_goal(
    sim: AbstractSimulator, start: int, *, around: NDArray[np.bool_] | None = None
) -> bool:
    """Whether any actions lead from there to a goal of the layout, however many they are.

    They may not lead through states [S] that are to be got `around`.
    """
    assert sim.layout is not None
    closed = np.zeros(sim.num_states, dtype=bool) if around is None else around.copy()
    goal = sim.layout.cells[tuple(sim.layout.positions.T)] == GOAL
    level = np.array([start])
    while level.size and not goal[level].any():
        closed[level] = True
        after = np.unique(sim.successor[..., level, :])
        level = after[~closed[after]]
    return bool(level.size)


def _places(sim: AbstractSimulator) -> Callable[[int], Place]:
    if sim.layout is None:
        return lambda state: (state,)
    positions = sim.layout.positions
    return lambda state: tuple(positions[state].tolist())


@dataclass(frozen=True)
class Change:
    """Somewhere in `low` < η ≤ `high` the way becomes another one."""

    low: float
    high: float
    before: Way
    after: Way

    @property
    def longer(self) -> bool:
        """Whether the number of steps changes, not only the places."""
        return self.before.steps != self.after.steps

    def as_json(self) -> dict[str, Any]:
        return {
            "eta": (self.low + self.high) / 2,
            "low": self.low,
            "high": self.high,
            "steps_before": self.before.steps,
            "steps_after": self.after.steps,
        }


@dataclass(frozen=True)
class Span:
    """The way of all plans for η from `low` to `high`."""

    low: float
    high: float
    way: Way


def changes_of(plan: Plan, nominal: Plan, starts: Sequence[int]) -> tuple[Change, ...]:
    """Where the way changes between η = 0 and ½, or the plan's η if that is larger.

    Plans for η at equal distances first, then bisection. A way that comes and goes between two of
    the former is not noticed.
    """
    sim, top = plan.simulator, max(plan.eta, LARGEST_ETA)
    budget = min(max(_SWEPT_PAIRS // max(plan.states_swept, 1), _FEWEST_PLANS), _MOST_PLANS)
    thrifty = policy_is_huge(sim)

    def way(level: float) -> Way:
        plan = thrifty_plan(sim, eta=level) if thrifty else robust_dp(sim, eta=level)
        return way_of(plan, starts)

    known = {0.0: way_of(nominal, starts), plan.eta: way_of(plan, starts)}
    coarse = min(budget // 2, _COARSE)
    for level in (top * step / coarse for step in range(1, coarse + 1)):
        if level not in known:
            known[level] = way(level)
    return bisected(way, known, budget - coarse)


def bisected(
    way: Callable[[float], Way], known: dict[float, Way], budget: int
) -> tuple[Change, ...]:
    """The changes between the η whose ways are known, with at most `budget` more of them."""
    known = dict(known)
    zero = _NOTHING * max(known)
    for _ in range(budget):
        rough = [
            change
            for change in _changes(known)
            if change.high - change.low > max(_FINEST * change.high, 0 if change.low else zero)
        ]
        if not rough:
            break
        widest = max(rough, key=lambda change: (change.longer, change.high - change.low))
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


def spans_of(changes: Sequence[Change], only: Way, top: float) -> tuple[Span, ...]:
    """Which way is taken for which η; `only` the one way, if it never changes."""
    if not changes:
        return (Span(0.0, top, only),)
    first = Span(0.0, changes[0].low, changes[0].before)
    ends = [*(change.low for change in changes[1:]), top]
    return (first, *(Span(c.high, end, c.after) for c, end in zip(changes, ends, strict=True)))


def in_words(changes: tuple[Change, ...], eta: float) -> str:
    """Where the route changes, as a sentence or two: first of all where its length does."""
    top = max(eta, LARGEST_ETA)
    below = tuple(change for change in changes if change.low < eta)
    above = changes[len(below) :]
    if not changes:
        *most, last = (f"{level:g}" for level in dict.fromkeys((0.0, eta, top)))
        return f"The route is the same for η = {', '.join(most)} and {last}."
    if eta == 0:
        return f"The route {_told(changes, top)}"
    told = _told(below, eta) if below else f"stays the same up to η = {eta:g}."
    if above:
        told += f" Above η = {eta:g} it {_told(above, top)}"
    return f"The route {told}"


def _told(changes: tuple[Change, ...], top: float) -> str:
    longer = [c for c in changes if c.longer]
    if not longer:
        return (
            f"shifts {_place(changes[0])}{_times(len(changes) - 1, top)}; "
            f"it always takes {changes[0].before.steps} steps."
        )
    shown = longer[:3]
    places = [f"{_place(c)} ({_both(c)})" for c in shown]
    return f"changes {', '.join(places)}{_times(len(changes) - len(shown), top)}."


def _both(change: Change) -> str:
    before, after = change.before, change.after
    if before.trouble or after.trouble:
        return f"{before.told} → {after.told}"
    return f"{before.steps} → {after.steps} steps"


def _place(change: Change) -> str:
    low, high = change.low, change.high
    if low == 0:
        return "as soon as η > 0"
    if high - low > _ROUGH * high:
        return f"between η = {low:.3g} and {high:.3g}"
    return f"at η ≈ {high:.3g}"


def _times(number: int, eta: float) -> str:
    if number == 0:
        return ""
    return f" and shifts {number} time{'s' if number > 1 else ''} more up to η = {eta:g}"
