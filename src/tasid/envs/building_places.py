"""Where the robot of a building may be: its floor, its docks and its goal, on any map.

Maps that come without a task get one: the goal is a far end of the largest area, and docks lie some
forty steps away from it, as far apart from each other as that allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasid.envs.building_floor import RESOLUTION, DrawnFloor, office_floor
from tasid.mdp import AbstractSimulator
from tasid.mdp.layout import FREE, GOAL, HAZARD, WALL
from tasid.mdp.sources.floor import Floor, why_unreachable
from tasid.mdp.sources.grid import Grid, Rewards, checked_heading, grid_simulator
from tasid.mdp.sources.map_server import OccupancyMap, read_map
from tasid.mdp.sources.reach import steps_to_goal
from tasid.mdp.sources.text_map import parse
from tasid.mdp.sources.trouble import MapError

_STEPS_TO_GOAL = (30, 45)
"""How far docks are from the goal if nobody says where they are and the floor is large enough."""
Place = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Site:
    """A map, and what is known about the task on it; all lengths in metres."""

    picture: OccupancyMap
    hazards: Sequence[Sequence[float]] = ()
    docks: Sequence[Sequence[float | str]] = ()
    goals: Sequence[Sequence[float]] = ()
    source: str = ""


def site_of(where: str | None, number: int | None, cell_size: float) -> Site:
    """The floor that comes with the package, one by number, a ROS map, or a text map.

    A text map is a file or the text itself; a character is a cell.
    """
    if where is None:
        return _drawn(office_floor(number), number)
    if number is not None:
        raise MapError(f"floor: {number} with a map; floors by number are drawn, not read")
    if "\n" in where:
        return _written(where, cell_size, "text map")
    path = Path(where)
    if path.suffix.lower() in (".yaml", ".yml"):
        return Site(read_map(path), source=f"occupancy map {path.name}")
    if path.suffix.lower() != ".txt":
        raise MapError(f"map: {where!r} is neither a .yaml (ROS map) nor a .txt (drawn map)")
    if not path.is_file():
        raise MapError(f"map: {where}: no such file")
    return _written(path.read_text(encoding="utf-8"), cell_size, f"text map {path.name}")


def _drawn(floor: DrawnFloor, number: int | None) -> Site:
    name = "office floor" if number is None else f"office floor {number}"
    return Site(floor.picture, floor.hazards, [floor.dock], [floor.goal], name)


def _written(text: str, size: float, source: str) -> Site:
    cells, starts = parse(text)
    every = max(round(size / RESOLUTION), 1)
    rows = cells.shape[0]
    pixels = np.where(cells == WALL, np.uint8(WALL), np.uint8(FREE))
    pixels = pixels.repeat(every, axis=0).repeat(every, axis=1)

    def centre(place: Any) -> tuple[float, float]:
        return (float(place[1]) + 0.5) * size, (rows - float(place[0]) - 0.5) * size

    # Smaller than the cell by more than a robot's radius, so that its neighbours stay free.
    lava = [(*centre(place), 0.01 * size) for place in np.argwhere(cells == HAZARD)]
    return Site(
        OccupancyMap(np.pad(pixels, 0), size / every, (0.0, 0.0)),
        hazards=lava,
        docks=[(*centre(start), "E") for start in starts],
        goals=[centre(goal) for goal in np.argwhere(cells == GOAL)],
        source=source,
    )


@dataclass(frozen=True, eq=False)
class Places:
    """A floor with its goal, its docks, and the moves between all poses."""

    floor: Floor
    cells: NDArray[np.uint8]
    grid: Grid
    docks: list[int]
    """Poses; the first is where a lone start is."""

    def simulator(self, rewards: Rewards, source: str) -> AbstractSimulator:
        """All poses that can be reached from the docks; the horizon is to be chosen later."""
        return grid_simulator(
            self.grid,
            self.docks,
            horizon=self.cells.size * self.grid.headings,
            rewards=rewards,
            scale=self.floor.scale,
            source=source,
        )


def places_of(
    floor: Floor,
    *,
    docks: Sequence[Sequence[float | str]],
    goals: Sequence[Sequence[float]],
    number: int,
    heading: str = "E",
) -> Places:
    """Docks and goals as given, and as many docks more as are asked for."""
    _check_size(floor)
    areas = floor.lattice.areas()
    if goals:
        chosen = [floor.cell("goal", float(goal[0]), float(goal[1])) for goal in goals]
    else:
        chosen = [_far_end(floor, areas, _given(floor, docks))]
    cells = floor.cells.copy()
    for place in chosen:
        cells[place] = GOAL
    grid = floor.grid(cells, "drive")
    poses = []
    for dock in docks[:number]:
        row, column = _given(floor, [dock])[0]
        if cells[row, column] == GOAL:
            raise MapError(f"start: {tuple(dock)} lies in the cell of the goal")
        looks = checked_heading(str(dock[2]) if len(dock) > 2 else heading, grid.directions)
        poses.append(grid.pose(row, column, looks))
        if steps_to_goal(grid, poses[-1]) is None:
            raise MapError(_unreachable(floor, (row, column), chosen[0]))
    poses += _more_docks(grid, chosen, poses, number - len(poses), heading)
    return Places(floor, cells, grid, poses)


def _check_size(floor: Floor) -> None:
    if (floor.cells == FREE).any():
        return
    free = (floor.pixels == FREE).any()
    if not free:
        raise MapError("map: it has no free pixel at all; is `negate` of its .yaml right?")
    raise MapError(
        f"cell_size: with cells of {floor.lattice.size:g} m and a robot of radius "
        f"{floor.radius:g} m no cell is free; try cells of {floor.lattice.size / 2:g} m or a "
        "smaller robot_radius"
    )


def _given(floor: Floor, docks: Sequence[Sequence[float | str]]) -> list[Place]:
    return [floor.cell("start", float(dock[0]), float(dock[1])) for dock in docks]


def _unreachable(floor: Floor, start: Place, goal: Place) -> str:
    return f"goal: it cannot be reached from the start; {why_unreachable(floor)(start, goal)}"


def _far_end(floor: Floor, areas: NDArray[np.int32], docks: Sequence[Place]) -> Place:
    """The place farthest from a dock, or an end of the largest area."""
    free = floor.cells == FREE
    own = areas[docks[0]] if docks else np.bincount(areas[free]).argmax()
    if (areas == own).sum() < 2:
        raise MapError(
            "map: its largest area has one place; "
            + "; ".join(str(door) for door in floor.doors()) * 1
            + " try a smaller cell_size or robot_radius"
        )
    grid = floor.grid(floor.cells, "drive")
    first = docks[0] if docks else tuple(np.argwhere((areas == own) & free)[0])
    place: Place = (int(first[0]), int(first[1]))
    for _ in range(1 if docks else 2):
        *_, last = grid.levels(np.array([grid.pose(*place, "E")]))
        kinds = grid.kinds(last)
        row, column = grid.places(last[kinds == FREE] if (kinds == FREE).any() else last)[0]
        place = (int(row), int(column))
    return place


def _more_docks(
    grid: Grid, goals: Sequence[Place], docks: list[int], wanted: int, heading: str
) -> list[int]:
    """Places at about the right distance from the goal, each as far from the others as can be."""
    if wanted < 1:
        return []
    distance = _steps_to(grid, goals)
    places = np.argwhere(np.isfinite(distance) & (grid.cells == FREE))
    steps = distance[tuple(places.T)]
    low, high = _STEPS_TO_GOAL
    right = (steps >= low) & (steps <= high)
    if right.sum() < wanted + len(docks):
        right = steps >= np.quantile(steps, 0.5)
    pool, chosen = places[right], [tuple(p) for p in grid.places(np.array(docks, int))]
    if len(pool) < wanted:
        raise MapError(f"starts: {wanted + len(docks)} for a floor with {len(pool)} places for docks")
    if not chosen:
        aim = min(np.mean(_STEPS_TO_GOAL), float(steps.max()))
        chosen = [tuple(pool[np.abs(steps[right] - aim).argmin()])]
    found = list(chosen) if not docks else []
    near = np.min([np.abs(pool - place).sum(axis=1) for place in chosen], axis=0)
    while len(found) < wanted:
        best = int(near.argmax())
        found.append(tuple(pool[best]))
        near = np.minimum(near, np.abs(pool - pool[best]).sum(axis=1))
    return [grid.pose(int(row), int(column), heading) for row, column in found]


def _steps_to(grid: Grid, goals: Sequence[Place]) -> NDArray[np.float64]:
    """Moves from every cell to the nearest goal, turns not counted [rows, columns]."""
    distance = np.full(grid.cells.shape, np.inf)
    open_cells = np.where(grid.cells == GOAL, np.uint8(FREE), grid.cells)
    backward = Grid(open_cells, "drive", grid.directions, grid.passages)
    level = list(goals)
    steps = 0
    while level:
        for place in level:
            distance[place] = min(distance[place], steps)
        poses = [backward.pose(*place, name) for place in level for name in "NESW"]
        after = backward.places(backward.successors(np.array(poses))[:, :2].ravel())
        fresh = {(int(r), int(c)) for r, c in after}
        level = [p for p in fresh if np.isinf(distance[p]) and grid.cells[p] == FREE]
        steps += 1
    return distance
