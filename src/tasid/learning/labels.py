"""What an inverse-dynamics model predicts: labels, and what they mean on the map.

At a tracked state every label stands for a command to execute while exploring and for the state it
leads to. In the paper's method a label is an action. In the outcome method a label is an outcome,
and the question is only how to number outcomes so that a number means the same thing in many
states and steps, because one shared model can then keep what it has learned.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tasid.mdp import AbstractSimulator
from tasid.mdp.backward import layers
from tasid.mdp.outcomes import Outcomes, outcomes

MOST_PLACES = 64
"""More places than this and numbering outcomes by place would make the model grow with the map."""


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["successor", "command", "valid"],
    meta_fields=["kind"],
)
@dataclass(frozen=True)
class Labels:
    """Tables [S, L], or [H, S, L] where the map or the numbering changes from step to step."""

    successor: jax.Array
    """The state a label leads to, int32."""
    command: jax.Array
    """The action that is executed to explore a label, int32."""
    valid: jax.Array
    """Does the label exist in this state? bool."""
    kind: str
    """The name under which `labels_for` builds these tables again."""

    @property
    def num_labels(self) -> int:
        """L."""
        return int(self.successor.shape[-1])

    @property
    def name_places(self) -> bool:
        """Does a label say where one is? Then one that does not exist in a state means elsewhere.

        Numbered by action, it may only be another way to say the same.
        """
        return self.kind == "outcomes by place"

    def at(self, h: jax.Array | int) -> Labels:
        """The tables of one step, [S, L]."""
        if self.successor.ndim == 2:
            return self
        return replace(
            self, successor=self.successor[h], command=self.command[h], valid=self.valid[h]
        )

    def draw(self, keys: jax.Array, states: jax.Array, h: jax.Array) -> tuple[jax.Array, jax.Array]:
        """A uniformly random valid label for every state [W], and the command that explores it."""
        tables = self.at(h)
        available = jnp.cumsum(tables.valid[states], axis=-1)
        number = available[:, -1:]
        uniform = jax.vmap(jax.random.uniform)(keys)[:, None]
        rank = jnp.minimum((uniform * number).astype(jnp.int32), number - 1)
        labels = jnp.argmax(available > rank, axis=-1)
        return labels, tables.command[states, labels]


def action_labels(sim: AbstractSimulator) -> Labels:
    """The paper's labels: every action is its own, in every state."""
    successor = jnp.asarray(sim.successor, jnp.int32)
    command = jnp.broadcast_to(jnp.arange(sim.num_actions, dtype=jnp.int32), successor.shape)
    return Labels(successor, command, jnp.ones(successor.shape, bool), "actions")


def rank_labels(sim: AbstractSimulator) -> Labels:
    """Outcomes numbered within their state, in the order of their successors."""
    found = outcomes(sim)
    return Labels(
        jnp.asarray(found.successor),
        jnp.asarray(found.representative),
        jnp.asarray(found.exists),
        "outcomes by rank",
    )


def representative_labels(sim: AbstractSimulator) -> Labels:
    """Outcomes numbered by their representative action: "forward" is "forward" everywhere."""
    found = outcomes(sim)
    return _scattered(found, found.representative, sim.num_actions, "outcomes by action")


def place_labels(sim: AbstractSimulator) -> Labels:
    """Outcomes numbered by the place they lead to.

    Where time is part of the state, a place is a position among the states of its step;
    elsewhere it is a position among all reachable states.
    """
    found = outcomes(sim)
    by_step = layers(sim)
    everywhere = np.unique(np.concatenate(by_step))
    in_step = sum(layer.size for layer in by_step) == everywhere.size
    size = max(layer.size for layer in by_step) if in_step else everywhere.size
    if size > MOST_PLACES:
        raise ValueError(f"labels: {size} places; numbered by place, {MOST_PLACES} is the most")
    place = np.zeros(sim.num_states, dtype=np.int32)
    for layer in by_step if in_step else [everywhere]:
        place[layer] = np.arange(layer.size)
    return _scattered(found, place[found.successor], size, "outcomes by place")


def _scattered(found: Outcomes, number: NDArray[np.int32], size: int, kind: str) -> Labels:
    """Tables in which outcome o of a state stands at column number[…, o]."""
    column = np.where(found.exists, number, size)

    def scatter(values: NDArray[Any]) -> jax.Array:
        table = np.zeros((*column.shape[:-1], size + 1), dtype=values.dtype)
        np.put_along_axis(table, column, values, axis=-1)
        return jnp.asarray(table[..., :size])

    return Labels(
        scatter(found.successor), scatter(found.representative), scatter(found.exists), kind
    )


_BUILDERS: dict[str, Callable[[AbstractSimulator], Labels]] = {
    "actions": action_labels,
    "outcomes by rank": rank_labels,
    "outcomes by action": representative_labels,
    "outcomes by place": place_labels,
}


def labels_for(kind: str, sim: AbstractSimulator) -> Labels:
    """The label tables of a simulator by the name they are saved under."""
    if kind not in _BUILDERS:
        raise ValueError(f"labels: {kind!r} is unknown; this version knows: {', '.join(_BUILDERS)}")
    return _BUILDERS[kind](sim)
