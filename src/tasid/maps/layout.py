"""Where the states of a grid map lie: for pictures, and for what one can see from there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

FREE, WALL, HAZARD, GOAL, UNKNOWN = range(5)
"""What a cell is. Nobody enters walls and unknown cells; nobody leaves hazards and goals."""

HEADINGS = "NESW"
"""Headings in index order, clockwise."""
_NAMES = {4: tuple(HEADINGS), 8: ("N", "NE", "E", "SE", "S", "SW", "W", "NW")}


def heading_names(directions: int) -> tuple[str, ...]:
    """Names of four or eight headings, clockwise from north."""
    return _NAMES[directions]


class LayoutError(ValueError):
    """Cells, positions or headings that do not belong together."""


@dataclass(frozen=True, eq=False, init=False)
class GridLayout:
    """Cells [rows, columns], row 0 on top, and the row and column of every state [S, 2]."""

    cells: NDArray[np.uint8]
    positions: NDArray[np.int32]
    headings: NDArray[np.int8] | None
    """Where each state looks [S], clockwise from north; None if states have no heading."""
    directions: int
    """How many headings there are: 4 or 8."""
    cell_size: float
    """The side of a cell, in metres if there is a `corner`."""
    corner: tuple[float, float] | None
    """x and y of the lower left corner in metres; None for maps measured in cells."""
    backdrop: NDArray[np.uint8] | None
    """What the cells were made from, for pictures: so many pixels per cell, over the same area."""

    def __init__(
        self,
        cells: ArrayLike,
        positions: ArrayLike,
        *,
        headings: ArrayLike | None = None,
        cell_size: float = 1.0,
        corner: tuple[float, float] | None = None,
        directions: int = 4,
        backdrop: ArrayLike | None = None,
    ) -> None:
        grid, places = np.array(cells), np.array(positions)
        looks = None if headings is None else np.array(headings)
        behind = None if backdrop is None else np.array(backdrop)
        _check(grid, places, looks, directions)
        _check_backdrop(grid, behind)
        arrays = (("cells", grid, np.uint8), ("positions", places, np.int32))
        others = (("headings", looks, np.int8), ("backdrop", behind, np.uint8))
        for name, array, dtype in (*arrays, *others):
            if array is not None:
                array = array.astype(dtype)
                array.setflags(write=False)
            object.__setattr__(self, name, array)
        object.__setattr__(self, "directions", int(directions))
        object.__setattr__(self, "cell_size", float(cell_size))
        object.__setattr__(self, "corner", None if corner is None else tuple(map(float, corner)))

    @property
    def angles(self) -> NDArray[np.float64] | None:
        """Where each state looks, in degrees clockwise from north [S]."""
        if self.headings is None:
            return None
        return self.headings.astype(np.float64) * (360.0 / self.directions)

    @property
    def extent(self) -> tuple[float, float, float, float]:
        """x from, x to, y of the lower edge, y of the upper edge; y points down without metres."""
        rows, columns = self.cells.shape
        if self.corner is None:
            return -0.5, columns - 0.5, rows - 0.5, -0.5
        x, y = self.corner
        return x, x + columns * self.cell_size, y, y + rows * self.cell_size

    def centres(self, states: ArrayLike) -> NDArray[np.float64]:
        """x and y of the cells of these states, [n, 2], in the units of `extent`."""
        row, column = self.positions[np.asarray(states)].T.astype(np.float64)
        if self.corner is None:
            return np.stack([column, row], axis=1)
        return centres_of(row, column, self.cells.shape[0], self.cell_size, self.corner)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The named arrays that, with `metadata`, make up the layout on disk."""
        named: dict[str, NDArray[Any]] = {"cells": self.cells, "positions": self.positions}
        for name in ("headings", "backdrop"):
            array = getattr(self, name)
            if array is not None:
                named[name] = array
        return named

    def metadata(self) -> dict[str, Any]:
        """The JSON part of the layout on disk."""
        corner = None if self.corner is None else list(self.corner)
        stored = {"cell_size": self.cell_size, "corner": corner}
        return stored if self.directions == 4 else {**stored, "directions": self.directions}

    @classmethod
    def from_parts(cls, metadata: dict[str, Any], arrays: dict[str, Any]) -> GridLayout:
        """The inverse of `metadata` and `arrays`; everything is validated again."""
        try:
            corner = metadata["corner"]
            return cls(
                arrays["cells"],
                arrays["positions"],
                headings=arrays.get("headings"),
                cell_size=float(metadata["cell_size"]),
                corner=None if corner is None else (float(corner[0]), float(corner[1])),
                directions=int(metadata.get("directions", 4)),
                backdrop=arrays.get("backdrop"),
            )
        except (KeyError, TypeError, IndexError) as error:
            raise LayoutError(f"layout: the stored one is incomplete ({error!r})") from None


def centres_of(
    row: Any, column: Any, rows: int, size: float, corner: tuple[float, float]
) -> NDArray[np.float64]:
    """x and y, [n, 2], of the middle of squares of this size, row 0 of so many on top."""
    x, y = corner
    return np.stack([x + (column + 0.5) * size, y + (rows - row - 0.5) * size], axis=-1)


def _check(
    cells: NDArray[Any], positions: NDArray[Any], headings: NDArray[Any] | None, directions: int
) -> None:
    if cells.ndim != 2 or cells.size == 0 or cells.dtype.kind not in "iu":
        raise LayoutError(f"cells: shape {cells.shape} of {cells.dtype} is not a grid of integers")
    if ((cells < FREE) | (cells > UNKNOWN)).any():
        raise LayoutError(f"cells: values run {FREE} … {UNKNOWN}, not to {cells.max()}")
    if positions.ndim != 2 or positions.shape[1] != 2 or positions.dtype.kind not in "iu":
        raise LayoutError(f"positions: shape {positions.shape} is not [S, 2] of integers")
    outside = ((positions < 0) | (positions >= cells.shape)).any(axis=1)
    if outside.any():
        state = int(outside.argmax())
        raise LayoutError(
            f"positions: state {state} is at {tuple(positions[state].tolist())}, outside the "
            f"{cells.shape[0]} × {cells.shape[1]} cells"
        )
    if directions not in _NAMES:
        raise LayoutError(f"directions: {directions!r} is neither 4 nor 8")
    if headings is None:
        return
    last = directions - 1
    if headings.shape != positions.shape[:1] or ((headings < 0) | (headings > last)).any():
        raise LayoutError(f"headings: shape {headings.shape} of 0 … {last} should be one per state")


def _check_backdrop(cells: NDArray[Any], backdrop: NDArray[Any] | None) -> None:
    if backdrop is None:
        return
    each = [of / over for of, over in zip(backdrop.shape, cells.shape, strict=False)]
    if backdrop.ndim != 2 or each[0] != each[1] or each[0] % 1 or backdrop.dtype.kind not in "iu":
        raise LayoutError(
            f"backdrop: shape {backdrop.shape} of {backdrop.dtype} is not a whole number of pixels "
            f"for each of the {cells.shape[0]} × {cells.shape[1]} cells"
        )
    if ((backdrop < FREE) | (backdrop > UNKNOWN)).any():
        raise LayoutError(f"backdrop: values run {FREE} … {UNKNOWN}, not to {backdrop.max()}")
