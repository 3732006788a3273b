"""Lava crossing (section 5 of the paper): a grid world seen through noisy pictures.

A short route runs beside lava, a long one keeps clear of it. The agent has a position and a heading
and sees a picture of the 7 × 7 cells in front of it; where nothing is to be seen, there is noise.
The paper's map is lost: this one is made so that plans for η = 0 and for η ≥ 0.0125 differ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np

from tasid.maps import AbstractSimulator, perturb
from tasid.maps.layout import GridLayout
from tasid.maps.size import is_whole
from tasid.targets.block import BlockMDP, block_mdp, looks_of, plain_options
from tasid.targets.device import on_device
from tasid.targets.worlds.counter_hash import random_bits
from tasid.targets.worlds.grid_view import PICTURE, agent_pictures, background, poses_of
from tasid.targets.worlds.route import ROUTE_ETA, layout_of, robust_horizon

NAME = "lava-crossing"
LEAST_WIDTH, LEAST_HEIGHT = 7, 10
DARKEST, LIGHTEST = 50, 150
"""Noise is a whole number between these, both included."""
_LARGEST = 10_000
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
_NARROWS = "##...##"
_LANDMARKS = ("#.....#", "##....#", "#....##")
_DOCKS = ((4, 1), (2, 1), (8, 1), (8, 5), (6, 1), (6, 5))
"""Docking stations, (row, column): the first is where a lone start is."""


def lava_crossing(
    *,
    height: int = 11,
    width: int = 7,
    eta: float = 0.1,
    noise: bool = True,
    text_map: str | None = None,
    horizon: int | None = None,
    see_through_walls: bool = False,
    per_step: bool = True,
    starts: int | None = None,
    seed: int = 0,
) -> BlockMDP:
    """A lava crossing whose perturbation is drawn from `seed`.

    `text_map` replaces the map of the given height and width; the agent starts out looking east.
    Without a `horizon` it is three times the steps of the robust plan's route. `per_step`: the
    perturbation differs from step to step, as in the paper. With several `starts` an episode begins
    at any of so many docking stations, all equally likely; a `text_map` has as many as it has 'S'.
    """
    options = plain_options(lava_crossing, locals())
    del options["starts"]
    docks = 1 if starts is None else starts
    text = lava_map(height=height, width=width, starts=docks) if text_map is None else text_map
    sim = lava_simulator(text, horizon=horizon)
    if starts is not None and sim.starts.size != starts:
        raise ValueError(f"starts: {starts} given, but the map has {sim.starts.size} 'S'")
    if text_map is None and docks > 1:
        options["starts"] = docks
    world = perturb(sim, eta=eta, seed=seed, per_step=per_step)
    emission = picture_emission(
        layout_of(sim), noise=bool(noise), see_through_walls=bool(see_through_walls)
    )
    return block_mdp(NAME, options, world, emission)


def lava_map(*, height: int = 11, width: int = 7, starts: int = 1) -> str:
    """The map as text: taller ones go on below in rows that can be told apart.

    Without those landmarks a turn with a step looks like a turn without when facing a far wall.
    Wider maps repeat the middle column, which does no harm up to 10; beyond that, so much looks
    alike that even a perfect model gets lost.
    """
    for name, size, least in (("height", height, LEAST_HEIGHT), ("width", width, LEAST_WIDTH)):
        if not is_whole(size) or size < least:
            raise ValueError(f"{name}: {size!r} is not a whole number of {least} cells or more")
        if size > _LARGEST:
            raise ValueError(f"{name}: {size} is above {_LARGEST} cells")
    if isinstance(starts, bool) or starts not in range(1, len(_DOCKS) + 1):
        raise ValueError(f"starts: {starts!r} is not in 1 … {len(_DOCKS)}, as many as have a dock")
    landmarks = [_LANDMARKS[row % 3] for row in range(10, height - 1)]
    below = [_NARROWS, *landmarks] if height > LEAST_HEIGHT else []
    rows = [*_TOP, *below, "#" * LEAST_WIDTH]
    for row, column in _DOCKS[:starts]:
        rows[row] = rows[row][:column] + "S" + rows[row][column + 1 :]
    middle = LEAST_WIDTH // 2
    return "\n".join(row[:middle] + row[middle] * (width - 6) + row[middle + 1 :] for row in rows)


def lava_simulator(text: str, *, horizon: int | None = None) -> AbstractSimulator:
    """All poses of a text map, the five actions between them, and the horizon by the paper's rule.

    The rule does not look at the target's η, so that one map has one horizon.
    """
    # There are fewer poses than this, so none is too far to be part of the map.
    far = AbstractSimulator.from_text_map(text, horizon=4 * len(text), moves="turn")
    if horizon is None:
        horizon = robust_horizon(far, first=1, longest=far.horizon)
    if horizon is None:
        raise ValueError(
            f"horizon: none given, and the robust plan for η = {ROUTE_ETA} has no route to a goal "
            "to choose it by; give one"
        )
    return far.with_horizon(horizon)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PictureEmission:
    """x = the picture of the state, uint8 [56, 56, 3], with noise where it shows nothing."""

    look: jax.Array
    """Which picture each state looks like, int32 [S]; states with one number look alike."""
    pictures: jax.Array
    """uint8 [pictures, 56, 56, 3]; with noise, 0 marks pixels that are drawn anew every time."""
    noise: bool = field(metadata={"static": True})

    shape = PICTURE

    def __call__(self, key: jax.Array, state: jax.Array) -> jax.Array:
        picture = self.pictures[self.look[state]]
        return jnp.where(picture == 0, pixel_noise(key), picture) if self.noise else picture


def picture_emission(
    layout: GridLayout, *, noise: bool = True, see_through_walls: bool = False
) -> PictureEmission:
    """What the agent sees in every state of a map."""
    poses = poses_of(layout)
    pictures = agent_pictures(layout.cells, poses, see_through_walls=see_through_walls)
    if noise:
        # Pixels that are seen are never 0: Minigrid lightens them.
        blank = background(layout.cells, poses, see_through_walls=see_through_walls)
        pictures[blank] = 0
    look = looks_of(pictures)
    _, first = np.unique(look, return_index=True)
    return PictureEmission(on_device(look), on_device(pictures[first]), noise)


def pixel_noise(key: jax.Array) -> jax.Array:
    """Whole numbers in [50, 150], uint8 [56, 56, 3]: a pure function of the key, and cheap.

    Number i of the upper half of the picture and of the lower half share 32 bits. Either scales 16
    of them to 101 values, which are hit 648 or 649 times each.
    """
    bits = random_bits(key, math.prod(PICTURE) // 2)
    span = jnp.uint32(LIGHTEST - DARKEST + 1)
    halves = [(half * span) >> 16 for half in (bits & jnp.uint32(0xFFFF), bits >> 16)]
    rows, columns, channels = PICTURE
    shape = (rows // 2, columns, channels)
    drawn = [half.astype(jnp.uint8) + jnp.uint8(DARKEST) for half in halves]
    return jnp.concatenate([half.reshape(shape) for half in drawn])
