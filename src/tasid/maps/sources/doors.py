"""Doors that a lattice lost: a robot, or a smaller one, fits through, and no line of moves does.

Between two areas of a lattice there is a widest way over the pixels: the one whose narrowest place
is as wide as possible. That place is the door. A maximum spanning tree over the pixels, weighted by
their distance from walls, holds the widest ways between all areas at once. Which cell size or which
radius would open a door is found by trying.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from tasid.maps.layout import FREE, centres_of
from tasid.maps.sources.lattice import clearance, grown, lattice
from tasid.maps.sources.map_server import OccupancyMap
from tasid.maps.sources.reach import Place

if TYPE_CHECKING:
    from tasid.maps.sources.occupancy_map import Floor

_LEAST_PLACES = 4
"""Areas of fewer places are corners and gaps in furniture, not rooms."""
_MOST = 15
"""Doors that are looked at if nobody asks for a way."""
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


class _Gap(NamedTuple):
    """The narrowest place on the widest way between two areas."""

    pixel: tuple[int, int]
    clear: float
    ends: tuple[int, int]
    places: int


def doors_lost_on(floor: Floor, between: tuple[Place, Place] | None = None) -> list[LostDoor]:
    """The doors that cut off most of a floor; or all `between` two places (row, column)."""
    clear = clearance(floor.pixels)
    areas = floor.lattice.areas()
    ends = [] if between is None else [int(areas[place]) for place in between]
    gaps = _gaps(floor, clear, areas, ends)
    if between is None:
        gaps = sorted(gaps, key=lambda gap: -gap.places)[:_MOST]
    else:
        gaps = _on_the_way(gaps, *ends)
    anchors = _anchors(floor, areas, clear)
    pixel, size, radius = floor.picture.resolution, floor.lattice.size, floor.radius
    sizes = {pixel * math.floor(part * size / pixel + 1e-6) for part in _PARTS}
    radii = {round(part * radius, 2) for part in _PARTS}
    smaller = [round(one, 9) for one in sorted(sizes, reverse=True) if one >= pixel]
    thinner = [one for one in sorted(radii, reverse=True) if one < radius]
    by_size = _opened(floor, clear, anchors, gaps, {one: (one, radius) for one in smaller})
    by_radius = _opened(floor, clear, anchors, gaps, {one: (size, one) for one in thinner})
    return list(map(partial(_door, floor), gaps, by_size, by_radius))


def _gaps(
    floor: Floor, clear: NDArray[np.float64], areas: NDArray[np.int32], small: Sequence[int]
) -> list[_Gap]:
    """The widest ways between rooms, and areas that are `small`; what none leads to is left out."""
    sizes = np.bincount(areas.ravel())
    rooms = np.union1d(np.flatnonzero(sizes >= _LEAST_PLACES), small).astype(np.int64)
    rooms = rooms[rooms > 0]
    pixels = floor.pixels
    free = np.flatnonzero((pixels == FREE).ravel())
    node = np.full(pixels.size, -1, dtype=np.int64)
    node[free] = np.arange(free.size) + int(areas.max()) + 1
    for area in rooms:  # all places of a room are one node: moves connect them as it is
        inside = _pixels_at(floor.lattice.centres(np.argwhere(areas == area)), floor.picture)
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


def _on_the_way(gaps: list[_Gap], start: int, goal: int) -> list[_Gap]:
    """The gaps between two areas: the tree has one way."""
    came: dict[int, tuple[int, _Gap] | None] = {start: None}
    todo = [start]
    for area in todo:
        for gap in gaps:
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
    floor: Floor, areas: NDArray[np.int32], clear: NDArray[np.float64]
) -> dict[int, NDArray[np.float64]]:
    """For every area the (x, y) of its place farthest from walls."""
    places = np.argwhere(areas > 0)
    centres = floor.lattice.centres(places)
    room = clear[tuple(_pixels_at(centres, floor.picture).T)]
    order = np.argsort(room, kind="stable")
    return {int(areas[tuple(places[place])]): centres[place] for place in order}


def _pixels_at(points: NDArray[np.float64], picture: OccupancyMap) -> NDArray[np.int64]:
    """Rows and columns of the pixels at these points, [n, 2]."""
    rows, columns = picture.pixels.shape
    column, up = np.floor((points - picture.corner) / picture.resolution).astype(np.int64).T
    return np.stack([np.clip(rows - 1 - up, 0, rows - 1), np.clip(column, 0, columns - 1)], axis=1)


def _opened(
    floor: Floor,
    clear: NDArray[np.float64],
    anchors: dict[int, NDArray[np.float64]],
    gaps: list[_Gap],
    trials: dict[float, tuple[float, float]],
) -> list[float | None]:
    """For each gap the first trial, by name, whose cell size and radius join its ends."""
    found: list[float | None] = [None] * len(gaps)
    for name, (size, radius) in trials.items():
        waiting = [i for i, known in enumerate(found) if known is None]
        if not waiting:
            break
        wide = grown(floor.pixels, radius / floor.picture.resolution, clear)
        grid = lattice(wide, floor.picture, size=size, directions=floor.lattice.directions)
        areas = grid.areas()
        places = np.argwhere(areas > 0)
        centres = grid.centres(places)
        for i in waiting:
            near = [_nearest(centres, anchors[end], floor.lattice.size) for end in gaps[i].ends]
            ends = {place if place is None else areas[tuple(places[place])] for place in near}
            if len(ends) == 1 and None not in ends:
                found[i] = name
    return found


def _nearest(
    centres: NDArray[np.float64], anchor: NDArray[np.float64], within: float
) -> int | None:
    apart = np.hypot(*(centres - anchor).T)
    return int(apart.argmin()) if apart.size and apart.min() <= within else None


def _door(floor: Floor, gap: _Gap, size: float | None, radius: float | None) -> LostDoor:
    picture = floor.picture
    pixel = picture.resolution
    x, y = centres_of(*gap.pixel, picture.pixels.shape[0], pixel, picture.corner).tolist()
    return LostDoor(
        x=x,
        y=y,
        # From the centre of one wall pixel to the other's, less the halves of both.
        width=(2 * gap.clear - 1) * pixel,
        fits=gap.clear * pixel > floor.radius,
        places=gap.places,
        cell_size=size,
        robot_radius=radius,
    )
