"""What an agent sees on a grid map: Minigrid's pictures, drawn for all poses at once with NumPy.

The agent sees the 7 × 7 cells in front of it, itself at the middle of the lower edge looking up;
walls hide what is behind them. Pictures are pixel for pixel those of Farama Minigrid 3.2
(`RGBImgPartialObsWrapper`, and `get_frame` for the whole map), whose constants are repeated here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

VIEW = 7
"""The agent sees VIEW × VIEW cells."""
TILE = 8
"""Pixels along the side of a cell in the agent's picture."""
PICTURE = (VIEW * TILE, VIEW * TILE, 3)
"""The shape of what the agent sees."""

EMPTY, WALL, LAVA, GOAL = range(4)
_SYMBOLS = {".": EMPTY, "S": EMPTY, "#": WALL, "L": LAVA, "G": GOAL}
_AHEAD = np.array([(1, 0), (0, 1), (-1, 0), (0, -1)])
"""(x, y) of one step east, south, west, north: directions 0, 1, 2, 3, y pointing down."""
_NORTH = 3

Cells = NDArray[np.int8]
"""What is in each cell, [height, width]."""
Poses = Sequence[tuple[int, int, int]] | NDArray[np.integer]
"""(x, y, direction) of an agent, or of many, [N, 3]."""


class View(NamedTuple):
    """The cells in front of each agent, as it sees them: rows from far to near."""

    contents: NDArray[np.int8]
    """[N, VIEW, VIEW]; beyond the map everything is wall."""
    visible: NDArray[np.bool_]
    """[N, VIEW, VIEW]."""


def cells_of(text: str) -> Cells:
    """The cells of a text map that `AbstractSimulator.from_text_map` accepts."""
    rows = [line.strip() for line in text.split() if line.strip()]
    return np.array([[_SYMBOLS[symbol] for symbol in row] for row in rows], dtype=np.int8)


def view(cells: Cells, poses: Poses, *, see_through_walls: bool = False) -> View:
    """What lies in front of each pose, and whether it can be seen from there."""
    x, y = _in_front(poses)
    height, width = cells.shape
    inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    seen = cells[np.clip(y, 0, height - 1), np.clip(x, 0, width - 1)]
    contents = np.where(inside, seen, np.int8(WALL))
    visible = np.ones_like(inside) if see_through_walls else _visible(contents == WALL)
    return View(contents, visible)


def agent_pictures(
    cells: Cells, poses: Poses, *, see_through_walls: bool = False
) -> NDArray[np.uint8]:
    """What the agent sees from each pose, uint8 [N, 56, 56, 3]."""
    seen = view(cells, poses, see_through_walls=see_through_walls)
    tiles = np.stack(
        [
            *(tile(content, highlight=True) for content in (EMPTY, WALL, LAVA, GOAL)),
            tile(EMPTY),
            tile(EMPTY, agent=_NORTH, highlight=True),
        ]
    )
    return _mosaic(tiles[_kinds(seen)])


def background(cells: Cells, poses: Poses, *, see_through_walls: bool = False) -> NDArray[np.bool_]:
    """Which pixels of the agent's pictures show nothing, bool [N, 56, 56].

    These are all pixels of cells that are empty or cannot be seen, and in the agent's own cell
    those that its triangle does not touch.
    """
    seen = view(cells, poses, see_through_walls=see_through_walls)
    empty = tile(EMPTY, highlight=True)
    around = (tile(EMPTY, agent=_NORTH, highlight=True) == empty).all(axis=-1)
    blank, full = np.ones_like(around), np.zeros_like(around)
    tiles = np.stack([blank, full, full, full, blank, around])[..., None]
    return _mosaic(tiles[_kinds(seen)])[..., 0]


def map_picture(
    cells: Cells,
    pose: tuple[int, int, int],
    *,
    tile_size: int = 32,
    highlight: bool = True,
    see_through_walls: bool = False,
) -> NDArray[np.uint8]:
    """The whole map from above with the agent on it; `highlight` lightens what the agent sees."""
    height, width = cells.shape
    lit = np.zeros((height, width), dtype=bool)
    if highlight:
        x, y = (place[0] for place in _in_front([pose]))
        seen = view(cells, [pose], see_through_walls=see_through_walls).visible[0]
        seen &= (x >= 0) & (x < width) & (y >= 0) & (y < height)
        lit[y[seen], x[seen]] = True
    kinds = 2 * cells.astype(np.intp) + lit
    tiles = [
        tile(content, size=tile_size, highlight=bright)
        for content in (EMPTY, WALL, LAVA, GOAL)
        for bright in (False, True)
    ]
    x, y, direction = (int(part) for part in pose)
    here = tile(int(cells[y, x]), size=tile_size, agent=direction, highlight=bool(lit[y, x]))
    kinds[y, x] = len(tiles)
    return _mosaic(np.stack([*tiles, here])[kinds[None]])[0]


def _in_front(poses: Poses) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Map coordinates x and y, [N, VIEW, VIEW] each, of the cells each agent faces."""
    poses = np.asarray(poses, dtype=np.intp).reshape(-1, 3)
    ahead = _AHEAD[poses[:, 2]][:, None, None]
    right = np.stack([-ahead[..., 1], ahead[..., 0]], axis=-1)
    far = np.arange(VIEW - 1, -1, -1)[None, :, None, None]
    aside = np.arange(-(VIEW // 2), VIEW // 2 + 1)[None, None, :, None]
    places = poses[:, None, None, :2] + far * ahead + aside * right
    return places[..., 0], places[..., 1]


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
    """Tile numbers of a view: its contents, 4 for what is unseen, 5 for the agent itself."""
    kinds = np.where(seen.visible, seen.contents, GOAL + 1).astype(np.intp)
    kinds[:, -1, VIEW // 2] = GOAL + 2
    return kinds


def _mosaic(tiles: NDArray) -> NDArray:  # type: ignore[type-arg]
    """Pictures [N, rows·t, columns·t, C] from their tiles [N, rows, columns, t, t, C]."""
    count, rows, columns, size, _, channels = tiles.shape
    lines = tiles.transpose(0, 1, 3, 2, 4, 5)
    return lines.reshape(count, rows * size, columns * size, channels)


# ---------------------------------------------------------------- one cell

_FINER = 3
"""Tiles are drawn this much finer than they are shown, and averaged."""
_LINE = 0.031
_COLOURS = {WALL: (100, 100, 100), LAVA: (255, 128, 0), GOAL: (0, 255, 0)}
Inside = Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.bool_]]


@cache
def tile(
    content: int, *, size: int = TILE, agent: int | None = None, highlight: bool = False
) -> NDArray[np.uint8]:
    """One cell, uint8 [size, size, 3], perhaps with an agent in it that looks in a direction."""
    fine = np.zeros((size * _FINER, size * _FINER, 3), dtype=np.uint8)
    y, x = (np.indices(fine.shape[:2]) + 0.5) / (size * _FINER)
    fine[(x <= _LINE) | (y <= _LINE)] = (100, 100, 100)
    if content != EMPTY:
        fine[:] = _COLOURS[content]
    if content == LAVA:
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
        for (x0, y0), (x1, y1) in zip(corners, corners[1:], strict=False):
            length = math.hypot(x1 - x0, y1 - y0)
            ux, uy = (x1 - x0) / length, (y1 - y0) / length
            along = np.clip((x - x0) * ux + (y - y0) * uy, 0, length)
            dark |= np.hypot(x - x0 - along * ux, y - y0 - along * uy) <= 0.03
    return dark


def _triangle(x: NDArray[np.float64], y: NDArray[np.float64], direction: int) -> NDArray[np.bool_]:
    """The agent: corners (0.12, 0.19), (0.87, 0.50), (0.12, 0.81) if it looks east, else turned."""
    for _ in range(direction % 4):  # a quarter turn of the agent is one back of the pixels
        x, y = y, 1.0 - x
    forward, aside = (x - 0.12) / 0.75, (y - 0.19 - 0.31 * (x - 0.12) / 0.75) / 0.62
    return (forward >= 0) & (aside >= 0) & (forward + aside < 1)
