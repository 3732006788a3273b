"""The map as a controlled Markov chain: where one may be at each step, and what may happen there.

A command has its intended outcome with probability at least 1 − η; what happens otherwise is
unknown, and the prior spreads it over all actions alike:

    p(k | s, a) = (1 − η) · [k is a's outcome] + η · (share of all actions that lead to k).

Only states that can be reached are kept. Where each step reaches few of them (a lock, a tree),
every step has tables of its own over its own *slots*; elsewhere one table over all reachable states
serves all steps. Arrays have states first and episodes last: one row of a table is then one
contiguous vector over episodes, which is what makes sparse sums fast.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tasid.maps import AbstractSimulator
from tasid.maps.outcomes import outcomes
from tasid.maps.planning.backward import layers
from tasid.targets.device import on_device

if TYPE_CHECKING:
    from jaxtyping import Array, Bool, Float, Int

MOST_CELLS = 1 << 24
"""Entries that one table of all steps may have; larger maps share one table among the steps."""
MOST_REWARDS = 31
"""More different rewards than this are too fine a scale to count matches on."""


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["states", "successor", "outcome", "share", "start", "pays", "payments", "final"],
    meta_fields=["horizon"],
)
@dataclass(frozen=True)
class Chain:
    """Tables over slots; T is the number of steps with tables of their own, 1 or H."""

    states: Int[Array, "_ M"]
    """The state in each slot, int32 [1, M] or [H+1, M]; −1 where a slot is empty."""
    successor: Int[Array, "T M K"]
    """The slot that each outcome leads to, int32 [T, M, K]."""
    outcome: Int[Array, "T M A"]
    """The outcome that each command should have, int32 [T, M, A]."""
    share: Float[Array, "T M K"]
    """The share of all actions that lead to each outcome, [T, M, K]; 0 where there is none."""
    start: Float[Array, " M"]
    """The first belief, [M]."""
    pays: Int[Array, "_ M K"]
    """Which of the `payments` an outcome may come with, as bits, int32 [T or H, M, K]."""
    payments: Float[Array, " R"]
    """The different rewards on the map, sorted; empty where there are too many."""
    final: Bool[Array, "_ M"]
    """Does nothing more happen in this slot, whatever one does? bool, shaped as `states`."""
    horizon: int

    @classmethod
    def of(cls, sim: AbstractSimulator) -> Chain:
        """The chain of a map."""
        if sim.successor.ndim == 3:
            return _over(sim, layers(sim))
        everywhere = _everywhere(sim)
        narrow = _narrow_layers(sim, widest=everywhere.size // 2)
        return _over(sim, [everywhere] if narrow is None else narrow)

    @property
    def layered(self) -> bool:
        """Has every step slots of its own?"""
        return self.states.shape[0] > 1

    @property
    def num_slots(self) -> int:
        """M."""
        return int(self.states.shape[1])

    @property
    def num_outcomes(self) -> int:
        """K."""
        return int(self.successor.shape[2])

    @property
    def num_actions(self) -> int:
        """|A|."""
        return int(self.outcome.shape[2])

    def prior(self, h: jax.Array, commands: jax.Array, eta: jax.Array | float) -> jax.Array:
        """p(k | slot, command) at step h, [M, K, N] for commands [N]."""
        intended = at(self.outcome, h)[:, commands]
        hit = intended[:, None, :] == jnp.arange(self.num_outcomes)[None, :, None]
        return (1 - eta) * hit + eta * at(self.share, h)[:, :, None]


def at(table: Any, h: jax.Array | int) -> Any:
    """The table of step h, or the one that serves all steps; in NumPy or in JAX."""
    return table[0] if table.shape[0] == 1 else table[h]


def after(table: jax.Array, h: jax.Array | int) -> jax.Array:
    """The row for where step h leads, or the one that serves all steps."""
    return table[0] if table.shape[0] == 1 else table[h + 1]


def _everywhere(sim: AbstractSimulator) -> NDArray[np.intp]:
    """All states that can be reached within the horizon, on a map with one table."""
    seen = np.zeros(sim.num_states, bool)
    new = np.unique(sim.starts)
    for _ in range(sim.horizon):
        seen[new] = True
        after = np.unique(sim.successor[new])
        new = after[~seen[after]]
        if not new.size:
            break
    seen[new] = True
    return np.flatnonzero(seen)


def _narrow_layers(sim: AbstractSimulator, *, widest: int) -> list[NDArray[np.intp]] | None:
    """The states of each step, or None where one is too wide or tables for all would be too big."""
    layer = np.unique(sim.starts).astype(np.intp)
    reached = [layer]
    for h in range(sim.horizon):
        if layer.size > widest or layer.size * sim.horizon * sim.num_actions > MOST_CELLS:
            return None
        layer = np.unique(sim.successor_at(h)[layer]).astype(np.intp)
        reached.append(layer)
    return None if layer.size > widest else reached


def _over(sim: AbstractSimulator, reached: list[NDArray[np.intp]]) -> Chain:
    """The chain over given states: one list for all steps, or H+1 lists."""
    width = max(layer.size for layer in reached)
    steps = range(max(1, len(reached) - 1))
    groups = outcomes(sim)
    number, actions = groups.most, sim.num_actions
    states = np.full((len(reached), width), -1, np.int32)
    for h, layer in enumerate(reached):
        states[h, : layer.size] = layer
    successor = np.zeros((len(steps), width, number), np.int32)
    outcome = np.zeros((len(steps), width, actions), np.int32)
    share = np.zeros((len(steps), width, number), np.float32)
    for h in steps:
        here, there = reached[h], reached[min(h + 1, len(reached) - 1)]
        slot = np.zeros(sim.num_states, np.int32)
        slot[there] = np.arange(there.size)
        leads, which = _step(groups.successor, h)[here], _step(groups.of_action, h)[here]
        exists = _step(groups.exists, h)[here]
        successor[h, : here.size] = np.where(exists, slot[leads], 0)
        outcome[h, : here.size] = which
        np.add.at(share[h], (np.arange(here.size)[:, None], which), np.float32(1 / actions))
    start = np.zeros(width, np.float32)
    first = np.searchsorted(reached[0], sim.starts)
    np.add.at(start, first, sim.start_probabilities)
    payments = np.unique(np.round(sim.reward, 6))
    if payments.size > MOST_REWARDS:
        payments = np.zeros(0)
    return Chain(
        states=on_device(states),
        successor=on_device(successor),
        outcome=on_device(outcome),
        share=on_device(share),
        start=on_device(start),
        pays=on_device(_pays(sim, states, outcome, number, payments)),
        payments=on_device(payments, np.float32),
        final=on_device(_final(sim, states)),
        horizon=sim.horizon,
    )


def _step(table: NDArray[Any], h: int) -> NDArray[Any]:
    return table[h] if table.ndim == 3 else table


def _pays(
    sim: AbstractSimulator,
    states: NDArray[np.int32],
    outcome: NDArray[np.int32],
    number: int,
    payments: NDArray[np.float64],
) -> NDArray[np.int32]:
    """The bits of the rewards that the actions of an outcome pay."""
    steps = max(len(outcome), sim.reward.shape[0] if sim.reward.ndim == 3 else 1)
    bits = np.zeros((steps, states.shape[1], number), np.int32)
    if not payments.size:
        return bits
    for h in range(steps):
        here = states[min(h, len(states) - 1)]
        which = outcome[min(h, len(outcome) - 1)]
        paid = np.searchsorted(payments, np.round(sim.reward_at(h)[np.maximum(here, 0)], 6))
        rows = np.arange(here.size)[:, None]
        np.bitwise_or.at(bits[h], (rows, which), np.int32(1) << paid.astype(np.int32))
        bits[h][here < 0] = 0
    return bits


def _final(sim: AbstractSimulator, states: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Slots in which every action stays and pays nothing, at every step there is."""
    own = np.arange(sim.num_states)[:, None]
    stays = (sim.successor == own).all(axis=-1) & (sim.reward == 0).all(axis=-1)
    stays = stays if stays.ndim == 1 else stays.all(axis=0)
    return np.where(states >= 0, stays[np.maximum(states, 0)], False)
