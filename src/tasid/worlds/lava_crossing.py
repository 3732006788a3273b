"""The lava crossing (section 5 of the paper): a grid world with noisy pictures as observations.

A short route leads along lava, a long one stays clear of it. The agent has a position and a heading
and observes a picture of the 7 × 7 cells in front of it. Pixels of empty and of hidden cells are
replaced by noise. The paper's map is lost; this one has the property that its text asks for: the
plan for η = 0 takes the short route, plans for η ≥ 0.0125 take the long one.

Pictures are those of Farama Minigrid (`RGBImgPartialObsWrapper` with tiles of 8 pixels), pixel for
pixel; Minigrid draws the tiles, and NumPy composes them for all poses at once.

Maps taller than 11 cells paint the outer walls: each row has colours of its own, so that every pose
of a map 7 cells wide has its own picture and the map is a block MDP. With
`landmarks="repeating"` tall maps have unpainted walls whose shape repeats every three rows instead:
distant poses then look alike.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tasid.layout import FREE, WALL, GridLayout
from tasid.planning import perturb
from tasid.simulator import AbstractSimulator
from tasid.sources.grid import COMPASS
from tasid.storage import plain_json
from tasid.targets.block import BlockMDP, on_device
from tasid.worlds import ROUTES, check_options, random_bits, robust_horizon

NAME = "lava-crossing"
MIN_WIDTH, MIN_HEIGHT, MAX_SIZE = 7, 10, 10_000
LANDMARKS = ("distinct", "repeating")
NOISE = (50, 150)
"""Smallest and largest level of a noisy pixel."""
VIEW, TILE = 7, 8
"""The agent observes VIEW × VIEW cells of TILE × TILE pixels."""
PICTURE = (VIEW * TILE, VIEW * TILE, 3)
"""Shape of an observation."""
HIDDEN, AGENT, PAINTED = 4, 5, 6
"""Tiles after FREE, WALL, HAZARD and GOAL (0 … 3); from PAINTED on: walls of each colour."""
COLORS = ("red", "green", "blue", "purple", "yellow")
"""Minigrid's colours of painted walls."""
_TOP = """\
#######
##LLL##
#.....#
#.LLL.#
#S.L.G#
#..L..#
#..L..#
#.....#
#.....#""".splitlines()
_NARROW = "##...##"
_REPEATING = ("#.....#", "##....#", "#....##")
_DOCKS = ((4, 1), (2, 1), (8, 1), (8, 5), (6, 1), (6, 5))
"""Row and column of the starts; a single start is the first."""


def lava_crossing(
    *,
    height: int = 11,
    width: int = 7,
    eta: float = 0.1,
    noise: bool = True,
    text_map: str | None = None,
    horizon: int | None = None,
    per_step: bool = True,
    starts: int | None = None,
    landmarks: str = "distinct",
    seed: int = 0,
) -> BlockMDP:
    """A lava crossing whose perturbation is drawn from `seed`.

    Parameters
    ----------
    height, width
        Size of the map in cells, border included.
    eta, per_step
        Largest probability of a slip; whether slips differ from step to step, as in the paper.
    noise
        Replace pixels of empty and hidden cells by noise.
    text_map
        A map to use instead, as in `AbstractSimulator.from_text_map`; agents start facing east.
    horizon
        Three times the route of the robust plan by default.
    starts
        Number of docks where episodes begin, all equally likely; with `text_map`, its 'S'.
    landmarks
        "distinct" or "repeating" rows of maps taller than 11, see the module's text.
    """
    options = plain_json(locals(), NAME)
    sizes = {"height": (MIN_HEIGHT, MAX_SIZE), "width": (MIN_WIDTH, MAX_SIZE)}
    check_options(options, sizes, {"landmarks": LANDMARKS})
    text = text_map
    if text is None:
        text = lava_map(height=height, width=width, starts=starts or 1, landmarks=landmarks)
    sim = lava_simulator(text, horizon=horizon)
    if starts is not None and sim.starts.size != starts:
        raise ValueError(f"starts: {starts}, but the map has {sim.starts.size} 'S'")
    assert sim.layout is not None
    painted = text_map is None and landmarks == "distinct" and height > 11
    tiles = paint_walls(sim.layout.cells) if painted else sim.layout.cells
    emission = picture_emission(sim.layout, tiles, noise=bool(noise))
    world = perturb(sim, eta=eta, seed=seed, per_step=bool(per_step))
    return BlockMDP(world, emission, name=NAME, options=options)


def lava_map(
    *, height: int = 11, width: int = 7, starts: int = 1, landmarks: str = "distinct"
) -> str:
    """The map as text. Wider maps repeat the middle column.

    Beyond a width of 10, too many poses look alike for a classifier of single observations.
    """
    if not 1 <= starts <= len(_DOCKS):
        raise ValueError(f"starts: {starts} is not in 1 … {len(_DOCKS)}, the number of docks")
    shapes = _REPEATING if landmarks == "repeating" else ("#.....#",)
    rows = [*_TOP, _NARROW, *(shapes[row % len(shapes)] for row in range(10, height - 1))]
    rows = [*rows[: height - 1], "#" * MIN_WIDTH]
    for row, column in _DOCKS[:starts]:
        rows[row] = rows[row][:column] + "S" + rows[row][column + 1 :]
    return "\n".join(row[:3] + row[3] * (width - 6) + row[4:] for row in rows)


def lava_simulator(text: str, *, horizon: int | None = None) -> AbstractSimulator:
    """All poses of a text map and the five actions between them."""
    sim = AbstractSimulator.from_text_map(text, horizon=horizon, moves="turn")
    if horizon is not None:
        return sim
    # There are at most 4 · len(text) poses, and a route visits none of them twice.
    return sim.with_horizon(robust_horizon(sim, shortest=1, longest=8 * ROUTES * len(text)))


def paint_walls(cells: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Tiles of the map with colours on its western and eastern wall.

    All runs of w colours on the western wall read upward and on the eastern wall read downward
    differ: an agent that faces one wall, or walks along it, cannot confuse two rows.
    """
    rows, rng = len(cells), np.random.default_rng(7)
    window = math.ceil(math.log(6 * rows, len(COLORS)))
    colors: list[int] = [0] * window
    used = {tuple(colors)}
    while len(colors) < 2 * rows:
        last = tuple(colors[1 - window :])
        unused = (c for c in rng.permutation(len(COLORS)).tolist() if (*last, c) not in used)
        colors.append(next(unused))
        used.add((*last, colors[-1]))
    tiles = cells.copy()
    tiles[1:-1, 0] = PAINTED + np.array(colors[:rows], np.uint8)[-2:0:-1]
    tiles[1:-1, -1] = PAINTED + np.array(colors[rows:], np.uint8)[1:-1]
    return tiles


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PictureEmission:
    """x = the picture of the state, uint8 [56, 56, 3], with noise where it shows nothing."""

    picture_of: jax.Array
    """Index of each state's picture, int32 [S]; states with one index look alike."""
    pictures: jax.Array
    """uint8 [pictures, 56, 56, 3]; with noise, 0 marks the pixels that are drawn every time."""
    noise: bool = field(metadata={"static": True})

    shape = PICTURE
    dtype = "uint8"
    bounds = (0, 255)

    def __call__(self, keys: jax.Array, states: jax.Array, circumstances: Any) -> jax.Array:
        if not self.noise:
            return self.pictures[self.picture_of[states]]
        halves = self.pictures.reshape(len(self.pictures), 2, -1)[self.picture_of[states]]
        # Each half on its own: XLA would not vectorise a choice behind their concatenation.
        noisy = [
            jnp.where(halves[:, i] == 0, noise, halves[:, i])
            for i, noise in enumerate(pixel_noise(keys))
        ]
        return jnp.stack(noisy, axis=1).reshape(-1, *PICTURE)


def pixel_noise(keys: jax.Array) -> list[jax.Array]:
    """Integers in [50, 150] for each key [n]: upper and lower half of a picture, uint8 [n, 4704].

    The halves share 32 random bits per number: 16 bits are scaled to 101 levels, each of which has
    648 or 649 of the 65 536 values.
    """
    low, high = NOISE
    bits = random_bits(keys, math.prod(PICTURE) // 2)
    parts = [bits & jnp.uint32(0xFFFF), bits >> 16]
    levels = [(part * jnp.uint32(high - low + 1)) >> 16 for part in parts]
    return [level.astype(jnp.uint8) + jnp.uint8(low) for level in levels]


def picture_emission(
    layout: GridLayout, tiles: NDArray[np.uint8], *, noise: bool
) -> PictureEmission:
    """Pictures of every state of a map with poses."""
    assert layout.headings is not None
    poses = np.column_stack([layout.positions, layout.headings])
    views = agent_views(tiles, poses)
    if noise:
        views[views == HIDDEN] = FREE  # noise covers both
    distinct, picture_of = np.unique(views.reshape(len(views), -1), axis=0, return_inverse=True)
    pictures = compose(distinct.reshape(-1, VIEW, VIEW), blank=noise)
    return PictureEmission(on_device(picture_of.ravel(), np.int32), on_device(pictures), noise)


def agent_views(tiles: NDArray[np.uint8], poses: NDArray[np.integer]) -> NDArray[np.uint8]:
    """Tiles in front of poses (row, column, heading) [N, 3]: [N, VIEW, VIEW], rows far to near.

    The agent is at the centre of the last row and looks up. Outside of the map is wall.
    """
    poses = np.asarray(poses, np.intp)
    ahead, right = (np.array(COMPASS)[(poses[:, 2] + turn) % 4][:, None, None] for turn in (0, 1))
    far = np.arange(VIEW - 1, -1, -1)[:, None, None]
    aside = np.arange(-(VIEW // 2), VIEW // 2 + 1)[None, :, None]
    places = poses[:, None, None, :2] + far * ahead + aside * right
    inside = np.clip(places, 0, np.array(tiles.shape) - 1)
    views = tiles[inside[..., 0], inside[..., 1]]
    views[(places != inside).any(axis=-1)] = WALL
    views[~_visible((views != WALL) & (views < PAINTED))] = HIDDEN
    views[:, -1, VIEW // 2] = AGENT
    return views


def _visible(clear: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Minigrid's rule: visibility spreads from the agent through clear cells, row by row."""
    visible = np.zeros_like(clear)
    visible[:, -1, VIEW // 2] = True
    for row in reversed(range(VIEW)):
        for columns, side in ((range(VIEW - 1), 1), (range(VIEW - 1, 0, -1), -1)):
            for column in columns:
                through = visible[:, row, column] & clear[:, row, column]
                visible[:, row, column + side] |= through
                if row:
                    visible[:, row - 1, column + side] |= through
                    visible[:, row - 1, column] |= through
    return visible


def compose(views: NDArray[np.uint8], *, blank: bool = False) -> NDArray[np.uint8]:
    """Pictures [N, 56, 56, 3] of views [N, VIEW, VIEW].

    With `blank`, pixels are 0 where they show nothing: in empty and hidden cells and in the agent's
    cell around its triangle. Other pixels are never 0, since Minigrid lightens visible cells.
    """
    atlas = minigrid_tiles()
    if blank:
        nothing = np.zeros((*atlas.shape[:3], 1), bool)
        nothing[[FREE, HIDDEN]] = True
        nothing[AGENT] = (atlas[AGENT] == atlas[FREE]).all(axis=-1, keepdims=True)
        atlas = np.where(nothing, np.uint8(0), atlas)
    return atlas[views].transpose(0, 1, 3, 2, 4, 5).reshape(-1, *PICTURE)


@cache
def minigrid_tiles() -> NDArray[np.uint8]:
    """Minigrid's pictures of all tiles, uint8 [tiles, TILE, TILE, 3]."""
    from minigrid.core.grid import Grid
    from minigrid.core.world_object import Goal, Lava, Wall

    def draw(content: Any, agent: int | None = None, highlight: bool = True) -> NDArray[Any]:
        return Grid.render_tile(content, agent_dir=agent, highlight=highlight, tile_size=TILE)

    visible = [draw(content) for content in (None, Wall(), Lava(), Goal())]  # type: ignore[no-untyped-call]
    hidden, agent = draw(None, highlight=False), draw(None, agent=3)
    return np.stack([*visible, hidden, agent, *(draw(Wall(c)) for c in COLORS)]).astype(np.uint8)
