"""What differs from episode to episode in a building: the light, and who stands in the way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tasid.maps import AbstractSimulator, PerturbedMDP, robust_dp
from tasid.maps.layout import FREE
from tasid.maps.planning.flips import leads_to_goal
from tasid.maps.size import MapError
from tasid.targets.block import Worlds
from tasid.targets.device import on_device
from tasid.targets.worlds.building.places import Places
from tasid.targets.worlds.counter_hash import random_bits, uniform
from tasid.targets.worlds.route import ROUTE_ETA, layout_of, route_states

PERSON, CHAIR = 0, 1
RADIUS = (0.25, 0.22)
HEIGHT = (1.75, 0.9)
GIVES_WAY = (0.5, 0.0)
"""Of a person and of a chair: metres, and the chance to make way each time a robot drives up."""
_DARKEST, _LIGHTEST, _TINT = 0.75, 1.15, 0.08
_SPOTS = 6
"""Places on the route where somebody may stand, people and chairs in turn."""
_MARGIN = 3
"""Places that stay free at either end of a route, fewer on a short one."""


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


@jax.tree_util.register_dataclass
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
    stay: int = field(metadata={"static": True})
    """The action that happens where somebody is in the way."""
    pixel: float = field(metadata={"static": True})
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


def days_of(
    places: Places, sim: AbstractSimulator, poses: jax.Array, chance: float
) -> BuildingDays:
    """Days on which people and chairs stand in the way: on the route, where one can get around.

    `poses` are in pixels, x and y first, [S, 4].
    """
    layout = layout_of(sim)
    spots = _spots(sim) if chance > 0 else np.zeros((0, 2), np.int64)
    if chance > 0 and not len(spots):
        raise MapError(
            "obstacles: every place on the route is the only way, so nobody may stand there"
        )
    place = layout.positions.astype(np.int64)
    after = place[sim.successor]  # [S, A, 2]
    moved = (after != place[:, None]).any(axis=-1)
    enters = np.full(sim.successor.shape, -1, dtype=np.int32)
    for number, spot in enumerate(spots):
        enters[moved & (after == spot).all(axis=-1)] = number
    states = [int(np.flatnonzero((place == spot).all(axis=1))[0]) for spot in spots]
    where = np.asarray(poses)[states, :2] if len(spots) else np.zeros((1, 2))
    kinds = [(PERSON, CHAIR)[number % 2] for number in range(max(len(spots), 1))]
    return BuildingDays(
        spots=on_device(where, np.float32),
        kinds=on_device(kinds, np.int32),
        enters=on_device(enters),
        chance=on_device(chance, np.float32),
        stay=places.grid.actions.index("stay"),
        pixel=float(places.floor.picture.resolution),
    )


def _spots(sim: AbstractSimulator) -> NDArray[np.int64]:
    """Places on the robust route, apart from each other, that one can get around."""
    layout = layout_of(sim)
    route = route_states(robust_dp(sim, eta=ROUTE_ETA))
    met = list(dict.fromkeys(map(tuple, layout.positions[route].tolist())))
    margin = max(min(_MARGIN, len(met) // 4), 1)
    free = [place for place in met[margin:-margin] if layout.cells[place] == FREE]
    start, positions = int(sim.starts[0]), layout.positions
    kept = [p for p in free if leads_to_goal(sim, start, around=(positions == p).all(axis=1))]
    chosen = kept[:: max(-(-len(kept) // _SPOTS), 1)]
    return np.array(chosen, dtype=np.int64).reshape(-1, 2)


def worlds_with(world: PerturbedMDP, days: BuildingDays) -> Worlds:
    """The latent MDP of each circumstance that matters, and its probability."""
    chance, enters = float(days.chance), np.asarray(days.enters)
    kinds = np.asarray(days.kinds).tolist() if chance else []
    found = [(1.0 - chance, world)]
    for spot, kind in enumerate(kinds):
        stuck = (enters == spot) * (1.0 - GIVES_WAY[kind])
        hindered = PerturbedMDP(world.simulator, _moved(world.xi, stuck, days.stay))
        found.append((chance / len(kinds), hindered))
    return tuple(found)


def _moved(xi: NDArray[np.float64], stuck: NDArray[np.float64], stay: int) -> NDArray[np.float64]:
    """ξ with the mass on actions that get stuck [S, A] given to staying."""
    lost = xi * stuck[:, None, :]
    kept: NDArray[np.float64] = xi - lost
    kept[..., stay] += lost.sum(axis=-1)
    return kept
