"""Geometry of grid maps: the kind of each cell, and where each state is.

A `GridLayout` serves pictures, reports and emission models that use map views. Planning and
filtering need none of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

FREE, WALL, HAZARD, GOAL, UNKNOWN = range(5)
"""Kinds of cells. Walls and unknown cells cannot be entered; hazards and goals are absorbing."""

HEADINGS = ("N", "E", "S", "W")
"""Names of headings in index order, clockwise from north."""

_ARRAYS = {
    "cells": np.uint8,
    "positions": np.int32,
    "headings": np.int8,
    "points": np.float64,
    "backdrop": np.uint8,
}


class LayoutError(ValueError):
    """Cells, positions or headings that do not fit together."""


@dataclass(frozen=True, eq=False)
class GridLayout:
    """Cells of a grid map and the position of every state."""

    cells: NDArray[np.uint8]
    """Kind of each cell [rows, columns]; row 0 is the northern edge."""
    positions: NDArray[np.int32]
    """Row and column of each state [S, 2]."""
    headings: NDArray[np.int8] | None = None
    """Heading of each state [S], clockwise from north; None if states have no heading."""
    cell_size: float = 1.0
    """Side of a cell, in metres if `corner` is known."""
    corner: tuple[float, float] | None = None
    """x and y of the lower left corner in metres; None for maps measured in cells."""
    backdrop: NDArray[np.uint8] | None = None
    """Finer picture of the same area, k × k pixels per cell, with the same codes as `cells`."""
    points: NDArray[np.float64] | None = None
    """x and y of each state in the units of `extent` [S, 2]; None puts states at cell centres."""

    def __post_init__(self) -> None:
        arrays = {name: np.array(array) for name, array in self.arrays().items()}
        _check(arrays)
        for name, array in arrays.items():
            typed = array.astype(_ARRAYS[name])
            typed.setflags(write=False)
            object.__setattr__(self, name, typed)

    @property
    def kinds(self) -> NDArray[np.uint8]:
        """Kind of the cell of each state [S]."""
        return self.cells[tuple(self.positions.T)]

    @property
    def angles(self) -> NDArray[np.float64] | None:
        """Heading of each state in degrees, clockwise from north [S]."""
        if self.headings is None:
            return None
        return self.headings.astype(np.float64) * 90.0

    @property
    def extent(self) -> tuple[float, float, float, float]:
        """x of the left and right edge, y of the lower and upper edge.

        Without `corner` the units are cells and y points down, as in an image.
        """
        rows, columns = self.cells.shape
        if self.corner is None:
            return -0.5, columns - 0.5, rows - 0.5, -0.5
        x, y = self.corner
        return x, x + columns * self.cell_size, y, y + rows * self.cell_size

    def centres(self, states: ArrayLike) -> NDArray[np.float64]:
        """x and y of these states in the units of `extent`, shape [n, 2]."""
        states = np.asarray(states)
        if self.points is not None:
            return self.points[states]
        row, column = ((self.positions[states] + 0.5) / self.cells.shape).T
        left, right, lower, upper = self.extent
        return np.stack([left + column * (right - left), upper + row * (lower - upper)], axis=-1)

    def views(self, rays: int = 32, farthest: float = 12.0) -> NDArray[np.float64] | None:
        """Free distance along rays from every pose, [S, rays]; None if states have no heading.

        Ray 0 points straight ahead, the others follow counter-clockwise at equal angles.
        Distances are in metres (cells without `corner`), cut off at `farthest`, and measured on
        the backdrop where there is one. The result is cached.
        """
        cache = self.__dict__.setdefault("_views", {})
        if self.angles is None or (rays, farthest) in cache:
            return cache.get((rays, farthest))
        picture = self.cells if self.backdrop is None else self.backdrop
        per_cell = picture.shape[0] // self.cells.shape[0]
        pixel = (1.0 if self.corner is None else self.cell_size) / per_cell
        origin = self.positions + 0.5
        if self.points is not None:
            left, right, lower, upper = self.extent
            x, y = self.points.T
            across, down = (x - left) / (right - left), (upper - y) / (upper - lower)
            origin = np.stack([down, across], axis=1) * self.cells.shape
        poses, pose_of_state = np.unique(
            np.column_stack([origin, self.angles]), axis=0, return_inverse=True
        )
        solid = np.pad((picture == WALL) | (picture == UNKNOWN), 1, constant_values=True)
        angles = np.deg2rad(poses[:, 2:] - 360 / rays * np.arange(rays))
        distance = _march(solid, poses[:, :2] * per_cell + 1, angles, farthest / pixel)
        cache[rays, farthest] = distance[pose_of_state.ravel()] * pixel
        return cache[rays, farthest]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Arrays that, with `metadata`, store the layout."""
        return {name: array for name in _ARRAYS if (array := getattr(self, name)) is not None}

    def metadata(self) -> dict[str, Any]:
        """JSON part of the stored layout."""
        return {"cell_size": self.cell_size, "corner": self.corner}

    @classmethod
    def from_parts(cls, metadata: dict[str, Any], arrays: dict[str, Any]) -> GridLayout:
        """Inverse of `metadata` and `arrays`; everything is validated again."""
        try:
            corner = metadata["corner"]
            return cls(
                cell_size=float(metadata["cell_size"]),
                corner=None if corner is None else (float(corner[0]), float(corner[1])),
                **{name: arrays[name] for name in _ARRAYS if name in arrays},
            )
        except (KeyError, TypeError, IndexError) as error:
            raise LayoutError(f"layout: the stored layout is incomplete ({error!r})") from None


def _march(
    solid: NDArray[np.bool_],
    origin: NDArray[np.float64],
    angles: NDArray[np.float64],
    farthest: float,
) -> NDArray[np.float64]:
    """Pixels from each origin [n, 2] to the first solid pixel along each angle [n, rays].

    Sphere tracing: each ray advances by the distance to the nearest solid pixel. Distances are
    between pixel centres and may overstate the free way by √2; next to a wall, where nothing
    is left after that correction, rays creep by a quarter of a pixel.
    """
    from scipy import ndimage

    clearance = ndimage.distance_transform_edt(~solid)
    down, right = -np.cos(angles), np.sin(angles)
    travelled = np.zeros_like(angles)
    moving = np.ones(angles.shape, bool)
    last_row, last_column = np.array(solid.shape) - 1
    while moving.any():
        row = np.clip(np.floor(origin[:, :1] + travelled * down), 0, last_row).astype(np.intp)
        column = np.clip(np.floor(origin[:, 1:] + travelled * right), 0, last_column)
        free = clearance[row, column.astype(np.intp)]
        advance = np.where(free > 0, np.maximum(free - np.sqrt(2), 0.25), 0.0)
        travelled = np.minimum(travelled + advance, farthest)
        moving = (free > 0) & (travelled < farthest)
    return travelled


def _check(arrays: dict[str, NDArray[Any]]) -> None:
    def require(name: str, right: Any, what: str) -> None:
        if not right:
            shape, dtype = arrays[name].shape, arrays[name].dtype
            raise LayoutError(f"{name}: shape {shape} of {dtype}; must be {what}")

    cells, positions = arrays["cells"], arrays["positions"]
    for name in sorted({"cells", "backdrop"} & arrays.keys()):
        known = np.isin(arrays[name], range(UNKNOWN + 1)).all()
        right = known and arrays[name].ndim == 2 and arrays[name].size
        require(name, right, f"[rows, columns] of codes {FREE} … {UNKNOWN}")
    right = positions.ndim == 2 and positions.shape[1] == 2 and positions.dtype.kind in "iu"
    inside = right and ((positions >= 0) & (positions < cells.shape)).all()
    require("positions", inside, f"rows and columns [S, 2] of the {cells.shape} cells")
    if "headings" in arrays:
        right = arrays["headings"].shape == positions.shape[:1]
        known = np.isin(arrays["headings"], range(len(HEADINGS))).all()
        require("headings", right and known, "[S] of 0 … 3")
    if "points" in arrays:
        right = arrays["points"].shape == positions.shape
        require("points", right and np.isfinite(arrays["points"]).all(), "finite [S, 2]")
    if "backdrop" in arrays:
        per_cell, rest = np.divmod(arrays["backdrop"].shape, cells.shape)
        whole = not rest.any() and per_cell[0] == per_cell[1]
        require("backdrop", whole, f"k × k pixels for each of the {cells.shape} cells")
