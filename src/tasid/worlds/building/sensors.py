"""The robot's sensors: a lidar, a camera, or both.

A robot never stands twice at the same point: its position is uniform in a square around the point
of its state, its heading within a few degrees. Sensors measure on the true map, closed doors
included, and observe the obstacle of the episode.

The camera observes walls whose colour changes along them, floor, ceiling, stairs and obstacles.
Every column of a picture is one ray. A row of a picture is computed as 192 numbers, three colours
for each of 64 columns, so that everything is a product or a choice of columns and rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tasid.layout import FREE, HAZARD, GridLayout
from tasid.sources.occupancy import OccupancyMap
from tasid.targets.block import Emission, on_device
from tasid.worlds import mix, random_bits, uniform
from tasid.worlds.building.circumstances import Episode
from tasid.worlds.building.rays import cast, rectangle_table

POSE_WORDS = 3
"""Random numbers that a pose takes."""
_SPREAD = float(np.sqrt(4 * (2.0**32 - 1) / 12))
"""Standard deviation of the sum of four 16-bit numbers."""
SIDE = 64
"""Pixels along the side of a picture; the field of view is a right angle."""
CAMERA_WORDS = SIDE * SIDE * 3 // 4
"""Random numbers that the noise of a picture takes."""
FARTHEST, EYE, CEILING = 40.0, 1.0, 2.6
"""Metres: of sight, and above the floor."""
HAZE = 0.12
"""Loss of brightness per metre."""
PATCH, PATCH_OFFSET = 1.5, 0.35
"""Length of a wall with one colour; the offset keeps patches from ending inside of walls."""
POSTER, SKIRTING = (1.1, 1.8), 0.15
"""Heights in metres."""
FLOOR_COLOR, CEILING_COLOR = (112.0, 104.0, 92.0), (206.0, 208.0, 204.0)
STAIR_COLOR = (196.0, 160.0, 40.0)
FLOOR_TILE, STAIR = 0.8, 0.35
"""Metres."""
GRAIN = 20
"""Width of the uniform sensor noise in levels."""
ROWS = 16
"""Rows that are drawn at a time."""
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

    def cast(self, pose: Pose, dx: jax.Array, dy: jax.Array, limit: float) -> Any:
        """Rays along unit vectors [n, rays]; the limit is in metres, distances in pixels."""
        return cast(self.table, pose.x, pose.y, dx, dy, limit / self.pixel)


def distance_to_obstacle(pose: Pose, episode: Episode, dx: jax.Array, dy: jax.Array) -> jax.Array:
    """Pixels along unit vectors [n, rays] to the obstacle's circle; ∞ where they miss it."""
    radius = episode.radius[:, None]
    east, north = episode.x[:, None] - pose.x, episode.y[:, None] - pose.y
    along = east * dx + north * dy
    reach = along * along - (east * east + north * north - radius * radius)
    near = jnp.maximum(along - jnp.sqrt(jnp.maximum(reach, 0.0)), 0.0)
    return jnp.where((reach > 0) & (along > 0) & (radius > 0), near, jnp.inf)


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

    @property
    def words(self) -> int:
        """Random numbers that the noise of a scan takes."""
        return 3 * self.beams

    def __call__(self, keys: jax.Array, states: jax.Array, episode: Episode) -> jax.Array:
        bits = random_bits(keys, POSE_WORDS + self.words)
        pose = self.surroundings.pose(bits[:, :POSE_WORDS], states)
        return self.scan(pose, bits[:, POSE_WORDS:], episode)

    def scan(self, pose: Pose, bits: jax.Array, episode: Episode) -> jax.Array:
        """Readings at exact poses, with random numbers [n, words] for the noise."""
        exact = self.ranges(pose, episode)
        first, second, third = jnp.split(bits, 3, axis=1)
        low = jnp.uint32(0xFFFF)
        parts = [first & low, first >> 16, second & low, second >> 16]
        total = sum(part.astype(jnp.float32) for part in parts)
        error = (total - 2 * 65535.0) * (self.noise / _SPREAD)
        reading = jnp.clip(exact + error, 0.0, self.limit)
        reading = jnp.where(exact < self.limit, reading, self.limit)
        return jnp.where(uniform(third) < self.dropout, 0.0, reading)

    def ranges(self, pose: Pose, episode: Episode) -> jax.Array:
        """Exact ranges in metres, [n, beams]."""
        angle = 2 * np.pi * np.arange(self.beams) / self.beams
        ahead, left = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
        dx = pose.ahead_x * ahead - pose.ahead_y * left
        dy = pose.ahead_y * ahead + pose.ahead_x * left
        walls, _ = self.surroundings.cast(pose, dx, dy, self.limit)
        nearest = jnp.minimum(walls, distance_to_obstacle(pose, episode, dx, dy))
        return jnp.minimum(nearest * self.surroundings.pixel, self.limit)


class _Columns(NamedTuple):
    """What is the same from the top to the bottom of a column, each [n, 1, 192]."""

    depth: jax.Array
    """Metres to the wall, along the camera's axis."""
    wall: jax.Array
    poster: jax.Array
    poster_top: jax.Array
    obstacle: jax.Array
    """Metres to the obstacle."""
    clothes: jax.Array
    light: jax.Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class CameraEmission:
    """x = a picture of the area in front of the robot, uint8 [64, 64, 3]."""

    surroundings: Surroundings
    stairs: jax.Array
    """Hazards on the floor as x, y, x, y in pixels, float32 [k, 4]."""

    shape = (SIDE, SIDE, 3)
    dtype = "uint8"
    bounds = (0, 255)

    def __call__(self, keys: jax.Array, states: jax.Array, episode: Episode) -> jax.Array:
        bits = random_bits(keys, POSE_WORDS + CAMERA_WORDS)
        pose = self.surroundings.pose(bits[:, :POSE_WORDS], states)
        return self.picture(pose, bits[:, POSE_WORDS:], episode)

    def picture(self, pose: Pose, bits: jax.Array, episode: Episode) -> jax.Array:
        """Pictures at exact poses, with random numbers [n, CAMERA_WORDS] for the noise.

        The loop over blocks of rows keeps XLA from computing columns again for every pixel, which
        takes ten times as long.
        """
        n, blocks = len(bits), SIDE // ROWS
        grain = jax.lax.bitcast_convert_type(bits, jnp.uint8)
        grain = grain.reshape(n, blocks, ROWS, 3 * SIDE).swapaxes(0, 1)
        down = jnp.asarray(_SLOPES.reshape(blocks, ROWS, 1), jnp.float32)
        columns = self._columns(pose, episode)

        def draw(block: tuple[jax.Array, jax.Array], lower: bool) -> jax.Array:
            clean = self._rows(columns, pose, episode, block[0], lower)
            noise = ((block[1].astype(jnp.int32) - 128) * GRAIN) >> 8
            return jnp.clip(clean.astype(jnp.int32) + noise, 0, 255).astype(jnp.uint8)

        half = blocks // 2
        upper = jax.lax.map(partial(draw, lower=False), (down[:half], grain[:half]))
        lower = jax.lax.map(partial(draw, lower=True), (down[half:], grain[half:]))
        return jnp.concatenate([upper, lower]).swapaxes(0, 1).reshape(n, *self.shape)

    def _rows(
        self, columns: _Columns, pose: Pose, episode: Episode, down: jax.Array, lower: bool
    ) -> jax.Array:
        """Colours [n, rows, 192] of rows with these slopes [rows, 1], above or below the middle."""
        height = EYE - down * columns.depth
        on_poster = (height > POSTER[0]) & (height < columns.poster_top)
        skirting = jnp.where(height < SKIRTING, 0.55 * columns.wall, columns.wall)
        color = jnp.where(on_poster, columns.poster, skirting)
        if lower:
            color = jnp.where(height < 0.0, self._floor(pose, down), color)
        else:
            ceiling = _color(CEILING_COLOR) / (1.0 + HAZE * (CEILING - EYE) / -down)
            color = jnp.where(height > CEILING, ceiling, color)
        on_obstacle = EYE - down * columns.obstacle
        hit = (on_obstacle > 0.0) & (on_obstacle < episode.height[:, None, None])
        return jnp.where(hit, columns.clothes, color * columns.light)

    def _columns(self, pose: Pose, episode: Episode) -> _Columns:
        aside = jnp.asarray(_SLOPES, jnp.float32)
        stretch = jnp.asarray(np.sqrt(1.0 + _SLOPES**2), jnp.float32)
        dx = (pose.ahead_x + aside * pose.ahead_y) / stretch
        dy = (pose.ahead_y - aside * pose.ahead_x) / stretch
        pixel = self.surroundings.pixel
        distance, vertical = self.surroundings.cast(pose, dx, dy, FARTHEST)
        depth = distance * (pixel / stretch)
        wall, poster, has_poster = _wall_colors(
            (pose.x + distance * dx) * pixel, (pose.y + distance * dy) * pixel
        )
        shade = (jnp.where(vertical, 0.85, 1.0) / (1.0 + HAZE * depth))[..., None]
        obstacle = distance_to_obstacle(pose, episode, dx, dy) * (pixel / stretch)
        # Behind a wall or absent: at a depth that no row of the picture meets.
        obstacle = jnp.where(obstacle < depth, jnp.maximum(obstacle, 0.05), -1e9)
        clothes = (episode.clothes * episode.light)[:, None]
        clothes = clothes / (1.0 + HAZE * jnp.maximum(obstacle, 0.0))[..., None]
        top = jnp.where(has_poster, POSTER[1], POSTER[0])
        parts = (
            depth,
            wall * shade,
            poster * shade,
            top,
            obstacle,
            clothes,
            episode.light[:, None],
        )
        n = len(depth)

        def row(part: jax.Array) -> jax.Array:
            part = part if part.ndim == 3 else part[..., None]
            return jnp.broadcast_to(part, (n, SIDE, 3)).reshape(n, 1, 3 * SIDE)

        return _Columns(*map(row, parts))

    def _floor(self, pose: Pose, down: jax.Array) -> jax.Array:
        """Colours of the floor: tiles, and stripes on stairs."""
        depth, pixel = EYE / down, self.surroundings.pixel
        side = jnp.asarray(np.repeat(_SLOPES, 3)[None], jnp.float32)
        here_x, here_y, ahead_x, ahead_y = (part[:, None] for part in pose)
        x = here_x * pixel + depth * (ahead_x + side * ahead_y)
        y = here_y * pixel + depth * (ahead_y - side * ahead_x)
        odd = _odd(x * (1 / FLOOR_TILE)) ^ _odd(y * (1 / FLOOR_TILE))
        color = _color(FLOOR_COLOR) * jnp.where(odd, 1.14, 0.86)
        stripes = _color(STAIR_COLOR) * jnp.where(_odd((x + y) * (1 / STAIR)), 1.0, 0.25)
        for zone in range(self.stairs.shape[0]):
            west, low, east, high = self.stairs[zone] * pixel
            on_stairs = (x > west) & (x < east) & (y > low) & (y < high)
            color = jnp.where(on_stairs, stripes, color)
        return color / (1.0 + HAZE * depth)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class CameraLidarEmission:
    """x = a picture with rows of ranges below it, uint8 [64 + ⌈beams / 64⌉, 64, 3].

    Ranges are grey pixels, 64 in a row: 0 for a drop-out and 255 for the limit. At a limit of 10 m
    a level is 4 cm, about the noise of the lidar. Both sensors measure from one exact pose.
    """

    camera: CameraEmission
    lidar: LidarEmission

    dtype = "uint8"
    bounds = (0, 255)

    @property
    def shape(self) -> tuple[int, ...]:
        """[rows, 64, 3]."""
        return (SIDE - -self.lidar.beams // SIDE, SIDE, 3)

    def __call__(self, keys: jax.Array, states: jax.Array, episode: Episode) -> jax.Array:
        words = POSE_WORDS + CAMERA_WORDS
        bits = random_bits(keys, words + self.lidar.words)
        pose = self.camera.surroundings.pose(bits[:, :POSE_WORDS], states)
        picture = self.camera.picture(pose, bits[:, POSE_WORDS:words], episode)
        ranges = self.lidar.scan(pose, bits[:, words:], episode)
        grey = jnp.round(ranges * (255.0 / self.lidar.limit)).astype(jnp.uint8)
        rows = self.shape[0] - SIDE
        grey = jnp.pad(grey, ((0, 0), (0, rows * SIDE - self.lidar.beams)))
        grey = grey.reshape(-1, rows, SIDE, 1)
        return jnp.concatenate([picture, jnp.repeat(grey, 3, axis=3)], axis=1)


def _color(color: tuple[float, float, float]) -> jax.Array:
    """The same colour in every column, [1, 192]."""
    return jnp.asarray(np.tile(color, SIDE)[None], jnp.float32)


def _odd(number: jax.Array) -> jax.Array:
    """Is the integer part odd?"""
    return (jnp.floor(number).astype(jnp.int32) & 1) == 1


def _wall_colors(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Colours [n, 64, 3] of wall and poster at points in metres, and where a poster hangs."""
    column, row = (
        jnp.floor((at - PATCH_OFFSET) / PATCH).astype(jnp.int32).astype(jnp.uint32) for at in (x, y)
    )
    bits = mix(column * jnp.uint32(0x85EBCA6B) + row * jnp.uint32(0xC2B2AE35), jnp.uint32(1))
    wall_bytes, poster_bytes = (
        ((word[..., None] >> (8 * jnp.arange(4, dtype=jnp.uint32))) & 255).astype(jnp.float32)
        for word in (bits, mix(bits, jnp.uint32(2)))
    )
    along = (x + y) * (1.0 + 3.0 * wall_bytes[..., 3] / 255.0)
    wave = jnp.abs(along - jnp.floor(along) - 0.5)[..., None]
    wall = (96.0 + 0.45 * wall_bytes[..., :3]) * (0.88 + 0.24 * wave)
    return wall, 20.0 + 0.85 * poster_bytes[..., :3], poster_bytes[..., 3] < 90.0


def make_sensor(
    picture: OccupancyMap,
    points: NDArray[np.float64],
    layout: GridLayout,
    options: Mapping[str, Any],
) -> tuple[Emission, NDArray[np.float64]]:
    """The sensor that `options` choose, and the points of the states in its pixels, [S, 2].

    `points` are in metres. A robot never stands in a solid pixel: the square in which it may be is
    smaller where there is less room.
    """
    from scipy import ndimage

    # Row 0 at the bottom, cut to the free part with a border of solid pixels.
    solid = np.pad(picture.pixels[::-1] != FREE, 1, constant_values=True)
    rows, columns = (np.flatnonzero((~solid).any(axis=axis)) for axis in (1, 0))
    solid = solid[rows[0] - 1 : rows[-1] + 2, columns[0] - 1 : columns[-1] + 2]
    pixel, cut = picture.resolution, np.array([columns[0] - 2, rows[0] - 2])
    points = (points - picture.corner) / pixel - cut
    clear = ndimage.distance_transform_cdt(~np.pad(solid, 1, constant_values=True), "chessboard")
    column, row = np.floor(points).astype(np.int64).T + 1
    room = np.clip(clear[row, column] - 1.0, 0.0, options["jitter"] / pixel)
    assert layout.angles is not None
    angle = np.deg2rad(90.0 - layout.angles)
    surroundings = Surroundings(
        table=on_device(rectangle_table(solid)),
        poses=on_device(np.column_stack([points, np.cos(angle), np.sin(angle)]), np.float32),
        room=on_device(room, np.float32),
        turn=on_device(np.deg2rad(options["turn_jitter"]), np.float32),
        pixel=pixel,
    )
    noise, dropout = (on_device(options[name], np.float32) for name in ("noise", "dropout"))
    lidar = LidarEmission(surroundings, noise, dropout, options["beams"], options["range_limit"])
    areas = ndimage.find_objects(ndimage.label(layout.cells[::-1] == HAZARD)[0])
    stairs = np.reshape([(x.start, y.start, x.stop, y.stop) for y, x in areas], (-1, 4))
    stairs = stairs * (layout.cell_size / pixel) - np.tile(cut, 2)
    camera = CameraEmission(surroundings, on_device(stairs, np.float32))
    sensors: dict[str, Any] = {
        "lidar": lidar,
        "camera": camera,
        "both": CameraLidarEmission(camera, lidar),
    }
    return sensors[options["sensor"]], points
