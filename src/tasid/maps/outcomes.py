"""Outcomes: actions that lead to the same place are one.

In a state s the actions with one successor form an outcome; k(s) is how many outcomes there are.
Exploring and predicting outcomes instead of actions replaces |A|³ by at most k³ in the sample
complexity (docs/outcome-classes.md). An outcome's representative is its lowest action.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasid.maps.simulator import AbstractSimulator


@dataclass(frozen=True, eq=False)
class Outcomes:
    """The outcomes of every state, in the order of their successors; [S, ·] or [H, S, ·]."""

    successor: NDArray[np.int32]
    """Where each outcome leads, [S, K]; repeats the last one where a state has fewer than K."""
    representative: NDArray[np.int32]
    """The lowest action with that successor, [S, K]."""
    exists: NDArray[np.bool_]
    """Does the state have that many outcomes? [S, K]."""
    of_action: NDArray[np.int32]
    """Which outcome each action belongs to, [S, A]."""

    @property
    def most(self) -> int:
        """K, the largest number of outcomes of any state."""
        return int(self.successor.shape[-1])

    @property
    def number(self) -> NDArray[np.int64]:
        """k(s), [S] or [H, S]."""
        return self.exists.sum(axis=-1)


def outcomes(sim: AbstractSimulator) -> Outcomes:
    """Group the actions of every state by their successor."""
    table = sim.successor
    order = np.argsort(table, axis=-1, kind="stable")
    successors = np.take_along_axis(table, order, axis=-1)
    opens = np.ones(table.shape, dtype=bool)
    opens[..., 1:] = successors[..., 1:] != successors[..., :-1]
    rank = np.cumsum(opens, axis=-1, dtype=np.int32) - 1
    of_action = np.empty_like(rank)
    np.put_along_axis(of_action, order, rank, axis=-1)
    most = int(rank.max()) + 1
    slots = np.arange(most)
    first = np.argmax(rank[..., None] == slots, axis=-2)
    exists = slots <= rank[..., -1:]
    first = np.where(exists, first, table.shape[-1] - 1)
    return Outcomes(
        successor=np.take_along_axis(successors, first, axis=-1),
        representative=np.take_along_axis(order, first, axis=-1).astype(np.int32),
        exists=exists,
        of_action=of_action,
    )
