"""The floor plan from above with the robot on it, for people."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tasid.maps.layout import FREE, GOAL, HAZARD, UNKNOWN, WALL, GridLayout

_CELL = 8
"""Pixels per cell if the layout says nothing finer."""
_COLOURS = {
    FREE: (250, 248, 242),
    WALL: (71, 76, 83),
    UNKNOWN: (221, 219, 212),
    GOAL: (140, 199, 160),
    HAZARD: (229, 154, 118),
}
_ROBOT, _AHEAD = (15, 110, 110), (200, 80, 30)


def plain_floor(layout: GridLayout) -> NDArray[np.uint8]:
    """The whole floor, uint8 [rows, columns, 3]."""
    behind = layout.backdrop
    if behind is None:
        behind = layout.cells.repeat(_CELL, axis=0).repeat(_CELL, axis=1)
    fine = behind.shape[0] // layout.cells.shape[0]
    palette = np.array([_COLOURS[kind] for kind in range(len(_COLOURS))], dtype=np.uint8)
    picture = palette[behind]
    above = layout.cells.repeat(fine, axis=0).repeat(fine, axis=1)
    for kind in (GOAL, HAZARD):
        picture[above == kind] = _COLOURS[kind]
    return picture


def floor_picture(layout: GridLayout, state: int) -> NDArray[np.uint8]:
    """The floor and a robot looking ahead in one of its poses."""
    picture = plain_floor(layout)
    fine = picture.shape[0] // layout.cells.shape[0]
    row, column = (layout.positions[state] + 0.5) * fine
    y, x = np.indices(picture.shape[:2]) + 0.5
    near = np.hypot(y - row, x - column) <= max(0.6 * fine, 2.5)
    picture[near] = _ROBOT
    if layout.angles is not None:
        angle = np.deg2rad(layout.angles[state])
        ahead = (x - column) * np.sin(angle) - (y - row) * np.cos(angle)
        picture[near & (ahead > 0.2 * fine)] = _AHEAD
    return picture
