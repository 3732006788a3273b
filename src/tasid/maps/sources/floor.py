"""A floor as a robot of some size finds it: a lattice over an occupancy map, with its hazards."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasid.maps.layout import FREE, HAZARD, UNKNOWN, WALL
from tasid.maps.sources.doors import LostDoor, lost_doors
from tasid.maps.sources.grid import Grid, Scale
from tasid.maps.sources.lattice import Lattice, Pixels, backdrop, grown, lattice
from tasid.maps.sources.map_server import OccupancyMap
from tasid.maps.sources.trouble import MapError, finite

Place = tuple[int, int]
Points = Sequence[Sequence[float]]
_NAMES = {
    WALL: "a wall or within the robot's radius of one",
    UNKNOWN: "unknown territory",
    HAZARD: "a hazard",
}


@dataclass(frozen=True, eq=False)
class Floor:
    """Cells by what the robot meets at their centres, row 0 on top; all lengths in metres."""

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
        hazards: Points = (),
        directions: int = 4,
    ) -> Floor:
        """The floor for this robot; options as in `from_occupancy_map`."""
        radius = _checked_radius(robot_radius)
        pixels = picture.pixels
        if _checked_unknown(unknown):
            pixels = np.where(pixels == UNKNOWN, np.uint8(FREE), pixels)
        size = picture.resolution if cell_size is None else float(cell_size)
        wide = grown(pixels, radius / picture.resolution)
        grid = lattice(wide, picture, size=size, directions=directions)
        cells = grid.cells.copy()
        _mark_hazards(cells, grid, hazards, radius)
        return cls(picture, pixels, radius, grid, cells)

    @property
    def scale(self) -> Scale:
        """How the cells are measured and drawn."""
        grid = self.lattice
        return Scale(grid.size, grid.corner, backdrop(self.picture, grid))

    def grid(self, cells: Pixels, moves: str) -> Grid:
        """Moves over these cells, which are the floor's with goals."""
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

    def doors(self, most: int = 5) -> list[LostDoor]:
        """Doors that cut off most of this floor and would open with smaller cells or radii."""
        found = self._lost(most=3 * most)
        return [door for door in found if door.cell_size or door.robot_radius is not None][:most]

    def why_unreachable(self, start: Place, goal: Place) -> str:
        """For a warning: the doors lost on the widest way between two places, in words."""
        areas = self.lattice.areas()
        if areas[start] == areas[goal]:
            return "every way there leads over a hazard"
        doors = self._lost(between=(start, goal))
        if not doors:
            return "no way leads there on the map itself, however small the robot"
        return "on the widest way there: " + "; ".join(map(str, doors))

    def _lost(self, **which: Any) -> list[LostDoor]:
        return lost_doors(self.pixels, self.picture, self.lattice, radius=self.radius, **which)


def _mark_hazards(cells: Pixels, grid: Lattice, hazards: Points, radius: float) -> None:
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


def _checked_radius(radius: float) -> float:
    if not metres("robot_radius", radius) >= 0:
        raise MapError(f"robot_radius: {radius} is below 0")
    return float(radius)


def _checked_unknown(unknown: str) -> bool:
    if unknown not in ("wall", "free"):
        raise MapError(f"unknown: {unknown!r} is neither 'wall' nor 'free'")
    return unknown == "free"
