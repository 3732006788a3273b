"""What an agent sees on a grid map: Minigrid's pictures, drawn for all poses at once with NumPy.

The agent sees the 7 × 7 cells in front of it, itself at the middle of the lower edge looking up;
walls hide what is behind them. Pictures are pixel for pixel those of Farama Minigrid
(`RGBImgPartialObsWrapper`), which draws the tiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from tasid.maps.layout import FREE, WALL, GridLayout
from tasid.maps.sources.grid import COMPASS

VIEW = 7
"""The agent sees VIEW × VIEW cells."""
TILE = 8
"""Pixels along the side of a cell in the agent's picture."""
PICTURE = (VIEW * TILE, VIEW * TILE, 3)
"""The shape of what the agent sees."""

_UNSEEN, _AGENT = 4, 5
"""Kinds of tiles beyond the contents FREE, WALL, HAZARD and GOAL, which number 0 … 3."""
_LOOKS_UP = 3
"""An agent's heading, as Minigrid counts."""
_AHEAD = np.array(COMPASS[::2])
"""(row, column) of one step north, east, south, west: the order of `HEADINGS`."""

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
    poses = np.asarray(poses, dtype=np.intp).reshape(-1, 3)
    ahead = _AHEAD[poses[:, 2]][:, None, None]
    right = _AHEAD[(poses[:, 2] + 1) % 4][:, None, None]
    far = np.arange(VIEW - 1, -1, -1)[None, :, None, None]
    aside = np.arange(-(VIEW // 2), VIEW // 2 + 1)[None, None, :, None]
    places = poses[:, None, None, :2] + far * ahead + aside * right
    nearest = np.clip(places, 0, np.array(cells.shape) - 1)
    inside = (places == nearest).all(axis=-1)
    contents = np.where(inside, cells[tuple(np.moveaxis(nearest, -1, 0))], np.uint8(WALL))
    visible = np.ones_like(inside) if see_through_walls else _visible(contents == WALL)
    return View(contents, visible)


def agent_pictures(
    cells: Cells, poses: Poses, *, see_through_walls: bool = False
) -> NDArray[np.uint8]:
    """What the agent sees from each pose, uint8 [N, 56, 56, 3]."""
    return _mosaic(_tiles()[_kinds(view(cells, poses, see_through_walls=see_through_walls))])


def background(cells: Cells, poses: Poses, *, see_through_walls: bool = False) -> NDArray[np.bool_]:
    """Which pixels of the agent's pictures show nothing, bool [N, 56, 56].

    These are all pixels of cells that are empty or cannot be seen, and in the agent's own cell
    those that its triangle does not touch.
    """
    seen = view(cells, poses, see_through_walls=see_through_walls)
    around = (_tiles()[_AGENT] == _tiles()[FREE]).all(axis=-1)
    blank, full = np.ones_like(around), np.zeros_like(around)
    tiles = np.stack([blank, full, full, full, blank, around])[..., None]
    return _mosaic(tiles[_kinds(seen)])[..., 0]


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


@cache
def _tiles() -> NDArray[np.uint8]:
    """Minigrid's own, of all kinds in order, uint8 [6, TILE, TILE, 3]."""
    from minigrid.core.grid import Grid
    from minigrid.core.world_object import Goal, Lava, Wall

    def drawn(content: Any, agent: int | None = None, highlight: bool = True) -> NDArray[Any]:
        return Grid.render_tile(content, agent_dir=agent, highlight=highlight, tile_size=TILE)

    things: tuple[Any, ...] = (Wall, Lava, Goal)
    seen = [drawn(None), *(drawn(thing()) for thing in things)]
    unseen, agent = drawn(None, highlight=False), drawn(None, agent=_LOOKS_UP)
    return np.stack([*seen, unseen, agent]).astype(np.uint8)
