"""Hypotheses about starts, tested by what policies learned under them earn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from tasid.algorithms.decoder import WIDTH, Decoder
from tasid.algorithms.initial_states import ENOUGH, Hypothesis, StartsFound
from tasid.envs.rollout import roll
from tasid.envs.target import EVALUATION, Target, episode_keys, seed_key
from tasid.envs.waves import in_waves

TESTING = EVALUATION + 5
"""The phase of the episodes that test."""
EACH = 64
"""Episodes per cluster of a test."""
_UNTESTED = (-1e9, 0.0, 0)
"""Value, half of its interval and episodes of what was not tested."""


class Tested(NamedTuple):
    """What a policy earned in every cluster."""

    starts: tuple[int, ...]
    """The state each cluster was taken for."""
    value: NDArray[np.float64]
    """[N]; NaN where no episode of the cluster came up."""
    half: NDArray[np.float64]
    """Half of a 95 % interval, [N]."""
    number: NDArray[np.int64]
    """Episodes of each cluster, [N]."""


def assignments(found: StartsFound) -> list[tuple[int, ...]]:
    """Few one-to-one assignments in which every hypothesis that is still open occurs."""
    clusters = len(found.starts)
    gap = np.array([h.nats or 0.0 for h in found.hypotheses]).reshape(clusters, clusters)
    states = np.array([h.start for h in found.hypotheses]).reshape(clusters, clusters)
    waiting, chosen = gap < ENOUGH, []
    while waiting.any():
        merit = 1e3 * waiting - np.minimum(gap, 1e2)
        rows, columns = linear_sum_assignment(merit, maximize=True)
        if not waiting[rows, columns].any():
            break
        waiting[rows, columns] = False
        chosen.append(tuple(int(state) for state in states[rows, columns]))
    return chosen


def tested_returns(target: Target, decoder: Decoder, *, seed: int, episodes: int) -> Tested:
    """Follow the decoder's policy for whole episodes and sort the returns by cluster."""
    key, clusters, returns = seed_key(seed), [], []
    for first in range(0, episodes, WIDTH):
        rows = range(min(WIDTH, episodes - first))
        if target.traceable:
            tables = _chunk_compiled(target, decoder=decoder, key=key, first=first)
        else:
            run = partial(_chunk, decoder=decoder, key=key, first=first)
            tables = in_waves(target, run, rows=rows, width=WIDTH)
        clusters.append(np.asarray(tables[0])[: len(rows)])
        returns.append(np.asarray(tables[1], np.float64)[: len(rows)])
    cluster, earned = np.concatenate(clusters), np.concatenate(returns)
    starts = tuple(int(s) for s in np.asarray(decoder.start_state))
    parts = [earned[cluster == k] for k in range(len(starts))]
    return Tested(
        starts,
        np.array([part.mean() if part.size else math.nan for part in parts]),
        np.array([half_width(part) for part in parts]),
        np.array([part.size for part in parts]),
    )


def half_width(returns: NDArray[np.float64]) -> float:
    """Half of a 95 % interval of the mean (normal approximation)."""
    if returns.size < 2:
        return math.inf
    return 1.96 * float(returns.std(ddof=1)) / math.sqrt(returns.size)


def _chunk(target: Any, *, decoder: Decoder, key: jax.Array, first: Any) -> Any:
    keys = episode_keys(key, TESTING, first + jnp.arange(WIDTH))
    moment = roll(target, _Watched(decoder), keys, steps=target.horizon)
    return moment.carry[1], moment.returns


_chunk_compiled = jax.jit(_chunk)


class _Watched(NamedTuple):
    """A decoder that also remembers its episodes' clusters."""

    decoder: Decoder

    def start(self, observations: jax.Array) -> Any:
        assert self.decoder.clusterer is not None, "there are several starts"
        return self.decoder.start(observations), self.decoder.clusterer(observations)

    def act(self, carry: Any, observations: jax.Array, h: jax.Array) -> tuple[Any, jax.Array]:
        memory, actions = self.decoder.act(carry[0], observations, h)
        return (memory, carry[1]), actions


def decide(found: StartsFound, tests: Sequence[Tested]) -> StartsFound:
    """The one-to-one assignment that earns most, by the tests; what was not tested is out.

    A cluster that clearly earns more as another start is that one, whoever else is: then some start
    has no cluster, because it never appeared.
    """
    states = sorted({h.start for h in found.hypotheses})
    merit = np.full((len(found.starts), len(states)), -1e9)
    measured: dict[tuple[int, int], tuple[float, float, int]] = {}
    for test in tests:
        for k, state in enumerate(test.starts):
            if test.number[k] and test.value[k] > merit[k, states.index(state)]:
                merit[k, states.index(state)] = test.value[k]
                measured[k, state] = (test.value[k], test.half[k], int(test.number[k]))
    _rows, columns = linear_sum_assignment(np.array(found.shares)[:, None] * merit, maximize=True)
    for k, (taken, best) in enumerate(zip(columns, merit.argmax(axis=1), strict=True)):
        one, other = (measured.get((k, states[j]), _UNTESTED) for j in (taken, best))
        if other[0] - other[1] > one[0] + one[1]:
            columns[k] = best
    starts = tuple(states[j] for j in columns)

    def told(h: Hypothesis) -> Hypothesis:
        h = replace(h, accepted=starts[h.cluster] == h.start)
        if (h.cluster, h.start) not in measured:
            return h
        value, half, number = measured[h.cluster, h.start]
        low, high = (value - half, value + half) if math.isfinite(half) else (None, None)
        return replace(h, value=float(value), low=low, high=high, episodes=h.episodes + number)

    unseen = tuple(state for state in states if state not in starts)
    hypotheses = tuple(map(told, found.hypotheses))
    return replace(found, starts=starts, hypotheses=hypotheses, unseen=unseen)
