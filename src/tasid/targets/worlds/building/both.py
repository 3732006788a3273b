"""Camera and lidar in one observation: a picture with the ranges as rows below it.

Observations are one array, and what learns from pictures should learn from this one too. So ranges
are grey pixels, 64 to a row, 0 for a drop-out and 255 for the limit: at a limit of 10 m a level is
4 cm, about the noise of the laser. Both sensors look from the same point at the same moment.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp

from tasid.targets.worlds.building.camera import NOISE_WORDS, SIDE, CameraEmission
from tasid.targets.worlds.building.episode import BuildingEpisode
from tasid.targets.worlds.building.lidar import LidarEmission
from tasid.targets.worlds.building.pose import DRAWS
from tasid.targets.worlds.counter_hash import random_bits


@partial(jax.tree_util.register_dataclass, data_fields=["camera", "lidar"], meta_fields=[])
@dataclass(frozen=True)
class BothEmission:
    """x = picture and ranges, uint8 [64 + ⌈beams / 64⌉, 64, 3]."""

    camera: CameraEmission
    lidar: LidarEmission

    @property
    def rows(self) -> int:
        """Of ranges."""
        return -(-self.lidar.beams // SIDE)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one observation."""
        return (SIDE + self.rows, SIDE, 3)

    def __call__(self, key: jax.Array, state: jax.Array, episode: BuildingEpisode) -> jax.Array:
        """Draw x ~ q(· | state) in this episode."""
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
