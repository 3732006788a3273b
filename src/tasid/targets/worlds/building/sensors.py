"""The sensors of a building, and the map they see: the true one, doors closed and all."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tasid.maps import AbstractSimulator
from tasid.maps.layout import FREE, HAZARD
from tasid.maps.sources.occupancy_map import Floor
from tasid.targets.device import on_device
from tasid.targets.worlds.building.camera import NOISE_WORDS, SIDE, CameraEmission
from tasid.targets.worlds.building.episode import BuildingEpisode
from tasid.targets.worlds.building.places import Places
from tasid.targets.worlds.building.pose import DRAWS, Stand, Whereabouts, room_at, to_somebody
from tasid.targets.worlds.building.rays import ray_map
from tasid.targets.worlds.counter_hash import random_bits, uniform
from tasid.targets.worlds.route import layout_of

SENSORS = ("lidar", "camera", "both")
_SPREAD = float(np.sqrt(4 * (2.0**32 - 1) / 12))
"""Standard deviation of the sum of four 16-bit numbers."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LidarEmission:
    """x = ranges in metres, float32 [beams], from straight ahead and on to the left.

    Where nothing is within the limit, the limit is reported; a drop-out reports 0. The noise is a
    sum of four uniform numbers: close to normal, and never beyond 3.5 standard deviations.
    """

    whereabouts: Whereabouts
    noise: jax.Array
    """Standard deviation in metres."""
    dropout: jax.Array
    beams: int = field(metadata={"static": True})
    limit: float = field(metadata={"static": True})

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.beams,)

    @property
    def bounds(self) -> tuple[float, float]:
        """The smallest and the largest reading."""
        return 0.0, self.limit

    def __call__(self, key: jax.Array, state: jax.Array, episode: BuildingEpisode) -> jax.Array:
        bits = random_bits(key, DRAWS + 3 * self.beams)
        stand = self.whereabouts.stand(bits[:DRAWS], state)
        return self.scan(stand, bits[DRAWS:].reshape(3, self.beams), episode)

    def scan(self, stand: Stand, bits: jax.Array, episode: BuildingEpisode) -> jax.Array:
        """The reading at a point, with the numbers [3, beams] that make its noise."""
        exact = self.ranges(stand, episode)
        whole = jnp.uint32(0xFFFF)
        parts = [bits[0] & whole, bits[0] >> 16, bits[1] & whole, bits[1] >> 16]
        total = sum(part.astype(jnp.float32) for part in parts)
        error = (total - 2 * 65535.0) * (self.noise / _SPREAD)
        read = jnp.where(exact < self.limit, jnp.clip(exact + error, 0.0, self.limit), self.limit)
        return jnp.where(uniform(bits[2]) < self.dropout, 0.0, read)

    def ranges(self, stand: Stand, episode: BuildingEpisode) -> jax.Array:
        """Without noise and drop-outs, metres [beams]."""
        angle = 2 * np.pi * np.arange(self.beams) / self.beams
        ahead, left = (jnp.asarray(side, jnp.float32) for side in (np.cos(angle), np.sin(angle)))
        dx = stand.ahead_x * ahead - stand.ahead_y * left
        dy = stand.ahead_y * ahead + stand.ahead_x * left
        walls = self.whereabouts.cast(stand, dx, dy, self.limit).distance
        near = jnp.minimum(walls, to_somebody(stand, episode, dx, dy))
        return jnp.minimum(near * self.whereabouts.pixel, self.limit)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class BothEmission:
    """x = picture and ranges, uint8 [64 + ⌈beams / 64⌉, 64, 3]: the ranges are rows below it.

    Observations are one array, and what learns from pictures should learn from this one too. So
    ranges are grey pixels, 64 to a row, 0 for a drop-out and 255 for the limit: at a limit of 10 m
    a level is 4 cm, about the noise of the laser. Both sensors look from the same point at the same
    moment.
    """

    camera: CameraEmission
    lidar: LidarEmission

    @property
    def rows(self) -> int:
        """Of ranges."""
        return -(-self.lidar.beams // SIDE)

    @property
    def shape(self) -> tuple[int, ...]:
        return (SIDE + self.rows, SIDE, 3)

    def __call__(self, key: jax.Array, state: jax.Array, episode: BuildingEpisode) -> jax.Array:
        beams = self.lidar.beams
        bits = random_bits(key, DRAWS + NOISE_WORDS + 3 * beams)
        stand = self.camera.whereabouts.stand(bits[:DRAWS], state)
        picture = self.camera.picture(stand, bits[DRAWS : DRAWS + NOISE_WORDS], episode)
        noise = bits[DRAWS + NOISE_WORDS :].reshape(3, beams)
        ranges = self.lidar.scan(stand, noise, episode)
        grey = jnp.round(ranges * (255.0 / self.lidar.limit)).astype(jnp.uint8)
        below = jnp.zeros(self.rows * SIDE, jnp.uint8).at[:beams].set(grey)
        spread = jnp.broadcast_to(below.reshape(self.rows, SIDE, 1), (self.rows, SIDE, 3))
        return jnp.concatenate([picture, spread])


def emission_of(
    places: Places, sim: AbstractSimulator, truth: Floor, options: dict[str, Any]
) -> tuple[LidarEmission | CameraEmission | BothEmission, jax.Array]:
    """What the robot senses on the true floor, and its poses in pixels as in `Whereabouts`."""
    solid, offset = _solid(truth)
    pixel, layout = truth.picture.resolution, layout_of(sim)
    centres = layout.centres(np.arange(sim.num_states))
    points = (centres - truth.picture.corner) / pixel - offset
    assert layout.angles is not None, "poses look somewhere"
    turned = np.deg2rad(90.0 - layout.angles)
    poses = on_device(np.column_stack([points, np.cos(turned), np.sin(turned)]), np.float32)
    whereabouts = Whereabouts(
        rays=ray_map(solid),
        poses=poses,
        room=on_device(room_at(solid, points, options["jitter"] / pixel), np.float32),
        turn=on_device(np.deg2rad(options["turn_jitter"]), np.float32),
        pixel=float(pixel),
    )
    lidar = LidarEmission(
        whereabouts,
        on_device(options["noise"], np.float32),
        on_device(options["dropout"], np.float32),
        options["beams"],
        options["range_limit"],
    )
    stairs = _stairs(places) / pixel - np.tile(offset, 2)
    camera = CameraEmission(whereabouts, on_device(stairs, np.float32))
    emissions: dict[str, Any] = {
        "lidar": lidar,
        "camera": camera,
        "both": BothEmission(camera, lidar),
    }
    return emissions[options["sensor"]], poses


def _solid(floor: Floor) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """What stops rays, row 0 at the bottom, cut to what is free; and how much was cut off."""
    solid = np.pad(floor.pixels[::-1] != FREE, 1, constant_values=True)
    rows, columns = (np.flatnonzero((~solid).any(axis=axis)) for axis in (1, 0))
    cut = np.s_[rows[0] - 1 : rows[-1] + 2, columns[0] - 1 : columns[-1] + 2]
    return solid[cut], np.array([columns[0] - 2.0, rows[0] - 2.0])


def _stairs(places: Places) -> NDArray[np.float64]:
    """Hazards as rectangles x, y, x, y in metres from the map's corner: runs of hazard cells."""
    cells = places.grid.cells
    zones: list[tuple[int, int, int, int]] = []
    for row, line in enumerate(cells == HAZARD):
        low = cells.shape[0] - 1 - row
        edges = np.flatnonzero(np.diff(np.concatenate([[0], line.astype(int), [0]])))
        for west, east in edges.reshape(-1, 2).tolist():
            above = [zone for zone in zones if zone[:3] == (west, low + 1, east)]
            for zone in above:
                zones.remove(zone)
            zones.append((west, low, east, above[0][3] if above else low + 1))
    return np.array(zones, dtype=np.float64).reshape(-1, 4) * places.floor.lattice.size
