"""What a laser scanner reports: ranges all around, with noise, drop-outs and a limit."""

from __future__ import annotations

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np

from tasid.targets.worlds.building.episode import BuildingEpisode
from tasid.targets.worlds.building.pose import DRAWS, Stand, Whereabouts, to_somebody
from tasid.targets.worlds.counter_hash import random_bits, uniform

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
        """The shape of one observation."""
        return (self.beams,)

    @property
    def bounds(self) -> tuple[float, float]:
        """The smallest and the largest reading."""
        return 0.0, self.limit

    def __call__(self, key: jax.Array, state: jax.Array, episode: BuildingEpisode) -> jax.Array:
        """Draw x ~ q(· | state) in this episode."""
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
