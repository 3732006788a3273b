"""Places a robot can stand at and lines it can drive along, on a map of pixels.

Walls grow by the robot's radius. A place is the centre of a cell and has the kind of the grown map
there; a move between the centres of two neighbouring cells exists if the straight line between them
meets free pixels only. A point or a line on the edge of pixels meets the pixels on both sides. So
what a corridor is for a robot does not depend on where cells begin and end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from tasid.maps.layout import FREE, UNKNOWN, WALL, centres_of
from tasid.maps.size import MapError
from tasid.maps.sources.grid import COMPASS
from tasid.maps.sources.map_server import OccupancyMap
from tasid.maps.sources.reach import beside, components

Pixels = NDArray[np.uint8]
Ends = tuple[NDArray[np.int64], NDArray[np.int64]]
"""The first and the last of some rows or columns."""
_ON_EDGE = 1e-6
"""Pixels: nearer to an edge than this is on it, however lengths in metres were rounded."""
_BACKDROP = 8
"""Pixels per cell, at most, of what is drawn below a lattice."""


@dataclass(frozen=True, eq=False)
class Lattice:
    """Cells [rows, columns], row 0 on top, by what is at their centres, and the moves between."""

    cells: Pixels
    passages: NDArray[np.bool_]
    """Is the line to the neighbour free? [rows, columns, directions], clockwise from north."""
    size: float
    corner: tuple[float, float]

    @property
    def directions(self) -> int:
        """4 or 8."""
        return int(self.passages.shape[-1])

    def centres(self, places: NDArray[np.integer]) -> NDArray[np.float64]:
        """x and y of the centres at these rows and columns [n, 2], in metres."""
        row, column = np.asarray(places, dtype=np.float64).reshape(-1, 2).T
        return centres_of(row, column, self.cells.shape[0], self.size, self.corner)

    def areas(self) -> NDArray[np.int32]:
        """Numbers from 1 of places that moves connect [rows, columns]; 0 is no free place."""
        return components(self.cells, self.passages)[0]


def clearance(pixels: Pixels) -> NDArray[np.float64]:
    """How far the centre of each pixel is from that of the nearest wall, in pixels."""
    if not (pixels == WALL).any():
        return np.full(pixels.shape, np.inf)
    distance: NDArray[np.float64] = ndimage.distance_transform_edt(pixels != WALL)
    return distance


def grown(pixels: Pixels, radius: float, clear: NDArray[np.float64] | None = None) -> Pixels:
    """Walls, and everything whose centre is within `radius` pixels of a wall's centre."""
    if radius <= 0:
        return pixels
    distance = clearance(pixels) if clear is None else clear
    return np.where(distance <= radius + 1e-9, np.uint8(WALL), pixels)


def lattice(pixels: Pixels, picture: OccupancyMap, *, size: float, directions: int = 4) -> Lattice:
    """The lattice with cells of this size, in metres, on pixels that have grown already.

    Cells are counted from the lower left corner; centres beyond the map are unknown.
    """
    every = _checked_every(size, picture.resolution)
    rows, columns = (max(math.ceil(n / every - _ON_EDGE), 1) for n in pixels.shape)
    upward = pixels[::-1]  # rows counted from below, as y is
    x, y = ((np.arange(n) + 0.5) * every for n in (columns, rows))
    cells = _kinds(upward, x, y)
    passages = np.zeros((rows, columns, directions), dtype=bool)
    solid = _Sums(upward != FREE)
    for direction, (down, right) in enumerate(COMPASS[:: 8 // directions]):
        if direction >= directions // 2:  # the way back of a line that is known
            opposite = passages[..., direction - directions // 2]
            passages[..., direction] = _shifted(opposite, (-down, right))
        else:
            passages[..., direction] = solid.free_lines(x, y, (-down, right), every)
    return Lattice(cells[::-1], passages[::-1], size, picture.corner)


def _checked_every(size: float, resolution: float) -> float:
    every = size / resolution if math.isfinite(size) else 0.0
    if every < 1 - 1e-6:
        raise MapError(
            f"cell_size: {size:g} m is less than a pixel of the map, {resolution:g} m, or no "
            "length at all"
        )
    return every


def _touched(at: NDArray[np.float64]) -> Ends:
    """The first and the last pixel that meet a coordinate, which is counted in pixels."""
    return np.ceil(at - _ON_EDGE).astype(np.int64) - 1, np.floor(at + _ON_EDGE).astype(np.int64)


def _kinds(pixels: Pixels, x: NDArray[np.float64], y: NDArray[np.float64]) -> Pixels:
    """The kinds at all points (x, y): wall if one of the pixels there is, then unknown."""
    rows, columns = pixels.shape
    found = []
    for row in _touched(y):
        for column in _touched(x):
            inside = ((row >= 0) & (row < rows))[:, None] & ((column >= 0) & (column < columns))
            near = pixels[np.clip(row, 0, rows - 1)[:, None], np.clip(column, 0, columns - 1)]
            found.append(np.where(inside, near, UNKNOWN))
    met = np.stack(found)
    kinds = [(met == kind).any(axis=0) for kind in (WALL, UNKNOWN)]
    return np.select(kinds, [np.uint8(WALL), np.uint8(UNKNOWN)], np.uint8(FREE))


class _Sums:
    """Solid pixels summed up, so that any rectangle is counted at once; outside is solid."""

    def __init__(self, solid: NDArray[np.bool_]) -> None:
        self._rows, self._columns = solid.shape
        self._total = np.pad(solid, ((1, 0), (1, 0))).astype(np.int32).cumsum(0).cumsum(1)

    def free_lines(
        self, x: NDArray[np.float64], y: NDArray[np.float64], step: tuple[int, int], every: float
    ) -> NDArray[np.bool_]:
        """From each point (x, y) to its neighbour at (rows up, columns right) `step`."""
        up, right = step
        across, along = x[None, :], y[:, None]
        end_x, end_y = across + right * every, along + up * every
        west, east = np.minimum(across, end_x), np.maximum(across, end_x)
        if not (up and right):
            low, high = np.minimum(along, end_y), np.maximum(along, end_y)
            return self._free(_met(west, east), _met(low, high))
        fits = np.ones((y.size, x.size), dtype=bool)
        # A line across meets pixels of one column after the other, from the row it enters on.
        for piece in range(-1, math.ceil(every) + 2):
            column = np.floor(west) + piece
            cuts = [np.clip(column + side, west, east) for side in (0, 1)]
            heights = [along + up * right * (cut - across) for cut in cuts]
            meets = (column <= east + _ON_EDGE) & (column + 1 >= west - _ON_EDGE)
            only = column.astype(np.int64)
            rows = _met(np.minimum(*heights), np.maximum(*heights))
            fits &= ~meets | self._free((only, only), rows)
        return fits

    def _free(self, columns: Ends, rows: Ends) -> NDArray[np.bool_]:
        """Are rectangles, ends included, free? Columns and rows broadcast against each other."""
        (left, right), (low, high) = columns, rows
        inside = (left >= 0) & (right < self._columns) & (low >= 0) & (high < self._rows)
        a, b = np.clip(left, 0, self._columns), np.clip(right + 1, 0, self._columns)
        c, d = np.clip(low, 0, self._rows), np.clip(high + 1, 0, self._rows)
        total = self._total
        return inside & (total[d, b] - total[c, b] - total[d, a] + total[c, a] == 0)


def _met(low: NDArray[np.float64], high: NDArray[np.float64]) -> Ends:
    """The first row or column that meets one coordinate, and the last that meets the other."""
    return _touched(low)[0], _touched(high)[1]


def _shifted(fits: NDArray[np.bool_], step: tuple[int, int]) -> NDArray[np.bool_]:
    """What holds of the neighbour at (rows up, columns right) `step`."""
    here, there = beside(fits.shape, *step)
    moved = np.zeros_like(fits)
    moved[here] = fits[there]
    return moved


def backdrop(picture: OccupancyMap, grid: Lattice) -> Pixels | None:
    """The map below the lattice, a few pixels per cell; a wall of any width still shows."""
    every = grid.size / picture.resolution
    fine = min(_BACKDROP, math.ceil(every - _ON_EDGE))
    if fine == 1:
        return None
    strength = np.zeros(UNKNOWN + 1, dtype=np.uint8)
    strength[FREE], strength[WALL] = 1, 2
    shape = [fine * n for n in grid.cells.shape]
    strongest = strength[picture.pixels[::-1]]
    for axis, length in enumerate(shape):
        strongest = _strongest(strongest, axis, length, every / fine)
    return np.array([UNKNOWN, FREE, WALL], dtype=np.uint8)[strongest[::-1]]


def _strongest(pixels: Pixels, axis: int, length: int, width: float) -> Pixels:
    """Along an axis, the maximum of each of `length` pieces of this width; 0 outside."""
    edges = np.arange(length + 1) * width
    ends = np.stack([np.floor(edges[:-1] + _ON_EDGE), np.ceil(edges[1:] - _ON_EDGE)], axis=1)
    within = np.minimum(ends.astype(np.int64), pixels.shape[axis]).ravel()
    # Of every two ends the first begins a piece; there is a 0 for those that begin outside.
    padded = np.pad(pixels, [(0, int(along == axis)) for along in range(2)])
    return np.maximum.reduceat(padded, within, axis).take(range(0, within.size, 2), axis)
