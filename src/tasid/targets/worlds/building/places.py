"""Where the robot of a building may be: its docks, its goal and the ways between, on any floor.

Maps that come without a task get one: the goal is a far end of the largest area, and docks lie some
forty steps away from it, as far apart from each other as that allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from tasid.maps.layout import FREE, GOAL, HEADING_NAMES
from tasid.maps.size import MapError
from tasid.maps.sources.grid import Grid, checked_heading
from tasid.maps.sources.lattice import grown
from tasid.maps.sources.occupancy_map import Floor
from tasid.maps.sources.reach import Place, steps_to_goal

_STEPS_TO_GOAL = (30, 45)
"""How far docks are from the goal if nobody says where they are and the floor is large enough."""
_SHARE = 1 / 3
"""Of the floor that cells have to connect if nobody says where to go."""
_ROOMY = 3
"""Times as many places as docks, so that these can be apart."""
_HEADING = "E"
"""Of docks that do not say where they look to."""


@dataclass(frozen=True, eq=False)
class Places:
    """A floor with its goal, its docks, and the moves between all poses."""

    floor: Floor
    grid: Grid
    docks: list[int]
    """Poses; the first is where a lone start is."""


def places_of(
    floor: Floor,
    *,
    docks: Sequence[Sequence[float | str]],
    goals: Sequence[Sequence[float]],
    number: int,
) -> Places:
    """Docks and goals as given, and as many docks more as are asked for."""
    _check_size(floor)
    areas = floor.lattice.areas()
    if goals:
        chosen = [floor.cell("goal", float(goal[0]), float(goal[1])) for goal in goals]
    else:
        chosen = [_far_end(floor, areas, _given(floor, docks))]
    grid = floor.grid(chosen, "drive")
    poses = []
    for dock in docks[:number]:
        row, column = _given(floor, [dock])[0]
        if (row, column) in chosen:
            raise MapError(f"start: {tuple(dock)} lies in the cell of the goal")
        looks = checked_heading(str(dock[2]) if len(dock) > 2 else _HEADING, grid.directions)
        poses.append(grid.pose(row, column, looks))
        if steps_to_goal(grid, poses[-1]) is None:
            why = floor.why_unreachable((row, column), chosen[0])
            raise MapError(f"goal: it cannot be reached from the start; {why}")
    poses += _more_docks(grid, chosen, poses, number - len(poses))
    return Places(floor, grid, poses)


def _check_size(floor: Floor) -> None:
    if (floor.cells == FREE).any():
        return
    if not (floor.pixels == FREE).any():
        raise MapError("map: it has no free pixel at all; is `negate` of its .yaml right?")
    raise MapError(
        f"cell_size: with cells of {floor.lattice.size:g} m and a robot of radius "
        f"{floor.radius:g} m no cell is free; try cells of {floor.lattice.size / 2:g} m or a "
        "smaller robot_radius"
    )


def _check_share(floor: Floor, places: int) -> None:
    """Refuse cells too large for the corridors: what they connect is a small part of the floor."""
    fits = ndimage.label(grown(floor.pixels, floor.radius / floor.picture.resolution) == FREE)[0]
    most = int(np.bincount(fits[fits > 0]).max()) * floor.picture.resolution**2
    size = floor.lattice.size
    if places < 2 or places * size**2 < _SHARE * most:
        raise MapError(
            f"cell_size: the floor falls apart in cells of {size:g} m for a robot of radius "
            f"{floor.radius:g} m: they connect {places * size**2:.0f} of {most:.0f} m² where the "
            f"robot fits; try cells of {size / 2:g} m or a smaller robot_radius"
        )


def _given(floor: Floor, docks: Sequence[Sequence[float | str]]) -> list[Place]:
    return [floor.cell("start", float(dock[0]), float(dock[1])) for dock in docks]


def _far_end(floor: Floor, areas: NDArray[np.int32], docks: Sequence[Place]) -> Place:
    """The place farthest from a dock, or an end of the largest area."""
    free = floor.cells == FREE
    own = areas[docks[0]] if docks else np.bincount(areas[free]).argmax()
    _check_share(floor, int((areas == own).sum()))
    grid = floor.grid((), "drive")
    first = docks[0] if docks else tuple(np.argwhere((areas == own) & free)[0])
    place: Place = (int(first[0]), int(first[1]))
    for _ in range(1 if docks else 2):
        *_, last = grid.levels(np.array([grid.pose(*place, "E")]))
        kinds = grid.kinds(last)
        row, column = grid.places(last[kinds == FREE] if (kinds == FREE).any() else last)[0]
        place = (int(row), int(column))
    return place


def _more_docks(grid: Grid, goals: Sequence[Place], docks: list[int], wanted: int) -> list[int]:
    """Places at about the right distance from the goal, each as far from the others as can be.

    A dozen docks look into all directions in turn; hundreds are anywhere on the floor.
    """
    if wanted < 1:
        return []
    distance = _steps_to(grid, goals)
    chosen = list(grid.places(np.array(docks, dtype=np.int64)))
    fits = np.isfinite(distance) & (grid.cells == FREE)
    for place in chosen:
        fits[tuple(place)] = False
    places = np.argwhere(fits)
    if len(places) < wanted:
        raise MapError(
            f"starts: {wanted + len(docks)}, but the goal can be reached from "
            f"{len(places) + len(docks)} places; smaller cells make more of them"
        )
    steps = distance[tuple(places.T)]
    low, high = _STEPS_TO_GOAL
    pools = [(steps >= low) & (steps <= high), steps >= np.median(steps), steps > 0]
    right = next(pool for pool in pools if pool.sum() >= _ROOMY * wanted or pool is pools[-1])
    pool = places[right]
    if not chosen:
        aim = min(float(np.mean(_STEPS_TO_GOAL)), float(steps.max()))
        chosen = [pool[np.abs(steps[right] - aim).argmin()]]
    found = [] if docks else list(chosen)
    near = np.min([np.abs(pool - place).sum(axis=1) for place in chosen], axis=0)
    while len(found) < wanted:
        best = pool[near.argmax()]
        found.append(best)
        near = np.minimum(near, np.abs(pool - best).sum(axis=1))
    names = HEADING_NAMES[grid.directions]
    first = names.index(_HEADING)
    looks = [names[(first + turn) % grid.directions] for turn in range(len(found))]
    return [grid.pose(int(r), int(c), look) for (r, c), look in zip(found, looks, strict=True)]


def _steps_to(grid: Grid, goals: Sequence[Place]) -> NDArray[np.float64]:
    """Moves from every cell to the nearest goal, turns not counted [rows, columns]."""
    open_cells = np.where(grid.cells == GOAL, np.uint8(FREE), grid.cells)
    passages = None if grid.passages is None else grid.passages[..., :: grid.directions // 4]
    walk = Grid(open_cells, "compass", passages=passages)
    distance = np.full(grid.cells.shape, np.inf)
    for steps, level in enumerate(walk.levels(walk.poses(np.array(goals), 0))):
        distance[tuple(walk.places(level).T)] = steps
    return distance
