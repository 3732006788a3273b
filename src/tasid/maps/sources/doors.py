"""Doors that a lattice lost: a robot, or a smaller one, fits through, and no line of moves does.

Between two areas of a lattice there is a widest way over the pixels: the one whose narrowest place
is as wide as possible. That place is the door. A maximum spanning tree over the pixels, weighted by
their distance from walls, holds the widest ways between all areas at once. Which cell size or which
radius would open a door is found by trying.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from tasid.maps.layout import FREE, centres_of
from tasid.maps.sources.lattice import Lattice, Pixels, clearance, grown, lattice
from tasid.maps.sources.map_server import OccupancyMap

LEAST_PLACES = 4
"""Areas of fewer places are corners and gaps in furniture, not rooms."""
_PARTS = (0.9, 0.8, 0.75, 2 / 3, 0.6, 0.5, 0.4, 1 / 3, 0.25, 0.2, 0.1)
"""Cell sizes and radii to try, as parts of the present one."""


@dataclass(frozen=True)
class LostDoor:
    """A place where two areas of the lattice would meet."""

    x: float
    y: float
    width: float
    """Metres between the walls there."""
    fits: bool
    """Does the robot fit through? Then only the cells are too large."""
    places: int
    """In the smaller of the two areas: what is lost."""
    cell_size: float | None
    """The largest of the sizes tried at which the door opens, with the radius as it is."""
    robot_radius: float | None
    """The largest of the radii tried at which the door opens, with the cells as they are."""

    def __str__(self) -> str:
        why = "though the robot fits through" if self.fits else "too narrow for the robot"
        remedies = []
        if self.cell_size is not None:
            remedies.append(f"cell_size={self.cell_size:g}")
        if self.robot_radius is not None:
            remedies.append(f"robot_radius={self.robot_radius:g}")
        opens = f"opens with {' or '.join(remedies)}" if remedies else "opens with nothing tried"
        return (
            f"a door {self.width:.2g} m wide at ({self.x:.2f}, {self.y:.2f}), {why}, cuts off "
            f"{self.places} places: {opens}"
        )


@dataclass(frozen=True, eq=False)
class _Gap:
    """The narrowest place on the widest way between two areas."""

    pixel: tuple[int, int]
    clear: float
    ends: tuple[int, int]
    places: int


def lost_doors(
    pixels: Pixels,
    picture: OccupancyMap,
    grid: Lattice,
    *,
    radius: float,
    between: tuple[Sequence[int], Sequence[int]] | None = None,
    most: int = 5,
) -> list[LostDoor]:
    """The doors that cut off most, at most so many; or all `between` two places (row, column).

    `pixels` are those of the picture before walls grow by the radius, in metres, and become `grid`.
    """
    clear = clearance(pixels)
    areas = grid.areas()
    ends = [] if between is None else [int(areas[tuple(place)]) for place in between]
    gaps = _gaps(pixels, clear, picture, grid, areas, ends)
    if between is None:
        chosen = sorted(gaps, key=lambda gap: -gap.places)[:most]
    else:
        chosen = _on_the_way(gaps, *ends)
    anchors = _anchors(grid, areas, clear, picture)
    opened = _Trials(pixels, clear, picture, grid, radius, anchors, chosen)
    sizes, radii = opened.by_size(), opened.by_radius()
    return [
        _door(gap, picture, radius, *remedies)
        for gap, remedies in zip(chosen, zip(sizes, radii, strict=True), strict=True)
    ]


def _gaps(
    pixels: Pixels,
    clear: NDArray[np.float64],
    picture: OccupancyMap,
    grid: Lattice,
    areas: NDArray[np.int32],
    small: Sequence[int],
) -> list[_Gap]:
    """The widest ways between rooms, and areas that are `small`; what none leads to is left out."""
    sizes = np.bincount(areas.ravel())
    rooms = np.union1d(np.flatnonzero(sizes >= LEAST_PLACES), small).astype(np.int64)
    rooms = rooms[rooms > 0]
    free = np.flatnonzero((pixels == FREE).ravel())
    node = np.full(pixels.size, -1, dtype=np.int64)
    node[free] = np.arange(free.size) + int(areas.max()) + 1
    for area in rooms:  # all places of a room are one node: moves connect them as it is
        inside = _pixels_at(grid.centres(np.argwhere(areas == area)), picture)
        node[np.ravel_multi_index(tuple(inside.T), pixels.shape)] = area
    one, other, weight = _tree(node.reshape(pixels.shape), clear)
    joined = _Forest(int(node.max()) + 1)
    members = {int(area): [int(area)] for area in rooms}
    gaps = []
    for a, b, pixel, width in zip(one, other, *weight, strict=True):
        roots = joined.root(a), joined.root(b)
        groups = [members.get(root, []) for root in roots]
        if all(groups):
            ends = tuple(max(group, key=lambda area: sizes[area]) for group in groups)
            lost = min(int(sizes[group].sum()) for group in groups)
            row, column = divmod(int(pixel), pixels.shape[1])
            gaps.append(_Gap((row, column), float(width), (ends[0], ends[1]), lost))
        members[joined.join(*roots)] = groups[0] + groups[1]
    return gaps


def _tree(
    node: NDArray[np.int64], clear: NDArray[np.float64]
) -> tuple[list[int], list[int], tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """A maximum spanning tree of neighbouring pixels, widest first: ends, pixel, clearance."""
    index = np.arange(node.size).reshape(node.shape)
    ends = []
    for a, b in ((np.s_[:, :-1], np.s_[:, 1:]), (np.s_[:-1], np.s_[1:])):
        both = (node[a] >= 0) & (node[b] >= 0) & (node[a] != node[b])
        narrower = np.where(clear[a] <= clear[b], index[a], index[b])[both]
        ends.append((node[a][both], node[b][both], narrower))
    one, other, pixel = (np.concatenate(part) for part in zip(*ends, strict=True))
    wide = np.minimum(clear.ravel()[pixel], max(node.shape))
    order = np.argsort(-wide, kind="stable")
    # The tree of the ranks is that of the widths; parallel edges would add up, so keep the widest.
    pair = np.minimum(one, other) * (node.max() + 1) + np.maximum(one, other)
    _, first = np.unique(pair[order], return_index=True)
    kept = order[np.sort(first)]
    number = int(node.max()) + 1
    graph = sparse.coo_array(
        (np.arange(kept.size) + 1.0, (one[kept], other[kept])), shape=(number, number)
    )
    ranks = np.sort(csgraph.minimum_spanning_tree(graph.tocsr()).tocoo().data).astype(np.int64) - 1
    chosen = kept[ranks]
    return one[chosen].tolist(), other[chosen].tolist(), (pixel[chosen], wide[chosen])


class _Forest:
    """Sets that grow together."""

    def __init__(self, size: int) -> None:
        self._parent = list(range(size))

    def root(self, of: int) -> int:
        parent = self._parent
        while parent[of] != of:
            parent[of] = parent[parent[of]]
            of = parent[of]
        return of

    def join(self, one: int, other: int) -> int:
        self._parent[one] = other
        return other


def _on_the_way(gaps: Iterable[_Gap], start: int, goal: int) -> list[_Gap]:
    """The gaps between two areas: the tree has one way."""
    known = list(gaps)
    came: dict[int, tuple[int, _Gap] | None] = {start: None}
    todo = [start]
    for area in todo:
        for gap in known:
            for here, there in (gap.ends, gap.ends[::-1]):
                if here == area and there not in came:
                    came[there] = (area, gap)
                    todo.append(there)
    way, step = [], came.get(goal)
    while step is not None:
        way.append(step[1])
        step = came[step[0]]
    return way[::-1]


def _anchors(
    grid: Lattice, areas: NDArray[np.int32], clear: NDArray[np.float64], picture: OccupancyMap
) -> dict[int, NDArray[np.float64]]:
    """For every area the (x, y) of its place farthest from walls."""
    places = np.argwhere(areas > 0)
    centres = grid.centres(places)
    room = clear[tuple(_pixels_at(centres, picture).T)]
    found: dict[int, NDArray[np.float64]] = {}
    for place in np.argsort(room, kind="stable"):
        found[int(areas[tuple(places[place])])] = centres[place]
    return found


def _pixels_at(points: NDArray[np.float64], picture: OccupancyMap) -> NDArray[np.int64]:
    """Rows and columns of the pixels at these points, [n, 2]."""
    rows, columns = picture.pixels.shape
    column, up = np.floor((points - picture.corner) / picture.resolution).astype(np.int64).T
    return np.stack([np.clip(rows - 1 - up, 0, rows - 1), np.clip(column, 0, columns - 1)], axis=1)


@dataclass(frozen=True, eq=False)
class _Trials:
    """Lattices with smaller cells or a smaller robot: which of them join the ends of a gap?"""

    pixels: Pixels
    clear: NDArray[np.float64]
    picture: OccupancyMap
    grid: Lattice
    radius: float
    anchors: dict[int, NDArray[np.float64]]
    gaps: list[_Gap]

    def by_size(self) -> list[float | None]:
        pixel = self.picture.resolution
        sizes = {pixel * math.floor(part * self.grid.size / pixel + 1e-6) for part in _PARTS}
        tried = sorted((size for size in sizes if size >= pixel), reverse=True)
        return self._first([(round(size, 9), self.radius, round(size, 9)) for size in tried])

    def by_radius(self) -> list[float | None]:
        radii = {round(part * self.radius, 2) for part in _PARTS}
        tried = sorted((r for r in radii if r < self.radius), reverse=True)
        return self._first([(self.grid.size, radius, radius) for radius in tried])

    def _first(self, trials: list[tuple[float, float, float]]) -> list[float | None]:
        found: list[float | None] = [None] * len(self.gaps)
        for size, radius, told in trials:
            waiting = [i for i, known in enumerate(found) if known is None]
            if not waiting:
                break
            wide = grown(self.pixels, radius / self.picture.resolution, self.clear)
            grid = lattice(wide, self.picture, size=size, directions=self.grid.directions)
            areas = grid.areas()
            places = np.argwhere(areas > 0)
            centres = grid.centres(places)
            for i in waiting:
                ends = {self._area(end, areas, places, centres) for end in self.gaps[i].ends}
                if len(ends) == 1 and None not in ends:
                    found[i] = told
        return found

    def _area(
        self,
        end: int,
        areas: NDArray[np.int32],
        places: NDArray[np.intp],
        centres: NDArray[np.float64],
    ) -> int | None:
        """The area, in another lattice, of the place nearest an anchor; None if none is near."""
        apart = np.hypot(*(centres - self.anchors[end]).T)
        if not apart.size or apart.min() > self.grid.size:
            return None
        return int(areas[tuple(places[apart.argmin()])])


def _door(
    gap: _Gap, picture: OccupancyMap, radius: float, size: float | None, smaller: float | None
) -> LostDoor:
    pixel = picture.resolution
    x, y = centres_of(*gap.pixel, picture.pixels.shape[0], pixel, picture.corner).tolist()
    return LostDoor(
        x=x,
        y=y,
        # From the centre of one wall pixel to the other's, less the halves of both.
        width=(2 * gap.clear - 1) * pixel,
        fits=gap.clear * pixel > radius,
        places=gap.places,
        cell_size=size,
        robot_radius=smaller,
    )
