"""What an agent sees on a grid map: Minigrid's pictures, drawn for all poses at once with NumPy.

The agent sees the 7 × 7 cells in front of it, itself at the middle of the lower edge looking up;
walls hide what is behind them. Pictures are pixel for pixel those of Farama Minigrid 3.2
(`RGBImgPartialObsWrapper`, and `get_frame` for the whole map), whose constants are repeated here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from tasid.maps.layout import FREE, GOAL, HAZARD, HEADINGS, WALL, GridLayout
from tasid.maps.sources.grid import COMPASS

VIEW = 7
"""The agent sees VIEW × VIEW cells."""
TILE = 8
"""Pixels along the side of a cell in the agent's picture."""
PICTURE = (VIEW * TILE, VIEW * TILE, 3)
"""The shape of what the agent sees."""

_CONTENTS = (FREE, WALL, HAZARD, GOAL)
_UNSEEN, _AGENT = 4, 5
"""Kinds of tiles beyond the contents, which number 0 … 3."""
_AHEAD = np.array(COMPASS[::2])
"""(row, column) of one step north, east, south, west: the order of `HEADINGS`."""
_NORTH = HEADINGS.index("N")

Cells = NDArray[np.uint8]
"""What is in each cell, [rows, columns], by the names of `tasid.maps.layout`."""
Poses = Sequence[tuple[int, int, int]] | NDArray[np.integer[Any]]
"""(row, column, heading) of agents, [N, 3]."""


_Pixel = TypeVar("_Pixel", np.uint8, np.bool_)


class View(NamedTuple):
    """The cells in front of each agent, as it sees them: rows from far to near."""

    contents: NDArray[np.uint8]
    """[N, VIEW, VIEW]; beyond the map everything is wall."""
    visible: NDArray[np.bool_]
    """[N, VIEW, VIEW]."""


def poses_of(layout: GridLayout) -> NDArray[np.int32]:
    """The pose (row, column, heading) of every state of a map, [S, 3]."""
    if layout.headings is None:
        raise ValueError("layout: its states have no heading; agents that see look somewhere")
    return np.column_stack([layout.positions, layout.headings]).astype(np.int32)


def view(cells: Cells, poses: Poses, *, see_through_walls: bool = False) -> View:
    """What lies in front of each pose, and whether it can be seen from there."""
    row, column, inside = _in_front(cells, poses)
    contents = np.where(inside, cells[row, column], np.uint8(WALL))
    visible = np.ones_like(inside) if see_through_walls else _visible(contents == WALL)
    return View(contents, visible)


def agent_pictures(
    cells: Cells, poses: Poses, *, see_through_walls: bool = False
) -> NDArray[np.uint8]:
    """What the agent sees from each pose, uint8 [N, 56, 56, 3]."""
    seen = view(cells, poses, see_through_walls=see_through_walls)
    tiles = np.stack(
        [
            *(tile(content, highlight=True) for content in _CONTENTS),
            tile(FREE),
            tile(FREE, agent=_NORTH, highlight=True),
        ]
    )
    return _mosaic(tiles[_kinds(seen)])


def background(cells: Cells, poses: Poses, *, see_through_walls: bool = False) -> NDArray[np.bool_]:
    """Which pixels of the agent's pictures show nothing, bool [N, 56, 56].

    These are all pixels of cells that are empty or cannot be seen, and in the agent's own cell
    those that its triangle does not touch.
    """
    seen = view(cells, poses, see_through_walls=see_through_walls)
    empty = tile(FREE, highlight=True)
    around = (tile(FREE, agent=_NORTH, highlight=True) == empty).all(axis=-1)
    blank, full = np.ones_like(around), np.zeros_like(around)
    tiles = np.stack([blank, full, full, full, blank, around])[..., None]
    return _mosaic(tiles[_kinds(seen)])[..., 0]


def _in_front(
    cells: Cells, poses: Poses
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.bool_]]:
    """Row, column, and whether that is inside the map, of the cells each agent faces."""
    poses = np.asarray(poses, dtype=np.intp).reshape(-1, 3)
    ahead = _AHEAD[poses[:, 2]][:, None, None]
    right = _AHEAD[(poses[:, 2] + 1) % 4][:, None, None]
    far = np.arange(VIEW - 1, -1, -1)[None, :, None, None]
    aside = np.arange(-(VIEW // 2), VIEW // 2 + 1)[None, None, :, None]
    places = poses[:, None, None, :2] + far * ahead + aside * right
    row, column = np.clip(places, 0, np.array(cells.shape) - 1).transpose(3, 0, 1, 2)
    return row, column, (places == np.stack([row, column], axis=-1)).all(axis=-1)


def _visible(opaque: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Minigrid's spreading of sight from the agent, row by row and from either side."""
    visible = np.zeros_like(opaque)
    visible[:, -1, VIEW // 2] = True
    for row in reversed(range(VIEW)):
        for columns, side in ((range(VIEW - 1), 1), (range(VIEW - 1, 0, -1), -1)):
            for column in columns:
                through = visible[:, row, column] & ~opaque[:, row, column]
                visible[:, row, column + side] |= through
                if row:
                    visible[:, row - 1, column + side] |= through
                    visible[:, row - 1, column] |= through
    return visible


def _kinds(seen: View) -> NDArray[np.intp]:
    """Kinds of the tiles of a view; the agent's own cell shows the agent and nothing else."""
    kinds = np.where(seen.visible, seen.contents, np.uint8(_UNSEEN)).astype(np.intp)
    kinds[:, -1, VIEW // 2] = _AGENT
    return kinds


def _mosaic(tiles: NDArray[_Pixel]) -> NDArray[_Pixel]:
    """Pictures [N, rows·t, columns·t, C] from their tiles [N, rows, columns, t, t, C]."""
    count, rows, columns, size, _, channels = tiles.shape
    lines = tiles.transpose(0, 1, 3, 2, 4, 5)
    return lines.reshape(count, rows * size, columns * size, channels)


# ---------------------------------------------------------------- one cell

_FINER = 3
"""Tiles are drawn this much finer than they are shown, and averaged."""
_LINE = 0.031
_COLOURS = {WALL: (100, 100, 100), HAZARD: (255, 128, 0), GOAL: (0, 255, 0)}
Inside = Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.bool_]]


@cache
def tile(
    content: int, *, size: int = TILE, agent: int | None = None, highlight: bool = False
) -> NDArray[np.uint8]:
    """One cell, uint8 [size, size, 3], perhaps with an agent in it, with its heading."""
    fine = np.zeros((size * _FINER, size * _FINER, 3), dtype=np.uint8)
    y, x = (np.indices(fine.shape[:2]) + 0.5) / (size * _FINER)
    fine[(x <= _LINE) | (y <= _LINE)] = (100, 100, 100)
    if content != FREE:
        fine[:] = _COLOURS[content]
    if content == HAZARD:
        fine[_waves(x, y)] = (0, 0, 0)
    if agent is not None:
        fine[_triangle(x, y, agent)] = (255, 0, 0)
    if highlight:
        fine = (fine + 0.3 * (255 - fine)).astype(np.uint8)
    parts = fine.reshape(size, _FINER, size, _FINER, 3)
    drawn = parts.mean(axis=3).mean(axis=1).astype(np.uint8)
    drawn.setflags(write=False)
    return drawn


def _waves(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Three zigzag lines of radius 0.03."""
    dark = np.zeros(x.shape, dtype=bool)
    for wave in range(3):
        low, high = 0.3 + 0.2 * wave, 0.4 + 0.2 * wave
        corners = [(0.1, low), (0.3, high), (0.5, low), (0.7, high), (0.9, low)]
        for (x0, y0), (x1, y1) in pairwise(corners):
            length = math.hypot(x1 - x0, y1 - y0)
            ux, uy = (x1 - x0) / length, (y1 - y0) / length
            along = np.clip((x - x0) * ux + (y - y0) * uy, 0, length)
            dark |= np.hypot(x - x0 - along * ux, y - y0 - along * uy) <= 0.03
    return dark


def _triangle(x: NDArray[np.float64], y: NDArray[np.float64], heading: int) -> NDArray[np.bool_]:
    """The agent: corners (0.12, 0.19), (0.87, 0.50), (0.12, 0.81) if it looks east, else turned."""
    for _ in range((heading - HEADINGS.index("E")) % 4):  # turn the pixels back instead
        x, y = y, 1.0 - x
    forward, aside = (x - 0.12) / 0.75, (y - 0.19 - 0.31 * (x - 0.12) / 0.75) / 0.62
    return (forward >= 0) & (aside >= 0) & (forward + aside < 1)
