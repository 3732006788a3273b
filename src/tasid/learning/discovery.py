"""Discovery: a map of an environment that has none.

Batches of whole episodes are played. After each batch

1. observations are assigned to states (`tasid.learning.mixture`);
2. transitions are counted, and the posterior of the outcome of every (state, action) pair is
   computed: an outcome is intended with probability ≥ 1−η, and actions of one state often share
   outcomes (a Chinese-restaurant prior). A pair is known at posterior ≥ 1−δ;
3. dynamic programming on the estimated map finds the policy that tests the most unknown pairs in
   one episode;
4. exploration ends when that policy expects next to no tests.

Where outcomes are random, a pair is known when the shares of its outcomes are. Exploration then has
stages, and tests are doubled from stage to stage.

If the step can be predicted from observations, the environment is *layered*: states belong to steps
and are compared within their step only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln
from threadpoolctl import threadpool_limits

from tasid.episodes import Episodes
from tasid.hmm.features import FeatureConfig, flatten, is_picture
from tasid.keys import Phase, episode_keys
from tasid.learning.base import Event
from tasid.learning.mixture import DiscoveryConfig, Rows, first_mixture
from tasid.policy import OpenLoopPolicy, Policy
from tasid.simulator import AbstractSimulator
from tasid.storage import EpisodeLog, write_artifact
from tasid.targets.base import Target
from tasid.targets.rollout import rollout
from tasid.theory import at_least

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_compiled = numba.njit(nogil=True, cache=True, error_model="numpy")


class Undecided(ValueError):
    """The episodes do not determine a map that can be trusted."""


@dataclass(frozen=True)
class BatchExplored(Event):
    """State of the exploration after a batch."""

    states: int
    open_pairs: int
    """Pairs (state, action) that are to be tested further."""
    expected_tests: float
    """Tests of such pairs that the best policy expects in an episode."""
    stage: int
    stochastic: bool


class Table(NamedTuple):
    """Counted transitions; K bounds the successors of a state."""

    candidates: Ints
    """States observed after each state, [S, K]; padded with the state itself."""
    exists: NDArray[np.bool_]
    """Which candidates are not padding, [S, K]."""
    counts: Floats
    """[S, A, K]."""
    cell: Ints
    """Index of every counted transition in the flat counts."""

    @classmethod
    def of(cls, s: Ints, a: Ints, following: Ints, num_states: int, num_actions: int) -> Table:
        """Of transitions (s, a, following), [n] each."""
        observed = np.zeros((num_states, num_states), bool)
        observed[s, following] = True
        slot = observed.cumsum(axis=1, dtype=np.int32) - 1
        width = int(slot[:, -1].max(initial=0)) + 1
        candidates = np.tile(np.arange(num_states)[:, None], (1, width))
        source, to = np.nonzero(observed)
        exists = np.zeros((num_states, width), bool)
        candidates[source, slot[source, to]], exists[source, slot[source, to]] = to, True
        cell = (s * num_actions + a) * width + slot[s, following]
        counts = np.bincount(cell, minlength=num_states * num_actions * width).astype(np.float64)
        return cls(candidates, exists, counts.reshape(num_states, num_actions, width), cell)


@dataclass(frozen=True, eq=False)
class Transitions:
    """Counted transitions and what they say about outcomes."""

    candidates: Ints
    """As in `Table`, [S, K]."""
    counts: Floats
    """[S, A, K]."""
    rewards: Floats
    """Mean reward of each transition, [S, A, K]."""
    terminal: NDArray[np.bool_]
    """States in which episodes end before the horizon, [S]."""
    posterior: Floats
    """[S, A, K+1], the last for an outcome not observed yet: P(the intended outcome is k), or the
    estimated distribution of outcomes where they are random."""
    need: Ints
    """Further tests until the pair is known, [S, A]."""
    explained: float
    """Share of the variance of rewards, around the mean of each step, that transitions explain."""

    @property
    def tried(self) -> Floats:
        """How often each pair was tried, [S, A]."""
        total: Floats = self.counts.sum(axis=-1)
        return total

    @property
    def mode(self) -> Ints:
        """The likeliest candidate of each pair, [S, A]; 0 where none is known."""
        return self.posterior[..., :-1].argmax(axis=-1)

    @property
    def hits(self) -> Floats:
        """How often each pair had its likeliest outcome, [S, A]."""
        return np.take_along_axis(self.counts, self.mode[..., None], axis=2)[..., 0]

    def outcomes_are_random(self, eta: float) -> bool:
        """Do pairs have their likeliest outcomes less often than slips allow?"""
        repeated = self.tried >= 4
        tried = float(self.tried[repeated].sum())
        missed = tried - float(self.counts.max(axis=-1)[repeated].sum())
        return bool(at_least(missed, max(tried, 1.0), eta + 0.05) < 1e-6)

    def predict(self, eta: float) -> Floats:
        """p(k | s, a) with slips, [S, A, K+1]; the last is a state never observed."""
        mean = self.posterior.mean(axis=1, keepdims=True)
        return (1 - eta) * self.posterior + eta * mean


def count_transitions(
    rows: Rows,
    assigned: Ints,
    num_states: int,
    num_actions: int,
    eta: float,
    config: DiscoveryConfig,
    tries: int = 0,
) -> Transitions:
    """Count the transitions between successive observations, and judge the outcomes of pairs.

    The likelihood of the outcome k is (1−η)^n_k η^(n−n_k). An outcome that other actions of the
    state have is likelier a priori, by a Chinese-restaurant process. With `tries` outcomes are
    random, and a pair is known when it was tried so often, or when its shares are precise.
    """
    first = np.flatnonzero(rows.action >= 0)
    s, a, following = assigned[first], rows.action[first], assigned[first + 1]
    candidates, exists, counts, cell = Table.of(s, a, following, num_states, num_actions)
    reward = rows.reward[first]
    means = np.bincount(cell, reward, counts.size) / np.maximum(counts.ravel(), 1)
    ended = np.bincount(assigned, rows.ended, num_states)
    terminal = ended > 0.5 * np.bincount(assigned, minlength=num_states)
    h = rows.step[first]
    of_step = np.bincount(h, reward) / np.maximum(np.bincount(h), 1)
    variance = float(((reward - of_step[h]) ** 2).mean())
    explained = 1.0 - float(((reward - means[cell]) ** 2).mean()) / variance if variance else 1.0

    slips, concentration = max(eta, 1e-3), config.concentration
    good, bad = math.log1p(-slips), math.log(slips)
    tried = counts.sum(axis=-1, keepdims=True)
    if tries:
        votes = (counts / np.maximum(tried, 1)).sum(axis=1, keepdims=True)
        base = np.append(votes, np.full((num_states, 1, 1), concentration), axis=-1)
        base /= base.sum(axis=-1, keepdims=True)
        posterior = (np.append(counts, np.zeros_like(tried), axis=-1) + 0.5 * base) / (tried + 0.5)
        share = (counts.max(axis=-1) + 1) / (tried[..., 0] + 2)
        enough = share * (1 - share) / config.standard_error**2
        # Where few pairs are random, one with the same outcome in all n tries is none: odds 2⁻ⁿ.
        same, often = counts.max(axis=-1) == tried[..., 0], tried[..., 0] >= 4
        odds = (1 + (often & ~same).sum()) / (1 + (often & same).sum()) * (1 / config.delta - 1)
        enough = np.where(same, np.minimum(enough, max(math.log2(odds), 1.0)), enough)
        enough = np.minimum(enough, tries)
        need = np.ceil(np.maximum(enough - tried[..., 0], 0)).astype(np.int64)
        posterior[need == 0, -1] = 0.0
    else:
        likelihood = np.append(counts * good + (tried - counts) * bad, tried * bad, axis=-1)
        likelihood[..., :-1][~np.broadcast_to(exists[:, None], counts.shape)] = -np.inf
        posterior = _normalised(likelihood)
        for _ in range(3):
            votes = posterior[..., :-1] * (tried > 0)
            others = np.where(exists[:, None], votes.sum(axis=1, keepdims=True) - votes + 1e-2, 0.0)
            total = others.sum(axis=-1, keepdims=True) + concentration
            elsewhere = np.broadcast_to(concentration / total, tried.shape)
            number = np.maximum(exists.sum(axis=1), 1)[:, None, None]
            known = np.maximum(others / total, elsewhere / number)
            prior = np.append(np.where(exists[:, None], known, 1e-300), elsewhere, axis=-1)
            posterior = _normalised(likelihood + np.log(prior))
        best = posterior[..., :-1].max(axis=-1)
        odds = np.log(np.maximum(best, 1e-9) / np.maximum(1 - best, 1e-9))
        odds = np.where(tried[..., 0] > 0, odds, 0.0)
        missing = math.log((1 - config.delta) / config.delta) - odds
        need = np.ceil(np.maximum(missing, 0.0) / (good - bad)).astype(np.int64)
    need[terminal] = 0
    return Transitions(
        candidates, counts, means.reshape(counts.shape), terminal, posterior, need, explained
    )


def _normalised(log_weights: Floats) -> Floats:
    weights = np.exp(log_weights - log_weights.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def split_look_alikes(
    rows: Rows, assigned: Ints, num_components: int, num_actions: int, eta: float
) -> tuple[Ints, Ints]:
    """States of all rows, and the component of each state: look-alike states share a component.

    The contexts in which a component is entered, the states and actions before, are clustered by
    what actions do afterwards. Clusters are states if the misses that they explain pay for a
    message that names the cluster of every context. Where many components would be split, outcomes
    are random.
    """
    labels, component = assigned, np.arange(num_components)
    first = np.flatnonzero(rows.action >= 0)
    miss = math.log1p(-max(eta, 1e-2)) - math.log(max(eta, 1e-2))
    for _ in range(4):
        entered = (rows.step == 0) | (labels != np.roll(labels, 1))
        entry = np.maximum.accumulate(np.where(entered, np.arange(len(labels)), 0))
        context = 1 + labels[entry - 1] * num_actions + rows.action[entry - 1]
        context[rows.step[entry] == 0] = 0
        most = 1 + len(component) * num_actions
        groups, group = np.unique(assigned * most + context, return_inverse=True)
        s, a, following = assigned[first], rows.action[first], labels[first + 1]
        table = Table.of(s, a, following, max(num_components, len(component)), num_actions)
        width = table.counts.shape[-1]
        cell = (group[first] * num_actions + a) * width + table.cell % width
        counts = np.bincount(cell, minlength=len(groups) * num_actions * width)
        owner = groups // most
        begins = np.searchsorted(owner, np.arange(num_components + 1))
        cluster = np.zeros(len(groups), np.int64)
        counts = counts.reshape(len(groups), num_actions, width).astype(np.float64)
        _cluster_contexts(counts, begins, miss, cluster)
        parts = np.ones(num_components, np.int64)
        np.maximum.at(parts, owner, cluster + 1)
        if (parts > 1).sum() > max(8, num_components / 4):
            return assigned, np.arange(num_components)
        clones = np.repeat(np.arange(num_components), parts - 1)
        offset = num_components + np.cumsum(parts - 1) - parts
        states = np.where(cluster > 0, offset[owner] + cluster, owner)[group]
        component = np.append(np.arange(num_components), clones)
        if (states == labels).all():
            break
        labels = states
    return labels, component


@_compiled
def _cluster_contexts(counts: Any, begins: Any, miss: float, cluster: Any) -> None:
    """Cluster the contexts of each component; counts are [contexts, A, K].

    Of all pairs, the one whose union misses least is merged, at a tie the one with most in common.
    """
    for s in range(len(begins) - 1):
        n = counts[begins[s] : begins[s + 1]].copy()
        number, actions, width = n.shape
        together = n.sum(axis=0)
        misses, kinds = 0.0, 1
        for a in range(actions):
            misses += together[a].sum() - together[a].max()
        for k in range(width):
            kinds += together[:, k].sum() > 0
        cost = actions * math.log(kinds)
        if miss * misses <= cost:
            continue
        own, size = np.arange(number), np.ones(number)
        lost, common = np.zeros((number, number)), np.zeros((number, number))
        changed = -1  # all
        while True:
            best, i, j = np.inf, -1, -1
            for x in range(number):
                if own[x] != x:
                    continue
                for y in range(x + 1, number):
                    if own[y] != y:
                        continue
                    if changed < 0 or changed in (x, y):
                        lost[x, y] = common[x, y] = 0.0
                        for a in range(actions):
                            of_x, of_y, most, most_x, most_y = 0.0, 0.0, 0.0, 0.0, 0.0
                            for k in range(width):
                                of_x += n[x, a, k]
                                of_y += n[y, a, k]
                                most_x = max(most_x, n[x, a, k])
                                most_y = max(most_y, n[y, a, k])
                                most = max(most, n[x, a, k] + n[y, a, k])
                            lost[x, y] += most_x + most_y - most
                            common[x, y] += min(of_x, of_y)
                    if lost[x, y] - 1e-6 * common[x, y] < best:
                        best, i, j = lost[x, y] - 1e-6 * common[x, y], x, y
            if i < 0:
                break
            named = math.lgamma(size[i] + size[j]) - math.lgamma(size[i]) - math.lgamma(size[j])
            if cost + named <= miss * lost[i, j]:
                break
            n[i] += n[j]
            size[i] += size[j]
            own[own == j] = i
            changed = i
        used = 0
        for x in range(number):
            if own[x] == x:
                cluster[begins[s] : begins[s + 1]][own == x] = used
                used += 1


def _surprise(missed: Floats, tried: Floats, eta: float) -> Floats:
    """ln(1 / probability of so many misses) over what the largest of so many pairs may reach."""
    chance = at_least(missed, np.maximum(tried, 1), max(eta, 1e-3))
    limit = math.log(100 * max(int((tried > 0).sum()), 1))
    surprise: Floats = -np.log(np.maximum(chance, 1e-300)) / limit
    return surprise


@_compiled
def _plan_tests(
    candidates: Any, predicted: Any, tests: Any, terminal: Any, step: Any, unseen: Any, q: Any
) -> Any:
    """Fill q [H, S, A] with the tests that the rest of the episode expects; returns V_0 [S]."""
    horizon, number, actions = q.shape
    width = candidates.shape[1]
    value = np.zeros(number)
    for h in range(horizon - 1, -1, -1):
        earlier = np.zeros(number)
        for s in range(number):
            if terminal[s] or (step[s] >= 0 and step[s] != h):
                continue
            for a in range(actions):
                expected = tests[s, a] + predicted[s, a, width] * unseen[h + 1]
                for k in range(width):
                    expected += predicted[s, a, k] * value[candidates[s, k]]
                q[h, s, a] = expected
            earlier[s] = q[h, s].max()
        value = earlier
    return value


@_compiled
def _choose(q: Any, tests: Any, left: Any, here: Any, draws: Any, actions: Any) -> bool:
    """The best action of each episode, ties at random; was some pair tested for the last time?"""
    exhausted = False
    for i in range(len(here)):
        s = here[i]
        if s < 0:
            continue
        # A test that another episode of the batch makes counts no more.
        own = q[s] - np.where(left[s] > 0, 0.0, tests[s])
        best = np.flatnonzero(own >= own.max() - 1e-6)
        a = best[int(draws[i] * len(best))]
        actions[i] = a
        if left[s, a] > 0:
            left[s, a] -= 1
            exhausted |= left[s, a] == 0
    return exhausted


class Explorer(Policy):
    """Tests as many unknown pairs as it can in every episode.

    The episodes of a batch share what they are about to test.
    """

    method = "discover"

    def __init__(self, exploration: Exploration, target: Target) -> None:
        for name in ("observation_shape", "observation_dtype", "num_actions", "horizon"):
            setattr(self, name, getattr(target, name))
        mixture, component = exploration.mixture, exploration.component
        self._mixture, self._pool, self._rng = mixture, exploration.pool, exploration.rng
        self._transitions = transitions = exploration.transitions
        self._predicted = transitions.predict(0.0 if exploration.stochastic else exploration.eta)
        self._step, number = mixture.step[component], len(component)
        self._looks = []  # of each step: states, positions of their components, parameters
        for h in range(self.horizon + 1 if mixture.layered else 1):
            states = np.flatnonzero((self._step < 0) | (self._step == h))
            components, place = np.unique(component[states], return_inverse=True)
            self._looks.append((states, place, mixture.parameters(components)))
        self._left = transitions.need.copy()
        self._q = np.zeros((self.horizon, number, self.num_actions))
        self._plan()

    def _plan(self) -> None:
        """Q_h(s, a): tests in the rest of the episode; an unobserved state is worth some, too."""
        t = self._transitions
        self._tests = (self._left > 0).astype(np.float64)
        unseen = 0.5 * np.minimum(np.arange(self.horizon, -1, -1), 6) * self._tests.max(initial=0.0)
        self.tests_ahead = _plan_tests(
            t.candidates, self._predicted, self._tests, t.terminal, self._step, unseen, self._q
        )

    def init(self, n: int) -> Any:
        """The last state and action of each episode; −1 where the state is new."""
        return np.full(n, -1), np.zeros(n, np.int64)

    def act(self, memory: Any, observations: NDArray[Any], h: int) -> tuple[Any, NDArray[np.int32]]:
        """Locate the episodes, and choose the actions with the most tests ahead."""
        mixture, t, number = self._mixture, self._transitions, len(self._step)
        states, place, parameters = self._looks[h if mixture.layered else 0]
        scores = mixture.log_prob(flatten(observations, self._pool), h, parameters)
        scores = scores[:, np.append(place, -1)]
        previous, command = memory
        known = np.flatnonzero(previous >= 0)
        before = previous[known]
        leads = np.append(t.candidates[before], np.full((len(known), 1), number), axis=1)
        prior = np.full((len(scores), number + 1), 1e-3)  # where the last action should have led
        np.add.at(prior, (known[:, None], leads), self._predicted[before, command[known]])
        scores = scores + np.log(prior[:, np.append(states, number)])
        here = np.append(states, -1)[scores.argmax(axis=1)]
        actions = self._rng.integers(self.num_actions, size=len(scores))
        draws = self._rng.random(len(scores))
        if _choose(self._q[h], self._tests, self._left, here, draws, actions):
            self._plan()
        return (here, actions), actions.astype(np.int32)

    def save(self, path: str | Path) -> Path:
        """Refused: an explorer belongs to one batch."""
        raise TypeError(f"save: {path}: an explorer belongs to one batch")


@dataclass(frozen=True, eq=False)
class Discovery:
    """A discovered map and how sure it is."""

    simulator: AbstractSimulator
    """Labels are (step, number) in layered environments, else numbers."""
    episodes: int
    """All episodes that were played or read."""
    confidence: Floats = field(repr=False)
    """Posterior probability of each successor, [S, A]; on stochastic maps, the estimated share of
    the likeliest one. 0 where it is a guess."""
    tried: Floats = field(repr=False)
    """How often each pair was tried, [S, A]."""
    eta: float
    """Estimated share of slips; 0 on stochastic maps, which contain them."""
    finished: bool
    """Did exploration end because nothing was left to test?"""
    warnings: tuple[str, ...]
    history: tuple[BatchExplored, ...] = field(repr=False)
    layered: bool
    """Do states belong to steps?"""
    means: NDArray[np.float32] = field(repr=False)
    """Mean observation of each state: numbers [S, D], or pictures [S, rows, columns, channels]."""

    def summary(self) -> dict[str, Any]:
        """The numbers of a result file."""
        return {
            "episodes": self.episodes,
            "states": self.simulator.num_states,
            "stochastic": self.simulator.stochastic,
            "eta": self.eta,
            "finished": self.finished,
            "warnings": list(self.warnings),
        }

    def save(self, path: str | Path) -> Path:
        """Write the map, a source for every command, and beside it what `tasid report` shows."""
        arrays = {name: getattr(self, name) for name in ("confidence", "tried", "means")}
        history = [vars(event) for event in self.history]
        metadata = {**self.summary(), "history": history}
        write_artifact(Path(path) / "discovery", kind="discovery", metadata=metadata, arrays=arrays)
        return self.simulator.save(path)


def discover(
    source: Target | EpisodeLog,
    *,
    eta: float = 0.1,
    delta: float | None = None,
    episodes: int | str = "auto",
    horizon: int | None = None,
    seed: int = 0,
    force: bool = False,
    config: DiscoveryConfig | None = None,
    callbacks: Sequence[Callable[[Event], None]] = (),
) -> Discovery:
    """Find the states of an environment and where its actions lead.

    Parameters
    ----------
    source
        The environment to explore, or a log of episodes: then the map is what they cover.
    eta
        Bound on the probability of slips.
    delta
        Doubt that is allowed for the outcome of every pair; `config.delta` if None.
    episodes
        A limit, or "auto" for `config.max_episodes`.
    horizon
        Steps per episode; that of the source if None.
    seed
        Determines the episodes and the exploration.
    force
        Return a map with warnings where the evidence does not suffice, instead of `Undecided`.
    callbacks
        Called with a `BatchExplored` after every batch.
    """
    config = config or DiscoveryConfig()
    config = config if delta is None else replace(config, delta=delta)
    exploration = Exploration(source, eta, horizon, seed, config)
    limit = episodes if isinstance(episodes, int) else config.max_episodes
    with threadpool_limits(1, "blas"):
        while not exploration.finished and exploration.played < limit:
            event = exploration.batch(limit)
            for callback in callbacks:
                callback(event)
    return exploration.result(force)


class Exploration:
    """One run: observations so far, their states, and what is known of transitions."""

    def __init__(
        self,
        source: Target | EpisodeLog,
        eta: float,
        horizon: int | None,
        seed: int,
        config: DiscoveryConfig,
    ) -> None:
        self.eta, self.seed, self.config = eta, seed, config
        self.target: Target | None = None
        self.log: Episodes | None = None
        if isinstance(source, Target):
            self.target = source if horizon is None else source.with_horizon(horizon)
            self.horizon, self.num_actions = self.target.horizon, self.target.num_actions
            shape = self.target.observation_shape
        else:
            self.log, shape = source.read(), tuple(source.header["observation_shape"])
            if not len(self.log):
                raise ValueError(f"source: {source.path} holds no whole episodes")
            self.horizon, self.num_actions = self.log.horizon, int(source.header["num_actions"])
        self.shape = shape
        self.pool = max(1, min(shape[:2]) // FeatureConfig.picture_side) if is_picture(shape) else 0
        self.rng = np.random.default_rng([seed, Phase.DISCOVERY])
        self.history = list[BatchExplored]()
        self.stochastic = False
        self.played = self.stage = self.quiet = self.refitted_at = 0
        self.finished = False
        self.mixture: Any = None
        self.explorer: Explorer | None = None

    def batch(self, limit: int) -> BatchExplored:
        """Play a batch, and find out what it says about states and transitions."""
        episodes = self._episodes(limit)
        self.played += len(episodes)
        new = Rows.of(episodes, self.pool)
        if self.mixture is None:
            self.rows = new
            self.mixture, self.assigned = first_mixture(new, self.horizon + 1, self.config)
            self.refitted_at = len(new.step)
        else:
            self.rows = self.rows.join(new)
            assigned = self.mixture.assign(new.features, new.step)
            self.assigned = np.concatenate([self.assigned, assigned])
            self.mixture.merge(self.assigned)
        rows, number = self.rows, len(self.assigned)
        # When nothing seems left to test, everything is looked at again.
        if self.quiet == 1 or number > self.config.refit_growth * self.refitted_at:
            self.assigned = self.mixture.refit(rows.features, rows.step, self.assigned)
            self.refitted_at = number
        self._count()
        expected = 0.0
        if self.target is None:
            self.finished = True
        else:
            expected = self._plan(self.target)
        self.history.append(
            BatchExplored(
                episodes=self.played,
                total_episodes=None,
                states=len(self.component),
                open_pairs=int((self.transitions.need > 0).sum()),
                expected_tests=expected,
                stage=self.stage,
                stochastic=self.stochastic,
            )
        )
        return self.history[-1]

    def _episodes(self, limit: int) -> Episodes:
        """The next episodes: random at first, then those of the explorer."""
        if self.log is not None:
            return self.log
        assert self.target is not None
        number, chosen = self.config.batch, None
        policy: Policy = self.explorer or OpenLoopPolicy(self.target)
        if self.explorer is None:
            number = self.config.first_batch
            shape = (min(number, limit), self.horizon)
            chosen = self.rng.integers(self.num_actions, size=shape).astype(np.int32)
        number = min(number, limit - self.played)
        keys = episode_keys(self.seed, Phase.DISCOVERY, self.played, number)
        return rollout(self.target, policy, keys, overrides=chosen, width=number)

    def _count(self) -> None:
        """States of all observations, and transitions between them."""
        rows, config, actions = self.rows, self.config, self.num_actions
        number = len(self.mixture)
        labels, component = split_look_alikes(rows, self.assigned, number, actions, self.eta)
        self.transitions = count_transitions(
            rows, labels, len(component), actions, self.eta, config
        )
        # Early states are fragments of others, whose outcomes look random: every batch judges anew.
        self.stochastic = (
            self.played >= 2 * config.first_batch and self.transitions.outcomes_are_random(self.eta)
        )
        if self.stochastic:
            labels, component = self.assigned, np.arange(number)
            self.transitions = count_transitions(
                rows, labels, number, actions, self.eta, config, 1 << self.stage
            )
        self.labels, self.component = labels, component
        start = np.bincount(labels[rows.step == 0], minlength=len(component))
        self.start = start / start.sum()

    def _plan(self, target: Target) -> float:
        """Plan the next batch; the tests that an episode expects. Stages without any are left."""
        most = math.ceil(0.25 / self.config.standard_error**2)
        last = most.bit_length() if self.stochastic else 0
        while True:
            self.explorer = Explorer(self, target)
            expected = float(self.start @ self.explorer.tests_ahead)
            self.quiet = self.quiet + 1 if expected < self.config.idle else 0
            if not self.quiet or self.stage >= last:
                self.finished = self.quiet >= 2
                return expected
            self.stage, self.quiet = self.stage + 1, 0
            self._count()

    def result(self, force: bool) -> Discovery:
        """The map, if it can be trusted."""
        rows, mixture = self.rows, self.mixture
        if self.finished and not self.stochastic:
            # States that no action leads to are outliers of others.
            t, led_to = self.transitions, np.zeros(len(mixture), bool)
            led_to[self.component[self.start > 0.02]] = True
            mode = np.take_along_axis(t.candidates, t.mode, axis=1)
            led_to[self.component[mode[t.tried > 0]]] = True
            lost = ~led_to[self.assigned]
            moved = mixture.nearest(rows.features[lost], rows.step[lost], among=led_to)
            self.assigned[lost] = np.where(moved < 0, self.assigned[lost], moved)
            self.assigned = mixture.recount(rows.features, self.assigned)
            self._count()
        t, step = self.transitions, mixture.step[self.component]
        warnings = self._warnings()
        if warnings and not force and self.log is None:
            raise Undecided(
                "source: " + "; ".join(warnings) + "; more episodes may help, force=True returns "
                "the map as it is"
            )
        tested = (t.tried > 0).any(axis=1, keepdims=True) & ~t.terminal[:, None]
        begin = np.flatnonzero(self.start > 0.02)
        simulator = AbstractSimulator(
            **_tables(t, tested, self.stochastic),
            horizon=self.horizon,
            start=begin,
            start_probabilities=self.start[begin] / self.start[begin].sum(),
            states=_labels(step),
            source="discovered",
        )
        best = t.posterior[..., :-1].max(axis=-1)
        means = (mixture.sums / mixture.counts[:, None])[self.component].astype(np.float32)
        if self.pool:
            rows_and_columns = [side // self.pool for side in self.shape[:2]]
            means = means.reshape(len(means), *rows_and_columns, self.shape[2])
        return Discovery(
            simulator=simulator,
            episodes=self.played,
            confidence=np.where(tested, np.where(t.tried > 0, best, 0.0), 1.0),
            tried=t.tried,
            eta=0.0 if self.stochastic else _slips(t, tested),
            finished=self.finished and not warnings,
            warnings=tuple(warnings),
            history=tuple(self.history),
            layered=mixture.layered,
            means=means,
        )

    def _warnings(self) -> list[str]:
        """Why the map may be wrong."""
        t, warnings = self.transitions, []
        labels = _labels(self.mixture.step[self.component])
        if self.log is not None:
            untried = int(((t.tried == 0) & ~t.terminal[:, None]).sum())
            unsure = int(((t.need > 0) & (t.tried > 0)).sum())
            if untried + unsure:
                warnings.append(
                    f"{self.played} episodes leave {untried} of {t.need.size} pairs (state, "
                    f"action) untried and {unsure} unsure: their successors are guesses"
                )
        elif not self.finished:
            warnings.append(f"exploration is unfinished after {self.played} episodes")
        if self.mixture.temperature < self.config.least_temperature:
            warnings.append(
                "observations of the first state scatter in ways that no common covariance "
                "explains: states that differ may be taken for one"
            )
        if t.explained < self.config.explained:
            warnings.append(
                f"states and actions explain {t.explained:.0%} of the variance of rewards within "
                "steps: states that differ may look alike"
            )
        if self.stochastic:
            doubtful = np.flatnonzero(_memory(self.rows, self.labels, t) > 0)
            if len(doubtful):
                warnings.append(
                    f"what actions do in {len(doubtful)} states depends on the state before, for "
                    f"instance in {labels[doubtful[0]]}: states that differ may look alike"
                )
            return warnings
        surprise = _surprise(t.tried - t.hits, t.tried, self.eta)
        pairs = np.argwhere((surprise > 1.0) & ~t.terminal[:, None])
        if len(pairs):
            s, a = pairs[0]
            warnings.append(
                f"{len(pairs)} pairs (state, action) miss their outcome more often than "
                f"η = {self.eta:g} allows, for instance state {labels[s]}, action {a}"
            )
        return warnings


def _labels(step: Ints) -> list[Any]:
    """(step, number) where states belong to steps, else numbers."""
    if (step < 0).all():
        return list(range(len(step)))
    return [(int(h), int((step[:s] == h).sum())) for s, h in enumerate(step)]


def _tables(t: Transitions, tested: NDArray[np.bool_], stochastic: bool) -> dict[str, Any]:
    """Successors by their shares, or the likeliest ones, and their mean rewards.

    Where an action is untried, what all actions do is the best guess.
    """
    together = t.counts.sum(axis=1, keepdims=True)
    weights = np.where(
        t.tried[..., None] > 0, t.counts if stochastic else t.posterior[..., :-1], together
    )
    reward = (t.counts * t.rewards).sum(axis=1, keepdims=True) / np.maximum(together, 1)
    reward = np.where(t.counts > 0, t.rewards, reward)
    order = np.argsort(-weights, axis=-1, kind="stable")
    width = max(int((weights > 0).sum(axis=-1).max()), 1) if stochastic else 1
    order, left = order[..., :width], tested[..., None]
    weights, reward = (np.take_along_axis(x, order, axis=-1) for x in (weights, reward))
    successor = np.take_along_axis(t.candidates[:, None], order, axis=-1)
    kept, stays = left & (weights > 0), np.arange(len(weights))[:, None, None]
    shares = np.where(
        left,
        weights / np.maximum(weights.sum(axis=-1, keepdims=True), 1e-300),
        np.arange(width) == 0,
    )
    tables = {"successor": np.where(kept, successor, stays), "reward": np.where(kept, reward, 0.0)}
    if stochastic:
        return tables | {"probabilities": shares}
    return {name: table[..., 0] for name, table in tables.items()}


def _slips(t: Transitions, tested: NDArray[np.bool_]) -> float:
    """Share of slips: misses over the chance that a slip shows."""
    actions, mode = t.mode.shape[1], t.mode
    different = (mode[:, None, :] != mode[:, :, None]).mean(axis=2) * actions / max(actions - 1, 1)
    repeated = tested & (t.tried >= 2)
    visible = float((t.tried * different)[repeated].sum())
    return float((t.tried - t.hits)[repeated].sum()) / max(visible, 1e-9)


def _memory(rows: Rows, labels: Ints, t: Transitions) -> Floats:
    """Evidence that outcomes depend on the previous state, too, in nats above doubt, [S].

    The marginal likelihoods of outcomes, one Dirichlet prior per (state, action) against one per
    (state, action, previous state).
    """
    number, actions, _ = t.counts.shape
    second = np.flatnonzero((rows.action[1:] >= 0) & (rows.action[:-1] >= 0)) + 1
    s, a, following = labels[second], rows.action[second], labels[second + 1]
    width = np.maximum((t.counts.sum(axis=1) > 0).sum(axis=1), 1)
    evidence = np.zeros(number)
    whole = (s * actions + a, s)
    split = ((s * actions + a) * number + labels[second - 1], s)
    for sign, (group, state) in ((-1.0, whole), (1.0, split)):
        groups, where = np.unique(group, return_inverse=True)
        cells, n = np.unique(where * number + following, return_counts=True)
        of_group = np.zeros(len(groups), np.int64)
        of_group[where] = state
        prior = 0.5 * width[of_group].astype(np.float64)
        own = gammaln(prior) - gammaln(prior + np.bincount(where))
        own += np.bincount(cells // number, gammaln(n + 0.5) - gammaln(0.5), len(groups))
        evidence += sign * np.bincount(of_group, own, number)
    return evidence - math.log(1e3 * number)
