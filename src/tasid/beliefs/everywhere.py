"""Filtering and smoothing over all slots of a chain, likelihoods taken at their word.

    π_{h+1}(s') = Σ_{(s,k) → s'} b_h(s) p(k | s, a_h) e_h(s,k)                  what is expected
    b_{h+1}(s') ∝ π_{h+1}(s') ℓ(x_{h+1} | s')                                   what is believed
    γ_h(s)      = b_h(s) Σ_k p(k | s, a_h) e_h(s,k) γ_{h+1}(s') / π_{h+1}(s')   in hindsight

The learner's smoother floors what observations say, because its likelihoods are guesses. Here a
likelihood of 0 rules out. Weights and likelihoods are multiplied by their logarithms, and hindsight
needs no likelihoods at all, so nothing overflows or vanishes on the way.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tasid.beliefs.chain import Chain, after, at
from tasid.beliefs.episodes import Episodes
from tasid.beliefs.inputs import Given
from tasid.beliefs.records import Beliefs, OutcomeCounter, SmoothedBeliefs
from tasid.beliefs.smoother import UNLIKELY, after_any, agreeing, spread
from tasid.maps import AbstractSimulator

Arrays = list[NDArray[np.float32]]


class _Shares(NamedTuple):
    eta: jax.Array
    leap: jax.Array


class _Hindsight(NamedTuple):
    belief: jax.Array
    """γ_h, [M, N]."""
    counts: jax.Array
    """Of commands and outcomes, [M, A, K]."""
    leaps: jax.Array
    """[N]."""


def filter_everywhere(sim: AbstractSimulator, chain: Chain, given: Given) -> Beliefs:
    """Beliefs from what was seen up to each step."""
    beliefs, evidence = _forward(chain, given)
    return Beliefs(**_fields(sim, chain, given, beliefs, evidence))


def smooth_everywhere(sim: AbstractSimulator, chain: Chain, given: Given) -> SmoothedBeliefs:
    """Beliefs from all that was seen."""
    beliefs, evidence = _forward(chain, given)
    shares = _shares(given)
    counter = OutcomeCounter(per_step=sim.successor.ndim == 3)
    leaps, smoothed = np.zeros(given.number), [beliefs[-1]]
    # Where one table serves all steps, counts are added up before anything is sorted.
    total = np.zeros((chain.num_slots, chain.num_actions, chain.num_outcomes))
    for h in reversed(range(chain.horizon)):
        found = _backward(chain, given.episodes, beliefs[h], smoothed[-1], h, shares)
        smoothed.append(np.asarray(found.belief))
        leaps += np.asarray(found.leaps)
        if chain.layered:
            _count(counter, chain, h, np.asarray(found.counts))
        else:
            total += np.asarray(found.counts)
    if not chain.layered:
        _count(counter, chain, 0, total)
    fields = _fields(sim, chain, given, smoothed[::-1], evidence)
    return SmoothedBeliefs(**fields, outcomes=counter.result(), leaps=leaps)


def _count(counter: OutcomeCounter, chain: Chain, h: int, counts: NDArray[np.floating]) -> None:
    """Counts [M, A, K] of step h, by states."""
    states = np.asarray(at(chain.states, h))[:, None, None]
    commands = np.arange(chain.num_actions)[None, :, None]
    there = np.asarray(after(chain.states, h)[at(chain.successor, h)])[:, None, :]
    counter.add(h, states, commands, there, counts)


def _forward(chain: Chain, given: Given) -> tuple[Arrays, NDArray[np.float64]]:
    """b_0 … b_H, [M, N] each, and the evidence, [N]."""
    shares = _shares(given)
    expected = jnp.broadcast_to(chain.start[:, None], (chain.num_slots, given.number))
    beliefs: Arrays = []
    evidence = np.zeros(given.number)
    for h in range(chain.horizon + 1):
        if h:
            expected = _expected(chain, given.episodes, beliefs[-1], h - 1, shares)
        states = np.asarray(at(chain.states, h))
        seen = given.seen(h, np.maximum(states, 0)[None]).T
        seen = np.where(np.asarray(expected) > 0, seen, -np.inf)
        most = _finite(seen.max(axis=0))
        belief, told = _weighed(expected, (seen - most).astype(np.float32))
        beliefs.append(np.asarray(belief))
        evidence += np.where(given.live(h), np.asarray(told, np.float64) + most, 0.0)
    return beliefs, evidence


def _edges(
    chain: Chain, episodes: Episodes, belief: jax.Array, h: jax.Array, shares: _Shares
) -> jax.Array:
    """What passes along every edge of step h, [M, K, N]."""
    said = jnp.where(agreeing(chain, episodes, h), 1.0, UNLIKELY)
    prior = chain.prior(h, episodes.commands[h], shares.eta)
    return (1 - shares.leap) * belief[:, None, :] * prior * said


@jax.jit
def _expected(
    chain: Chain, episodes: Episodes, belief: jax.Array, h: jax.Array, shares: _Shares
) -> jax.Array:
    """π_{h+1}, [M, N]."""
    carried = after(after_any(chain), h)[:, None] * belief.sum(axis=0)[None]
    edges = _edges(chain, episodes, belief, h, shares)
    return spread(chain, edges, h) + shares.leap * carried


@jax.jit
def _weighed(expected: jax.Array, seen: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The belief [M, N] after log-likelihoods [M, N], and ln of what it summed up to [N]."""
    logs = jnp.log(expected) + seen
    most = jnp.maximum(logs.max(axis=0), -3e38)
    mass = jnp.exp(logs - most[None])
    total = mass.sum(axis=0)
    possible = total > 0
    belief = mass / jnp.where(possible, total, 1.0)[None]
    return belief, jnp.where(possible, most + jnp.log(total), -jnp.inf)


@jax.jit
def _backward(
    chain: Chain,
    episodes: Episodes,
    belief: jax.Array,
    later: jax.Array,
    h: jax.Array,
    shares: _Shares,
) -> _Hindsight:
    """γ_h from b_h and γ_{h+1}, and what happened in between."""
    expected = _expected(chain, episodes, belief, h, shares)
    ratio = jnp.where(expected > 0, later / expected, 0.0)
    joint = _edges(chain, episodes, belief, h, shares) * ratio[at(chain.successor, h)]
    landed = (after(after_any(chain), h)[:, None] * ratio).sum(axis=0)
    leaps = shares.leap * belief * landed[None]
    mass = joint.sum(axis=1) + leaps
    total = mass.sum(axis=0)
    scale = jnp.where(total > 0, 1 / total, 0.0)
    used = scale * (h < episodes.ended)
    given = jax.nn.one_hot(episodes.commands[h], chain.num_actions) * used[:, None]
    counts = jnp.einsum("mkn,na->mak", joint, given)
    return _Hindsight(mass * scale[None], counts, leaps.sum(axis=0) * used)


def _fields(
    sim: AbstractSimulator,
    chain: Chain,
    given: Given,
    beliefs: Arrays,
    evidence: NDArray[np.float64],
) -> dict[str, Any]:
    """Of a record."""
    weights = np.stack([belief.T * given.live(h)[:, None] for h, belief in enumerate(beliefs)], 1)
    states = np.broadcast_to(np.asarray(chain.states)[None], weights.shape)
    return {
        "states": states,
        "weights": weights,
        "log_evidence": evidence,
        "discarded": np.zeros(weights.shape[:2], np.float32),
        "num_states": sim.num_states,
    }


def _shares(given: Given) -> _Shares:
    return _Shares(jnp.float32(given.eta), jnp.float32(given.leap))


def _finite(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(np.isfinite(values), values, 0.0)
