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

from tasid.envs.building_episode import Episode
from tasid.envs.building_pose import DRAWS, Stand, Whereabouts, to_somebody
from tasid.envs.counter_hash import mixed, random_bits

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
_GRAIN = 20
"""Sensor noise is uniform, so many levels wide."""


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["whereabouts", "stairs"],
    meta_fields=["grain"],
)
@dataclass(frozen=True)
class CameraEmission:
    """x = a picture, uint8 [64, 64, 3], of what is in front of the robot."""

    whereabouts: Whereabouts
    stairs: jax.Array
    """Hazards on the floor as x, y, x, y in pixels, float32 [n, 4]."""
    grain: int = _GRAIN

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one observation."""
        return PICTURE

    def __call__(self, key: jax.Array, state: jax.Array, episode: Episode) -> jax.Array:
        """Draw x ~ q(· | state) in this episode."""
        bits = random_bits(key, DRAWS + NOISE_WORDS)
        stand = self.whereabouts.stand(bits[:DRAWS], state)
        return self.picture(stand, bits[DRAWS:], episode)

    def picture(self, stand: Stand, bits: jax.Array, episode: Episode) -> jax.Array:
        """The picture at a point, with the numbers [NOISE_WORDS] that make its grain."""
        clean = self.clean(stand, episode)
        # Four levels of grain from the four bytes of each number.
        grain = jax.lax.bitcast_convert_type(bits, jnp.uint8).reshape(SIDE, 3 * SIDE)
        offset = ((grain.astype(jnp.int32) - 128) * self.grain) >> 8
        seen = clean.astype(jnp.int32) + offset
        return jnp.clip(seen, 0, 255).astype(jnp.uint8).reshape(PICTURE)

    def clean(self, stand: Stand, episode: Episode) -> jax.Array:
        """Without grain, float32 [64, 192]."""
        aside = jnp.asarray(_slopes(), jnp.float32)
        stretch = jnp.asarray(np.sqrt(1.0 + _slopes() ** 2), jnp.float32)
        dx = (stand.ahead_x + aside * stand.ahead_y) / stretch
        dy = (stand.ahead_y - aside * stand.ahead_x) / stretch
        pixel = self.whereabouts.pixel
        hits = self.whereabouts.cast(stand, dx, dy, _FAR)
        depth = hits.distance * (pixel / stretch)
        x, y = (
            (start + hits.distance * step) * pixel
            for start, step in ((stand.x, dx), (stand.y, dy))
        )
        plain, poster, hung = _wall(x, y)
        shade = jnp.where(hits.across, 0.85, 1.0) / (1.0 + _HAZE * depth)
        down = jnp.asarray(_slopes(), jnp.float32)[:, None]
        height = _EYE - down * _thrice(depth)
        lit = jnp.tile(episode.light, SIDE)[None]
        on_wall = jnp.where(
            (height > _POSTER[0]) & (height < _POSTER[1]) & _thrice(hung),
            _by_colour(poster, shade),
            _by_colour(plain, shade) * jnp.where(height < _SKIRTING, 0.55, 1.0),
        )
        seen = jnp.where(
            height < 0.0,
            self._ground(stand, aside, down),
            jnp.where(height > _CEILING, _above(down), on_wall),
        )
        return self._somebody(seen, stand, episode, (dx, dy, stretch), depth, down) * lit

    def _ground(self, stand: Stand, aside: jax.Array, down: jax.Array) -> jax.Array:
        """The floor: tiles, and stripes where it goes down."""
        depth = _EYE / jnp.maximum(down, 1e-3)
        pixel, side = self.whereabouts.pixel, _thrice(aside)
        x = stand.x * pixel + depth * (stand.ahead_x + side * stand.ahead_y)
        y = stand.y * pixel + depth * (stand.ahead_y - side * stand.ahead_x)
        odd = (jnp.floor(x / _TILE) + jnp.floor(y / _TILE)) % 2.0
        floor = jnp.tile(jnp.asarray(_FLOOR, jnp.float32), SIDE)[None] * (0.86 + 0.28 * odd)
        steps = jnp.floor((x + y) / _STEP) % 2.0
        stripe = jnp.tile(jnp.asarray(_STRIPE, jnp.float32), SIDE)[None] * (0.25 + 0.75 * steps)
        for zone in range(self.stairs.shape[0]):
            west, low, east, high = self.stairs[zone] * pixel
            inside = (x > west) & (x < east) & (y > low) & (y < high)
            floor = jnp.where(inside, stripe, floor)
        return floor / (1.0 + _HAZE * depth)

    def _somebody(
        self,
        seen: jax.Array,
        stand: Stand,
        episode: Episode,
        rays: tuple[jax.Array, jax.Array, jax.Array],
        depth: jax.Array,
        down: jax.Array,
    ) -> jax.Array:
        """Who stands in the way, in front of what is behind."""
        dx, dy, stretch = rays
        near = to_somebody(stand, episode, dx, dy) * (self.whereabouts.pixel / stretch)
        near = jnp.where(near < depth, jnp.maximum(near, 0.05), jnp.inf)
        height = _EYE - down * _thrice(jnp.minimum(near, 1e6))
        inside = (height > 0.0) & (height < episode.height) & _thrice(jnp.isfinite(near))
        colour = jnp.tile(episode.clothes, SIDE)[None]
        return jnp.where(inside, colour / (1.0 + _HAZE * _thrice(jnp.minimum(near, 1e6))), seen)


def _slopes() -> np.ndarray:
    """Of columns to the right and rows downward, at a depth of 1."""
    return (np.arange(SIDE) + 0.5 - SIDE / 2) / (SIDE / 2)


def _thrice(columns: jax.Array) -> jax.Array:
    """One value for each colour of a column, [1, 192]."""
    return jnp.broadcast_to(columns[:, None], (SIDE, 3)).reshape(1, 3 * SIDE)


def _by_colour(colours: jax.Array, shade: jax.Array) -> jax.Array:
    return (colours * shade[:, None]).reshape(1, 3 * SIDE)


def _above(down: jax.Array) -> jax.Array:
    """The ceiling, darker with distance."""
    depth = (_CEILING - _EYE) / jnp.maximum(-down, 1e-3)
    return jnp.tile(jnp.asarray(_TOP, jnp.float32), SIDE)[None] / (1.0 + _HAZE * depth)


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
