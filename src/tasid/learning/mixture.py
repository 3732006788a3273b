"""States by their observations: a Dirichlet-process mixture of Gaussians with one covariance.

Whether an observation belongs to a known state or a new one, and whether two states are one, is a
Bayes factor (PLDA, as in `tasid.hmm.emissions`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from tasid.episodes import Episodes
from tasid.hmm.emissions import posterior_predictive
from tasid.hmm.features import flatten

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class DiscoveryConfig:
    """Hyper-parameters of discovery."""

    delta: float = 0.01
    """A pair (state, action) is known when its outcome has posterior probability ≥ 1 − delta."""
    max_episodes: int = 5_000
    """Episodes after which "auto" gives up."""
    first_batch: int = 32
    """Episodes of random actions at the beginning."""
    batch: int = 8
    """Episodes of every further batch."""
    idle: float = 0.05
    """Exploration ends when fewer tests than this are expected in an episode, twice."""
    standard_error: float = 0.05
    """Where outcomes are random, a pair is known when the share of its likeliest outcome is known
    with this standard error."""
    explained: float = 0.8
    """Share of the variance of rewards that states and actions have to explain."""
    least_temperature: float = 0.1
    """A lower temperature of the mixture means that observations are not Gaussian."""
    birth: float = 0.1
    """Prior odds of a new state for an observation. Founding a state is cheap …"""
    survival: float = 0.1
    """… but to stay one of its own it has to beat the odds Γ(n+m) / (Γ(n) Γ(m) survival) of the
    mixture. Two outliers of one state support each other; strict births would file both away under
    wrong states for ever."""
    rivals: int = 8
    """Nearest states with which a state may be merged."""
    concentration: float = 1.0
    """How readily an action is expected to have an outcome that no other action there has."""
    refit_growth: float = 1.5
    """All observations are assigned anew when their number has grown by this factor."""
    floor: float = 1e-3
    """Variance of the noise at least, as a part of the mean variance."""


class Rows(NamedTuple):
    """All observations of all episodes, one after the other."""

    features: NDArray[np.float32]
    """[n, D]."""
    step: Ints
    """[n]."""
    action: Ints
    """Taken after the observation; −1 at the last of an episode, [n]."""
    reward: Floats
    """Earned by it, [n]."""
    ended: NDArray[np.bool_]
    """Did the target end the episode here, before the horizon? [n]"""

    @classmethod
    def of(cls, episodes: Episodes, pool: int) -> Rows:
        """Of episodes without their padding; pixels are averaged over squares of side `pool`."""
        valid, lengths, (n, frames) = episodes.valid, episodes.lengths, episodes.valid.shape
        assert episodes.observations is not None
        step = np.tile(np.arange(frames), (n, 1))
        last = step == lengths[:, None]
        action = np.where(last, -1, np.pad(episodes.actions, ((0, 0), (0, 1))))
        reward = np.where(last, 0.0, np.pad(episodes.rewards, ((0, 0), (0, 1))))
        ended = last & (lengths < frames - 1)[:, None]
        features = flatten(episodes.observations[valid], pool)
        columns: Any = step, action.astype(np.int64), reward.astype(np.float64), ended
        return cls(features, *(column[valid] for column in columns))

    def join(self, other: Rows) -> Rows:
        """Both, one after the other."""
        pairs: Any = zip(self, other, strict=True)
        return Rows(*(np.concatenate(pair) for pair in pairs))


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
        """Set the shared covariance W."""
        within = _covariance(scatter, freedom, self.config.floor * mean_variance)
        values, vectors = np.linalg.eigh(within)
        self._white = vectors / np.sqrt(np.maximum(values, 1e-12)) @ vectors.T

    def fit_between(self, features: NDArray[np.float32], h: Ints) -> None:
        """Set the centres and the directions and variances b in which states differ.

        Before there are states, every observation is one.
        """
        founded = len(self) > 0
        means = self.sums / self.counts[:, None] if founded else features
        counts = self.counts if founded else np.ones(len(features))
        own = (self.step if founded else h) if self.layered else np.zeros(len(means), np.int64)
        for t in range(len(self.centre)):
            seen = means[own == t] if (own == t).any() or not self.layered else features[h == t]
            self.centre[t] = seen.mean(axis=0) if len(seen) else 0.0
        # A step with one state says nothing about differences.
        weights = np.minimum(counts / 4, 1.0) * (np.bincount(own)[own] > 1)
        total = max(weights.sum(), 1.0)
        deviation = (means - self.centre[own]) @ self._white
        between = (deviation * weights[:, None]).T @ deviation / total
        between -= np.eye(len(between)) * float((weights / counts).sum() / total)
        number = weights.sum() if founded else 4.0
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

    def parameters(self, states: Ints) -> tuple[NDArray[np.float32], ...]:
        """Coefficients of y² and y [L+1, D] and constants [L+1] of the posterior predictive
        ln p(y | s); the last is a new state, with its prior odds."""
        counts = np.append(self.counts[states], 0.0)[:, None]
        own = self.step[states] if self.layered else np.zeros(len(states), np.int64)
        sums = np.zeros((len(counts), len(self.between)))
        sums[:-1] = (self.sums[states] - counts[:-1] * self.centre[own]) @ self.whitening
        parameters = posterior_predictive(counts, sums, self.between, sharpness=self.temperature)
        parameters[-1][-1] += math.log(self.config.birth)
        return parameters

    def log_prob(
        self, features: NDArray[np.float32], h: int, parameters: tuple[NDArray[np.float32], ...]
    ) -> NDArray[Any]:
        """ln p(x | s) of n observations of step h, up to what states share, [n, L+1]."""
        y = self.project(features, h)
        quadratic, linear, constant = parameters
        scores: NDArray[Any] = (y * y) @ quadratic.T + y @ linear.T + constant
        return scores

    def _groups(self, h: Ints) -> list[tuple[int, Ints]]:
        """Steps and their rows; without layers, chunks of rows."""
        if not self.layered:
            return [(0, np.arange(len(h))[i : i + 4096]) for i in range(0, len(h), 4096)]
        order = np.argsort(h, kind="stable")
        cuts = np.searchsorted(h[order], np.arange(len(self.centre) + 1))
        return [(t, order[cuts[t] : cuts[t + 1]]) for t in range(len(self.centre))]

    def nearest(
        self, features: NDArray[np.float32], h: Ints, among: NDArray[np.bool_] | None = None
    ) -> Ints:
        """The likeliest state of each observation; −1 where a new one is likelier, unless the
        choice is among some, [S]."""
        assigned = np.full(len(h), -1)
        for t, rows in self._groups(h):
            states = self.members(t)
            states = states if among is None else states[among[states]]
            if len(rows) and len(states):
                scores = self.log_prob(features[rows], t, self.parameters(states))
                best = scores[:, : None if among is None else -1].argmax(axis=1)
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
        """Found a state for every row with −1."""
        new = np.flatnonzero(assigned < 0)
        assigned[new] = len(self) + np.arange(len(new))
        self.counts = np.append(self.counts, np.ones(len(new)))
        self.sums = np.vstack([self.sums, features[new]])
        self.step = np.append(self.step, h[new] if self.layered else np.full(len(new), -1))

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
        # With more observations, noise is known better: a higher temperature may do.
        self.temperature = min(self.temperature / 0.7, 1.0)
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
        own = self.step if self.layered else np.zeros(len(self), np.int64)
        n = self.counts.copy()
        sums = (self.sums - n[:, None] * self.centre[own]) @ self.whitening

        def evidence(n: Any, sums: Any) -> Any:
            """ln of the marginal likelihood of n observations with these sums."""
            spread = 1 + n[:, None] * self.between
            return (
                0.5 * self.temperature * (sums**2 * self.between / spread - np.log(spread)).sum(1)
            )

        alone, owner = evidence(n, sums), np.arange(len(self))
        for i in np.argsort(n, kind="stable"):
            others = np.flatnonzero((owner == np.arange(len(self))) & (own == own[i]))
            others = others[others != i]
            if not len(others):
                continue
            if len(others) > self.config.rivals:
                means = sums[others] / n[others, None]
                distance = ((means - sums[i] / n[i]) ** 2).sum(axis=1)
                others = others[np.argpartition(distance, self.config.rivals)[: self.config.rivals]]
            both, joined = n[others] + n[i], sums[others] + sums[i]
            merged = evidence(both, joined)
            gain = merged - alone[others] - alone[i] - math.log(self.config.survival)
            gain += gammaln(both) - gammaln(n[others]) - gammaln(n[i])
            best = int(gain.argmax())
            if gain[best] > 0:
                target = owner[i] = others[best]
                n[target], sums[target], alone[target] = both[best], joined[best], merged[best]
        if (owner == np.arange(len(self))).all():
            return
        while (owner[owner] != owner).any():
            owner = owner[owner]
        kept, place = np.unique(owner, return_inverse=True)
        total = np.zeros((len(kept), self.sums.shape[1]))
        np.add.at(total, place, self.sums)
        self.counts, self.sums = np.bincount(place, self.counts).astype(np.float64), total
        self.step = self.step[kept]
        assigned[:] = place[assigned]


def _covariance(scatter: Floats, freedom: float, floor: float) -> Floats:
    """With few degrees of freedom, mostly its diagonal."""
    size, within = len(scatter), scatter / max(freedom, 1.0)
    weight, diagonal = max(freedom, 1.0) / (max(freedom, 1.0) + size), np.diag(within)
    target = np.diag(0.9 * diagonal + 0.1 * diagonal.mean())
    covariance: Floats = weight * within + (1 - weight) * target + floor * np.eye(size)
    return covariance


def first_mixture(rows: Rows, frames: int, config: DiscoveryConfig) -> tuple[StateMixture, Ints]:
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
    mixture.merge(assigned)
    return mixture, mixture.refit(rows.features, rows.step, assigned, sweeps=5)


def _start_groups(first: NDArray[np.float32]) -> Ints:
    """Groups of first observations [n, D]: the merges that are far higher than usual are undone.

    Distances are those of neighbours, or with few observations in many dimensions, where all
    observations are equally far apart, those of means (Ward).
    """
    from scipy.cluster.hierarchy import fcluster, linkage

    first = first[:400]
    if len(first) == 1:
        return np.zeros(1, np.int64)
    tree = linkage(first, "ward" if first.shape[1] > len(first) else "single")
    usual = np.median(tree[:, 2])
    spread = 1.5 * np.median(np.abs(tree[:, 2] - usual))
    groups: Ints = fcluster(tree, usual + 6 * spread + 1e-6, "distance").astype(np.int64) - 1
    return groups


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
    floor = config.floor * float(rows.features.var(axis=0).mean())
    within = _covariance(residuals.T @ residuals, float(train.sum()) - len(steps), floor)
    white = np.linalg.cholesky(np.linalg.inv(within))
    means, tested = means @ white, rows.features[~train] @ white
    predicted = steps[((means**2).sum(axis=1) - 2 * tested @ means.T).argmin(axis=1)]
    truth = rows.step[~train]
    right = [float((predicted[truth == t] == t).mean()) for t in np.unique(truth)]
    return bool(np.mean(right) > 0.8)
