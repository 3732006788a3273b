"""What a map's source knew and its tables do not say: where it came from, where its states lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

FREE, WALL, HAZARD, GOAL, UNKNOWN = range(5)
"""What a cell is. Nobody enters walls and unknown cells; nobody leaves hazards and goals."""

HEADINGS = "NESW"
"""Headings in index order, clockwise."""
HEADING_NAMES = {4: tuple(HEADINGS), 8: ("N", "NE", "E", "SE", "S", "SW", "W", "NW")}
"""Names of four or eight headings, clockwise from north."""
_TYPES = {"cells": np.uint8, "positions": np.int32, "headings": np.int8, "backdrop": np.uint8}
_LAYOUT = "simulator.layout."


class LayoutError(ValueError):
    """Cells, positions or headings that do not belong together, or an origin that says nothing."""


@dataclass(frozen=True, eq=False)
class GridLayout:
    """Cells [rows, columns], row 0 on top, and the row and column of every state [S, 2]."""

    cells: NDArray[np.uint8]
    positions: NDArray[np.int32]
    headings: NDArray[np.int8] | None = None
    """Where each state looks [S], clockwise from north; None if states have no heading."""
    directions: int = 4
    """How many headings there are: 4 or 8."""
    cell_size: float = 1.0
    """The side of a cell, in metres if there is a `corner`."""
    corner: tuple[float, float] | None = None
    """x and y of the lower left corner in metres; None for maps measured in cells."""
    backdrop: NDArray[np.uint8] | None = None
    """What the cells were made from, for pictures: so many pixels per cell, over the same area."""

    def __post_init__(self) -> None:
        given = {name: np.array(array) for name, array in self.arrays().items()}
        _check(given["cells"], given["positions"], given.get("headings"), self.directions)
        if "backdrop" in given:
            _check_backdrop(given["cells"], given["backdrop"])
        for name, array in given.items():
            typed = array.astype(_TYPES[name])
            typed.setflags(write=False)
            object.__setattr__(self, name, typed)

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
        named = {name: getattr(self, name) for name in _TYPES}
        return {name: array for name, array in named.items() if array is not None}

    def metadata(self) -> dict[str, Any]:
        """The JSON part of the layout on disk."""
        stored = {"cell_size": float(self.cell_size), "corner": self.corner}
        return stored if self.directions == 4 else {**stored, "directions": int(self.directions)}

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
    if directions not in HEADING_NAMES:
        raise LayoutError(f"directions: {directions!r} is neither 4 nor 8")
    if headings is None:
        return
    last = directions - 1
    if headings.shape != positions.shape[:1] or ((headings < 0) | (headings > last)).any():
        raise LayoutError(f"headings: shape {headings.shape} of 0 … {last} should be one per state")


def _check_backdrop(cells: NDArray[Any], backdrop: NDArray[Any]) -> None:
    each = [of / over for of, over in zip(backdrop.shape, cells.shape, strict=False)]
    if backdrop.ndim != 2 or each[0] != each[1] or each[0] % 1 or backdrop.dtype.kind not in "iu":
        raise LayoutError(
            f"backdrop: shape {backdrop.shape} of {backdrop.dtype} is not a whole number of pixels "
            f"for each of the {cells.shape[0]} × {cells.shape[1]} cells"
        )
    if ((backdrop < FREE) | (backdrop > UNKNOWN)).any():
        raise LayoutError(f"backdrop: values run {FREE} … {UNKNOWN}, not to {backdrop.max()}")


@dataclass(frozen=True, eq=False)
class Origin:
    """All optional; saved with the simulator, used by pictures and reports."""

    source: str
    """What it was made from, in a few words."""
    actions: tuple[str, ...] | None = None
    """Names of the actions, in index order."""
    explored: int | None = None
    """The tables hold all states within so many steps of the start, no more; None: all states."""
    implied_eta: float | None = None
    """The smallest η for which the world it was made from is an η-perturbation of the map."""
    layout: GridLayout | None = None

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The named arrays that, with `metadata`, make up the origin on disk."""
        if self.layout is None:
            return {}
        return {_LAYOUT + name: array for name, array in self.layout.arrays().items()}

    def metadata(self) -> dict[str, Any]:
        """The JSON part of the origin on disk."""
        return {
            "source": self.source,
            "actions": None if self.actions is None else list(self.actions),
            "explored": self.explored,
            "implied_eta": self.implied_eta,
            "layout": None if self.layout is None else self.layout.metadata(),
        }

    @classmethod
    def from_parts(cls, metadata: dict[str, Any], arrays: dict[str, Any]) -> Origin:
        """The inverse of `metadata` and `arrays`, checked."""
        if not isinstance(metadata, dict):
            raise LayoutError(f"origin: {metadata!r} is stored where its fields should be")
        layout, actions = metadata.get("layout"), metadata.get("actions")
        explored, eta = metadata.get("explored"), metadata.get("implied_eta")
        for name, value, kind in (
            ("layout", layout, dict),
            ("actions", actions, list),
            ("explored", explored, int),
            ("implied_eta", eta, int | float),
        ):
            if value is not None and not isinstance(value, kind):
                raise LayoutError(f"origin: {name} is stored as {value!r}")
        named = {k.removeprefix(_LAYOUT): v for k, v in arrays.items() if k.startswith(_LAYOUT)}
        return cls(
            source=str(metadata.get("source", "")),
            actions=None if actions is None else tuple(str(name) for name in actions),
            explored=explored,
            implied_eta=eta,
            layout=None if layout is None else GridLayout.from_parts(layout, named),
        )
