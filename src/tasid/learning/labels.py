"""What an inverse-dynamics model predicts: labels, and what they mean on the map.

At a tracked state every label stands for a command to execute while exploring and for the state it
leads to. In the paper's method a label is simply an action.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp

from tasid.mdp import AbstractSimulator


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["successor", "command", "valid"],
    meta_fields=["kind"],
)
@dataclass(frozen=True)
class Labels:
    """Tables [S, L], or [H, S, L] where the map changes from step to step."""

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

    def at(self, h: jax.Array) -> Labels:
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


_BUILDERS: dict[str, Callable[[AbstractSimulator], Labels]] = {"actions": action_labels}


def labels_for(kind: str, sim: AbstractSimulator) -> Labels:
    """The label tables of a simulator by the name they are saved under."""
    if kind not in _BUILDERS:
        raise ValueError(f"labels: {kind!r} is unknown; this version knows: {', '.join(_BUILDERS)}")
    return _BUILDERS[kind](sim)
