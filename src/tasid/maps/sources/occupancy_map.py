"""Simulators from ROS occupancy maps: a lattice of places over the pixels.

A place is free if a robot fits there, and a move exists if it can drive it in a straight line: see
`lattice`. So corridors stay connected at the sizes at which robots think.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tasid.maps.layout import GOAL
from tasid.maps.simulator import AbstractSimulator
from tasid.maps.sources.doors import LostDoor
from tasid.maps.sources.floor import Floor, Points, metres
from tasid.maps.sources.grid import Rewards, checked_heading, grid_simulator
from tasid.maps.sources.map_server import read_map
from tasid.maps.sources.reach import checked_horizon
from tasid.maps.sources.trouble import MapError

Point = Sequence[float]


def from_occupancy_map(
    path: str | Path,
    *,
    start: Sequence[float | str],
    goal: Point | Sequence[Point],
    horizon: int | None = None,
    cell_size: float | None = None,
    robot_radius: float = 0.0,
    hazards: Points = (),
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
        directions=headings,
    )
    row, column = floor.cell("start", x, y)
    cells = floor.cells.copy()
    for point in points:
        place = floor.cell("goal", *point)
        if place == (row, column):
            raise MapError(f"goal: {tuple(point)} lies in the cell of the start, {(x, y)}")
        cells[place] = GOAL
    grid = floor.grid(cells, moves)
    pose = grid.pose(row, column, heading)
    return grid_simulator(
        grid,
        [pose],
        horizon=checked_horizon(grid, [pose], horizon, why=floor.why_unreachable),
        rewards=Rewards(goal_reward, hazard_reward, step_reward),
        scale=floor.scale,
        source=f"occupancy map {Path(path).name}",
    )


def lost_doors(
    path: str | Path,
    *,
    cell_size: float | None = None,
    robot_radius: float = 0.0,
    unknown: str = "wall",
    headings: int = 4,
    most: int = 5,
) -> list[LostDoor]:
    """Where an occupancy map fell apart at this cell size and radius, and what would open it."""
    floor = Floor.of(
        read_map(path),
        cell_size=cell_size,
        robot_radius=robot_radius,
        unknown=unknown,
        directions=headings,
    )
    return floor.doors(most)


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
