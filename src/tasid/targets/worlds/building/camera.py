"""What a camera sees: walls whose colours differ along them, floor, ceiling, stairs and people.

Every column of the picture is one ray. A picture's row has its three colours side by side, 192
numbers: so everything is a product or a choice of columns and rows, which compilers do fast.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tasid.targets.worlds.building.episode import BuildingEpisode
from tasid.targets.worlds.building.pose import DRAWS, Stand, Whereabouts, to_somebody
from tasid.targets.worlds.counter_hash import mixed, random_bits

SIDE = 64
PICTURE = (SIDE, SIDE, 3)
NOISE_WORDS = SIDE * SIDE * 3 // 4
_FAR = 40.0
_EYE, _CEILING = 1.0, 2.6
"""Metres above the floor; the field of view is a right angle."""
_HAZE = 0.12
"""How fast things get darker with distance, per metre."""
_PATCH, _OFFSET = 1.5, 0.35
"""A wall has one colour for so many metres; the offset keeps patches from ending in walls."""
_POSTER, _SKIRTING = (1.1, 1.8), 0.15
_FLOOR, _TOP = np.array([112.0, 104.0, 92.0]), np.array([206.0, 208.0, 204.0])
_STRIPE = np.array([196.0, 160.0, 40.0])
_TILE, _STEP = 0.8, 0.35
_ROWS = 16
"""Drawn at a time."""
_GRAIN = 20
"""Sensor noise is uniform, so many levels wide."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class CameraEmission:
    """x = a picture, uint8 [64, 64, 3], of what is in front of the robot."""

    whereabouts: Whereabouts
    stairs: jax.Array
    """Hazards on the floor as x, y, x, y in pixels, float32 [n, 4]."""

    shape = PICTURE

    def __call__(self, key: jax.Array, state: jax.Array, episode: BuildingEpisode) -> jax.Array:
        bits = random_bits(key, DRAWS + NOISE_WORDS)
        stand = self.whereabouts.stand(bits[:DRAWS], state)
        return self.picture(stand, bits[DRAWS:], episode)

    def picture(self, stand: Stand, bits: jax.Array, episode: BuildingEpisode) -> jax.Array:
        """The picture at a point, with the numbers [NOISE_WORDS] that make its grain.

        It is drawn a few rows at a time. The loop is there for what is worked out before it: a
        compiler would otherwise work columns out again for every pixel, which takes ten times as
        long.
        """
        blocks = SIDE // _ROWS
        # Four levels of grain from the four bytes of each number.
        grain = jax.lax.bitcast_convert_type(bits, jnp.uint8).reshape(blocks, _ROWS, 3 * SIDE)
        down = jnp.asarray(_slopes().reshape(blocks, _ROWS, 1), jnp.float32)
        columns = self._columns(stand, episode)

        def drawn(given: tuple[jax.Array, jax.Array], ground: bool) -> jax.Array:
            down, grain = given
            clean = self._rows(columns, stand, episode, down, ground)
            offset = ((grain.astype(jnp.int32) - 128) * _GRAIN) >> 8
            return jnp.clip(clean.astype(jnp.int32) + offset, 0, 255).astype(jnp.uint8)

        half = blocks // 2
        upper = jax.lax.map(partial(drawn, ground=False), (down[:half], grain[:half]))
        lower = jax.lax.map(partial(drawn, ground=True), (down[half:], grain[half:]))
        return jnp.concatenate([upper, lower]).reshape(PICTURE)

    def _rows(
        self,
        columns: tuple[jax.Array, ...],
        stand: Stand,
        episode: BuildingEpisode,
        down: jax.Array,
        ground: bool,
    ) -> jax.Array:
        """The rows with these slopes [n, 1] downward; only some of them can see the ground."""
        depth, plain, poster, edge, near, coat, light = columns
        height = _EYE - down * depth
        hung = (height > _POSTER[0]) & (height < edge)
        seen = jnp.where(hung, poster, jnp.where(height < _SKIRTING, 0.55 * plain, plain))
        if ground:
            seen = jnp.where(height < 0.0, self._ground(stand, down), seen)
        else:
            top = _coloured(_TOP) / (1.0 + _HAZE * (_CEILING - _EYE) / -down)
            seen = jnp.where(height > _CEILING, top, seen)
        figure = _EYE - down * near
        return jnp.where((figure > 0.0) & (figure < episode.height), coat, seen * light)

    def _columns(self, stand: Stand, episode: BuildingEpisode) -> tuple[jax.Array, ...]:
        """All that is the same from top to bottom, each [1, 192]."""
        aside = jnp.asarray(_slopes(), jnp.float32)
        stretch = jnp.asarray(np.sqrt(1.0 + _slopes() ** 2), jnp.float32)
        dx = (stand.ahead_x + aside * stand.ahead_y) / stretch
        dy = (stand.ahead_y - aside * stand.ahead_x) / stretch
        pixel = self.whereabouts.pixel
        hits = self.whereabouts.cast(stand, dx, dy, _FAR)
        depth = hits.distance * (pixel / stretch)
        x, y = (
            (start + hits.distance * step) * pixel for start, step in ((stand.x, dx), (stand.y, dy))
        )
        plain, poster, hung = _wall(x, y)
        shade = (jnp.where(hits.across, 0.85, 1.0) / (1.0 + _HAZE * depth))[:, None]
        near = to_somebody(stand, episode, dx, dy) * (pixel / stretch)
        # Behind a wall, or nowhere: so near that no row is low enough to meet it.
        near = jnp.where(near < depth, jnp.maximum(near, 0.05), -1e9)
        worn = (episode.clothes * episode.light)[None]
        coat = worn / (1.0 + _HAZE * jnp.maximum(near, 0.0))[:, None]
        return (
            _thrice(depth),
            (plain * shade).reshape(1, -1),
            (poster * shade).reshape(1, -1),
            _thrice(jnp.where(hung, _POSTER[1], _POSTER[0])),
            _thrice(near),
            coat.reshape(1, -1),
            jnp.tile(episode.light, SIDE)[None],
        )

    def _ground(self, stand: Stand, down: jax.Array) -> jax.Array:
        """The floor: tiles, and stripes where it goes down."""
        depth = _EYE / down
        side = jnp.asarray(_slopes().repeat(3)[None], jnp.float32)
        pixel = self.whereabouts.pixel
        x = stand.x * pixel + depth * (stand.ahead_x + side * stand.ahead_y)
        y = stand.y * pixel + depth * (stand.ahead_y - side * stand.ahead_x)
        odd = _parity(x * (1 / _TILE)) ^ _parity(y * (1 / _TILE))
        floor = _coloured(_FLOOR) * jnp.where(odd, 1.14, 0.86)
        if self.stairs.shape[0]:
            stripe = _coloured(_STRIPE) * jnp.where(_parity((x + y) * (1 / _STEP)), 1.0, 0.25)
            inside = jnp.zeros(x.shape, bool)
            for zone in range(self.stairs.shape[0]):
                west, low, east, high = self.stairs[zone] * pixel
                inside = inside | ((x > west) & (x < east) & (y > low) & (y < high))
            floor = jnp.where(inside, stripe, floor)
        return floor / (1.0 + _HAZE * depth)


def _slopes() -> NDArray[np.float64]:
    """Of columns to the right and rows downward, at a depth of 1."""
    middle = SIDE / 2
    return (np.arange(SIDE, dtype=np.float64) + (0.5 - middle)) / middle


def _thrice(columns: jax.Array) -> jax.Array:
    """One value for each colour of a column, [1, 192]."""
    return jnp.broadcast_to(columns[:, None], (SIDE, 3)).reshape(1, 3 * SIDE)


def _coloured(colour: NDArray[np.float64]) -> jax.Array:
    """The same colour in every column, [1, 192]."""
    return jnp.asarray(np.tile(colour, SIDE)[None], jnp.float32)


def _parity(at: jax.Array) -> jax.Array:
    """Is the whole number below odd?"""
    return (jnp.floor(at).astype(jnp.int32) & 1) == 1


def _wall(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Colours [64, 3] of wall and poster at points in metres, and where a poster hangs [64]."""
    column, row = (
        jnp.floor((at - _OFFSET) / _PATCH).astype(jnp.int32).astype(jnp.uint32) for at in (x, y)
    )
    bits = mixed(column * jnp.uint32(0x85EBCA6B) + row * jnp.uint32(0xC2B2AE35), jnp.uint32(1))
    more = mixed(bits, jnp.uint32(2))
    plain = jnp.stack([96.0 + 0.45 * _byte(bits, n) for n in range(3)], axis=1)
    along = (x + y) * (1.0 + 3.0 * _byte(bits, 3) / 255.0)
    wave = jnp.abs(along - jnp.floor(along) - 0.5)
    poster = jnp.stack([20.0 + 0.85 * _byte(more, n) for n in range(3)], axis=1)
    return plain * (0.88 + 0.24 * wave)[:, None], poster, _byte(more, 3) < 90.0


def _byte(bits: jax.Array, number: int) -> jax.Array:
    return ((bits >> (8 * number)) & jnp.uint32(255)).astype(jnp.float32)
