"""Doors that are closed in the target and open on the plan: a wrong map, to be noticed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tasid.maps import AbstractSimulator, robust_dp
from tasid.maps.layout import FREE, WALL
from tasid.maps.size import MapError
from tasid.maps.sources.grid import numbering
from tasid.maps.sources.map_server import OccupancyMap
from tasid.maps.sources.occupancy_map import Floor
from tasid.targets.worlds.building.places import Places
from tasid.targets.worlds.grid_view import poses_of
from tasid.targets.worlds.route import ROUTE_ETA, layout_of, route_states, route_steps

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


def _doors_on_route(floor: Floor, sim: AbstractSimulator) -> list[tuple[float, float]]:
    """The narrow places on the robust route, (x, y) in metres, narrowest first."""
    route = layout_of(sim).centres(route_states(robust_dp(sim, eta=ROUTE_ETA)))
    places = list(dict.fromkeys(map(tuple, route.tolist())))
    middles = [((a + c) / 2, (b + d) / 2) for (a, b), (c, d) in pairwise(places)]
    found: dict[tuple[float, float], float] = {}
    for x, y in [*places, *middles]:
        row, column = _pixel(floor.picture, x, y)
        if floor.pixels[row, column] == FREE:
            runs = _run(floor.pixels[row], column), _run(floor.pixels[:, column], row)
            wide = min(map(_length, runs)) * floor.picture.resolution
            if wide <= _WIDEST:
                found[round(x, 6), round(y, 6)] = wide
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


def with_doors(
    places: Places, sim: AbstractSimulator, doors: int | Sequence[Sequence[float]]
) -> tuple[Floor, AbstractSimulator]:
    """The floor and the map as they really are."""
    if not isinstance(doors, int):
        return _shut(places, sim, doors) if len(doors) else (places.floor, sim)
    shut: list[tuple[float, float]] = []
    truth = places.floor, sim
    while len(shut) < doors:
        for door in [d for d in _doors_on_route(places.floor, truth[1]) if d not in shut]:
            floor, there = _shut(places, sim, [*shut, door])
            if _hinders(truth[1], there) and route_steps(robust_dp(there, eta=0.0)) is not None:
                shut.append(door)
                truth = floor, there
                break
        else:
            raise MapError(
                f"closed_doors: {doors}, but only {len(shut)} doors on the route can be closed "
                "with another way left; give points (x, y) instead"
            )
    return truth


def _shut(
    places: Places, sim: AbstractSimulator, doors: Sequence[Sequence[float]]
) -> tuple[Floor, AbstractSimulator]:
    """The same poses on a map with closed doors: moves through them do not move."""
    floor = places.floor
    picture = closed(floor.picture, doors)
    truth = Floor.of(
        picture,
        cell_size=floor.lattice.size,
        robot_radius=floor.radius,
        unknown="wall" if floor.pixels is floor.picture.pixels else "free",
        headings=floor.lattice.directions,
    )
    row, column, heading = poses_of(layout_of(sim)).T
    poses = places.grid.poses(np.stack([row, column], axis=1), heading)
    after = replace(places.grid, passages=truth.lattice.passages).successors(poses)
    successor = numbering(poses)(after)
    stay = places.grid.actions.index("stay")
    reward = np.where(successor == sim.successor, sim.reward, sim.reward[:, [stay]])
    return truth, sim.replaced(successor=successor, reward=reward)


def _hinders(before: AbstractSimulator, after: AbstractSimulator) -> bool:
    """Is the first start's route no longer what it was?"""
    plan = robust_dp(before, eta=ROUTE_ETA)
    return any(
        before.successor_at(step)[state, action] != after.successor_at(step)[state, action]
        for step, state in enumerate(route_states(plan))
        for action in [plan.actions[step, state]]
    )
