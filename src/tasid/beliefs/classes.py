"""Classes: which observations are expected to look alike.

An arrival belongs to a class. By *place*, it is the state one arrives in: what is seen depends on
where one is. By *rank* or by *action*, it is the outcome that led there, numbered by its
successor's order or by its lowest action: on maps where no place is met twice, only that can be
learned. The first observation has no arrival; its class is its start state's.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from tasid.beliefs.chain import Chain, at
from tasid.maps import AbstractSimulator
from tasid.maps.outcomes import outcomes
from tasid.targets.device import on_device

if TYPE_CHECKING:
    from jaxtyping import Array, Int

KINDS = ("place", "rank", "action")


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["members", "of_edge", "first"],
    meta_fields=["kind", "number"],
)
@dataclass(frozen=True)
class Classes:
    """The classes of a chain's arrivals; L is how many can be told apart at one step."""

    members: Int[Array, "_ L"]
    """The classes that exist at step h + 1, int32 [1, L] or [H+1, L] (row h + 1)."""
    of_edge: Int[Array, "T M K"]
    """Which of them an arrival by outcome k of a slot belongs to, int32 [T, M, K]."""
    first: Int[Array, " M"]
    """The class of each slot's first observation, int32 [M]."""
    kind: str
    number: int
    """How many classes there are in all, C."""

    def compared(self, h: jax.Array | int) -> Any:
        """Those that an observation of step h is compared with: the step's places, or all."""
        return at(self.members, h) if self.kind == "place" else np.arange(self.number)

    @classmethod
    def of(cls, chain: Chain, kind: str, sim: AbstractSimulator) -> Classes:
        """Arrivals classed by place, rank or action."""
        if kind == "place":
            return _by_place(chain)
        count = chain.num_outcomes if kind == "rank" else chain.num_actions
        table = np.broadcast_to(np.arange(chain.num_outcomes), chain.successor.shape)
        if kind == "action":
            table = _representatives(chain, sim)
        starts = np.flatnonzero(np.asarray(chain.start))
        first = np.full(chain.num_slots, count, np.int32)
        first[starts] = count + np.arange(starts.size)
        return cls(
            members=on_device(np.arange(count)[None], np.int32),
            of_edge=on_device(table, np.int32),
            first=on_device(first),
            kind=kind,
            number=count + int(starts.size),
        )


def _by_place(chain: Chain) -> Classes:
    states = np.asarray(chain.states)
    places = np.unique(states[states >= 0])
    members = np.where(states >= 0, np.searchsorted(places, states), 0).astype(np.int32)
    return Classes(
        members=on_device(members),
        of_edge=chain.successor,
        first=on_device(at(members, 0)),
        kind="place",
        number=int(places.size),
    )


def _representatives(chain: Chain, sim: AbstractSimulator) -> np.ndarray:
    lowest = outcomes(sim).representative
    rows = []
    for h in range(chain.successor.shape[0]):
        here = np.maximum(np.asarray(at(chain.states, h)), 0)
        rows.append((lowest[h] if lowest.ndim == 3 else lowest)[here])
    return np.stack(rows)
