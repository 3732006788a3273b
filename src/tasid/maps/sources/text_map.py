"""Simulators from maps drawn with characters."""

from __future__ import annotations

from textwrap import dedent

import numpy as np
from numpy.typing import NDArray

from tasid.maps.layout import FREE, GOAL, HAZARD, WALL
from tasid.maps.simulator import AbstractSimulator
from tasid.maps.size import MapError
from tasid.maps.sources.grid import Grid, Rewards, checked_heading, grid_simulator
from tasid.maps.sources.reach import checked_horizon

CELLS = {"#": WALL, ".": FREE, "S": FREE, "G": GOAL, "L": HAZARD}


def from_text_map(
    text: str,
    *,
    horizon: int | None = None,
    moves: str = "compass",
    heading: str = "E",
    headings: int = 4,
    goal_reward: float = 1.0,
    hazard_reward: float = -1.0,
    step_reward: float = -0.01,
) -> AbstractSimulator:
    """A simulator of a map with '#' wall, '.' free, 'S' start, 'G' goal, 'L' lava or hazard.

    `moves` is "compass" (north, east, south, west), "turn" (forward, left, right, left and
    forward, right and forward) or "drive" (forward, back, left, right, stay); a robot that turns
    starts out looking to `heading`, one of 4 or 8 `headings`. What lies outside the text is wall.
    Goals and hazards end the episode; entering one pays its reward, any other step
    `step_reward`. States are (x, y) or (x, y, heading), x the column and y the row from the top.
    Without a horizon it is three times the shortest way to the goal.
    """
    cells, starts = parse(text)
    grid = Grid(cells, moves, headings)
    looks = checked_heading(heading, headings)
    poses = [grid.pose(row, column, looks) for row, column in starts]
    return grid_simulator(
        grid,
        poses,
        horizon=checked_horizon(grid, poses, horizon),
        rewards=Rewards(goal_reward, hazard_reward, step_reward),
        source="text map",
    )


def parse(text: str) -> tuple[NDArray[np.uint8], list[tuple[int, int]]]:
    """The cells of a drawn map and the (row, column) of its starts."""
    if not isinstance(text, str):
        raise MapError(f"text: a {type(text).__name__} is not text; give the map as one string")
    lines = [line.rstrip() for line in dedent(text).strip("\n").split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    if not lines:
        raise MapError("text: the map is empty")
    for row, line in enumerate(lines):
        for column, character in enumerate(line):
            if character not in CELLS:
                raise MapError(
                    f"text: {character!r} in line {row + 1}, column {column + 1} is none of "
                    f"{' '.join(CELLS)}"
                )
        if len(line) != len(lines[0]):
            raise MapError(
                f"text: line {row + 1} has {len(line)} characters, line 1 has {len(lines[0])}; "
                "all lines have to be equally long (outside is wall: '#')"
            )
    starts = [(r, c) for r, line in enumerate(lines) for c, x in enumerate(line) if x == "S"]
    if not starts:
        raise MapError("text: the map has no start 'S'")
    return np.array([[CELLS[x] for x in line] for line in lines], dtype=np.uint8), starts
