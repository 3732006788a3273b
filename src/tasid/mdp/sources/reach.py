"""Can the goal be reached, and in how many steps? Warnings with what is reachable instead."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from string import ascii_lowercase

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from tasid.mdp.layout import FREE, GOAL, HAZARD
from tasid.mdp.sources.grid import Grid
from tasid.mdp.sources.trouble import MapError, MapWarning

_WIDEST, _TALLEST = 72, 36
_SEVERAL_TIMES = 3
"""Without a horizon, the shortest way to the goal may be taken so many times."""


def steps_to_goal(grid: Grid, start: int) -> int | None:
    """The fewest steps from a pose to a goal; None if no way leads there."""
    for steps, level in enumerate(grid.levels(np.array([start]))):
        if (grid.kinds(level) == GOAL).any():
            return steps
    return None


def checked_horizon(grid: Grid, starts: Sequence[int], horizon: int | None) -> int:
    """The horizon, chosen if none was given; warns of goals that are too far or out of reach."""
    if not (grid.cells == GOAL).any():
        warnings.warn("the map has no goal: there is nothing to plan for", MapWarning, 4)
        needed: list[int | None] = []
    else:
        needed = [steps_to_goal(grid, start) for start in starts]
    lost = [start for start, steps in zip(starts, needed, strict=False) if steps is None]
    if lost and needed:
        warnings.warn(_unreachable(grid, lost[0]), MapWarning, 4)
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


def _unreachable(grid: Grid, start: int) -> str:
    areas, number = components(grid.cells)
    row, column = grid.places(np.array([start]))[0]
    own = int(areas[row, column])
    goals = sorted({int(a) for a in areas[grid.cells == GOAL]})
    sizes = np.bincount(areas.ravel(), minlength=number + 1)
    return (
        f"the goal cannot be reached: the start's area has {sizes[own]} cells, the goal's "
        f"{' and '.join(str(sizes[a]) for a in goals)}, and there are {number} separate areas "
        "('S' start, '+' its area, 'G' goal, letters other areas, '!' hazard, '#' blocked):\n"
        + component_map(grid.cells, (int(row), int(column)))
    )


def components(cells: NDArray[np.uint8]) -> tuple[NDArray[np.int32], int]:
    """Areas of cells connected north, east, south, west, numbered from 1; 0 is no area.

    A goal ends an episode, so it belongs to the area beside it but does not connect two.
    """
    areas, number = ndimage.label(cells == FREE)
    areas = areas.astype(np.int32)
    for row, column in np.argwhere(cells == GOAL):
        beside = areas[max(row - 1, 0) : row + 2, column].tolist()
        beside += areas[row, max(column - 1, 0) : column + 2].tolist()
        near = [a for a in beside if a > 0]
        if not near:
            number += 1
        areas[row, column] = near[0] if near else number
    return areas, int(number)


def component_map(cells: NDArray[np.uint8], start: tuple[int, int]) -> str:
    """The areas as text, drawn smaller if the map is large."""
    areas, number = components(cells)
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
