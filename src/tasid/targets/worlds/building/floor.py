"""Office floors to drive on: one that is drawn here, and as many others as there are numbers.

A floor is 93 m × 29 m. Two long corridors run from end to end with rooms along the outer walls;
between them lie courts, blocks of closed rooms and a lobby with a stair case, and short corridors
connect the two. Walls stand on whole metres, so that lattices of half a metre and of a metre find
the doors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tasid.maps.layout import FREE, UNKNOWN, WALL
from tasid.maps.sources.map_server import OccupancyMap

RESOLUTION = 0.05
LENGTH, DEPTH = 93, 29
_SOUTH, _NORTH = (7, 9), (20, 22)
"""The long corridors, from y to y."""
_HALF_WALL = 0.1
_DOOR = 1.0
_CABINET = 0.25
"""Depth, from the middle of a wall: a robot in the lane beside it still fits."""
_STAIR_MARGIN = 0.3
"""Between the stairs and the cells beside them: more than a robot's radius."""

Rectangle = tuple[float, float, float, float]
"""x, y, x, y in metres."""


@dataclass(frozen=True, eq=False)
class Site:
    """A map, and what is known about the task on it; all lengths in metres."""

    picture: OccupancyMap
    hazards: Sequence[Sequence[float]] = ()
    docks: Sequence[Sequence[float | str]] = ()
    goals: Sequence[Sequence[float]] = ()
    source: str = ""


@dataclass(frozen=True)
class Blueprint:
    """What differs from floor to floor. Everything else follows from it."""

    crossings: tuple[int, ...]
    """Where short corridors begin, two metres wide each, from west to east."""
    lobby: tuple[int, int]
    """The lobby, from x to x; it opens to both long corridors."""
    courts: tuple[int, ...]
    """Which of the blocks between crossings and lobby, from the west, are courts."""
    goal_room: tuple[int, int]
    """In the south, from x to x, with two doors."""
    dock: float
    """x of the dock, in a bay in the north."""
    furniture: int
    """Seeds what stands in rooms and which are open."""


_OURS = Blueprint(
    crossings=(6, 24, 58, 82),
    lobby=(44, 51),
    courts=(1, 4),
    goal_room=(52, 58),
    dock=44.5,
    furniture=19,
)


def office_floor(number: int | None = None) -> Site:
    """The floor that comes with the package, or the one of a number."""
    if number is None:
        return draw(_OURS, "office floor")
    return draw(blueprint(number), f"office floor {number}")


def blueprint(number: int) -> Blueprint:
    """A random floor: crossings, lobby, courts, goal and dock move; the character stays."""
    rng = np.random.default_rng(np.random.SeedSequence([0xF100, number]))
    west, east = int(rng.integers(4, 8)), int(rng.integers(80, 85))
    second = int(rng.integers(west + 14, west + 22))
    lobby = int(rng.integers(second + 12, second + 22))
    wide = int(rng.integers(7, 9))
    third = lobby + wide + int(rng.integers(6, 10))
    goal = int(rng.integers(lobby + wide, third - 5)) if third - 5 > lobby + wide else lobby + wide
    return Blueprint(
        crossings=(west, second, third, east),
        lobby=(lobby, lobby + wide),
        courts=(1, 4) if rng.random() < 0.5 else (1, 2, 4),
        goal_room=(goal, goal + 6),
        dock=lobby + 0.5 + int(rng.integers(-4, 2)),
        furniture=int(rng.integers(1 << 31)),
    )


def draw(plan: Blueprint, source: str) -> Site:
    """The pixels of a blueprint, and the delivery from its dock to its goal room."""
    canvas = _Canvas()
    rng = np.random.default_rng(plan.furniture)
    for low, high in (_SOUTH, _NORTH):
        canvas.hollow(0, low, LENGTH, high)
    for west in plan.crossings:
        canvas.hollow(west, _SOUTH[0], west + 2, _NORTH[1])
    _draw_lounge(canvas, plan.crossings[0])
    canvas.hollow(plan.lobby[0], _SOUTH[0], plan.lobby[1], _NORTH[1])
    _draw_blocks(canvas, plan)
    _draw_open_office(canvas, plan.crossings[-1] + 2, rng)
    dock = (int(plan.dock) - 1, int(plan.dock) + 2)
    _draw_rooms(canvas, rng, (0, _SOUTH[0]), door_y=_SOUTH[0], kept=plan.goal_room)
    _draw_rooms(canvas, rng, (_NORTH[1], DEPTH), door_y=_NORTH[1], kept=dock)
    canvas.hollow(plan.goal_room[0], 0, plan.goal_room[1], _SOUTH[0])
    for x in (plan.goal_room[0] + 1.5, plan.goal_room[1] - 0.5):
        canvas.door(x, _SOUTH[0])
    canvas.solid((plan.goal_room[0] + 2.2, 2.6, plan.goal_room[0] + 3.8, 3.4))
    canvas.hollow(dock[0], _NORTH[1], dock[1], _NORTH[1] + 3)
    canvas.door(plan.dock, _NORTH[1])
    canvas.pillars(plan.crossings)
    _draw_niches(canvas, rng)
    left, right = plan.lobby[0] + 1 + _STAIR_MARGIN, plan.lobby[1] - 1 - _STAIR_MARGIN
    return Site(
        OccupancyMap(canvas.pixels[::-1].copy(), RESOLUTION, (0.0, 0.0)),
        hazards=[(left, 11 + _STAIR_MARGIN, right, 18 - _STAIR_MARGIN)],
        docks=[(plan.dock, _NORTH[1] + 1.5, "S")],
        goals=[(plan.goal_room[0] + 2.5, 1.5)],
        source=source,
    )


def _draw_blocks(canvas: _Canvas, plan: Blueprint) -> None:
    """Nobody enters what lies between the corridors; courts have bays on their long sides."""
    gaps = sorted([*((x, x + 2) for x in plan.crossings), plan.lobby])
    for number, (before, after) in enumerate(pairwise(gaps), 1):
        west, east = before[1], after[0]
        if number in plan.courts:
            canvas.hollow(west + 3, _SOUTH[1] - 1, west + 5, _SOUTH[1] + 1)
            canvas.hollow(east - 6, _NORTH[0] - 1, east - 3, _NORTH[0] + 1)


def _draw_lounge(canvas: _Canvas, east: int) -> None:
    """Sofas around a table at the west end."""
    canvas.hollow(0, _SOUTH[0], east, _NORTH[1])
    for y in (10.1, 12.1, 14.2, 16.1):
        canvas.solid((0.1, y, 1.0, y + 1.8))
    canvas.solid((1.7, 11.7, east - 1.8, 17.3))


def _draw_niches(canvas: _Canvas, rng: np.random.Generator) -> None:
    """Recessed doors and flat cabinets along the corridors: no two stretches look alike."""
    for y, into in ((_SOUTH[0], -1), (_SOUTH[1], 1), (_NORTH[0], -1), (_NORTH[1], 1)):
        x = 1.0 + rng.uniform(0, 3)
        while x < LENGTH - 3:
            wide, deep = rng.uniform(0.6, 1.8), rng.uniform(0.2, 0.7)
            if rng.random() < 0.5:
                canvas.niche(x, y, x + wide, into * deep)
            else:
                canvas.cabinet(x, y, x + wide, -into * _CABINET)
            x += wide + rng.uniform(0.8, 5.0)


def _draw_open_office(canvas: _Canvas, west: int, rng: np.random.Generator) -> None:
    """Desks in rows at the east end."""
    canvas.hollow(west, _SOUTH[0], LENGTH, _NORTH[1])
    for y in np.arange(_SOUTH[1] + 0.6, _NORTH[0] - 1.0, 2.0):
        for x in np.arange(west + 1.1, LENGTH - 2.6, 3.0):
            canvas.solid((x, y, x + 1.7, y + 0.8))
            seat = x + rng.uniform(0.2, 1.0)
            canvas.solid((seat, y + 1.0, seat + 0.45, y + 1.4))


def _draw_rooms(
    canvas: _Canvas,
    rng: np.random.Generator,
    depth: tuple[int, int],
    *,
    door_y: int,
    kept: tuple[int, int],
) -> None:
    """Rooms along an outer wall, some of them open; `kept` is somebody else's."""
    x = 0
    while x < LENGTH - 3:
        wide = int(rng.integers(4, 8))
        end = LENGTH if x + wide > LENGTH - 4 else x + wide
        if end > kept[0] and x < kept[1]:
            end = kept[1]
        elif rng.random() < 0.32:
            canvas.hollow(x, depth[0], end, depth[1])
            canvas.door(x + int(rng.integers(1, end - x - 1)) + 0.5, door_y)
            _furnish(canvas, rng, (x, depth[0], end, depth[1]), door_y)
        x = end


def _furnish(
    canvas: _Canvas, rng: np.random.Generator, room: tuple[int, int, int, int], door_y: int
) -> None:
    """Desks along the wall opposite the door, a shelf at a side, and chairs; or a large table."""
    west, low, east, high = room
    back = low if door_y == high else high - 0.8
    if east - west >= 6 and rng.random() < 0.4:
        middle = (low + high) / 2
        canvas.solid((west + 1.6, middle - 0.6, east - 1.6, middle + 0.6))
        for x in np.arange(west + 1.8, east - 2.0, 0.9):
            canvas.solid((x, middle + 0.75, x + 0.45, middle + 1.15))
        return
    for x in np.arange(west + 0.3, east - 1.8, 2.2):
        if rng.random() < 0.8:
            canvas.solid((x, back, x + 1.6, back + 0.8))
            seat = back + 1.0 if back == low else back - 0.6
            canvas.solid((x + rng.uniform(0, 1.1), seat, x + 1.5, seat + 0.4))
    if rng.random() < 0.6:
        y = low + rng.uniform(1.5, high - low - 3.5)
        canvas.solid((west, y, west + 0.45, y + rng.uniform(0.9, 2.0)))


class _Canvas:
    """Pixels from the lower left corner; unknown at first, with walls around all that is hollow."""

    def __init__(self) -> None:
        shape = (round(DEPTH / RESOLUTION), round(LENGTH / RESOLUTION))
        self.pixels: NDArray[np.uint8] = np.full(shape, UNKNOWN, dtype=np.uint8)

    def hollow(self, west: float, low: float, east: float, high: float) -> None:
        """Free inside, with walls on the edges where nothing is free yet."""
        half = _HALF_WALL
        wall = self._part((west - half, low - half, east + half, high + half))
        wall[wall != FREE] = WALL
        self._part((west + half, low + half, east - half, high - half))[:] = FREE

    def door(self, x: float, y: float) -> None:
        """An opening in a wall along x."""
        self._part((x - _DOOR / 2, y - 0.2, x + _DOOR / 2, y + 0.2))[:] = FREE

    def niche(self, west: float, wall: float, east: float, depth: float) -> None:
        """A recess in a wall along x, above it or, if its depth is negative, below.

        Only where nothing is behind the wall.
        """
        side = np.sign(depth) * _HALF_WALL

        def part(begin: float, end: float, margin: float) -> NDArray[np.uint8]:
            low, high = sorted((begin, end))
            return self._part((west - margin, low, east + margin, high))

        behind = part(wall + side, wall + depth + side, _HALF_WALL)
        if (behind == UNKNOWN).all():
            behind[:] = WALL
            part(wall - side, wall + depth, 0.0)[:] = FREE

    def cabinet(self, west: float, wall: float, east: float, depth: float) -> None:
        """In front of a wall along x, where it has no opening."""
        low, high = sorted((wall, wall + depth))
        behind = self._part((west, wall - _HALF_WALL, east, wall + _HALF_WALL))
        if (behind == WALL).all():
            self.solid((west, low, east, high))

    def solid(self, at: Rectangle) -> None:
        """Furniture; only where one could stand."""
        part = self._part(at)
        part[part == FREE] = WALL

    def pillars(self, crossings: tuple[int, ...]) -> None:
        """Where short corridors meet the long ones, so that no two junctions look alike."""
        for number, x in enumerate(crossings):
            for at in (x - 0.1, x + 1.8)[: 1 + number % 2]:
                self.solid((at, _SOUTH[1] - 0.35, at + 0.3, _SOUTH[1] - 0.05))
                self.solid((at, _NORTH[0] + 0.05, at + 0.3, _NORTH[0] + 0.35))

    def _part(self, at: Rectangle) -> NDArray[np.uint8]:
        west, low, east, high = (max(round(edge / RESOLUTION), 0) for edge in at)
        return self.pixels[low:high, west:east]
