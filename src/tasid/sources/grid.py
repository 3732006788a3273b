"""Grid worlds: maps drawn with characters, poses on cells, move sets, and their simulators.

A pose is one integer: the index of its cell in the grid padded by a border of walls, times the
number of headings, plus the heading. The border makes checks for the edge unnecessary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasid.layout import FREE, GOAL, HAZARD, HEADINGS, UNKNOWN, WALL, GridLayout
from tasid.simulator import AbstractSimulator, SimulatorError

Poses = NDArray[np.int64]

CELLS = {"#": WALL, ".": FREE, "S": FREE, "G": GOAL, "L": HAZARD}
"""Characters of text maps."""
ACTIONS = {
    "compass": ("north", "east", "south", "west"),
    "turn": ("forward", "left", "right", "left and forward", "right and forward"),
    "drive": ("forward", "back", "left", "right", "stay"),
}
"""Names of the actions of each move set."""
_TURN_AND_GO = {
    "turn": ((0, 1), (-1, 0), (1, 0), (-1, 1), (1, 1)),
    "drive": ((0, 1), (0, -1), (-1, 0), (1, 0), (0, 0)),
}
"""For each action: turn to the right by this many headings, then move this many cells forward."""
COMPASS = ((-1, 0), (0, 1), (1, 0), (0, -1))
"""(row, column) of a step north, east, south, west."""
MAX_CELLS = 25_000_000


@dataclass(frozen=True)
class GridRewards:
    """Rewards of a step by the cell it enters; absorbing cells give none afterwards.

    The action `back` costs another step: with equal costs for both directions an optimal plan
    would reverse over long distances instead of turning round.
    """

    goal_reward: float = 1.0
    hazard_reward: float = -1.0
    step_reward: float = -0.01


@dataclass(frozen=True, eq=False)
class Grid:
    """Cells and the moves between them.

    Move sets: "compass" steps to the neighbour in the north, east, south or west; "turn" moves
    forward, turns left or right, or does both; "drive" moves forward or back, turns left or right,
    or stays. A blocked move stays in its cell; a turn before it is still executed.
    """

    cells: NDArray[np.uint8]
    """Kinds of cells [rows, columns], codes of `tasid.layout`. Goals and hazards are absorbing."""
    moves: str = "compass"
    passages: NDArray[np.bool_] | None = None
    """Whether a move leads out of each cell north, east, south and west, [rows, columns, 4], in
    addition to what `cells` block; None: always."""

    def __post_init__(self) -> None:
        if self.moves not in ACTIONS:
            raise SimulatorError(f"moves: {self.moves!r} is none of {', '.join(ACTIONS)}")
        if self.cells.size > MAX_CELLS:
            raise SimulatorError(
                f"cells: {self.cells.size}, more than {MAX_CELLS}; use larger ones"
            )

    @property
    def headings(self) -> int:
        """Number of headings of a pose; 1 if poses have none."""
        return 1 if self.moves == "compass" else len(HEADINGS)

    @cached_property
    def _kind(self) -> NDArray[np.uint8]:
        return np.pad(self.cells, 1, constant_values=WALL).ravel()

    @property
    def _width(self) -> int:
        return self.cells.shape[1] + 2

    @cached_property
    def _neighbour(self) -> NDArray[np.int64]:
        """Cell entered by a move from each cell north, east, south and west, [padded cells, 4]."""
        offsets = np.array(COMPASS) @ np.array([self._width, 1])
        cell = np.arange(self._kind.size)[:, None]
        there = np.clip(cell + offsets, 0, self._kind.size - 1)
        blocked = np.isin(self._kind, (WALL, UNKNOWN))[there]
        if self.passages is not None:
            passages = np.pad(self.passages, ((1, 1), (1, 1), (0, 0)))
            blocked |= ~passages.reshape(-1, len(COMPASS))
        return np.where(blocked, cell, there)

    def pose(self, row: int, column: int, heading: str = "E") -> int:
        """Pose in a cell; the heading is ignored if poses have none."""
        if heading.upper() not in HEADINGS:
            raise SimulatorError(f"heading: {heading!r} is none of {', '.join(HEADINGS)}")
        index = 0 if self.headings == 1 else HEADINGS.index(heading.upper())
        return int(self.poses(np.array([row, column]), index))

    def poses(self, places: NDArray[Any], headings: NDArray[Any] | int) -> Poses:
        """Poses at these rows and columns [n, 2] with these headings [n]."""
        cells = (np.asarray(places, np.int64) + 1) @ np.array([self._width, 1])
        return cells * self.headings + headings

    def places(self, poses: Poses) -> NDArray[np.int64]:
        """Row and column of each pose, [n, 2]."""
        return np.stack(np.divmod(poses // self.headings, self._width), axis=-1) - 1

    def kinds(self, poses: Poses) -> NDArray[np.uint8]:
        """Kinds of the cells of these poses."""
        return self._kind[poses // self.headings]

    def successors(self, poses: Poses) -> Poses:
        """Pose that each action leads to, [n, A]."""
        cell, heading = np.divmod(poses, self.headings)
        if self.moves == "compass":
            table = self._neighbour[cell]
        else:
            columns = []
            for turn, go in _TURN_AND_GO[self.moves]:
                facing = (heading + turn) % self.headings
                towards = facing if go > 0 else (facing + 2) % self.headings
                entered = self._neighbour[cell, towards] if go else cell
                columns.append(entered * self.headings + facing)
            table = np.stack(columns, axis=1)
        absorbing = np.isin(self._kind[cell], (GOAL, HAZARD))
        table[absorbing] = poses[absorbing, None]
        return table

    def levels(self, starts: Sequence[int] | Poses) -> Iterator[Poses]:
        """Poses first reached after 0, 1, 2, … steps, until there are no more."""
        reached = np.zeros(self._kind.size * self.headings, bool)
        level = np.unique(np.asarray(starts, np.int64))
        while level.size:
            reached[level] = True
            yield level
            after = self.successors(level).ravel()
            level = np.unique(after[~reached[after]])

    def steps_to_goal(self, start: int) -> int | None:
        """Smallest number of steps from a pose to a goal; None if no goal can be reached."""
        for steps, level in enumerate(self.levels([start])):
            if (self.kinds(level) == GOAL).any():
                return steps
        return None

    def hazard_in_the_way(self, start: int) -> str:
        """The reason why no goal can be reached, if it is hazards; else empty."""
        safe = replace(self, cells=np.where(self.cells == HAZARD, np.uint8(FREE), self.cells))
        reachable = safe.steps_to_goal(start) is not None
        return "every way leads through a hazard" if reachable else ""

    def default_horizon(self, starts: Sequence[int], detours: int = 3) -> int:
        """`detours` times the shortest way to a goal, from the start farthest from one."""
        longest = 1
        for start in starts:
            steps = self.steps_to_goal(start)
            if steps is None:
                reason = self.hazard_in_the_way(start) or "there is no way"
                row, column = self.places(np.array(start))
                raise SimulatorError(
                    f"horizon: None, and no goal can be reached from the start in row {row}, "
                    f"column {column} to choose it by: {reason}"
                )
            longest = max(longest, steps)
        return detours * longest

    def simulator(
        self,
        starts: Sequence[int],
        *,
        horizon: int,
        rewards: GridRewards = GridRewards(),  # noqa: B008 - it is immutable
        source: str = "",
        points: NDArray[np.float64] | None = None,
        **layout: Any,
    ) -> AbstractSimulator:
        """Simulator of all poses that the starts reach, ordered by their distance from a start.

        States are labelled (x, y) or (x, y, heading): x is the column and y the row, or metres with
        `corner`. `points` [rows, columns, 2] are x and y of the cells, if not their centres;
        `layout` goes to `GridLayout`.
        """
        poses = np.concatenate(list(self.levels(starts)))
        order = np.argsort(poses)

        def index(wanted: Any) -> NDArray[np.int64]:
            return order[np.searchsorted(poses, wanted, sorter=order)]

        after = self.successors(poses)
        here, there = self.kinds(poses), self.kinds(after)
        entering = [rewards.goal_reward, rewards.hazard_reward]
        reward = np.select([there == GOAL, there == HAZARD], entering, rewards.step_reward)
        if "back" in (names := ACTIONS[self.moves]):
            reward[:, names.index("back")] -= abs(rewards.step_reward)
        reward[np.isin(here, (GOAL, HAZARD))] = 0.0
        places = self.places(poses)
        grid = GridLayout(
            self.cells,
            places.astype(np.int32),
            headings=(poses % self.headings).astype(np.int8) if self.headings > 1 else None,
            points=None if points is None else points[tuple(places.T)],
            **layout,
        )
        labels = grid.centres(np.arange(len(poses))).round(6)
        columns: list[list[Any]] = (labels if grid.corner else labels.astype(int)).T.tolist()
        if grid.headings is not None:
            columns.append([HEADINGS[h] for h in grid.headings])
        return AbstractSimulator(
            index(after),
            reward,
            horizon=horizon,
            start=index(starts),
            states=list(zip(*columns, strict=True)),
            action_names=names,
            layout=grid,
            hazards=here == HAZARD if (here == HAZARD).any() else None,
            source=source,
        )


def from_text_map(
    text: str,
    *,
    horizon: int | None = None,
    moves: str = "compass",
    heading: str = "E",
    **rewards: Any,
) -> AbstractSimulator:
    """Simulator of a text map: '#' wall, '.' free, 'S' start, 'G' goal, 'L' lava or hazard.

    Parameters
    ----------
    horizon
        Steps of an episode; three times the shortest way to the goal if None.
    moves
        "compass" (north, east, south, west), "turn" (forward, left, right, left and forward, right
        and forward) or "drive" (forward, back, left, right, stay).
    heading
        At the start, for moves that turn.
    rewards
        Fields of `GridRewards`: goal_reward, hazard_reward, step_reward.

    Returns
    -------
    AbstractSimulator
        States are (x, y) or (x, y, heading), x the column and y the row from the top. The area
        outside the text is wall.
    """
    cells, starts = parse_text_map(text)
    grid = Grid(cells, moves)
    poses = [grid.pose(row, column, heading) for row, column in starts]
    return grid.simulator(
        poses,
        horizon=grid.default_horizon(poses) if horizon is None else horizon,
        rewards=GridRewards(**rewards),
        source="text map",
    )


def parse_text_map(text: str) -> tuple[NDArray[np.uint8], list[tuple[int, int]]]:
    """Cells [rows, columns] of a text map, and row and column of its starts."""
    if not isinstance(text, str):
        raise TypeError(f"text: a {type(text).__name__} is not text; give the map as one string")
    lines = [line.rstrip() for line in dedent(text).strip("\n").rstrip().split("\n")]
    for row, line in enumerate(lines, 1):
        for column, character in enumerate(line, 1):
            if character not in CELLS:
                raise SimulatorError(
                    f"text: {character!r} in line {row}, column {column} is none of "
                    f"{' '.join(CELLS)}"
                )
        if len(line) != len(lines[0]):
            raise SimulatorError(
                f"text: line {row} has {len(line)} characters, line 1 has {len(lines[0])}; lines "
                "must be equally long"
            )
    starts = [(r, c) for r, line in enumerate(lines) for c, x in enumerate(line) if x == "S"]
    if not starts:
        raise SimulatorError("text: the map has no start 'S'")
    return np.array([[CELLS[x] for x in line] for line in lines], dtype=np.uint8), starts


def read_text(path: str | Path) -> str:
    """The text of a map file."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SimulatorError(f"{path}: not a readable text file ({error})") from None
