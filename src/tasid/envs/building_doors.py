"""Doors that are closed in the target and open on the plan: a wrong map, to be noticed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tasid.mdp.layout import FREE, WALL
from tasid.mdp.sources.floor import Floor
from tasid.mdp.sources.map_server import OccupancyMap
from tasid.mdp.sources.trouble import MapError

Pixels = NDArray[np.uint8]
_HALF_LEAF = 1
"""Pixels on either side of a closed door's middle."""
_WIDEST = 3.0
"""Metres between walls, beyond which nobody would call it a door."""


def closed(picture: OccupancyMap, points: Sequence[Sequence[float]]) -> OccupancyMap:
    """The map with a door leaf at each point, from wall to wall the shorter way."""
    pixels = picture.pixels.copy()
    for point in points:
        row, column = _pixel(picture, float(point[0]), float(point[1]))
        if pixels[row, column] != FREE:
            raise MapError(f"closed_doors: {tuple(point)} is not free; give the middle of a door")
        across, along = _run(pixels[row], column), _run(pixels[:, column], row)
        if _length(across) <= _length(along):
            pixels[row - _HALF_LEAF : row + _HALF_LEAF + 1, across] = WALL
        else:
            pixels[along, column - _HALF_LEAF : column + _HALF_LEAF + 1] = WALL
    return OccupancyMap(pixels, picture.resolution, picture.corner)


def doors_on(floor: Floor, route: Sequence[Sequence[float]]) -> list[tuple[float, float]]:
    """The narrow places on a route of points (x, y) in metres, narrowest first."""
    points = np.asarray(route, dtype=np.float64)
    middles = (points[1:] + points[:-1]) / 2
    found: dict[tuple[float, float], float] = {}
    for x, y in np.concatenate([points, middles])[np.argsort([*range(0, 2 * len(points), 2),
                                                              *range(1, 2 * len(middles), 2)])]:  # fmt: skip
        row, column = _pixel(floor.picture, x, y)
        if floor.pixels[row, column] == FREE:
            runs = _run(floor.pixels[row], column), _run(floor.pixels[:, column], row)
            wide = min(map(_length, runs)) * floor.picture.resolution
            if wide <= _WIDEST:
                found[(round(float(x), 6), round(float(y), 6))] = wide
    return sorted(found, key=lambda point: found[point])


def _pixel(picture: OccupancyMap, x: float, y: float) -> tuple[int, int]:
    rows, columns = picture.pixels.shape
    column = int(np.floor((x - picture.corner[0]) / picture.resolution + 1e-6))
    row = rows - 1 - int(np.floor((y - picture.corner[1]) / picture.resolution + 1e-6))
    if not (0 <= row < rows and 0 <= column < columns):
        raise MapError(f"closed_doors: {(x, y)} lies outside the map")
    return row, column


def _run(line: Pixels, at: int) -> slice:
    """The free pixels of a line around one of them."""
    solid = np.flatnonzero(line != FREE)
    after = int(np.searchsorted(solid, at))
    first = int(solid[after - 1]) + 1 if after else 0
    return slice(first, int(solid[after]) if after < solid.size else line.size)


def _length(run: slice) -> int:
    return int(run.stop - run.start)
