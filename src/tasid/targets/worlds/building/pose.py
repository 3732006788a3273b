"""Where the robot really stands: near the middle of its cell, never twice at the same point."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from tasid.targets.worlds.building.episode import BuildingEpisode
from tasid.targets.worlds.building.rays import Hits, RayMap
from tasid.targets.worlds.counter_hash import uniform

DRAWS = 3
"""Random numbers that a stand takes."""


class Stand(NamedTuple):
    """A point in pixels and a unit vector ahead."""

    x: jax.Array
    y: jax.Array
    ahead_x: jax.Array
    ahead_y: jax.Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Whereabouts:
    """The map and all poses on it; a pytree."""

    rays: RayMap
    poses: jax.Array
    """x, y in pixels and the unit vector ahead, float32 [S, 4]."""
    room: jax.Array
    """How far from there along either axis the robot may be, in pixels [S]."""
    turn: jax.Array
    """How far it may be turned, radians."""
    pixel: float = field(metadata={"static": True})
    """Metres."""

    def stand(self, bits: jax.Array, state: jax.Array) -> Stand:
        """Uniform in a square and in an angle around the pose, from three numbers."""
        drawn = 2.0 * uniform(bits) - 1.0
        x, y, ahead_x, ahead_y = self.poses[state]
        room = self.room[state]
        # A few degrees: series instead of library functions, which round by the batch's shape.
        angle = drawn[2] * self.turn
        square = angle * angle
        sine = angle * (1.0 - square / 6.0 * (1.0 - square / 20.0))
        cosine = 1.0 - square / 2.0 * (1.0 - square / 12.0 * (1.0 - square / 30.0))
        return Stand(
            x + drawn[0] * room,
            y + drawn[1] * room,
            ahead_x * cosine - ahead_y * sine,
            ahead_y * cosine + ahead_x * sine,
        )

    def cast(self, stand: Stand, dx: jax.Array, dy: jax.Array, limit: float) -> Hits:
        """Rays from where the robot stands; the limit is in metres, distances in pixels."""
        return self.rays.cast(stand.x, stand.y, dx, dy, limit / self.pixel)


def to_somebody(stand: Stand, episode: BuildingEpisode, dx: jax.Array, dy: jax.Array) -> jax.Array:
    """How far along unit vectors the circle of who stands in the way is; ∞ where it is missed."""
    east, north = episode.x - stand.x, episode.y - stand.y
    along = east * dx + north * dy
    apart = east * east + north * north - episode.radius * episode.radius
    reach = along * along - apart
    met = (reach > 0) & (along > 0) & (episode.radius > 0)
    near = jnp.maximum(along - jnp.sqrt(jnp.maximum(reach, 0.0)), 0.0)
    return jnp.where(met, near, jnp.inf)


def room_at(
    solid: NDArray[np.bool_], points: NDArray[np.float64], most: float
) -> NDArray[np.float64]:
    """Half the side of the largest square around each point [n, 2] that is free, up to `most`.

    Everything in pixels, row 0 of `solid` at the bottom; rounded down to whole pixels.
    """
    walled = np.pad(solid, 1, constant_values=True)
    clear = ndimage.distance_transform_cdt(~walled, "chessboard")[1:-1, 1:-1]
    column, row = np.floor(points).astype(np.int64).T
    return np.clip(clear[row, column] - 1.0, 0.0, most)
