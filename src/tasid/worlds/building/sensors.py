"""The robot's sensors: a lidar or a camera, and the light.

A robot never stands twice at the same point: its position is uniform in a square around the point
of its state, its heading within a few degrees. Sensors measure on the true map, closed doors
included. The light differs between episodes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tasid.layout import FREE, GridLayout
from tasid.sources.occupancy import OccupancyMap
from tasid.targets.block import Emission, on_device
from tasid.worlds import mix, random_bits, uniform
from tasid.worlds.building.rays import cast, square_table

POSE_WORDS = 3
"""Random numbers that a pose takes."""
_SPREAD = float(np.sqrt(4 * (2.0**32 - 1) / 12))
"""Standard deviation of the sum of four 16-bit numbers."""
SIDE = 64
"""Pixels along the side of a picture; the field of view is a right angle."""
FARTHEST, EYE, CEILING = 40.0, 1.0, 2.6
"""Metres: of sight, and above the floor."""
HAZE = 0.12
"""Loss of brightness per metre."""
PATCH, PATCH_OFFSET = 1.5, 0.35
"""Length of a wall with one colour; the offset keeps patches from ending inside of walls."""
FLOOR, PLASTER = (112.0, 104.0, 92.0), (206.0, 208.0, 204.0)
"""Colours of floor and ceiling."""
GRAIN = 20
"""Width of the uniform sensor noise in levels."""
DARKEST, BRIGHTEST, TINT = 0.75, 1.15, 0.08
"""Range of the brightness, and how much each colour may deviate from it."""
_SLOPES = (np.arange(SIDE) + 0.5 - SIDE / 2) / (SIDE / 2)
"""Of columns to the right and of rows downward, at distance 1."""


class Pose(NamedTuple):
    """Exact poses: a point in pixels and the unit vector ahead, each [n, 1]."""

    x: jax.Array
    y: jax.Array
    ahead_x: jax.Array
    ahead_y: jax.Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Surroundings:
    """The true map, and where the robot is in each state."""

    table: jax.Array
    """For `rays.cast`."""
    poses: jax.Array
    """x, y in pixels and the unit vector ahead, float32 [S, 4]."""
    room: jax.Array
    """Largest deviation from there along either axis, in pixels [S]."""
    turn: jax.Array
    """Largest deviation from the heading, in radians."""
    pixel: float = field(metadata={"static": True})
    """Metres."""

    def pose(self, bits: jax.Array, states: jax.Array) -> Pose:
        """Exact poses from random numbers [n, 3]."""
        deviation = 2.0 * uniform(bits) - 1.0
        x, y, ahead_x, ahead_y = jnp.split(self.poses[states], 4, axis=1)
        room, angle = self.room[states][:, None], deviation[:, 2:] * self.turn
        sine, cosine = jnp.sin(angle), jnp.cos(angle)
        return Pose(
            x + deviation[:, :1] * room,
            y + deviation[:, 1:2] * room,
            ahead_x * cosine - ahead_y * sine,
            ahead_y * cosine + ahead_x * sine,
        )

    def cast(self, pose: Pose, dx: jax.Array, dy: jax.Array, limit: float) -> jax.Array:
        """Rays along unit vectors [n, rays]; the limit is in metres, distances in pixels."""
        return cast(self.table, pose.x, pose.y, dx, dy, limit / self.pixel)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Light:
    """The light of an episode, drawn from its key."""

    def draw(self, keys: jax.Array) -> jax.Array:
        """Factors of red, green and blue for each key, [n, 3]."""
        number = uniform(random_bits(keys, 6))
        brightness = DARKEST + (BRIGHTEST - DARKEST) * number[:, 2:3]
        return brightness * (1.0 + TINT * (2.0 * number[:, 3:6] - 1.0))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LidarEmission:
    """x = ranges in metres, float32 [beams], counter-clockwise from straight ahead.

    Readings without a hit are the limit, drop-outs are 0. The noise is a sum of four uniform
    numbers: close to normal, and within 3.5 standard deviations.
    """

    surroundings: Surroundings
    noise: jax.Array
    """Standard deviation in metres."""
    dropout: jax.Array
    """Probability of a drop-out."""
    beams: int = field(metadata={"static": True})
    limit: float = field(metadata={"static": True})
    """Largest reading."""

    dtype = "float32"

    @property
    def shape(self) -> tuple[int, ...]:
        """[beams]."""
        return (self.beams,)

    @property
    def bounds(self) -> tuple[float, float]:
        """Readings are in 0 … limit."""
        return 0.0, self.limit

    def __call__(self, keys: jax.Array, states: jax.Array, light: jax.Array) -> jax.Array:
        bits = random_bits(keys, POSE_WORDS + 3 * self.beams)
        pose = self.surroundings.pose(bits[:, :POSE_WORDS], states)
        angles = 2 * np.pi * np.arange(self.beams) / self.beams
        ahead, left = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
        dx = pose.ahead_x * ahead - pose.ahead_y * left
        dy = pose.ahead_y * ahead + pose.ahead_x * left
        walls = self.surroundings.cast(pose, dx, dy, self.limit)
        exact = jnp.minimum(walls * self.surroundings.pixel, self.limit)
        first, second, third = jnp.split(bits[:, POSE_WORDS:], 3, axis=1)
        low = jnp.uint32(0xFFFF)
        parts = [first & low, first >> 16, second & low, second >> 16]
        total = sum(part.astype(jnp.float32) for part in parts)
        error = (total - 2 * 65535.0) * (self.noise / _SPREAD)
        reading = jnp.clip(exact + error, 0.0, self.limit)
        reading = jnp.where(exact < self.limit, reading, self.limit)
        return jnp.where(uniform(third) < self.dropout, 0.0, reading)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class CameraEmission:
    """x = a picture of the area in front of the robot, uint8 [64, 64, 3].

    Every column is one ray: a wall, whose colour changes along it, between floor and ceiling.
    """

    surroundings: Surroundings

    shape = (SIDE, SIDE, 3)
    dtype = "uint8"
    bounds = (0, 255)

    def __call__(self, keys: jax.Array, states: jax.Array, light: jax.Array) -> jax.Array:
        bits = random_bits(keys, POSE_WORDS + math.prod(self.shape) // 4)
        pose = self.surroundings.pose(bits[:, :POSE_WORDS], states)
        pixel, aside = self.surroundings.pixel, jnp.asarray(_SLOPES, jnp.float32)
        stretch = jnp.sqrt(1.0 + aside**2)
        dx = (pose.ahead_x + aside * pose.ahead_y) / stretch
        dy = (pose.ahead_y - aside * pose.ahead_x) / stretch
        distance = self.surroundings.cast(pose, dx, dy, FARTHEST)
        wall = _wall_colors((pose.x + distance * dx) * pixel, (pose.y + distance * dy) * pixel)
        # Without the barrier XLA computes columns again for every pixel.
        depth, wall = jax.lax.optimization_barrier((distance * pixel / stretch, wall))

        down = aside[:, None]
        height = EYE - down * depth[:, None]
        level = jnp.where(height < 0, EYE / down, (EYE - CEILING) / down)
        on_wall = (height >= 0) & (height <= CEILING)
        far = jnp.where(on_wall, depth[:, None], level)[..., None]
        plain = jnp.where(height[..., None] < 0, jnp.array(FLOOR), jnp.array(PLASTER))
        color = jnp.where(on_wall[..., None], wall[:, None], plain) / (1.0 + HAZE * far)
        grain = jax.lax.bitcast_convert_type(bits[:, POSE_WORDS:], jnp.uint8)
        noise = GRAIN * (grain.reshape(color.shape) / 255.0 - 0.5)
        return jnp.clip(color * light[:, None, None] + noise, 0, 255).astype(jnp.uint8)


def _wall_colors(x: jax.Array, y: jax.Array) -> jax.Array:
    """Colours [n, 64, 3] of walls at points in metres: one for every patch, and waves on it."""
    column, row = (
        jnp.floor((at - PATCH_OFFSET) / PATCH).astype(jnp.int32).astype(jnp.uint32) for at in (x, y)
    )
    bits = mix(column * jnp.uint32(0x85EBCA6B) + row * jnp.uint32(0xC2B2AE35), jnp.uint32(1))
    parts = (bits[..., None] >> (8 * jnp.arange(4, dtype=jnp.uint32))) & 255
    shares = parts.astype(jnp.float32) / 255.0
    wave = jnp.abs((x + y) * (1.0 + 3.0 * shares[..., 3]) % 1.0 - 0.5)[..., None]
    return (60.0 + 160.0 * shares[..., :3]) * (0.85 + 0.3 * wave)


def make_sensor(
    picture: OccupancyMap,
    points: NDArray[np.float64],
    layout: GridLayout,
    options: Mapping[str, Any],
) -> Emission:
    """The sensor that `options` choose.

    `points` of the states are in metres, [S, 2]. A robot never stands in a solid pixel: the square
    in which it may be is smaller where there is less room.
    """
    # Row 0 at the bottom, cut to the free part with a border of solid pixels.
    solid = np.pad(picture.pixels[::-1] != FREE, 1, constant_values=True)
    rows, columns = (np.flatnonzero((~solid).any(axis=axis)) for axis in (1, 0))
    solid = solid[rows[0] - 1 : rows[-1] + 2, columns[0] - 1 : columns[-1] + 2]
    pixel, cut = picture.resolution, np.array([columns[0] - 2, rows[0] - 2])
    points = (points - picture.corner) / pixel - cut
    squares = square_table(solid)
    column, row = np.floor(points).astype(np.int64).T
    room = np.clip(squares[row, column] - 1.0, 0.0, options["jitter"] / pixel)
    assert layout.angles is not None
    angle = np.deg2rad(90.0 - layout.angles)
    surroundings = Surroundings(
        table=on_device(squares),
        poses=on_device(np.column_stack([points, np.cos(angle), np.sin(angle)]), np.float32),
        room=on_device(room, np.float32),
        turn=on_device(np.deg2rad(options["turn_jitter"]), np.float32),
        pixel=pixel,
    )
    noise, dropout = (on_device(options[name], np.float32) for name in ("noise", "dropout"))
    beams, limit = options["beams"], options["range_limit"]
    sensors: dict[str, Any] = {
        "lidar": LidarEmission(surroundings, noise, dropout, beams, limit),
        "camera": CameraEmission(surroundings),
    }
    return sensors[options["sensor"]]
