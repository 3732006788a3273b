"""Filtering and smoothing on the likeliest states only, for maps of 10⁵ states and more.

A belief is a list of at most F (slot, weight). A step branches every entry into its outcomes,
merges those that meet, weighs them by what is seen, and keeps the smallest set with mass 1 − ε.
What is discarded is reported; the evidence counts only paths that were kept, so it is a lower
bound on the true one. Hindsight runs over the same lists. Costs do not depend on the map's size.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tasid.beliefs.chain import Chain, after, at
from tasid.beliefs.episodes import Episodes
from tasid.beliefs.inputs import BeliefInputError, Given
from tasid.beliefs.records import Beliefs, OutcomeCounter, SmoothedBeliefs
from tasid.beliefs.smoother import UNLIKELY, Said
from tasid.maps import AbstractSimulator

WIDER = 4
"""At a dead end an episode is tried again with so many times the size."""


@dataclass(frozen=True)
class Frontier:
    """How much of a belief is kept."""

    size: int = 1024
    """F: so many states an episode at most."""
    epsilon: float = 1e-6
    """The smallest set of states with all but this share of the mass is kept."""
    widest: int = 1 << 16
    """How large `size` may grow for an episode that comes to a dead end."""

    def __post_init__(self) -> None:
        if self.size < 1 or self.widest < self.size:
            raise BeliefInputError(
                f"frontier: size {self.size}, widest {self.widest}; 1 ≤ size ≤ widest is needed"
            )
        if not 0 <= self.epsilon < 1:
            raise BeliefInputError(f"frontier: epsilon {self.epsilon!r} is outside [0, 1)")


class _Lists(NamedTuple):
    """Beliefs as lists in the order of slots; M, the number of slots, where a list is shorter."""

    slots: Any
    """int32 [N, F]."""
    weights: Any
    """[N, F]."""


class _States(NamedTuple):
    """Which state is in which slot, −1 in slot M."""

    table: NDArray[np.int32]
    """[1, M+1] or [H+1, M+1]."""

    @classmethod
    def of(cls, chain: Chain) -> _States:
        return cls(np.pad(np.asarray(chain.states), ((0, 0), (0, 1)), constant_values=-1))

    def at(self, h: int, slots: NDArray[np.int32]) -> NDArray[np.int32]:
        """The states in the slots of step h."""
        return self.table[h if len(self.table) > 1 else 0][slots]


class _Forward(NamedTuple):
    lists: list[_Lists]
    """Of steps 0 … H, NumPy."""
    evidence: NDArray[np.float64]
    discarded: NDArray[np.float32]
    """[N, H+1]."""


def filter_frontier(
    sim: AbstractSimulator, chain: Chain, given: Given, frontier: Frontier
) -> Beliefs:
    """Beliefs from what was seen up to each step."""
    forth = _wide_enough(chain, given, frontier)
    return Beliefs(**_fields(sim, chain, given, forth, forth.lists))


def smooth_frontier(
    sim: AbstractSimulator, chain: Chain, given: Given, frontier: Frontier
) -> SmoothedBeliefs:
    """Beliefs from all that was seen, on the states that were kept on the way."""
    forth = _wide_enough(chain, given, frontier)
    eta, table = jnp.float32(given.eta), _States.of(chain)
    counter = OutcomeCounter(per_step=sim.successor.ndim == 3)
    smoothed = [forth.lists[-1]]
    for h in reversed(range(chain.horizon)):
        here = forth.lists[h]
        weights, joint, leads = _backward(chain, given.episodes, here, smoothed[-1], h, eta)
        smoothed.append(_Lists(here.slots, np.asarray(weights)))
        counts = np.asarray(joint) * (h < given.ended)[:, None, None]
        states, there = table.at(h, here.slots), table.at(h + 1, np.asarray(leads))
        commands = given.commands[:, h, None, None]
        counter.add(h, states[..., None], commands, there, counts)
    fields = _fields(sim, chain, given, forth, smoothed[::-1])
    leaps = np.zeros(given.number)
    return SmoothedBeliefs(**fields, outcomes=counter.result(), leaps=leaps)


def _wide_enough(chain: Chain, given: Given, frontier: Frontier) -> _Forward:
    """The forward pass; episodes that come to a dead end again, wider and without an ε."""
    most = min(frontier.widest, chain.num_slots)
    frontier = replace(frontier, size=min(frontier.size, chain.num_slots))
    found = _forward(chain, given, frontier)
    while True:
        dead = np.flatnonzero(np.isneginf(found.evidence) & (found.discarded.max(axis=1) > 0))
        if not dead.size or (frontier.size >= most and frontier.epsilon == 0):
            return found
        size = min(WIDER * frontier.size, most)
        frontier = replace(frontier, size=size, epsilon=0.0)
        again = _forward(chain, given.only(dead), frontier)
        found = _replaced(found, dead, again, chain.num_slots)


def _replaced(found: _Forward, rows: NDArray[np.intp], again: _Forward, empty: int) -> _Forward:
    """Some episodes by others with longer lists."""
    lists = []
    for old, new in zip(found.lists, again.lists, strict=True):
        pad = ((0, 0), (0, new.slots.shape[1] - old.slots.shape[1]))
        slots = np.pad(old.slots, pad, constant_values=empty)
        weights = np.pad(old.weights, pad)
        slots[rows], weights[rows] = new.slots, new.weights
        lists.append(_Lists(slots, weights))
    evidence, discarded = found.evidence.copy(), found.discarded.copy()
    evidence[rows], discarded[rows] = again.evidence, again.discarded
    return _Forward(lists, evidence, discarded)


def _forward(chain: Chain, given: Given, frontier: Frontier) -> _Forward:
    eta = jnp.float32(given.eta)
    # Without an ε everything is kept, also what rounding makes look like nothing.
    kept = jnp.float32(1 - frontier.epsilon if frontier.epsilon else jnp.inf)
    table = _States.of(chain)
    begin = np.flatnonzero(np.asarray(chain.start)).astype(np.int32)
    shape = (given.number, begin.size)
    weights = jnp.broadcast_to(chain.start[begin][None], shape)
    branches = _Lists(jnp.broadcast_to(jnp.asarray(begin)[None], shape), weights)
    lists: list[_Lists] = []
    evidence, discarded = np.zeros(given.number), []
    for h in range(chain.horizon + 1):
        if h:
            branches = _branched(chain, given.episodes, lists[-1], h - 1, eta)
        slots = np.asarray(branches.slots)
        states = table.at(h, slots)
        seen = np.where(states >= 0, given.seen(h, np.maximum(states, 0)), -np.inf)
        most = seen.max(axis=1)
        most = np.where(np.isfinite(most), most, 0.0)
        ask = (seen - most[:, None]).astype(np.float32)
        pruned, told, lost = _pruned(branches, ask, kept, frontier.size, chain.num_slots)
        lists.append(_Lists(np.asarray(pruned.slots), np.asarray(pruned.weights)))
        live = given.live(h)
        evidence += np.where(live, np.asarray(told, np.float64) + most, 0.0)
        discarded.append(np.where(live, np.asarray(lost), 0).astype(np.float32))
    return _Forward(lists, evidence, np.stack(discarded, axis=1))


def _edges(
    chain: Chain, episodes: Episodes, lists: _Lists, h: jax.Array, eta: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """What passes along every edge of the listed slots, [N, F, K], and the slots it leads to."""
    commands = episodes.commands[h]
    slots = jnp.minimum(lists.slots, chain.num_slots - 1)
    intended = at(chain.outcome, h)[slots, commands[:, None]]
    hit = intended[..., None] == jnp.arange(chain.num_outcomes)[None, None]
    prior = (1 - eta) * hit + eta * at(chain.share, h)[slots]
    leads = at(chain.successor, h)[slots]
    final = after(chain.final, h)[leads]
    said = Said(*(part[:, None, None] for part in Said.at(episodes, h, chain.horizon)))
    agrees = said.agrees(at(chain.pays, h)[slots], final)
    mass = lists.weights[..., None] * prior * jnp.where(agrees, 1.0, UNLIKELY)
    return mass, jnp.where(mass > 0, leads, chain.num_slots)


@jax.jit
def _branched(
    chain: Chain, episodes: Episodes, lists: _Lists, h: jax.Array, eta: jax.Array
) -> _Lists:
    """Where everything leads, each slot once."""
    mass, leads = _edges(chain, episodes, lists, h, eta)
    rows = leads.shape[0]
    merge = partial(_merged, empty=chain.num_slots)
    return _Lists(*jax.vmap(merge)(leads.reshape(rows, -1), mass.reshape(rows, -1)))


def _merged(slots: jax.Array, mass: jax.Array, empty: int) -> tuple[jax.Array, jax.Array]:
    """Entries of the same slot added up, in the order of slots, [C]."""
    slots, mass = jax.lax.sort((slots, mass), num_keys=1, is_stable=True)
    opens = jnp.concatenate([jnp.ones(1, bool), slots[1:] != slots[:-1]])
    place = jnp.cumsum(opens) - 1
    sums = jax.ops.segment_sum(mass, place, slots.size, indices_are_sorted=True)
    return jnp.full(slots.size, empty, slots.dtype).at[place].set(slots), sums


@partial(jax.jit, static_argnames=("size", "empty"))
def _pruned(
    branches: _Lists, seen: jax.Array, kept: jax.Array, size: int, empty: int
) -> tuple[_Lists, jax.Array, jax.Array]:
    """The likeliest after log-likelihoods [N, C]; ln of the mass kept, the share lost, [N] each."""
    logs = jnp.log(branches.weights) + seen
    most = jnp.maximum(logs.max(axis=1), -3e38)
    mass = jnp.exp(logs - most[:, None])
    total = mass.sum(axis=1)
    possible = total > 0
    best, place = jax.lax.top_k(mass, min(size, mass.shape[1]))
    before = jnp.cumsum(best, axis=1) - best
    best = jnp.where(before < kept * total[:, None], best, 0.0)
    mine = best.sum(axis=1)
    weights = best / jnp.where(possible, mine, 1.0)[:, None]
    slots = jnp.take_along_axis(branches.slots, place, axis=1)
    slots = jnp.where(weights > 0, slots, empty)
    slots, weights = jax.lax.sort((slots, weights), num_keys=1)
    pad = ((0, 0), (0, size - slots.shape[1]))
    lists = _Lists(jnp.pad(slots, pad, constant_values=empty), jnp.pad(weights, pad))
    told = jnp.where(possible, most + jnp.log(mine), -jnp.inf)
    lost = jnp.where(possible, jnp.maximum(1 - mine / jnp.where(possible, total, 1.0), 0), 0.0)
    return lists, told, lost


@jax.jit
def _backward(
    chain: Chain,
    episodes: Episodes,
    here: _Lists,
    later: _Lists,
    h: jax.Array,
    eta: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The weights of this step's lists in hindsight, [N, F], its edges, [N, F, K], and slots."""
    mass, leads = _edges(chain, episodes, here, h, eta)

    def one(mass: jax.Array, leads: jax.Array, slots: jax.Array, weights: jax.Array) -> jax.Array:
        place = jnp.minimum(jnp.searchsorted(slots, leads), slots.size - 1)
        listed = (slots[place] == leads) & (mass > 0)
        mass = jnp.where(listed, mass, 0.0)
        expected = jax.ops.segment_sum(mass.ravel(), place.ravel(), slots.size)
        ratio = jnp.where(expected > 0, weights / expected, 0.0)
        return mass * ratio[place]

    joint = jax.vmap(one)(mass, leads, later.slots, later.weights)
    total = joint.sum(axis=(1, 2))
    joint = joint * jnp.where(total > 0, 1 / total, 0.0)[:, None, None]
    return joint.sum(axis=2), joint, leads


def _fields(
    sim: AbstractSimulator, chain: Chain, given: Given, forth: _Forward, lists: list[_Lists]
) -> dict[str, Any]:
    """Of a record."""
    table = _States.of(chain)
    weights = [list_.weights * given.live(h)[:, None] for h, list_ in enumerate(lists)]
    return {
        "states": np.stack([table.at(h, list_.slots) for h, list_ in enumerate(lists)], axis=1),
        "weights": np.stack(weights, axis=1),
        "log_evidence": forth.evidence,
        "discarded": forth.discarded,
        "num_states": sim.num_states,
    }
