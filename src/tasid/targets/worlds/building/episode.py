"""What differs from episode to episode in a building: the light, and who stands in the way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tasid.maps import PerturbedMDP
from tasid.targets.latent import Worlds
from tasid.targets.worlds.counter_hash import random_bits, uniform

PERSON, CHAIR = 0, 1
RADIUS = (0.25, 0.22)
HEIGHT = (1.75, 0.9)
GIVES_WAY = (0.5, 0.0)
"""Of a person and of a chair: metres, and the chance to make way each time a robot drives up."""
_DARKEST, _LIGHTEST, _TINT = 0.75, 1.15, 0.08


class BuildingEpisode(NamedTuple):
    """One episode's circumstances."""

    spot: jax.Array
    """Where somebody stands, an index of spots; −1: nowhere."""
    x: jax.Array
    y: jax.Array
    radius: jax.Array
    """Of who stands there, in pixels; 0 for nobody."""
    height: jax.Array
    """In metres."""
    light: jax.Array
    """Factors of red, green and blue [3]."""
    clothes: jax.Array
    """Red, green and blue of who stands there [3]."""


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["spots", "kinds", "enters", "chance"],
    meta_fields=["stay", "pixel"],
)
@dataclass(frozen=True)
class BuildingDays:
    """Draws episodes; a pytree."""

    spots: jax.Array
    """x and y of the places where somebody may stand, in pixels, float32 [K, 2]; K ≥ 1."""
    kinds: jax.Array
    """PERSON or CHAIR [K]."""
    enters: jax.Array
    """The spot that an action leads onto, int32 [S, A]; −1: none."""
    chance: jax.Array
    """Of an episode with somebody in the way."""
    stay: int
    """The action that happens where somebody is in the way."""
    pixel: float
    """Metres."""

    def draw(self, key: jax.Array) -> BuildingEpisode:
        """The circumstances of one episode."""
        bits = random_bits(key, 12)
        number = uniform(bits)
        spot = jnp.floor(number[1] * self.spots.shape[0]).astype(jnp.int32)
        there = number[0] < self.chance
        kind = self.kinds[spot]
        at = self.spots[spot]
        gain = _DARKEST + (_LIGHTEST - _DARKEST) * number[2]
        return BuildingEpisode(
            spot=jnp.where(there, spot, -1),
            x=at[0],
            y=at[1],
            radius=jnp.where(there, jnp.asarray(RADIUS)[kind] / self.pixel, 0.0),
            height=jnp.asarray(HEIGHT)[kind],
            light=gain * (1.0 + _TINT * (2.0 * number[3:6] - 1.0)),
            clothes=40.0 + 180.0 * number[6:9],
        )

    def hinder(
        self, episode: BuildingEpisode, key: jax.Array, state: jax.Array, action: jax.Array
    ) -> jax.Array:
        """Nobody drives over people: the robot stays where it is until they make way."""
        way = jnp.asarray(GIVES_WAY)[self.kinds[jnp.maximum(episode.spot, 0)]]
        met = (episode.spot >= 0) & (self.enters[state, action] == episode.spot)
        stuck = met & (uniform(random_bits(key, 1))[0] >= way)
        return jnp.where(stuck, self.stay, action)


def worlds_with(world: PerturbedMDP, days: BuildingDays) -> Worlds:
    """The latent MDP of each circumstance that matters, and its probability."""
    return tuple(_worlds(world, days))


def _worlds(world: PerturbedMDP, days: BuildingDays) -> Iterator[tuple[float, PerturbedMDP]]:
    chance, spots = float(days.chance), days.spots.shape[0]
    yield 1.0 - chance, world
    if chance == 0.0:
        return
    enters = np.asarray(days.enters)
    for spot, kind in enumerate(np.asarray(days.kinds).tolist()):
        stuck = (enters == spot) * (1.0 - GIVES_WAY[kind])
        yield chance / spots, PerturbedMDP(world.simulator, _moved(world.xi, stuck, days.stay))


def _moved(xi: NDArray[np.float64], stuck: NDArray[np.float64], stay: int) -> NDArray[np.float64]:
    """ξ with the mass on actions that get stuck [S, A] given to staying."""
    lost = xi * stuck[:, None, :]
    kept: NDArray[np.float64] = xi - lost
    kept[..., stay] += lost.sum(axis=-1)
    return kept
