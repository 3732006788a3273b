"""Simulators from ROS occupancy maps: a lattice of places over the pixels.

A place is free if a robot fits there, and a move exists if it can drive it in a straight line: see
`lattice`. So corridors stay connected at the sizes at which robots think.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasid.maps.layout import FREE, GOAL, HAZARD, UNKNOWN, WALL
from tasid.maps.simulator import AbstractSimulator
from tasid.maps.size import MapError, finite
from tasid.maps.sources.doors import LostDoor, doors_lost_on
from tasid.maps.sources.grid import Grid, Rewards, checked_heading, grid_simulator
from tasid.maps.sources.lattice import Lattice, Pixels, backdrop, grown, lattice
from tasid.maps.sources.map_server import OccupancyMap, read_map
from tasid.maps.sources.reach import Place, checked_horizon

Point = Sequence[float]
_NAMES = {
    WALL: "a wall or within the robot's radius of one",
    UNKNOWN: "unknown territory",
    HAZARD: "a hazard",
}
_DOORS = 5
"""Lost doors that are told, at most."""


@dataclass(frozen=True, eq=False)
class Floor:
    """What a robot of some size meets: cells, row 0 on top; all lengths in metres."""

    picture: OccupancyMap
    pixels: Pixels
    """The map's, unknown ones perhaps made free, before walls grow."""
    radius: float
    lattice: Lattice
    cells: Pixels
    """The lattice's, with hazards marked."""

    @classmethod
    def of(
        cls,
        picture: OccupancyMap,
        *,
        cell_size: float | None = None,
        robot_radius: float = 0.0,
        unknown: str = "wall",
        hazards: Sequence[Point] = (),
        headings: int = 4,
    ) -> Floor:
        """The floor for this robot; options as in `from_occupancy_map`."""
        radius = metres("robot_radius", robot_radius)
        if radius < 0:
            raise MapError(f"robot_radius: {robot_radius} is below 0")
        if unknown not in ("wall", "free"):
            raise MapError(f"unknown: {unknown!r} is neither 'wall' nor 'free'")
        pixels = picture.pixels
        if unknown == "free":
            pixels = np.where(pixels == UNKNOWN, np.uint8(FREE), pixels)
        size = picture.resolution if cell_size is None else float(cell_size)
        wide = grown(pixels, radius / picture.resolution)
        grid = lattice(wide, picture, size=size, directions=headings)
        cells = grid.cells.copy()
        _mark_hazards(cells, grid, hazards, radius)
        return cls(picture, pixels, radius, grid, cells)

    @property
    def scale(self) -> dict[str, Any]:
        """How the cells are measured and drawn, for `grid_simulator`."""
        grid = self.lattice
        return {
            "cell_size": grid.size,
            "corner": grid.corner,
            "backdrop": backdrop(self.picture, grid),
        }

    def grid(self, goals: Sequence[Place], moves: str) -> Grid:
        """Moves over the floor with goals in these places."""
        cells = self.cells.copy()
        for place in goals:
            cells[place] = GOAL
        return Grid(cells, moves, self.lattice.directions, self.lattice.passages)

    def cell(self, name: str, x: float, y: float) -> Place:
        """Row and column of the free cell around a point."""
        rows, columns = self.cells.shape
        size, (left, low) = self.lattice.size, self.lattice.corner
        right, top = left + columns * size, low + rows * size
        if not (left <= x < right and low <= y < top):
            raise MapError(
                f"{name}: {(x, y)} lies outside the map, whose x runs {left:g} … "
                f"{right:g} and y {low:g} … {top:g} (metres)"
            )
        # A point on an edge belongs to the cell above or right of it, however it is rounded.
        column = min(int((x - left) / size + 1e-9), columns - 1)
        row = rows - 1 - min(int((y - low) / size + 1e-9), rows - 1)
        kind = int(self.cells[row, column])
        if kind in _NAMES:
            raise MapError(f"{name}: {(x, y)} lies in {self._named(kind)}; {self._nearest(x, y)}")
        return row, column

    def _named(self, kind: int) -> str:
        if kind == HAZARD or self.lattice.size <= 2 * self.picture.resolution:
            return _NAMES[kind]
        return f"a cell of {self.lattice.size:g} m whose centre is in {_NAMES[kind]}"

    def _nearest(self, x: float, y: float) -> str:
        free = np.argwhere(self.cells == FREE)
        if free.size == 0:
            return "the map has no free cell (is the robot's radius too large?)"
        centres = self.lattice.centres(free)
        best = centres[int(np.hypot(*(centres - (x, y)).T).argmin())]
        return f"the nearest free cell is at ({best[0]:.6g}, {best[1]:.6g})"

    def doors(self) -> list[LostDoor]:
        """Doors that cut off most of this floor and would open with smaller cells or radii."""
        found = doors_lost_on(self)
        return [door for door in found if door.cell_size or door.robot_radius is not None][:_DOORS]

    def why_unreachable(self, start: Place, goal: Place) -> str:
        """For a warning: the doors lost on the widest way between two places, in words."""
        areas = self.lattice.areas()
        if areas[start] == areas[goal]:
            return "every way there leads over a hazard"
        doors = doors_lost_on(self, between=(start, goal))
        if not doors:
            return "no way leads there on the map itself, however small the robot"
        return "on the widest way there: " + "; ".join(map(str, doors))


def from_occupancy_map(
    path: str | Path,
    *,
    start: Sequence[float | str],
    goal: Point | Sequence[Point],
    horizon: int | None = None,
    cell_size: float | None = None,
    robot_radius: float = 0.0,
    hazards: Sequence[Point] = (),
    moves: str = "compass",
    headings: int = 4,
    unknown: str = "wall",
    goal_reward: float = 1.0,
    hazard_reward: float = -1.0,
    step_reward: float = -0.01,
) -> AbstractSimulator:
    """A simulator of a map_server map (.yaml with .pgm or .png); all lengths in metres.

    `start` is (x, y) or (x, y, heading), the heading one of N, E, S, W (default E), or of eight,
    and used if `moves` is "turn" or "drive". `goal` is a point or several. Cells are `cell_size`
    wide, by default a pixel. Walls, not unknown pixels, grow by `robot_radius`; unknown pixels are
    walls, or free with `unknown="free"`. A cell is free if the map is free at its centre then, and
    neighbours are connected if it is free along the line between their centres. Cells touched by a
    hazard, a circle (x, y, radius) or a rectangle (x, y, x, y), end the episode. States are the
    cells' centres. For moves, rewards and a missing horizon see `from_text_map`.
    """
    x, y, heading = _checked_start(start, headings)
    points = _points(goal)
    floor = Floor.of(
        read_map(path),
        cell_size=cell_size,
        robot_radius=robot_radius,
        unknown=unknown,
        hazards=hazards,
        headings=headings,
    )
    row, column = floor.cell("start", x, y)
    goals = [floor.cell("goal", *point) for point in points]
    if (row, column) in goals:
        point = points[goals.index((row, column))]
        raise MapError(f"goal: {point} lies in the cell of the start, {(x, y)}")
    grid = floor.grid(goals, moves)
    pose = grid.pose(row, column, heading)
    return grid_simulator(
        grid,
        [pose],
        horizon=checked_horizon(grid, [pose], horizon, why=floor.why_unreachable),
        rewards=Rewards(goal_reward, hazard_reward, step_reward),
        source=f"occupancy map {Path(path).name}",
        **floor.scale,
    )


def lost_doors(path: str | Path, **options: Any) -> list[LostDoor]:
    """Where an occupancy map fell apart, and what would open it; options of `Floor.of`."""
    return Floor.of(read_map(path), **options).doors()


def _checked_start(start: Sequence[float | str], headings: int) -> tuple[float, float, str]:
    if isinstance(start, str) or len(start) not in (2, 3):
        raise MapError(f"start: {start!r} is neither (x, y) nor (x, y, heading)")
    if headings not in (4, 8):
        raise MapError(f"headings: {headings!r} is neither 4 nor 8")
    x, y = metres("start", start[0]), metres("start", start[1])
    return x, y, checked_heading(str(start[2]) if len(start) == 3 else "E", headings)


def _points(goal: Point | Sequence[Point]) -> list[tuple[float, float]]:
    points = [goal] if len(goal) == 2 and np.ndim(goal[0]) == 0 else list(goal)
    if not points or any(np.ndim(p) != 1 or len(p) != 2 for p in points):  # type: ignore[arg-type]
        raise MapError(f"goal: {goal!r} is neither a point (x, y) nor several of them")
    return [(metres("goal", p[0]), metres("goal", p[1])) for p in points]  # type: ignore[index]


def _mark_hazards(cells: Pixels, grid: Lattice, hazards: Sequence[Point], radius: float) -> None:
    """Turn free cells that the robot's body could touch a hazard from into hazards."""
    free = np.argwhere(cells == FREE)
    centres = grid.centres(free)
    for zone in hazards:
        low, high, reach = _zone(zone, radius)
        # From a square cell to a rectangle, along each axis; negative where they overlap.
        gaps: NDArray[np.float64] = np.maximum(low - centres, centres - high) - grid.size / 2
        apart = np.hypot(*np.maximum(gaps, 0.0).T)
        inside = (gaps.max(axis=1) < -1e-9) | (apart < reach - 1e-9)
        touched = free[inside]
        cells[touched[:, 0], touched[:, 1]] = HAZARD


def _zone(
    zone: Sequence[float], radius: float
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Lower left and upper right corner, and how near the robot's centre may not come."""
    if len(zone) == 3:
        point = np.array(zone[:2], dtype=float)
        return point, point, radius + float(zone[2])
    if len(zone) == 4:
        ends = np.array(zone, dtype=float).reshape(2, 2)
        return ends.min(axis=0), ends.max(axis=0), radius
    raise MapError(
        f"hazards: {tuple(zone)} is neither a circle (x, y, radius) nor a rectangle (x, y, x, y)"
    )


def metres(name: str, given: object) -> float:
    """A finite number of metres."""
    number = finite(given)
    if math.isnan(number):
        raise MapError(f"{name}: {given!r} is not a number of metres")
    return number
