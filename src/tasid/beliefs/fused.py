"""The expectation step on large maps: one pass over the edges of a step each way.

The same sums as `smoother.expect`, for classes that are places. Tables of all edges of a step, for
all episodes of a chunk, fit into no cache where there are thousands of places; here there are none,
and places where no episode may be cost nothing.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tasid.beliefs.chain import Chain
from tasid.beliefs.classes import Classes
from tasid.beliefs.episodes import Episodes
from tasid.beliefs.smoother import (
    MANY,
    NEVER,
    UNLIKELY,
    Emission,
    Expected,
    Said,
    Weights,
    likelihoods,
)

_NOBODY = np.float32(1e-33)
"""Beliefs below this are none: not far below, float32 loses its speed and then its digits."""
_NEVER = np.float32(NEVER)
_TINY = np.float32(1e-30)
_SILENT = 31
"""A reward that no map has; on any edge it would be right."""


def is_fused(chain: Chain, classes: Classes) -> bool:
    """Is there one table for all steps, large enough for this to be faster?"""
    return not chain.layered and chain.num_slots >= MANY and classes.kind == "place"


def expect_fused(
    chain: Chain,
    classes: Classes,
    emission: Emission,
    episodes: Episodes,
    weights: Weights,
    advantage: jax.Array,
    features: jax.Array,
) -> Expected:
    """As `smoother.expect`, where one table serves all steps and nobody leaps."""
    heard = _Heard(*map(np.asarray, _heard(chain, classes, emission, episodes, weights)))
    tables = chain.successor, chain.outcome, chain.share, chain.final
    edges = tuple(np.asarray(table[0]) for table in tables)
    pays, commands, own = map(np.asarray, (chain.pays, episodes.commands, episodes.own))
    gains = np.asarray(advantage)
    ones = np.ones((*features.shape[:2], 1), np.float32)
    seen = np.concatenate([np.asarray(features), ones], axis=2) * heard.counts[:, :, None]
    chances = np.float32(weights.eta), np.float32(UNLIKELY ** float(weights.told))

    def step(h: int) -> tuple[Any, ...]:
        said = commands[h], heard.paid[h], heard.over[h], heard.mute[h]
        return (*edges, pays[min(h, len(pays) - 1)]), said, chances

    kernels, horizon, (slots, number) = _kernels(), chain.horizon, heard.looks.shape[1:]
    alphas = np.empty((horizon + 1, slots, number), np.float32)
    total, evidence = np.empty(number, np.float32), heard.most.sum(axis=0)
    alphas[0] = np.asarray(chain.start)[:, None]
    for h in range(horizon + 1):
        if h > 0:
            kernels.forward(*step(h - 1), alphas[h - 1], alphas[h])
        kernels.look(alphas[h], heard.looks[h], total)
        evidence += np.log(total)

    sums = np.zeros((slots, seen.shape[-1]), np.float32)
    foreseen, regret, right, gain = np.zeros((4, number), np.float32)
    beta, earlier = np.ones((2, slots, number), np.float32)
    posterior = np.empty((slots, number), np.float32)
    for h in reversed(range(horizon + 1)):
        if h < horizon:
            kernels.backward(*step(h), alphas[h], beta, earlier, right)
            beta, earlier = earlier, beta
        kernels.weigh(alphas[h], heard.looks[h], beta, posterior, total)
        if h < horizon:
            foreseen += np.log(np.maximum(right / total, UNLIKELY))
            kernels.gain(posterior, gains[h], commands[h], gain)
            regret -= gain * own[h]
        sums += posterior @ seen[h]
    by_class = np.zeros((classes.number, seen.shape[-1]))
    np.add.at(by_class, np.asarray(classes.members[0]), sums)
    found: list[Any] = [by_class[:, -1], by_class[:, :-1], evidence, foreseen, regret]
    return Expected(*found)


class _Heard(NamedTuple):
    """All that episodes tell."""

    looks: Any
    """Likelihoods, [H+1, M, N]."""
    most: Any
    """ln of what they were divided by, [H+1, N]."""
    counts: Any
    """Does the observation count? [H+1, N]"""
    paid: Any
    over: Any
    mute: Any
    """As in `Said`, int32 [H, N], but `mute` where ends tell nothing."""


@jax.jit
def _heard(
    chain: Chain, classes: Classes, emission: Emission, episodes: Episodes, weights: Weights
) -> _Heard:
    looked = jnp.arange(chain.horizon + 1) < weights.upto
    used = (episodes.live > 0) & looked[:, None]

    def look(seen: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        scores = emission.scores(seen[0], classes.members[0])
        return likelihoods(scores * weights.temper, seen[1][None])

    looks, most = jax.lax.map(look, (episodes.features, used))
    said = jax.vmap(lambda h: Said.at(episodes, h, chain.horizon))(jnp.arange(chain.horizon))
    return _Heard(
        looks=looks,
        most=most,
        counts=used.at[0].set(weights.upto > 0) * episodes.weight[None],
        paid=jnp.where(said.paid < 0, _SILENT, said.paid),
        over=said.over.astype(jnp.int32),
        mute=(~said.tells).astype(jnp.int32),
    )


class _Kernels(NamedTuple):
    forward: Any
    look: Any
    backward: Any
    weigh: Any
    gain: Any


@cache
def _kernels() -> _Kernels:
    """Loops with episodes innermost, [M, N], so that compiled code takes several at a time."""
    from numba import njit  # takes a while, and small maps never need it

    compiled = njit(nogil=True, error_model="numpy")
    one, none, silent = np.float32(1), np.float32(0), np.int32(-(1 << _SILENT))

    @compiled
    def anybody(row):  # type: ignore[no-untyped-def]
        some = False
        for n in range(row.size):
            some |= row[n] > 0
        return some

    @compiled
    def agree(payments, ends, paid, over, mute):  # type: ignore[no-untyped-def]
        """Does an edge agree with what was paid, and with the end or none? As `Said.agrees`."""
        return (payments >> paid) & (np.int32(ends == over) | mute) & 1

    @compiled
    def forward(edges, said, chances, alpha, later):  # type: ignore[no-untyped-def]
        """α_{h+1} before anything is seen."""
        successor, outcome, share, final, pays = edges
        commands, paid, over, mute = said
        eta, unlikely = chances
        intended = np.empty(commands.size, np.int32)
        later[:] = 0
        for s in range(successor.shape[0]):
            if not anybody(alpha[s]):
                continue
            for n in range(commands.size):
                intended[n] = outcome[s, commands[n]]
            for k in range(successor.shape[1]):
                t, slip = successor[s, k], eta * share[s, k]
                if slip == 0:
                    continue
                ends, payments = np.int32(final[t]), pays[s, k] | silent
                for n in range(commands.size):
                    agrees = agree(payments, ends, paid[n], over[n], mute[n])
                    chance = slip + (one - eta if intended[n] == k else none)
                    later[t, n] += alpha[s, n] * chance * (one if agrees else unlikely)

    @compiled
    def look(alpha, looks, total):  # type: ignore[no-untyped-def]
        """Take what is seen into account, normalise, and give what it summed up to."""
        slots, number = alpha.shape
        total[:] = _TINY
        for s in range(slots):
            if anybody(alpha[s]):
                for n in range(number):
                    alpha[s, n] *= looks[s, n]
                    total[n] += alpha[s, n]
        scale = one / total
        for s in range(slots):
            if anybody(alpha[s]):
                for n in range(number):
                    share = alpha[s, n] * scale[n]
                    alpha[s, n] = share if share > _NOBODY else none

    @compiled
    def backward(edges, said, chances, alpha, beta, earlier, right):  # type: ignore[no-untyped-def]
        """β_h from β_{h+1} times its looks, where α_h is not nothing; and how much agrees."""
        successor, outcome, share, final, pays = edges
        commands, paid, over, mute = said
        eta, unlikely = chances
        intended = np.empty(commands.size, np.int32)
        earlier[:], right[:] = 0, 0
        for s in range(successor.shape[0]):
            if not anybody(alpha[s]):
                continue
            for n in range(commands.size):
                intended[n] = outcome[s, commands[n]]
            for k in range(successor.shape[1]):
                t, slip = successor[s, k], eta * share[s, k]
                if slip == 0:
                    continue
                ends, payments = np.int32(final[t]), pays[s, k] | silent
                for n in range(commands.size):
                    agrees = agree(payments, ends, paid[n], over[n], mute[n])
                    chance = slip + (one - eta if intended[n] == k else none)
                    edge = chance * (one if agrees else unlikely) * beta[t, n]
                    earlier[s, n] += edge
                    right[n] += alpha[s, n] * edge if agrees else none

    @compiled
    def weigh(alpha, looks, beta, posterior, total):  # type: ignore[no-untyped-def]
        """α β normalised, and what it summed up to; β over that and times looks.

        Posteriors that are nothing make β nothing.
        """
        slots, number = alpha.shape
        total[:] = _TINY
        for s in range(slots):
            for n in range(number):
                posterior[s, n] = alpha[s, n] * beta[s, n]
                total[n] += posterior[s, n]
        scale = one / total
        for s in range(slots):
            if not anybody(posterior[s]):
                beta[s] = 0
                continue
            for n in range(number):
                share = posterior[s, n] * scale[n]
                posterior[s, n] = share if share > _NEVER else none
                beta[s, n] = beta[s, n] * scale[n] * looks[s, n] if share > _NEVER else none

    @compiled
    def gain(posterior, gains, commands, mean):  # type: ignore[no-untyped-def]
        """The mean advantage of the commands."""
        mean[:] = 0
        for s in range(posterior.shape[0]):
            if not anybody(posterior[s]):
                continue
            for n in range(commands.size):
                mean[n] += posterior[s, n] * gains[s, commands[n]]

    return _Kernels(forward, look, backward, weigh, gain)
