"""What differs between episodes in a building: the light, and a person or chair on the route."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tasid.layout import FREE
from tasid.planning import PerturbedMDP, robust_dp
from tasid.simulator import AbstractSimulator, SimulatorError
from tasid.targets.block import Worlds, on_device
from tasid.worlds import ROUTE_ETA, random_bits, route_steps, uniform

RADIUS = (0.25, 0.22)
HEIGHT = (1.75, 0.9)
STEPS_ASIDE = (0.5, 0.0)
"""Of a person and of a chair: metres, and the probability of making way for a robot."""
DARKEST, BRIGHTEST, TINT = 0.75, 1.15, 0.08
"""Range of the brightness, and how much each colour may deviate from it."""
SPOTS = 6
"""Places on the route where an obstacle may stand, persons and chairs in turn."""
MARGIN = 3
"""Places at either end of a route without obstacles; fewer on a short route."""


class Episode(NamedTuple):
    """Circumstances of n episodes."""

    spot: jax.Array
    """Where the obstacle stands, an index of spots; −1: no obstacle [n]."""
    x: jax.Array
    y: jax.Array
    radius: jax.Array
    """Of the obstacle, in pixels; radius 0: no obstacle [n]."""
    height: jax.Array
    """In metres [n]."""
    light: jax.Array
    """Factors of red, green and blue [n, 3]."""
    clothes: jax.Array
    """Red, green and blue of the obstacle [n, 3]."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class BuildingCircumstances:
    """Draws the circumstances of episodes."""

    spots: jax.Array
    """x and y of the spots in pixels, float32 [K, 2]; K ≥ 1. Even spots are for persons."""
    enters: jax.Array
    """Spot that an action enters, int32 [S, A]; −1: none."""
    chance: jax.Array
    """Probability of an obstacle."""
    stay: int = field(metadata={"static": True})
    """Action that happens where an obstacle is in the way."""
    pixel: float = field(metadata={"static": True})
    """Metres."""

    def draw(self, keys: jax.Array) -> Episode:
        """Circumstances of each key."""
        number = uniform(random_bits(keys, 12))
        spot = jnp.floor(number[:, 1] * self.spots.shape[0]).astype(jnp.int32)
        present, (x, y) = number[:, 0] < self.chance, self.spots[spot].T
        brightness = DARKEST + (BRIGHTEST - DARKEST) * number[:, 2:3]
        return Episode(
            spot=jnp.where(present, spot, -1),
            x=x,
            y=y,
            radius=jnp.where(present, jnp.asarray(RADIUS)[spot % 2] / self.pixel, 0.0),
            height=jnp.asarray(HEIGHT)[spot % 2],
            light=brightness * (1.0 + TINT * (2.0 * number[:, 3:6] - 1.0)),
            clothes=40.0 + 180.0 * number[:, 6:9],
        )

    def obstruct(
        self, drawn: Episode, keys: jax.Array, states: jax.Array, actions: jax.Array
    ) -> jax.Array:
        """The robot stays where it is until the obstacle makes way."""
        blocked = (drawn.spot >= 0) & (self.enters[states, actions] == drawn.spot)
        aside = jnp.asarray(STEPS_ASIDE)[jnp.maximum(drawn.spot, 0) % 2]
        stuck = blocked & (uniform(random_bits(keys, 1))[:, 0] >= aside)
        return jnp.where(stuck, self.stay, actions)

    def worlds(self, world: PerturbedMDP) -> Worlds:
        """Without an obstacle, and with one at each spot."""
        chance, enters = float(self.chance), np.asarray(self.enters)
        worlds = [(1.0 - chance, world)]
        for spot in range(self.spots.shape[0] if chance else 0):
            stuck = (enters == spot) * (1.0 - STEPS_ASIDE[spot % 2])
            lost = world.xi * stuck[:, None, :]
            xi = world.xi - lost
            xi[..., self.stay] += lost.sum(axis=-1)
            obstructed = PerturbedMDP(world.simulator, xi)
            worlds.append((chance / self.spots.shape[0], obstructed))
        return tuple(worlds)


def obstacles_on_route(
    sim: AbstractSimulator, points: NDArray[np.float64], *, chance: float, pixel: float
) -> BuildingCircumstances:
    """Circumstances in which obstacles stand on the robust route, where a detour exists.

    `points` are x and y of the states in pixels, [S, 2].
    """
    assert sim.layout is not None
    assert sim.action_names is not None
    positions = sim.layout.positions
    spots: list[tuple[int, int]] = []
    if chance > 0:
        route = robust_dp(sim, eta=ROUTE_ETA).path(sim.starts[:1])[:-1, 0]
        visited = list(dict.fromkeys(map(tuple, positions[route].tolist())))
        margin = max(min(MARGIN, len(visited) // 4), 1)
        free = [p for p in visited[margin:-margin] if sim.layout.cells[p] == FREE]
        spots = [place for place in free if _has_detour(sim, (positions == place).all(axis=1))]
        spots = spots[:: max(-(-len(spots) // SPOTS), 1)]
        if not spots:
            raise SimulatorError("obstacles: no place on the route has a detour around it")
    after = positions[sim.successor]
    moved = (after != positions[:, None]).any(axis=-1)
    enters = np.full(sim.successor.shape, -1, np.int32)
    centres = np.zeros((max(len(spots), 1), 2))
    for number, spot in enumerate(spots):
        enters[moved & (after == spot).all(axis=-1)] = number
        centres[number] = points[(positions == spot).all(axis=1).argmax()]
    return BuildingCircumstances(
        spots=on_device(centres, np.float32),
        enters=on_device(enters),
        chance=on_device(chance, np.float32),
        stay=sim.action_names.index("stay"),
        pixel=pixel,
    )


def _has_detour(sim: AbstractSimulator, around: NDArray[np.bool_]) -> bool:
    """Whether a way leads from every start to a goal without the states `around` [S]."""
    stays = np.where(around[sim.successor], np.arange(sim.num_states)[:, None], sim.successor)
    return route_steps(robust_dp(sim.replace(successor=stays), eta=0.0)) is not None
