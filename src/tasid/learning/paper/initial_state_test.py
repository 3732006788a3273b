"""Algorithms 3 and 4: which start a cluster is, decided by the policies learned for every guess.

Episode by episode, the first observation's cluster decides whose instance advances. For each of the
N hypotheses in turn a cluster runs Algorithm 2 for n_l of its episodes and the learned policy for
n_t; then the best mean return wins, and its policy is the cluster's. Nothing is shared: N² policies
are learned to keep N.

An episode is a pure function of its index, and the counts are fixed beforehand; so the episodes of
the common stream are dealt out to the N² instances first, and the instances advance step by step.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tasid.learning.memory import Memory, SharedMemory
from tasid.learning.paper.method import PaperLearner
from tasid.learning.paper.start_clusters import Clusters, cluster_starts
from tasid.learning.paper.tasid import Callback, Explored, Learned, StepEnded, explore
from tasid.maps import AbstractSimulator, RobustPlan
from tasid.models.networks import Clusterer
from tasid.policies.decoder import WIDTH, Decoder
from tasid.targets.batches import batch_tables, joined
from tasid.targets.rollout import roll
from tasid.targets.streams import ONLINE
from tasid.targets.target import Target, episode_keys, seed_key
from tasid.theory.starts import StartBudget

_RARE = 50
"""A cluster is too rare if it has so many times fewer episodes than its share, …"""
_SURELY = 100
"""… once so many batches of them were seen."""


@dataclass(frozen=True)
class StartCounts:
    """Episodes of Algorithms 3 and 4."""

    cluster: int
    """n₀, real transitions to group first observations by."""
    learn: int
    """n_l for every cluster and hypothesis."""
    test: int
    """n_t likewise."""
    most: int | None = None
    """No more episodes than these in all: if need be, n_l and n_t shrink to what the rarest cluster
    has for each of its hypotheses."""

    @classmethod
    def of_theory(cls, budget: StartBudget) -> StartCounts:
        """The counts that the paper proves."""
        return cls(budget.n_cluster, budget.n_learn, budget.n_test)

    @classmethod
    def practical(cls, horizon: int, starts: int) -> StartCounts:
        """n_l = 1000 H, with which one start of the lock at H = 10 is about solved; n_t = 256."""
        return cls(cluster=512 * starts, learn=1000 * horizon, test=256)

    @classmethod
    def within(cls, episodes: int, horizon: int, starts: int) -> StartCounts:
        """The most that so many episodes allow, if all starts are equally likely."""
        cluster = min(512 * starts, episodes // 4)
        each = (episodes - cluster) // starts**2
        counts = cls(cluster, each, 0, most=episodes).sharing(each)
        if counts.test < 2 or counts.learn < 2 * horizon:
            raise ValueError(
                f"episodes: {episodes} leave {each} for each of {starts}² hypotheses; they need "
                f"{max(16, 2 * horizon + 2)} or more each"
            )
        return counts

    def sharing(self, each: int) -> StartCounts:
        """The same with so many episodes for every cluster and hypothesis."""
        test = min(256, each // 8)
        return replace(self, learn=each - test, test=test)


@dataclass(frozen=True)
class Hypothesis:
    """A cluster and a start it might be."""

    cluster: int
    start: int
    """Index of the state."""
    accepted: bool
    value: float
    """Mean return of the policy learned under it."""
    low: float
    high: float
    """A 95 % interval of that."""
    episodes: int
    """Episodes of the cluster that were spent on it."""


@dataclass(frozen=True, eq=False)
class StartsFound:
    """The start of every cluster, and how it was found."""

    clusters: Clusters
    starts: tuple[int, ...]
    """The state that each cluster is."""
    hypotheses: tuple[Hypothesis, ...]
    episodes: int
    """All episodes spent on it, beside learning the policies that were kept."""
    unseen: tuple[int, ...]
    """Starts of which no episode was seen."""


def learn_each_start(
    target: Target,
    plan: RobustPlan,
    *,
    counts: StartCounts,
    seed: int,
    callbacks: Sequence[Callback] = (),
    memory: Memory | None = None,
) -> tuple[Learned, StartsFound]:
    """Cluster first observations, then test every hypothesis for every cluster."""
    if counts.test < 2:
        raise ValueError(f"episodes: {counts.test} to test a hypothesis with; 2 are the fewest")
    clusters = cluster_starts(target, plan.simulator, episodes=counts.cluster, seed=seed)
    starts = [int(start) for start in plan.simulator.starts]
    pairs = [(k, start) for k in range(len(starts)) for start in starts]
    dealt, counts = _deal(target, clusters.clusterer, counts, len(starts), seed)
    instances = [
        _Instance(
            target,
            PaperLearner(
                target,
                replace(plan, simulator=plan.simulator.with_start(start)),
                episodes=counts.learn,
                seed=(7919 * seed + 1 + i) % 2**31,
                memory=None if memory is None else SharedMemory(memory, i, len(pairs)),
            ),
            episode_keys(seed_key(seed), ONLINE, jnp.asarray(dealt.episodes[i])),
        )
        for i, (_, start) in enumerate(pairs)
    ]
    history = []
    for h in range(plan.simulator.horizon - 1):
        history.append(_advanced(instances, h, seed=seed, steps=plan.simulator.horizon - 1))
        for callback in callbacks:
            callback(history[-1])
    returns = np.stack(
        [one.returns(range(counts.learn, counts.learn + counts.test)) for one in instances]
    )
    hypotheses, winners = _verdicts(pairs, returns, counts)
    found = StartsFound(
        clusters=clusters,
        hypotheses=hypotheses,
        starts=tuple(pairs[w][1] for w in winners),
        episodes=counts.cluster + dealt.elapsed - counts.learn * len(starts),
        unseen=_unseen(plan.simulator, {pairs[w][1] for w in winners}, counts.cluster),
    )
    decoder = _united([instances[w].learner.decoder for w in winners], found)
    total = counts.cluster + dealt.elapsed
    return Learned(seed, plan, decoder, total, tuple(history)), found


def _unseen(sim: AbstractSimulator, taken: set[int], episodes: int) -> tuple[int, ...]:
    """Starts that no cluster is, and those too rare for a single one of these episodes."""
    expected = dict(zip(sim.starts.tolist(), episodes * sim.start_probabilities, strict=True))
    return tuple(start for start in expected if start not in taken or expected[start] < 1)


class _Instance(NamedTuple):
    """Algorithm 2 for a cluster and a start it might be, on the episodes that it was dealt."""

    target: Target
    learner: PaperLearner
    keys: jax.Array
    """Of its episodes, in order, [n_l + n_t]."""

    def explored(self, h: int) -> Explored:
        """The data of step h."""
        each = self.learner.episodes
        found: Explored = self._over(explore, range(h * each, (h + 1) * each), jnp.int32(h))
        return found

    def returns(self, episodes: range) -> NDArray[np.float64]:
        """What the policy earns."""
        return np.asarray(self._over(_earn, episodes))

    def _over(self, run: Callable[..., Any], episodes: range, *more: Any) -> Any:
        """Tables [n, …] of `run`; the last batch is filled up with episodes that are dropped."""
        width, parts = min(WIDTH, len(episodes)), []
        for first in range(0, len(episodes), width):
            rows = range(min(width, len(episodes) - first))
            places = np.minimum(episodes.start + first + np.arange(width), episodes[-1])
            arguments = self.learner.decoder, self.keys[places], *more
            parts.append(batch_tables(self.target, run, *arguments, rows=rows, width=width))
        return joined(parts)


def _advanced(instances: Sequence[_Instance], h: int, *, seed: int, steps: int) -> StepEnded:
    """One step of every instance."""
    started = time.perf_counter()
    data = [one.explored(h) for one in instances]
    collected = time.perf_counter()
    with ThreadPoolExecutor(2) as pool:
        fitted = list(pool.map(lambda one, seen: one.learner.learn(h, seen), instances, data))
    return StepEnded(
        seed=seed,
        step=h,
        steps=steps,
        episodes=sum(one.learner.episodes for one in instances),
        validation_loss=float(np.mean([one.validation_loss for one in fitted])),
        epochs=max(one.epochs for one in fitted),
        seconds_collecting=collected - started,
        seconds_fitting=time.perf_counter() - collected,
    )


class _Dealt(NamedTuple):
    """The stream's episodes, in the order in which every instance gets them."""

    episodes: NDArray[np.int64]
    """Indices in the stream, [instances, n_l + n_t]."""
    elapsed: int
    """How long the stream had to be."""


def _deal(
    target: Target, clusterer: Clusterer, counts: StartCounts, number: int, seed: int
) -> tuple[_Dealt, StartCounts]:
    """Go through the stream until every cluster has had the episodes of all its hypotheses."""
    each = counts.learn + counts.test
    needed, queues = each * number, [np.zeros(0, np.int64) for _ in range(number)]
    first, key, end = 0, seed_key(seed), math.inf
    if counts.most is not None:
        end = counts.most - counts.cluster
    while min(queue.size for queue in queues) < needed and first < end:
        rare = min(range(number), key=lambda k: queues[k].size)
        if first > _SURELY * WIDTH and queues[rare].size * _RARE * number < first:
            raise ValueError(
                f"starts: of {first} episodes only {queues[rare].size} began in cluster {rare}, "
                f"whose {number} hypotheses need {needed}; it is too rare to be tested"
            )
        arguments = clusterer, key, first
        group = batch_tables(target, _group, *arguments, rows=range(WIDTH), width=WIDTH)
        for k in range(number):
            queues[k] = np.append(queues[k], first + np.flatnonzero(group == k))
        first += WIDTH
    queues = [queue[queue < end] for queue in queues]
    fewest = min(queue.size for queue in queues) // number
    if fewest < each:
        each, counts = fewest, counts.sharing(fewest)
        if counts.test < 2 or counts.learn < 2 * target.horizon:
            raise ValueError(
                f"episodes: {counts.most} leave {fewest} for each hypothesis about the rarest "
                f"cluster; they need {max(16, 2 * target.horizon + 2)} or more each"
            )
    dealt = np.concatenate([queue[: each * number].reshape(number, each) for queue in queues])
    return _Dealt(dealt, int(dealt.max()) + 1), counts


def _group(target: Any, clusterer: Clusterer, key: jax.Array, first: Any) -> jax.Array:
    _, observations = target.reset(episode_keys(key, ONLINE, first + jnp.arange(WIDTH)))
    return clusterer(observations)


def _earn(target: Any, decoder: Decoder, keys: jax.Array) -> jax.Array:
    return roll(target, decoder, keys, steps=target.horizon).returns


def _verdicts(
    pairs: Sequence[tuple[int, int]], returns: NDArray[np.float64], counts: StartCounts
) -> tuple[tuple[Hypothesis, ...], list[int]]:
    """Every hypothesis with its value, and which instance wins each cluster."""
    value = returns.mean(axis=1)
    clusters = sorted({k for k, _ in pairs})
    winners = [
        max((i for i, (k, _) in enumerate(pairs) if k == cluster), key=lambda i: value[i])
        for cluster in clusters
    ]
    hypotheses = []
    for i, (k, start) in enumerate(pairs):
        half = 1.96 * float(returns[i].std(ddof=1, dtype=np.float64)) / math.sqrt(counts.test)
        hypotheses.append(
            Hypothesis(
                k,
                start,
                accepted=i in winners,
                value=float(value[i]),
                low=float(value[i] - half),
                high=float(value[i] + half),
                episodes=counts.learn + counts.test,
            )
        )
    return tuple(hypotheses), winners


def _united(winners: Sequence[Decoder], found: StartsFound) -> Decoder:
    """One decoder of the winners: every cluster has its own models."""
    models = jnp.stack([one.models for one in winners])
    return winners[0].with_models(models).with_starts(found.clusters.clusterer, found.starts)
