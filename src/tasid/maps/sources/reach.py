"""Can the goal be reached, and in how many steps? Warnings with what is reachable instead."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from string import ascii_lowercase

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from tasid.maps.layout import FREE, GOAL, HAZARD
from tasid.maps.size import MapError, MapWarning
from tasid.maps.sources.grid import COMPASS, Grid

Place = tuple[int, int]
_WIDEST, _TALLEST = 72, 36
_SEVERAL_TIMES = 3
"""Without a horizon, the shortest way to the goal may be taken so many times."""


def steps_to_goal(grid: Grid, start: int) -> int | None:
    """The fewest steps from a pose to a goal; None if no way leads there."""
    for steps, level in enumerate(grid.levels(np.array([start]))):
        if (grid.kinds(level) == GOAL).any():
            return steps
    return None


def checked_horizon(
    grid: Grid,
    starts: Sequence[int],
    horizon: int | None,
    *,
    why: Callable[[Place, Place], str] | None = None,
) -> int:
    """The horizon, chosen if none was given; warns of goals that are too far or out of reach.

    Where a source knows more, `why` says what lies between the (row, column) of a start and a goal.
    """
    if not (grid.cells == GOAL).any():
        warnings.warn("the map has no goal: there is nothing to plan for", MapWarning, 4)
        needed: list[int | None] = []
    else:
        needed = [steps_to_goal(grid, start) for start in starts]
    lost = [start for start, steps in zip(starts, needed, strict=False) if steps is None]
    if lost and needed:
        warnings.warn(_unreachable(grid, lost[0], why), MapWarning, 4)
    farthest = max((steps for steps in needed if steps is not None), default=None)
    if horizon is None:
        if farthest is None:
            raise MapError("horizon: none given, and no goal in reach to choose it by; give one")
        return _SEVERAL_TIMES * farthest
    if farthest is not None and farthest > horizon >= 1:
        warnings.warn(
            f"horizon: {horizon} steps are too few to reach the goal; at least {farthest} are "
            "needed, more to have time for detours",
            MapWarning,
            4,
        )
    return horizon


def _unreachable(grid: Grid, start: int, why: Callable[[Place, Place], str] | None) -> str:
    areas, number = components(grid.cells, grid.passages)
    row, column = grid.places(np.array([start]))[0]
    own = int(areas[row, column])
    goals = np.argwhere(grid.cells == GOAL)
    theirs = sorted({int(areas[tuple(goal)]) for goal in goals})
    sizes = np.bincount(areas.ravel(), minlength=number + 1)
    reason = ""
    if why is not None:
        reason = f"; {why((int(row), int(column)), (int(goals[0][0]), int(goals[0][1])))}"
    return (
        f"the goal cannot be reached: the start's area has {sizes[own]} cells, the goal's "
        f"{' and '.join(str(sizes[a]) for a in theirs)}, and there are {number} separate areas"
        f"{reason} ('S' start, '+' its area, 'G' goal, letters other areas, '!' hazard, "
        "'#' blocked):\n" + component_map(grid.cells, (int(row), int(column)), grid.passages)
    )


def components(
    cells: NDArray[np.uint8], passages: NDArray[np.bool_] | None = None
) -> tuple[NDArray[np.int32], int]:
    """Areas of cells connected by moves, numbered from 1; 0 is no area.

    Without `passages` neighbours in the north, east, south and west are connected. A goal ends an
    episode, so it belongs to the area beside it but does not connect two.
    """
    if passages is None:
        passages = np.ones((*cells.shape, 4), dtype=bool)
    steps = list(enumerate(COMPASS[:: 8 // passages.shape[-1]]))
    free = cells == FREE
    index = np.arange(cells.size).reshape(cells.shape)
    ends = []
    for direction, (down, right) in steps:
        here, there = beside(cells.shape, down, right)
        both = free[here] & free[there] & passages[here][..., direction]
        ends.append((index[here][both], index[there][both]))
    one, other = (np.concatenate(side) for side in zip(*ends, strict=True))
    graph = sparse.coo_array((np.ones(one.size, bool), (one, other)), shape=(cells.size,) * 2)
    _, label = csgraph.connected_components(graph, directed=False)
    areas = np.zeros(cells.shape, dtype=np.int32)
    _, first, inverse = np.unique(label[free.ravel()], return_index=True, return_inverse=True)
    areas[free] = first.argsort().argsort()[inverse] + 1  # numbered as they are met
    number = first.size
    for row, column in np.argwhere(cells == GOAL):
        near = [
            int(areas[row + down, column + right])
            for direction, (down, right) in steps
            if 0 <= row + down < cells.shape[0]
            and 0 <= column + right < cells.shape[1]
            and passages[row, column, direction]
            and free[row + down, column + right]
        ]
        number += not near
        areas[row, column] = min(near, default=number)
    return areas, number


def beside(shape: tuple[int, ...], *step: int) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """All cells that have a neighbour at (rows, columns) `step`, and these neighbours."""
    pairs = list(zip(step, shape, strict=True))
    here = tuple(slice(max(0, -s), n - max(0, s)) for s, n in pairs)
    return here, tuple(slice(max(0, s), n - max(0, -s)) for s, n in pairs)


def component_map(
    cells: NDArray[np.uint8], start: Place, passages: NDArray[np.bool_] | None = None
) -> str:
    """The areas as text, drawn smaller if the map is large."""
    areas, number = components(cells, passages)
    own = areas[start]
    names = np.full(number + 1, ".", dtype="<U1")
    sizes = np.bincount(areas.ravel(), minlength=number + 1)[1:]
    others = [a for a in np.argsort(-sizes, kind="stable") + 1 if a != own]
    for name, area in zip(ascii_lowercase, others, strict=False):
        names[area] = name
    names[0], names[own] = "#", "+"
    drawn = names[areas]
    drawn[cells == HAZARD] = "!"
    drawn[cells == GOAL] = "G"
    drawn[start] = "S"
    every = max(-(-cells.shape[0] // _TALLEST), -(-cells.shape[1] // _WIDEST))
    if every > 1:
        drawn = _shrunk(drawn, every)
    return "\n".join("".join(line) for line in drawn)


def _shrunk(drawn: NDArray[np.str_], every: int) -> NDArray[np.str_]:
    """One character for each block: start and goal always show, else what is commonest."""
    rows, columns = (-(-n // every) for n in drawn.shape)
    small = np.full((rows, columns), "#", dtype="<U1")
    for r in range(rows):
        for c in range(columns):
            block = drawn[r * every : (r + 1) * every, c * every : (c + 1) * every].ravel()
            values, counts = np.unique(block, return_counts=True)
            small[r, c] = next((x for x in "SG" if x in values), values[counts.argmax()])
    return small
