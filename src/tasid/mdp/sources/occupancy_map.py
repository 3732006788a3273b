"""Simulators from ROS occupancy maps: pixels become cells, obstacles grow by the robot's radius.

A cell is free only if all of its pixels are: a robot that stands anywhere in a free cell, or
moves between two neighbouring ones, touches nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from tasid.mdp.layout import FREE, GOAL, HAZARD, UNKNOWN, WALL
from tasid.mdp.simulator import AbstractSimulator
from tasid.mdp.sources.grid import Grid, Rewards, Scale, checked_heading, grid_simulator
from tasid.mdp.sources.map_server import OccupancyMap, read_map
from tasid.mdp.sources.reach import checked_horizon
from tasid.mdp.sources.trouble import MapError

Point = Sequence[float]
_NAMES = {
    WALL: "a wall or within the robot's radius of one",
    UNKNOWN: "unknown territory",
    HAZARD: "a hazard",
}


def from_occupancy_map(
    path: str | Path,
    *,
    start: Sequence[float | str],
    goal: Point | Sequence[Point],
    horizon: int | None = None,
    cell_size: float | None = None,
    robot_radius: float = 0.0,
    hazards: Sequence[Sequence[float]] = (),
    moves: str = "compass",
    unknown: str = "wall",
    goal_reward: float = 1.0,
    hazard_reward: float = -1.0,
    step_reward: float = -0.01,
) -> AbstractSimulator:
    """A simulator of a map_server map (.yaml with .pgm or .png); all lengths in metres.

    `start` is (x, y) or (x, y, heading), the heading one of N, E, S, W (default E) and used if
    `moves` is "turn". `goal` is a point or several. Cells are `cell_size` wide, a multiple of the
    map's resolution and by default the resolution. Walls, not unknown pixels, grow by
    `robot_radius`; unknown pixels are walls, or free with `unknown="free"`. Cells touched by a
    hazard, a circle (x, y, radius) or a rectangle (x, y, x, y), end the episode. States are the
    cells' centres. For moves, rewards and a missing horizon see `from_text_map`.
    """
    x, y, heading = _checked_start(start)
    points, radius = _points(goal), _checked_radius(robot_radius)
    free = _checked_unknown(unknown)
    plan = _FloorPlan.of(read_map(path), cell_size, radius, free)
    plan.mark_hazards(hazards, radius)
    row, column = plan.cell("start", x, y)
    goals = []
    for point in points:
        place = plan.cell("goal", *point)
        if place == (row, column):
            raise MapError(f"goal: {tuple(point)} lies in the cell of the start, {(x, y)}")
        goals.append(place)
    for place in goals:
        plan.cells[place] = GOAL
    grid = Grid(plan.cells, moves)
    pose = grid.pose(row, column, heading)
    return grid_simulator(
        grid,
        [pose],
        horizon=checked_horizon(grid, [pose], horizon),
        rewards=Rewards(goal_reward, hazard_reward, step_reward),
        scale=Scale(plan.size, plan.corner),
        source=f"occupancy map {Path(path).name}",
    )


@dataclass(frozen=True, eq=False)
class _FloorPlan:
    """Cells of some size over the map; row 0 on top."""

    cells: NDArray[np.uint8]
    size: float
    corner: tuple[float, float]

    @classmethod
    def of(cls, picture: OccupancyMap, size: float | None, radius: float, free: bool) -> _FloorPlan:
        size = picture.resolution if size is None else float(size)
        every = round(size / picture.resolution) if math.isfinite(size) else 0
        if every < 1 or abs(every * picture.resolution - size) > 1e-6 * size:
            near = max(every, 1) * picture.resolution
            raise MapError(
                f"cell_size: {size:g} m is not a whole number of pixels of "
                f"{picture.resolution:g} m; {near:g} is the nearest that is"
            )
        pixels = picture.pixels
        if free:
            pixels = np.where(pixels == UNKNOWN, np.uint8(FREE), pixels)
        cells = _coarse(_grown(pixels, radius / picture.resolution), every)
        return cls(cells, every * picture.resolution, picture.corner)

    def cell(self, name: str, x: float, y: float) -> tuple[int, int]:
        """Row and column of the free cell around a point."""
        rows, columns = self.cells.shape
        right = self.corner[0] + columns * self.size
        top = self.corner[1] + rows * self.size
        if not (self.corner[0] <= x < right and self.corner[1] <= y < top):
            raise MapError(
                f"{name}: {(x, y)} lies outside the map, whose x runs {self.corner[0]:g} … "
                f"{right:g} and y {self.corner[1]:g} … {top:g} (metres)"
            )
        # A point on an edge belongs to the cell above or right of it, however it is rounded.
        column = min(int((x - self.corner[0]) / self.size + 1e-9), columns - 1)
        row = rows - 1 - min(int((y - self.corner[1]) / self.size + 1e-9), rows - 1)
        kind = int(self.cells[row, column])
        if kind in _NAMES:
            raise MapError(f"{name}: {(x, y)} lies in {_NAMES[kind]}; {self._nearest(x, y)}")
        return row, column

    def _nearest(self, x: float, y: float) -> str:
        free = np.argwhere(self.cells == FREE)
        if free.size == 0:
            return "the map has no free cell (is the robot's radius too large?)"
        centre_y, centre_x = self._centres(free)
        best = int(np.hypot(centre_x - x, centre_y - y).argmin())
        return f"the nearest free cell is at ({centre_x[best]:.6g}, {centre_y[best]:.6g})"

    def _centres(self, places: NDArray[np.intp]) -> tuple[NDArray[Any], NDArray[Any]]:
        """y and x of these rows and columns."""
        y = self.corner[1] + (self.cells.shape[0] - places[:, 0] - 0.5) * self.size
        return y, self.corner[0] + (places[:, 1] + 0.5) * self.size

    def mark_hazards(self, hazards: Sequence[Sequence[float]], radius: float) -> None:
        """Turn free cells that the robot's body could touch a hazard from into hazards."""
        free = np.argwhere(self.cells == FREE)
        y, x = self._centres(free)
        for zone in hazards:
            if len(zone) == 3:
                low = high = np.array(zone[:2], dtype=float)
                reach = radius + float(zone[2])
            elif len(zone) == 4:
                ends = np.array(zone, dtype=float).reshape(2, 2)
                low, high, reach = ends.min(axis=0), ends.max(axis=0), radius
            else:
                raise MapError(
                    f"hazards: {tuple(zone)} is neither a circle (x, y, radius) nor a rectangle "
                    "(x, y, x, y)"
                )
            # From a square cell to a rectangle, along each axis; negative where they overlap.
            gaps = [
                np.maximum(low[i] - c, c - high[i]) - self.size / 2 for i, c in enumerate((x, y))
            ]
            apart = np.hypot(*(np.maximum(gap, 0.0) for gap in gaps))
            inside = (np.maximum(*gaps) < -1e-9) | (apart < reach - 1e-9)
            touched = free[inside]
            self.cells[touched[:, 0], touched[:, 1]] = HAZARD


def _grown(pixels: NDArray[np.uint8], radius: float) -> NDArray[np.uint8]:
    """Walls, and everything whose centre is within `radius` pixels of a wall's centre."""
    if radius <= 0 or not (pixels == WALL).any():
        return pixels
    distance = ndimage.distance_transform_edt(pixels != WALL)
    return np.where(distance <= radius + 1e-9, np.uint8(WALL), pixels)


def _coarse(pixels: NDArray[np.uint8], every: int) -> NDArray[np.uint8]:
    """Blocks of pixels counted from the lower left corner; incomplete ones are unknown."""
    rows, columns = pixels.shape
    pad = ((-rows % every, 0), (0, -columns % every))
    whole = np.pad(pixels, pad, constant_values=UNKNOWN)
    high, wide = whole.shape[0] // every, whole.shape[1] // every
    blocks = whole.reshape(high, every, wide, every).swapaxes(1, 2).reshape(high, wide, -1)
    kinds = [(blocks == kind).any(axis=-1) for kind in (WALL, UNKNOWN)]
    return np.select(kinds, [np.uint8(WALL), np.uint8(UNKNOWN)], np.uint8(FREE))


def _checked_start(start: Sequence[float | str]) -> tuple[float, float, str]:
    if isinstance(start, str) or len(start) not in (2, 3):
        raise MapError(f"start: {start!r} is neither (x, y) nor (x, y, heading)")
    x, y = _number("start", start[0]), _number("start", start[1])
    return x, y, checked_heading(str(start[2]) if len(start) == 3 else "E")


def _points(goal: Point | Sequence[Point]) -> list[tuple[float, float]]:
    points = [goal] if len(goal) == 2 and np.ndim(goal[0]) == 0 else list(goal)
    if not points or any(np.ndim(p) != 1 or len(p) != 2 for p in points):  # type: ignore[arg-type]
        raise MapError(f"goal: {goal!r} is neither a point (x, y) nor several of them")
    return [(_number("goal", p[0]), _number("goal", p[1])) for p in points]  # type: ignore[index]


def _number(name: str, given: object) -> float:
    try:
        number = float(given)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise MapError(f"{name}: {given!r} is not a number of metres")
    return number


def _checked_radius(radius: float) -> float:
    if not _number("robot_radius", radius) >= 0:
        raise MapError(f"robot_radius: {radius} is below 0")
    return float(radius)


def _checked_unknown(unknown: str) -> bool:
    if unknown not in ("wall", "free"):
        raise MapError(f"unknown: {unknown!r} is neither 'wall' nor 'free'")
    return unknown == "free"
