"""Moving over a grid of cells: poses, moves, and the simulator they make.

A pose is one integer: its cell in the grid with a border of walls around it, times the number of
headings, plus the heading. The border saves every test for the edge.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasid.maps.layout import GOAL, HAZARD, HEADING_NAMES, UNKNOWN, WALL, GridLayout, Origin
from tasid.maps.simulator import AbstractSimulator
from tasid.maps.size import MapError

Poses = NDArray[np.int64]

ACTIONS = {
    "compass": ("north", "east", "south", "west"),
    "turn": ("forward", "left", "right", "left and forward", "right and forward"),
    "drive": ("forward", "back", "left", "right", "stay"),
}
_TURNS = {
    "turn": ((0, 1), (-1, 0), (1, 0), (-1, 1), (1, 1)),
    "drive": ((0, 1), (0, -1), (-1, 0), (1, 0), (0, 0)),
}
"""For each action: turns to the right, by one heading, and steps forward after turning."""
COMPASS = ((-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1))
"""(row, column) of one step north, north-east, …, clockwise; every second one if four will do."""
_MOST_CELLS = 25_000_000


@dataclass(frozen=True)
class Rewards:
    """What a step pays, by the cell it leads to; nothing is paid once on a goal or hazard."""

    goal: float = 1.0
    hazard: float = -1.0
    step: float = -0.01


@dataclass(frozen=True, eq=False)
class Grid:
    """Cells [rows, columns] and how one moves over them.

    "compass": to the neighbour in the north, east, south, west. "turn": forward, turn left, turn
    right, turn left and move, turn right and move. "drive": forward, back, turn left, turn right,
    stay. A move into a wall does not move; what turns before it still turns. With eight directions
    a turn is half as wide, and a move across a corner touches neither of the cells beside it.
    """

    cells: NDArray[np.uint8]
    moves: str = "compass"
    directions: int = 4
    passages: NDArray[np.bool_] | None = None
    """Where one can move, from each cell in each direction [rows, columns, D]; None: anywhere."""

    def __post_init__(self) -> None:
        if self.moves not in ACTIONS:
            raise MapError(f"moves: {self.moves!r} is none of {', '.join(map(repr, ACTIONS))}")
        if self.directions not in (4, 8) or (self.directions == 8 and self.moves == "compass"):
            raise MapError(
                f"headings: {self.directions!r} with {self.moves!r} moves; there are 4, or 8 with "
                "moves that turn"
            )
        if self.cells.size > _MOST_CELLS:
            raise MapError(
                f"the map has {self.cells.size} cells, more than {_MOST_CELLS}; use larger cells"
            )

    @property
    def actions(self) -> tuple[str, ...]:
        """Their names, in index order."""
        return ACTIONS[self.moves]

    @property
    def headings(self) -> int:
        """How many headings a pose can have."""
        return 1 if self.moves == "compass" else self.directions

    @cached_property
    def _kind(self) -> NDArray[np.uint8]:
        return np.pad(self.cells, 1, constant_values=WALL).ravel()

    @property
    def _width(self) -> int:
        return self.cells.shape[1] + 2

    @cached_property
    def _neighbours(self) -> NDArray[np.int64]:
        steps = np.array(COMPASS[:: 8 // self.directions])
        return steps @ np.array([self._width, 1])

    @cached_property
    def _open(self) -> NDArray[np.bool_] | None:
        """`passages` by cell with the border around it, [cells, D]."""
        if self.passages is None:
            return None
        bordered = np.pad(self.passages, ((1, 1), (1, 1), (0, 0)))
        return bordered.reshape(-1, self.directions)

    def pose(self, row: int, column: int, heading: str) -> int:
        """The pose in a cell; without headings, the cell."""
        looks = 0 if self.headings == 1 else HEADING_NAMES[self.directions].index(heading)
        return int(self.poses(np.array([row, column]), looks))

    def poses(self, places: NDArray[np.integer], headings: NDArray[np.integer] | int) -> Poses:
        """The poses at these rows and columns [n, 2] with these headings [n]."""
        cells = (np.asarray(places, np.int64) + 1) @ np.array([self._width, 1])
        return cells * self.headings + headings

    def places(self, poses: Poses) -> NDArray[np.int64]:
        """Row and column of each pose, [n, 2]."""
        return np.stack(np.divmod(poses // self.headings, self._width), axis=1) - 1

    def kinds(self, poses: Poses) -> NDArray[np.uint8]:
        """What the cells of these poses are."""
        return self._kind[poses // self.headings]

    def successors(self, poses: Poses) -> Poses:
        """The pose each action leads to, [n, A]."""
        cell, heading = np.divmod(poses, self.headings)
        if self.moves == "compass":
            after = [self._entered(cell, direction) for direction in range(4)]
        else:
            after = []
            for turn, go in _TURNS[self.moves]:
                looks = (heading + turn) % self.directions
                towards = looks if go > 0 else (looks + self.directions // 2) % self.directions
                place = self._entered(cell, towards) if go else cell
                after.append(place * self.directions + looks)
        table = np.stack(after, axis=1)
        final = np.isin(self._kind[cell], (GOAL, HAZARD))
        table[final] = poses[final, None]
        return table

    def _entered(self, cell: Poses, direction: Any) -> Poses:
        """The cell that one is in after a move."""
        there = cell + self._neighbours[direction]
        blocked = self._solid(there)
        if self._open is not None:
            blocked = blocked | ~self._open[cell, direction]
        elif self.directions == 8:
            beside = [(direction + turn) % 8 for turn in (-1, 1)]
            corner = [self._solid(cell + self._neighbours[side]) for side in beside]
            blocked = blocked | ((np.asarray(direction) % 2 == 1) & (corner[0] | corner[1]))
        return np.where(blocked, cell, there)

    def _solid(self, cells: Poses) -> NDArray[np.bool_]:
        return np.isin(self._kind[cells], (WALL, UNKNOWN))

    def levels(self, starts: Poses) -> Iterator[Poses]:
        """The poses first reached after 0, 1, 2, … steps, until there are no new ones."""
        seen = np.zeros(self._kind.size * self.headings, dtype=bool)
        level = np.unique(starts)
        while level.size:
            seen[level] = True
            yield level
            after = self.successors(level).ravel()
            level = np.unique(after[~seen[after]])


def grid_simulator(
    grid: Grid,
    starts: Sequence[int],
    *,
    horizon: int,
    rewards: Rewards,
    source: str,
    **scale: Any,
) -> AbstractSimulator:
    """The simulator of all poses within the horizon; states are (x, y) or (x, y, heading).

    `scale` is what `GridLayout` knows beside the grid: how cells are measured and drawn.
    """
    first = np.array(starts, dtype=np.int64)
    found: list[Poses] = []
    for depth, level in enumerate(grid.levels(first)):
        found.append(level)
        if depth == horizon:
            break
    poses = np.concatenate(found)
    after = grid.successors(poses)
    # Actions at the very end of the horizon are never taken; their successors are not stored.
    last = poses.size - found[-1].size if len(found) == horizon + 1 else poses.size
    complete = bool((after[last:] == poses[last:, None]).all())
    after[last:] = poses[last:, None]
    index = numbering(poses)
    here, there = grid.kinds(poses)[:, None], grid.kinds(after)
    pay = np.select([there == GOAL, there == HAZARD], [rewards.goal, rewards.hazard], rewards.step)
    pay[np.isin(here[:, 0], (GOAL, HAZARD))] = 0.0
    pay[last:] = 0.0
    layout = GridLayout(
        grid.cells,
        grid.places(poses).astype(np.int32),
        headings=(poses % grid.directions).astype(np.int8) if grid.headings > 1 else None,
        directions=grid.directions,
        **scale,
    )
    return AbstractSimulator(
        index(after),
        pay,
        horizon=horizon,
        start=index(first).tolist(),
        states=_labels(layout),
        origin=Origin(source, grid.actions, None if complete else horizon, layout=layout),
    )


def numbering(poses: Poses) -> Callable[[Poses], Poses]:
    """What gives the places that poses have among these."""
    order = np.argsort(poses)
    ranked = poses[order]
    return lambda wanted: order[np.searchsorted(ranked, wanted)]


def _labels(layout: GridLayout) -> list[Hashable]:
    x, y = layout.centres(np.arange(len(layout.positions))).T
    if layout.corner is None:
        columns: list[list[Any]] = [x.astype(int).tolist(), y.astype(int).tolist()]
    else:
        columns = [x.round(6).tolist(), y.round(6).tolist()]
    if layout.headings is not None:
        names = HEADING_NAMES[layout.directions]
        columns.append([names[h] for h in layout.headings.tolist()])
    return list(zip(*columns, strict=True))


def checked_heading(heading: str, directions: int = 4) -> str:
    """A heading as one of N, E, S, W, or of eight."""
    given = str(heading).upper()
    names = HEADING_NAMES[directions]
    known = given if given in names else given[:1]
    if not known or known not in names or (len(given) == 2 and known != given):
        raise MapError(f"heading: {heading!r} is none of {', '.join(names)}")
    return known
