"""Where people and chairs may stand in the way: on the route, where one can get around them."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tasid.maps import AbstractSimulator, robust_dp
from tasid.maps.layout import FREE, GOAL, GridLayout
from tasid.maps.sources.trouble import MapError
from tasid.targets.worlds.building.episode import CHAIR, PERSON, BuildingDays
from tasid.targets.worlds.building.places import ROUTE_ETA, Places, layout_of
from tasid.targets.worlds.building.pose import Whereabouts

_SPOTS = 6
"""Places on the route where somebody may stand, people and chairs in turn."""
_MARGIN = 3
"""Places that stay free at either end of a route, fewer on a short one."""


def days_of(
    places: Places, sim: AbstractSimulator, whereabouts: Whereabouts, chance: float
) -> BuildingDays:
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
    where = np.asarray(whereabouts.poses)[states, :2] if len(spots) else np.zeros((1, 2))
    kinds = [(PERSON, CHAIR)[number % 2] for number in range(max(len(spots), 1))]
    return BuildingDays(
        spots=jnp.asarray(where, jnp.float32),
        kinds=jnp.asarray(kinds, jnp.int32),
        enters=jnp.asarray(enters),
        chance=jnp.float32(chance),
        stay=places.grid.actions.index("stay"),
        pixel=float(places.floor.picture.resolution),
    )


def _spots(sim: AbstractSimulator) -> NDArray[np.int64]:
    """Places on the robust route, apart from each other, that one can get around."""
    layout = layout_of(sim)
    where = {label: index for index, label in enumerate(sim.states)}
    route = robust_dp(sim, eta=ROUTE_ETA).route(int(sim.starts[0]))
    met = list(dict.fromkeys(tuple(layout.positions[where[step.state]].tolist()) for step in route))
    kept = []
    margin = max(min(_MARGIN, len(met) // 4), 1)
    for place in met[margin:-margin]:
        if layout.cells[place] == FREE and _can_pass(sim, layout, place):
            kept.append(place)
    chosen = kept[:: max(-(-len(kept) // _SPOTS), 1)]
    return np.array(chosen, dtype=np.int64).reshape(-1, 2)


def _can_pass(sim: AbstractSimulator, layout: GridLayout, place: tuple[int, ...]) -> bool:
    """Is there a way to the goal around this place?"""
    here = (layout.positions == place).all(axis=1)
    goal = layout.cells[tuple(layout.positions.T)] == GOAL
    reached = np.zeros(sim.num_states, dtype=bool)
    level = np.array(sim.starts[:1])
    while level.size:
        reached[level] = True
        after = np.unique(sim.successor[level])
        level = after[~reached[after] & ~here[after]]
    return bool((reached & goal).any())
