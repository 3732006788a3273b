"""Discovery: a map of an environment that has none.

Batches of whole episodes are played. After each batch

1. observations are assigned to states by a Dirichlet-process mixture of Gaussians with one shared
   covariance. Whether an observation belongs to a known state or a new one, and whether two states
   are one, is a Bayes factor (PLDA, as in `tasid.hmm.emissions`);
2. transitions are counted, and the posterior of the outcome of every (state, action) pair is
   computed: an outcome is intended with probability ≥ 1−η, and actions of one state often share
   outcomes (a Chinese-restaurant prior). A pair is known at posterior ≥ 1−δ;
3. dynamic programming on the estimated map finds the policy that tests the most unknown pairs in
   one episode;
4. exploration ends when that policy expects next to no tests.

If the step can be predicted from observations, the environment is *layered*: states belong to steps
and are compared within their step only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tasid.episodes import Episodes
from tasid.hmm.features import flatten, is_picture
from tasid.keys import Phase, episode_keys
from tasid.learning.base import Event
from tasid.policy import Policy
from tasid.simulator import AbstractSimulator
from tasid.targets.base import Target
from tasid.targets.rollout import rollout
from tasid.theory import at_least

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Undecided(ValueError):
    """The episodes do not determine a map that can be trusted."""


@dataclass(frozen=True)
class DiscoveryConfig:
    """Hyper-parameters of discovery."""

    delta: float = 0.001
    """A pair (state, action) is known when its outcome has posterior probability ≥ 1 − delta."""
    max_episodes: int = 5_000
    """Episodes after which "auto" gives up."""
    first_batch: int = 32
    """Episodes of random actions at the beginning."""
    batch: int = 8
    """Episodes of every further batch."""
    idle: float = 0.05
    """Exploration ends when fewer tests than this are expected in an episode, twice."""
    birth: float = 0.1
    """Prior odds of a new state for an observation. Founding a state is cheap …"""
    survival: float = 0.1
    """… but to stay one of its own it has to beat the odds Γ(n+m) / (Γ(n) Γ(m) survival) of the
    mixture. Two outliers of one state support each other; strict births would file both away under
    wrong states for ever."""
    concentration: float = 1.0
    """How readily an action is expected to have an outcome that no other action there has."""
    refit_growth: float = 1.25
    """All observations are assigned anew when their number has grown by this factor."""
    floor: float = 1e-3
    """Variance of the noise at least, as a part of the mean variance."""
    picture_side: int = 14
    """Pictures are averaged over squares down to about this many a side."""


class Progress(NamedTuple):
    """State of the exploration after a batch."""

    episodes: int
    states: int
    open_pairs: int
    """Pairs (state, action) whose outcome is not known yet."""
    expected_tests: float
    """Tests of such pairs that the best policy expects in an episode."""


class StateMixture:
    """States by their observations.

    Attributes
    ----------
    counts, sums
        Number of observations of each state and the sums of their features, [S] and [S, D].
    step
        The step of each state in a layered environment, else −1, [S].
    temperature
        Log-likelihoods are multiplied by this. It is lowered until first observations, of which
        the number of states is known, are not split further.
    """

    def __init__(self, size: int, steps: int, layered: bool, config: DiscoveryConfig) -> None:
        self.layered, self.config = layered, config
        self.counts, self.sums = np.zeros(0), np.zeros((0, size))
        self.step = np.zeros(0, np.int64)
        self.centre = np.zeros((steps if layered else 1, size))
        self.temperature, self.num_starts = 1.0, 1

    def __len__(self) -> int:
        return len(self.counts)

    def fit_noise(self, scatter: Floats, freedom: float, mean_variance: float) -> None:
        """Set the shared covariance W; with few degrees of freedom, mostly its diagonal."""
        size = len(scatter)
        within = scatter / max(freedom, 1.0)
        diagonal = np.diag(within)
        weight = freedom / (freedom + size)
        target = np.diag(0.9 * diagonal + 0.1 * diagonal.mean())
        within = weight * within + (1 - weight) * target
        within += self.config.floor * mean_variance * np.eye(size)
        values, vectors = np.linalg.eigh(within)
        self._white = vectors / np.sqrt(np.maximum(values, 1e-12)) @ vectors.T

    def fit_between(self, features: NDArray[np.float32], h: Ints) -> None:
        """Set the centres and the directions and variances b in which states differ."""
        steps = range(len(self.centre))
        if len(self):
            means = self.sums / self.counts[:, None]
            own = self.step if self.layered else np.zeros(len(self), np.int64)
            for t in steps:
                members = own == t
                seen = features[h == t] if self.layered and not members.any() else means[members]
                self.centre[t] = seen.mean(axis=0) if len(seen) else 0.0
            weights = np.minimum(self.counts / 4, 1.0)
            if self.layered:  # a step with one state says nothing about differences
                weights = weights * (np.bincount(own)[own] > 1)
            total = max(weights.sum(), 1.0)
            deviation = (means - self.centre[own]) @ self._white
            between = (deviation * weights[:, None]).T @ deviation / total
            between -= np.eye(len(between)) * float((weights / self.counts).sum() / total)
            number = weights.sum()
        else:
            own = h if self.layered else np.zeros(len(h), np.int64)
            for t in steps:
                seen = features[own == t]
                self.centre[t] = seen.mean(axis=0) if len(seen) else 0.0
            deviation = (features - self.centre[own]) @ self._white
            between = deviation.T @ deviation / len(deviation) - np.eye(features.shape[1])
            number = 4.0
        values, vectors = np.linalg.eigh(between)
        values = np.maximum(values, 0.0)
        even = max(values.mean(), 8.0 / len(values))
        self.between = (number * values + 2.0 * even) / (number + 2.0)
        self.whitening = (self._white @ vectors).astype(np.float32)

    def project(self, features: NDArray[Any], step: Ints | int) -> NDArray[Any]:
        """Features in coordinates where W is the identity and B is diagonal."""
        centre = self.centre[step if self.layered else 0].astype(np.float32)
        projected: NDArray[Any] = (features - centre) @ self.whitening
        return projected

    def members(self, h: int) -> Ints:
        """The states that may be observed at step h."""
        return np.flatnonzero(self.step == h) if self.layered else np.arange(len(self))

    def log_prob(self, features: NDArray[np.float32], h: int, states: Ints) -> NDArray[Any]:
        """Posterior predictive ln p(x | s) of n observations of step h; last: of a new state.

        Shape [n, L + 1]; the prior odds of a new state are included.
        """
        y = self.project(features, h)
        counts = np.append(self.counts[states], 0.0)[:, None]
        centre = self.centre[h if self.layered else 0]
        sums = (self.sums[states] - counts[:-1] * centre) @ self.whitening
        sums = np.vstack([sums, np.zeros((1, y.shape[1]))])
        shrink = self.between / (1 + counts * self.between)
        variance, mean = 1 + shrink, sums * shrink
        scores = (y * y) @ (-0.5 / variance).T + y @ (mean / variance).T
        scores -= 0.5 * (mean**2 / variance + np.log(variance)).sum(axis=1)
        scores *= self.temperature
        scores[:, -1] += math.log(self.config.birth)
        return scores

    def _groups(self, h: Ints) -> list[tuple[int, Ints]]:
        """Steps and their rows; without layers, chunks of rows."""
        if not self.layered:
            return [(0, np.arange(len(h))[i : i + 4096]) for i in range(0, len(h), 4096)]
        order = np.argsort(h, kind="stable")
        cuts = np.searchsorted(h[order], np.arange(len(self.centre) + 1))
        return [(t, order[cuts[t] : cuts[t + 1]]) for t in range(len(self.centre))]

    def nearest(self, features: NDArray[np.float32], h: Ints) -> Ints:
        """The likeliest state of each observation; −1 where a new one is likelier."""
        assigned = np.full(len(h), -1)
        for t, rows in self._groups(h):
            states = self.members(t)
            if len(rows) and len(states):
                best = self.log_prob(features[rows], t, states).argmax(axis=1)
                assigned[rows] = np.append(states, -1)[best]
        return assigned

    def assign(self, features: NDArray[np.float32], h: Ints) -> Ints:
        """States of new observations, which count from now on; new states are founded."""
        assigned = self.nearest(features, h)
        known = assigned >= 0
        np.add.at(self.counts, assigned[known], 1.0)
        np.add.at(self.sums, assigned[known], features[known].astype(np.float64))
        self._found(features, h, assigned)
        return assigned

    def _found(self, features: NDArray[np.float32], h: Ints, assigned: Ints) -> None:
        """Found states for the rows with −1, one after the other."""
        first = len(self)
        for row in np.flatnonzero(assigned < 0):
            t = int(h[row]) if self.layered else -1
            young = np.arange(first, len(self))
            young = young[self.step[young] == t]
            x = features[row : row + 1]
            best = int(self.log_prob(x, max(t, 0), young).argmax()) if len(young) else len(young)
            if best < len(young):
                state = int(young[best])
                self.counts[state] += 1
                self.sums[state] += x[0]
            else:
                state = len(self)
                self.counts = np.append(self.counts, 1.0)
                self.sums = np.vstack([self.sums, x])
                self.step = np.append(self.step, t)
            assigned[row] = state

    def recount(self, features: NDArray[np.float32], assigned: Ints) -> Ints:
        """Recompute the statistics; states without observations go, the others are renumbered."""
        kept, assigned = np.unique(assigned, return_inverse=True)
        self.step = self.step[kept]
        self.counts = np.bincount(assigned).astype(np.float64)
        order = np.argsort(assigned, kind="stable")
        first = np.cumsum(self.counts).astype(np.int64) - self.counts.astype(np.int64)
        self.sums = np.add.reduceat(features[order], first, axis=0, dtype=np.float64)
        return assigned

    def refit(
        self, features: NDArray[np.float32], h: Ints, assigned: Ints, sweeps: int = 3
    ) -> Ints:
        """Fit covariances, merge states and assign all observations anew, several times."""
        square = features.T.astype(np.float64) @ features
        mean_variance = float(features.var(axis=0).mean())
        for _ in range(12):
            for _ in range(sweeps):
                assigned = self.recount(features, assigned)
                means = self.sums / self.counts[:, None]
                scatter = square - means.T @ self.sums
                self.fit_noise(scatter, len(features) - len(self), mean_variance)
                self.fit_between(features, h)
                self.merge(assigned)
                assigned = self.nearest(features, h)
                self._found(features, h, assigned)
            assigned = self.recount(features, assigned)
            self.merge(assigned)
            if len(np.unique(assigned[h == 0])) <= self.num_starts:
                break
            self.temperature *= 0.7
        return assigned

    def merge(self, assigned: Ints) -> None:
        """Merge pairs of states, the smallest first, while that is likelier; renumber in place."""
        from scipy.special import gammaln

        own = self.step if self.layered else np.zeros(len(self), np.int64)
        n = self.counts.copy()
        sums = (self.sums - n[:, None] * self.centre[own]) @ self.whitening

        def evidence(n: Any, sums: Any) -> Any:
            """ln of the marginal likelihood of n observations with these sums."""
            spread = 1 + n[:, None] * self.between
            return (
                0.5 * self.temperature * (sums**2 * self.between / spread - np.log(spread)).sum(1)
            )

        alone = evidence(n, sums)
        owner = np.arange(len(self))
        for i in np.argsort(n, kind="stable"):
            others = np.flatnonzero((owner == np.arange(len(self))) & (own == own[i]))
            others = others[others != i]
            if not len(others):
                continue
            both, joined = n[others] + n[i], sums[others] + sums[i]
            gain = evidence(both, joined) - alone[others] - alone[i]
            gain += gammaln(both) - gammaln(n[others]) - gammaln(n[i])
            gain -= math.log(self.config.survival)
            best = int(gain.argmax())
            if gain[best] > 0:
                target = others[best]
                owner[i] = target
                n[target], sums[target] = both[best], joined[best]
                alone[target] = evidence(n[target : target + 1], sums[target : target + 1])[0]
        if (owner == np.arange(len(self))).all():
            return
        while (owner[owner] != owner).any():
            owner = owner[owner]
        kept, place = np.unique(owner, return_inverse=True)
        total = np.zeros((len(kept), self.sums.shape[1]))
        np.add.at(total, place, self.sums)
        self.counts, self.sums = np.bincount(place, self.counts).astype(np.float64), total
        self.step = self.step[kept]
        assigned[:] = np.where(assigned >= 0, place[assigned], -1)


@dataclass(frozen=True, eq=False)
class Transitions:
    """Counted transitions and what they say about outcomes. K bounds the successors of a state."""

    candidates: Ints
    """States observed after each state, [S, K]; padded with the state itself."""
    exists: NDArray[np.bool_]
    """Which candidates are not padding, [S, K]."""
    counts: Floats
    """[S, A, K]."""
    rewards: Floats
    """Mean reward of each transition, [S, A, K]."""
    terminal: NDArray[np.bool_]
    """States in which episodes end before the horizon, [S]."""
    posterior: Floats
    """P(the intended outcome is k), [S, A, K+1]; the last for an outcome not observed yet."""
    need: Ints
    """Further tests until the outcome is known if all agree, [S, A]."""
    explained: float
    """Share of the variance of rewards that transitions explain."""

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
    def confidence(self) -> Floats:
        """Posterior probability of `mode`, 0 for pairs that were not tried, [S, A]."""
        best = self.posterior[..., :-1].max(axis=-1)
        return np.where(self.tried > 0, best, 0.0)

    def predict(self, eta: float) -> Floats:
        """p(k | s, a) with slips, [S, A, K+1]; the last is a state never observed."""
        mean = self.posterior.mean(axis=1, keepdims=True)
        return (1 - eta) * self.posterior + eta * mean


class Rows(NamedTuple):
    """All observations of all episodes, one after the other."""

    features: NDArray[np.float32]
    step: Ints
    action: Ints
    """Taken after the observation; −1 at the last."""
    reward: Floats
    ended: NDArray[np.bool_]
    """Did the target end the episode here, before the horizon?"""

    def followed_by(self, other: Rows) -> Rows:
        """These rows and then the other's."""
        columns: list[tuple[NDArray[Any], NDArray[Any]]] = list(zip(self, other, strict=True))
        return Rows(*(np.concatenate(pair) for pair in columns))

    @classmethod
    def of(cls, episodes: Episodes, pool: int) -> Rows:
        """The rows of episodes; their padding is left out."""
        valid, lengths = episodes.valid, episodes.lengths
        n, frames = valid.shape
        observations = episodes.observations
        assert observations is not None
        step = np.tile(np.arange(frames), (n, 1))
        last = step == lengths[:, None]
        padded = np.zeros((n, 1))
        action = np.where(last, -1, np.hstack([episodes.actions, padded]))
        reward = np.where(last, 0.0, np.hstack([episodes.rewards, padded]))
        ended = last & (lengths < frames - 1)[:, None]
        return cls(
            flatten(observations[valid], pool),
            step[valid],
            action[valid].astype(np.int64),
            reward[valid].astype(np.float64),
            ended[valid],
        )


def count_transitions(
    rows: Rows, assigned: Ints, num_states: int, num_actions: int, eta: float, config: Any
) -> Transitions:
    """Count the transitions between successive observations, and judge the outcomes of pairs.

    The likelihood of the outcome k is (1−η)^n_k η^(n−n_k). An outcome that other actions of the
    state have is likelier a priori, by a Chinese-restaurant process.
    """
    first = np.flatnonzero(rows.action >= 0)
    s, a, following, reward = (
        assigned[first],
        rows.action[first],
        assigned[first + 1],
        rows.reward[first],
    )
    pairs, inverse = np.unique(s * num_states + following, return_inverse=True)
    source = pairs // num_states
    slot = np.arange(len(pairs)) - np.searchsorted(source, source)
    width = int(slot.max(initial=0)) + 1
    candidates = np.tile(np.arange(num_states)[:, None], (1, width))
    exists = np.zeros((num_states, width), bool)
    candidates[source, slot], exists[source, slot] = pairs % num_states, True
    flat = (s * num_actions + a) * width + slot[inverse]
    shape = num_states, num_actions, width
    size = num_states * num_actions * width
    counts = np.bincount(flat, minlength=size).reshape(shape).astype(np.float64)
    total = np.bincount(flat, reward, minlength=size).reshape(shape)
    means = total / np.maximum(counts, 1)
    terminal = np.bincount(assigned, rows.ended, num_states) > 0.5 * np.bincount(
        assigned, minlength=num_states
    )
    variance = float(reward.var()) if len(reward) else 0.0
    left = float(((reward - means.ravel()[flat]) ** 2).mean()) if variance > 0 else 0.0

    slips = max(eta, 1e-3)
    good, bad = math.log1p(-slips), math.log(slips)
    tried = counts.sum(axis=-1, keepdims=True)
    likelihood = np.concatenate([counts * good + (tried - counts) * bad, tried * bad], axis=-1)
    likelihood[..., :-1][~np.broadcast_to(exists[:, None], shape)] = -np.inf
    posterior = _normalised(likelihood)
    for _ in range(3):
        votes = posterior[..., :-1] * (tried > 0)
        others = np.where(exists[:, None], votes.sum(axis=1, keepdims=True) - votes + 1e-2, 0.0)
        total_prior = others.sum(axis=-1, keepdims=True) + config.concentration
        elsewhere = np.broadcast_to(config.concentration / total_prior, tried.shape)
        number = np.maximum(exists.sum(axis=1), 1)[:, None, None]
        known = np.where(
            exists[:, None], np.maximum(others / total_prior, elsewhere / number), 1e-300
        )
        prior = np.concatenate([known, elsewhere], axis=-1)
        posterior = _normalised(likelihood + np.log(prior))
    best = posterior[..., :-1].max(axis=-1)
    target = math.log((1 - config.delta) / config.delta)
    odds = np.log(np.maximum(best, 1e-9) / np.maximum(1 - best, 1e-9))
    odds = np.where(tried[..., 0] > 0, odds, 0.0)
    need = np.ceil(np.maximum(target - odds, 0.0) / (good - bad)).astype(np.int64)
    need[terminal] = 0
    explained = 1.0 - left / variance if variance > 0 else 1.0
    return Transitions(candidates, exists, counts, means, terminal, posterior, need, explained)


def _normalised(log_weights: Floats) -> Floats:
    weights = np.exp(log_weights - log_weights.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def split_look_alikes(
    rows: Rows, assigned: Ints, num_components: int, num_actions: int, eta: float
) -> tuple[Ints, Ints]:
    """States of all rows, and the component of each state: look-alike states share a component.

    A component whose outcomes miss more often than slips allow is split by context (previous state
    and action), if two sets of modes explain its outcomes so much better that a message which names
    the set of every context pays for itself.
    """
    labels, component = assigned, np.arange(num_components)
    first = np.flatnonzero(rows.action >= 0)
    good, bad = math.log1p(-max(eta, 1e-2)), math.log(max(eta, 1e-2))
    for _ in range(2 * num_components):
        number = len(component)
        context = np.zeros(len(labels), np.int64)  # 0: the start of the episode
        context[first + 1] = 1 + labels[first] * num_actions + rows.action[first]
        s, a, following = labels[first], rows.action[first], labels[first + 1]
        joint = (s * num_actions + a) * number + following
        pairs, counts = np.unique(joint, return_counts=True)
        tried = np.bincount(pairs // number, counts, number * num_actions)
        most = np.zeros_like(tried)
        np.maximum.at(most, pairs // number, counts)
        tried, missed = (x.reshape(number, -1).sum(axis=1) for x in (tried, tried - most))
        suspicious = at_least(missed, np.maximum(tried, 1), eta + 0.05) < 1e-3 / number
        best = None
        for state in np.flatnonzero(suspicious & (tried > 0)):
            mine = first[labels[first] == state]
            contexts, which = np.unique(context[mine], return_inverse=True)
            outcomes, k = np.unique(labels[mine + 1], return_inverse=True)
            table = np.zeros((len(contexts), num_actions, len(outcomes)))
            np.add.at(table, (which, rows.action[mine], k), 1.0)
            gain, groups = _two_sets_of_modes(table, good, bad)
            gain -= len(contexts) * math.log(2) + num_actions * math.log(len(outcomes) + 1)
            if gain > (0.0 if best is None else best[0]):
                best = gain, state, contexts[groups == 1]
        if best is None:
            break
        _, state, moved = best
        labels = np.where((labels == state) & np.isin(context, moved), number, labels)
        component = np.append(component, component[state])
    return labels, component


def _two_sets_of_modes(table: Floats, good: float, bad: float) -> tuple[float, Ints]:
    """Split contexts by their outcomes [contexts, A, K]: the gain in log-likelihood, and the sets.

    Every set has a mode for each action; hits weigh `good`, misses `bad`.
    """

    def weight(counts: Floats) -> Floats:
        """ln-likelihood of each outcome as the mode of each action, [..., A, K]."""
        return counts * good + (counts.sum(axis=-1, keepdims=True) - counts) * bad

    whole = weight(table.sum(axis=0)).max(axis=-1).sum()
    best, groups = 0.0, np.zeros(len(table), np.int64)
    total = table.sum(axis=0)
    for action in np.argsort(total.max(axis=-1) - total.sum(axis=-1))[:3]:
        rival = np.argsort(total[action])[-2:]
        if len(rival) < 2:
            continue
        split = (table[:, action, rival[0]] > table[:, action, rival[1]]).astype(np.int64)
        for _ in range(8):
            modes = [weight(table[split == g].sum(axis=0)).argmax(axis=-1) for g in (0, 1)]
            own = weight(table)
            fits = [
                np.take_along_axis(own, np.broadcast_to(m[:, None], (len(own), len(m), 1)), 2).sum(
                    axis=(1, 2)
                )
                for m in modes
            ]
            split, before = (fits[1] > fits[0]).astype(np.int64), split
            if (split == before).all():
                break
        gain = float(np.maximum(*fits).sum() - whole)
        if gain > best and 0 < split.sum() < len(split):
            best, groups = gain, split
    return best, groups


class Explorer(Policy):
    """Tests as many unknown pairs as it can in every episode.

    The episodes of a batch share what they are about to test.
    """

    method = "discover"

    def __init__(
        self,
        target: Target,
        mixture: StateMixture,
        component: Ints,
        transitions: Transitions,
        pool: int,
        eta: float,
        rng: np.random.Generator,
    ) -> None:
        self.observation_shape = target.observation_shape
        self.observation_dtype = target.observation_dtype
        self.horizon, self.num_actions = target.horizon, target.num_actions
        self._mixture, self._pool, self._rng, self._component = mixture, pool, rng, component
        step = mixture.step[component]
        everywhere = np.arange(len(component))
        self._members = [
            np.flatnonzero(step == h) if mixture.layered else everywhere
            for h in range(self.horizon + 1)
        ]
        self._transitions, self._predicted = transitions, transitions.predict(eta)
        self._left = transitions.need.copy()
        self._open = (transitions.need > 0).astype(np.float64)
        self._plan()

    def _plan(self) -> None:
        """Q_h(s, a): tests in the rest of the episode; an unobserved state is worth some, too."""
        t, number = self._transitions, len(self._component)
        unseen = 0.5 * np.minimum(np.arange(self.horizon, -1, -1), 6) * self._open.max(initial=0.0)
        self._q = np.zeros((self.horizon, number, self.num_actions))
        value = np.zeros(number)
        for h in reversed(range(self.horizon)):
            states = self._members[h]
            following = value[t.candidates[states]][:, None]
            later = (self._predicted[states, :, :-1] * following).sum(axis=-1)
            later += self._predicted[states, :, -1] * unseen[h + 1]
            q = self._open[states] + later
            q[t.terminal[states]] = 0.0
            self._q[h, states] = q
            value = np.zeros(number)
            value[states] = q.max(axis=1)
        self._values = value

    def expected_tests(self, start: Floats) -> float:
        """Tests that an episode from this start distribution [S] expects."""
        return float(start @ self._values)

    def init(self, n: int) -> Any:
        """The last state and action of each episode; −1 where the state is new."""
        return np.full(n, -1), np.zeros(n, np.int64)

    def act(self, memory: Any, observations: NDArray[Any], h: int) -> tuple[Any, NDArray[np.int32]]:
        """Locate the episodes, and choose the actions with the most tests ahead."""
        mixture, t = self._mixture, self._transitions
        states = self._members[h]
        components, place = np.unique(self._component[states], return_inverse=True)
        scores = mixture.log_prob(flatten(observations, self._pool), h, components)
        scores = scores[:, np.append(place, len(components))]
        previous, command = memory
        if h > 0:  # where the last action should have led: a little evidence
            prior = np.full((len(scores), len(self._component) + 1), 1e-3)
            for i in np.flatnonzero(previous >= 0):
                chances = self._predicted[previous[i], command[i]]
                np.add.at(prior[i], t.candidates[previous[i]], chances[:-1])
                prior[i, -1] += chances[-1]
            scores = scores + np.log(prior[:, np.append(states, len(self._component))])
        here = np.append(states, -1)[scores.argmax(axis=1)]
        actions = self._rng.integers(self.num_actions, size=len(scores))
        replan = False
        for i in np.flatnonzero(here >= 0):
            q = self._q[h, here[i]]
            if mixture.layered:  # a test that another episode of the batch makes counts no more
                q = q - (t.need[here[i]] > 0) * (self._left[here[i]] <= 0)
            actions[i] = self._rng.choice(np.flatnonzero(q >= q.max() - 1e-6))
            if self._left[here[i], actions[i]] > 0:
                self._left[here[i], actions[i]] -= 1
                replan |= self._left[here[i], actions[i]] == 0
        if replan and not mixture.layered:
            self._open = (self._left > 0).astype(np.float64)
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
    """All episodes that were played."""
    confidence: Floats
    """Posterior probability of each successor, [S, A]; 0 where it is a guess."""
    tried: Floats
    """How often each pair was tried, [S, A]."""
    eta: float
    """Estimated share of slips."""
    finished: bool
    """Did exploration end because nothing was left to test?"""
    warnings: tuple[str, ...]
    history: tuple[Progress, ...]
    layered: bool
    """Do states belong to steps?"""


def discover(
    source: Target,
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
        The environment to explore.
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
    """
    config = config or DiscoveryConfig()
    config = config if delta is None else replace(config, delta=delta)
    target = source if horizon is None else source.with_horizon(horizon)
    limit = episodes if isinstance(episodes, int) else config.max_episodes
    shape = target.observation_shape
    pool = max(1, min(shape[:2]) // config.picture_side) if is_picture(shape) else 0
    rng = np.random.default_rng([seed, Phase.DISCOVERY])
    actions = target.num_actions
    played, quiet, refitted_at, finished = 0, 0, 0, False
    rows: Rows | None = None
    explorer: Explorer | None = None
    history: list[Progress] = []
    mixture = transitions = None
    assigned = np.zeros(0, np.int64)

    while played < limit and not finished:
        if explorer is None:
            number = min(config.first_batch, limit)
            chosen = rng.integers(actions, size=(number, target.horizon)).astype(np.int32)
            policy: Policy = _Anything(target)
        else:
            number, chosen = min(config.batch, limit - played), None
            policy = explorer
        keys = episode_keys(seed, Phase.DISCOVERY, played, number)
        fresh = Rows.of(
            rollout(target, policy, keys, overrides=chosen, width=min(number, config.batch)), pool
        )
        played += number
        if rows is not None:
            rows = rows.followed_by(fresh)
        if mixture is None or rows is None:
            rows = fresh
            mixture, assigned = _first_mixture(rows, target.horizon + 1, config)
            refitted_at = len(rows.step)
        else:
            assigned = np.concatenate([assigned, mixture.assign(fresh.features, fresh.step)])
            mixture.merge(assigned)
            if len(rows.step) > config.refit_growth * refitted_at:
                assigned = mixture.refit(rows.features, rows.step, assigned)
                refitted_at = len(rows.step)
        if quiet == 1:  # nothing seemed left to test: look at everything again
            assigned = mixture.refit(rows.features, rows.step, assigned)
        labels, component = split_look_alikes(rows, assigned, len(mixture), actions, eta)
        transitions = count_transitions(rows, labels, len(component), actions, eta, config)
        start = np.bincount(labels[rows.step == 0], minlength=len(component)) / played
        explorer = Explorer(target, mixture, component, transitions, pool, eta, rng)
        expected = explorer.expected_tests(start)
        open_pairs = int((transitions.need > 0).sum())
        history.append(Progress(played, len(component), open_pairs, expected))
        quiet = quiet + 1 if expected < config.idle else 0
        finished = quiet >= 2
    assert mixture is not None
    assert transitions is not None
    assert rows is not None
    if finished:
        transitions = count_transitions(rows, assigned, len(mixture), actions, eta, config)
        assigned = _without_outliers(mixture, transitions, rows, assigned)
        labels, component = split_look_alikes(rows, assigned, len(mixture), actions, eta)
        transitions = count_transitions(rows, labels, len(component), actions, eta, config)
        start = np.bincount(labels[rows.step == 0], minlength=len(component)) / played
    step = mixture.step[component]
    return _discovery(
        step, transitions, start, target.horizon, eta, tuple(history), finished, force
    )


def _without_outliers(
    mixture: StateMixture, transitions: Transitions, rows: Rows, assigned: Ints
) -> Ints:
    """States that no action leads to are outliers of others; their observations are moved."""
    t = transitions
    start = np.bincount(assigned[rows.step == 0], minlength=len(mixture))
    led_to = start > 0.02 * start.sum()
    led_to[np.take_along_axis(t.candidates, t.mode, axis=1)[t.tried > 0]] = True
    assigned = assigned.copy()
    for row in np.flatnonzero(~led_to[assigned]):
        states = mixture.members(int(rows.step[row]))
        states = states[led_to[states]]
        if len(states):
            scores = mixture.log_prob(rows.features[row : row + 1], int(rows.step[row]), states)
            assigned[row] = states[int(scores[0, :-1].argmax())]
    return mixture.recount(rows.features, assigned)


def _discovery(
    step: Ints,
    transitions: Transitions,
    start: Floats,
    horizon: int,
    eta: float,
    history: tuple[Progress, ...],
    finished: bool,
    force: bool,
) -> Discovery:
    """The most likely map, and why it may be wrong."""
    t, played, layered = transitions, history[-1].episodes, bool((step >= 0).any())
    number, tried = len(step), t.tried
    mode, stays = t.mode, np.arange(number)[:, None]
    usual = t.counts.sum(axis=1).argmax(axis=1)  # what most actions do is the best guess
    known = tried > 0
    chosen = np.where(known, mode, usual[:, None])
    successor = np.take_along_axis(t.candidates, chosen, axis=1)
    reward = np.take_along_axis(t.rewards, chosen[..., None], axis=2)[..., 0]
    total = (t.counts * t.rewards).sum(axis=1) / np.maximum(t.counts.sum(axis=1), 1)
    guessed = np.take_along_axis(total, usual[:, None], axis=1)
    reward = np.where(known, reward, guessed)
    active = known.any(axis=1, keepdims=True) & ~t.terminal[:, None]
    successor, reward = np.where(active, successor, stays), np.where(active, reward, 0.0)

    hits = np.take_along_axis(t.counts, mode[..., None], axis=2)[..., 0]
    tested = known & active
    surprising = at_least(tried - hits, np.maximum(tried, 1), max(eta, 1e-3))
    doubtful = np.argwhere(tested & (surprising < 0.01 / max(tested.sum(), 1)))
    actions = successor.shape[1]
    different = (mode[:, None, :] != mode[:, :, None]).mean(axis=2) * actions / max(actions - 1, 1)
    repeated = tested & (tried >= 2)
    visible = float((tried * different)[repeated].sum())
    slips = float((tried - hits)[repeated].sum()) / max(visible, 1e-9)
    if layered:
        order = [int((step[:s] == step[s]).sum()) for s in range(number)]
        labels: list[Any] = [(int(h), k) for h, k in zip(step, order, strict=True)]
    else:
        labels = list(range(number))
    begin = np.flatnonzero(start > 0.02)
    simulator = AbstractSimulator(
        successor,
        reward,
        horizon=horizon,
        start=begin,
        start_probabilities=start[begin] / start[begin].sum(),
        states=labels,
        source="discovered",
    )
    warnings = []
    if not finished:
        warnings.append(f"exploration is unfinished after {played} episodes")
    if t.explained < 0.8:
        warnings.append(
            f"states and actions explain {t.explained:.0%} of the variance of rewards: states that "
            "differ may look alike"
        )
    if len(doubtful):
        s, a = doubtful[0]
        warnings.append(
            f"{len(doubtful)} pairs (state, action) miss their outcome more often than η = {eta:g} "
            f"allows, for instance state {labels[s]}, action {a}"
        )
    if warnings and not force:
        raise Undecided(
            "source: " + "; ".join(warnings) + "; more episodes may help, force=True returns the "
            "map as it is"
        )
    confidence = np.where(active, t.confidence, 1.0)
    return Discovery(
        simulator=simulator,
        episodes=played,
        confidence=confidence,
        tried=tried,
        eta=slips,
        finished=finished and not warnings,
        warnings=tuple(warnings),
        history=history,
        layered=layered,
    )


def _first_mixture(rows: Rows, frames: int, config: DiscoveryConfig) -> tuple[StateMixture, Ints]:
    """A mixture of the first episodes; noise is known from repeated first observations."""
    first = rows.features[rows.step == 0]
    groups = _start_groups(first)
    layered = _steps_differ(rows, config)
    mixture = StateMixture(rows.features.shape[1], frames, layered, config)
    mixture.num_starts = int(groups.max()) + 1
    sizes = np.bincount(groups)
    means = np.stack([first[groups == g].mean(axis=0) for g in range(len(sizes))])
    residuals = (first - means[groups]).astype(np.float64)
    freedom = max(len(first) - len(sizes), 1)
    mean_variance = float(rows.features.var(axis=0).mean())
    mixture.fit_noise(residuals.T @ residuals, freedom, mean_variance)
    mixture.fit_between(rows.features, rows.step)
    assigned = mixture.assign(rows.features, rows.step)
    return mixture, mixture.refit(rows.features, rows.step, assigned, sweeps=5)


def _start_groups(first: NDArray[np.float32]) -> Ints:
    """Groups of first observations [n, D]: components of the minimum spanning tree without edges
    longer than 1.6 times the median."""
    from scipy.sparse.csgraph import connected_components, minimum_spanning_tree
    from scipy.spatial.distance import pdist, squareform

    first = first[:400].astype(np.float64)
    tree = minimum_spanning_tree(squareform(pdist(first)) + 1e-9)
    usual = float(np.median(tree.data)) if tree.nnz else 0.0
    tree.data[tree.data > 1.6 * usual + 1e-6] = 0.0
    tree.eliminate_zeros()
    labels: Ints = connected_components(tree, directed=False)[1].astype(np.int64)
    return labels


def _steps_differ(rows: Rows, config: DiscoveryConfig) -> bool:
    """Can the step be predicted from an observation?

    Linear discriminant analysis, fitted to every other episode and tested on the rest.
    """
    episode = np.cumsum(rows.step == 0) - 1
    train = episode % 2 == 0
    steps = np.unique(rows.step[train])
    means = np.stack([rows.features[train & (rows.step == t)].mean(axis=0) for t in steps])
    place = np.searchsorted(steps, rows.step)
    residuals = (rows.features[train] - means[place[train]]).astype(np.float64)
    size, freedom = means.shape[1], max(int(train.sum()) - len(steps), 1)
    within = residuals.T @ residuals / freedom
    weight, diagonal = freedom / (freedom + size), np.diag(within)
    within = weight * within + (1 - weight) * np.diag(0.9 * diagonal + 0.1 * diagonal.mean())
    within += config.floor * float(rows.features.var(axis=0).mean()) * np.eye(size)
    white = np.linalg.cholesky(np.linalg.inv(within))
    means, tested = means @ white, rows.features[~train] @ white
    predicted = steps[((means**2).sum(axis=1) - 2 * tested @ means.T).argmin(axis=1)]
    truth = rows.step[~train]
    right = [float((predicted[truth == t] == t).mean()) for t in np.unique(truth)]
    return bool(np.mean(right) > 0.8)


class _Anything(Policy):
    """Chooses nothing: all its actions are overridden."""

    method = "random"

    def __init__(self, target: Target) -> None:
        self.horizon, self.num_actions = target.horizon, target.num_actions

    def init(self, n: int) -> None:
        """Nothing is remembered."""

    def act(self, memory: None, observations: NDArray[Any], h: int) -> tuple[None, Any]:
        """Zeros."""
        return None, np.zeros(len(observations), np.int32)

    def save(self, path: str | Path) -> Path:
        """Refused."""
        raise TypeError(f"save: {path}: nothing to save")
