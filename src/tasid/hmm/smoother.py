"""Forward–backward over whole episodes.

    α_{h+1}(s') ∝ ℓ_{h+1}(s') Σ_s α_h(s) p(s' | s, a_h) e_h(s, s')
    β_h(s)      ∝ Σ_s' p(s' | s, a_h) e_h(s, s') ℓ_{h+1}(s') β_{h+1}(s')
    γ_h(s)      ∝ α_h(s) β_h(s)

ℓ is the likelihood of an observation, e the weight of an edge by reward and end. With probability
`kidnap` a step leads anywhere on the map: the agent was moved, or the map is wrong there.

`filter` and `smooth` return the posteriors of whole episodes. `Smoother` is what they and EM are
made of: one step of a batch at a time, because posteriors of all steps need much memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Float32, Float64, Int, Int32
from numpy.typing import NDArray

from tasid.episodes import Episodes
from tasid.hmm import kernels
from tasid.hmm.emissions import SupportsLogProb
from tasid.hmm.features import FeatureMap
from tasid.hmm.transitions import Array, StepInputs, Transition, TransitionGraph

LIKELIHOOD_FLOOR = 1e-9
"""Added to likelihoods relative to the largest: no observation rules a state out."""
BELIEF_FLOOR = 1e-20
"""Filtered probabilities below this are set to 0."""
POSTERIOR_FLOOR = 1e-16
"""Smoothed probabilities below this are set to 0: they would not show in any sum."""


class FilteredPosterior(NamedTuple):
    """p(state | past) of N episodes. The states of the M slots are `graph.states_at(h)`."""

    log_likelihood: Float64[Array, " N"]
    """ln p(observations, rewards, ends | actions) up to what all classes share."""
    filtered_probs: Float64[Array, "N frames M"]
    """p(s_h | x_0 … x_h, rewards, ends, actions before h)."""


class Posterior(NamedTuple):
    """p(state | episode) of N episodes. The states of the M slots are `graph.states_at(h)`."""

    log_likelihood: Float64[Array, " N"]
    """ln p(observations, rewards, ends | actions) up to what all classes share."""
    filtered_probs: Float64[Array, "N frames M"]
    """p(s_h | x_0 … x_h, rewards, ends, actions before h)."""
    smoothed_probs: Float64[Array, "N frames M"]
    """p(s_h | everything)."""


def filter(
    graph: TransitionGraph,
    emission: SupportsLogProb,
    episodes: Episodes,
    *,
    eta: float,
    temperature: float = 1.0,
    use_rewards: bool = True,
) -> FilteredPosterior:
    """State probabilities given the past of each step; arguments as of `smooth`."""
    options = SmoothingOptions(eta, temperature, use_rewards=use_rewards)
    smoothers = _smoothers(graph, emission, episodes, options)
    parts = [(s.log_likelihood, s.filtered_probs.swapaxes(0, 1)) for s in smoothers]
    return FilteredPosterior(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def smooth(
    graph: TransitionGraph,
    emission: SupportsLogProb,
    episodes: Episodes,
    *,
    eta: float,
    temperature: float = 1.0,
    use_rewards: bool = True,
) -> Posterior:
    """State probabilities given whole episodes.

    Parameters
    ----------
    graph
        The transitions of a map (`TransitionGraph.from_simulator`).
    emission
        Anything with `log_prob(features [n, D], classes [L]) → [n, L]`. A class is a position in
        `graph.places`, the reachable states in ascending order (or see `graph.with_classes`).
    episodes
        Their observations, in flat rows, are the features; of pictures compute others first
        (`FeatureMap.sequences`).
    eta
        How often actions slip, in [0, 1).
    temperature
        Log-likelihoods of observations are multiplied by this.
    use_rewards
        Are rewards evidence, too? And ends, if any of the episodes ended before the horizon?
    """
    options, parts = SmoothingOptions(eta, temperature, use_rewards=use_rewards), []
    for smoother in _smoothers(graph, emission, episodes, options):
        smoothed: list[Any] = [step.smoothed for step in smoother.steps()]
        filtered = smoother.filtered_probs.swapaxes(0, 1)
        parts.append((smoother.log_likelihood, filtered, np.stack(smoothed[::-1], axis=1)))
    return Posterior(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _smoothers(
    graph: TransitionGraph, emission: SupportsLogProb, episodes: Episodes, options: SmoothingOptions
) -> Iterator[Smoother]:
    for batch in batches(Sequences.of(episodes, graph), graph):
        yield Smoother(graph, emission, Classes.of(graph), batch, options)


@dataclass(frozen=True, eq=False)
class Sequences:
    """Episodes as the smoother reads them: features instead of observations."""

    features: Float32[Array, "N frames D"]
    actions: Int32[Array, "N H"]
    reward_ids: Int32[Array, "N H"]
    """Index of each reward among the graph's `reward_values`; −1 if it is none of them."""
    lengths: Int[Array, " N"]
    """Steps until the target ended the episode."""
    explored: Bool[Array, "N H"]
    """True where the action was not the policy's choice."""
    ends_known: bool
    """Would the target have ended the episode in a terminal state?"""

    @classmethod
    def of(
        cls,
        episodes: Episodes,
        graph: TransitionGraph,
        features: FeatureMap | Float32[Array, "N frames D"] | None = None,
        ends_early: bool | None = None,
    ) -> Sequences:
        """Of episodes and their features [N, H+1, D], or what computes them.

        Without either the observations are the features. `ends_early`: does the target end episodes
        in terminal states? None: if any of these ended early.
        """
        if not isinstance(features, np.ndarray):
            observations = episodes.observations
            assert observations is not None
            features = features or FeatureMap.raw(observations.shape[2:])
            features = features.sequences(observations)
        if ends_early is None:
            ends_early = bool((episodes.lengths < episodes.horizon).any())
        return cls(
            features,
            episodes.actions,
            graph.reward_ids(episodes.rewards),
            episodes.lengths,
            episodes.explored,
            ends_early,
        )

    def __len__(self) -> int:
        return len(self.actions)

    def __getitem__(self, rows: slice | Bool[Array, " N"]) -> Sequences:
        tables = {name: x[rows] for name, x in vars(self).items() if name != "ends_known"}
        return replace(self, **tables)

    @property
    def valid(self) -> Bool[Array, "N frames"]:
        """Which observations are of the episode, not padding."""
        valid: NDArray[np.bool_] = np.arange(self.features.shape[1]) <= self.lengths[:, None]
        return valid


class SmoothingOptions(NamedTuple):
    """How the parts of the evidence are weighed."""

    eta: float
    temperature: float = 1.0
    """Log-likelihoods of observations are multiplied by this."""
    observed_steps: int = 1 << 30
    """Only the first observations of every episode, this many, are used."""
    use_rewards: bool = True
    contradiction: float = 0.05
    """Weight of an edge that contradicts the reward or the end."""
    kidnap: float = 0.0


class SmoothedStep(NamedTuple):
    """One step of a batch, with everything known about it."""

    h: int
    filtered: Float[Array, "n M"]
    """α_h."""
    smoothed: Float[Array, "n M"]
    """γ_h."""
    class_posterior: Float[Array, "n L"]
    """p(class | everything) of `Classes.at(h)`; γ_h where classes are states."""
    used: Bool[Array, " n"]
    """Was the observation of step h used?"""
    agreement: Float[Array, " n"] | None = None
    """p(reward and end of step h agree with the map | everything); None at step H."""
    message: Float[Array, "n M"] | None = None
    """ℓ_{h+1} β_{h+1} over the normaliser of step h; None at step H."""


@dataclass(frozen=True, eq=False)
class Classes:
    """Which observations share an emission: those of a state, or those after an edge class."""

    by_state: bool
    members: Int32[Array, "layers _"]
    """By state: the class of each slot, −1 where it is empty, for one layer or H+1. Otherwise the
    edge classes."""
    start_slots: Int[Array, " starts"]
    """Slots of the start states; by edge, their first observations have classes of their own."""
    number: int
    """How many classes there are, C."""

    @classmethod
    def of(cls, graph: TransitionGraph) -> Classes:
        """Classes by state, or by the edge classes of the graph."""
        starts = np.flatnonzero(graph.start)
        if graph.edge_class is None:
            position = np.searchsorted(graph.places, graph.states)
            members = np.where(graph.states >= 0, position, -1).astype(np.int32)
            return cls(True, members, starts, graph.places.size)
        members = np.arange(graph.num_edge_classes, dtype=np.int32)[None]
        return cls(False, members, starts, graph.num_edge_classes + starts.size)

    def at(self, h: int) -> Int32[Array, " L"]:
        """Classes that an observation of step h is compared with; −1 for none."""
        if h == 0 and not self.by_state:
            return np.arange(self.members.shape[1], self.number, dtype=np.int32)
        return self.members[min(h, len(self.members) - 1)]

    def log_likelihoods(
        self, emission: SupportsLogProb, features: Float32[Array, "n D"], h: int
    ) -> Float[Array, "n L"]:
        """ln p(x | class) up to a constant; the lowest of the row where there is none."""
        members = self.at(h)
        scores = emission.log_prob(features, members)
        if members.min() < 0:  # an empty slot must not be the most likely one
            exists = members >= 0
            lowest = scores[:, exists].min(axis=1, keepdims=True)
            scores = np.where(exists, scores, lowest)
        return scores

    def first_by_slot(
        self, likelihoods: Float[Array, "n L"], num_slots: int
    ) -> Float[Array, "n M"]:
        """Likelihoods of first observations by slot."""
        if self.by_state:
            return likelihoods
        by_slot = np.ones((len(likelihoods), num_slots))
        by_slot[:, self.start_slots] = likelihoods
        return by_slot

    def restricted(self, slots: Int[Array, " kept"]) -> Classes:
        """Classes by state for a graph of some slots."""
        return replace(self, members=self.members[:, slots])


class Smoother:
    """Filters a batch on construction; `steps` then smooths it, the last step first."""

    def __init__(
        self,
        transition: Transition,
        emission: SupportsLogProb,
        classes: Classes,
        batch: Sequences,
        options: SmoothingOptions,
    ) -> None:
        self.transition, self.batch = transition, batch
        self.options, self.classes = options, classes
        horizon, shape = transition.horizon, (len(batch), transition.num_slots)
        self.used = batch.valid & (np.arange(horizon + 1) < options.observed_steps)
        self.log_likelihood = np.zeros(len(batch))
        """ln p(observations, rewards, ends | actions) up to what all classes share, [n]."""
        self.likelihoods: list[Float[Array, "n L"]] = []
        """Likelihoods of observations relative to the largest, for every step."""
        # Where all steps have the same classes, one product serves them all.
        together = classes.by_state and len(classes.members) == 1
        width = horizon + 1 if together else 1
        for first in range(0, horizon + 1, width):
            self.likelihoods += self._likelihoods(emission, first, first + width)
        self.filtered_probs = np.empty((horizon + 1, *shape))
        """α, [H+1, n, M]."""
        alpha: Array = np.tile(transition.start, (len(batch), 1))
        totals = np.empty(len(batch))
        likelihood = classes.first_by_slot(self.likelihoods[0], transition.num_slots)
        for h in range(horizon + 1):
            if h > 0:
                alpha = transition.predict(h - 1, alpha, self.inputs(h - 1))
                if self._kidnap > 0:
                    alpha *= 1 - self._kidnap
                    alpha += self._kidnap * transition.uniform_at(h)
                # By edge the observation is evidence about the edge and was used in `predict`.
                likelihood = self.likelihoods[h] if classes.by_state else np.ones(shape)
            kernels.normalise(alpha, likelihood, BELIEF_FLOOR, totals)
            self.filtered_probs[h] = alpha
            self.log_likelihood += np.log(totals)

    def _likelihoods(
        self, emission: SupportsLogProb, first: int, stop: int
    ) -> list[Float[Array, "n L"]]:
        """Of some steps that have the same classes."""
        used = self.used[:, first:stop].T  # others are equally likely everywhere
        values = np.ones((*used.shape, self.classes.at(first).size))
        if used.any():
            features = self.batch.features[:, first:stop].swapaxes(0, 1)[used]
            scores = self.classes.log_likelihoods(emission, features, first)
            scores = scores * np.float32(self.options.temperature)
            largest = np.zeros(used.shape)
            largest[used] = scores.max(axis=1)
            values[used] = np.exp(scores - scores.max(axis=1)[:, None]) + LIKELIHOOD_FLOOR
            self.log_likelihood += largest.sum(axis=0)
        return list(values)

    @property
    def _kidnap(self) -> float:
        return self.options.kidnap if self.classes.by_state else 0.0

    def inputs(self, h: int) -> StepInputs:
        """Commands of step h, and what rewards, ends and edge classes say about it."""
        batch, options = self.batch, self.options
        over = batch.lengths <= h
        inputs = StepInputs(
            commands=batch.actions[:, h],
            eta=float(options.eta),
            reward_ids=np.where(over, np.int32(-1), batch.reward_ids[:, h]),
            ended=batch.lengths <= h + 1,
            # The horizon ends every episode.
            ends_known=~over & batch.ends_known & (h + 1 < batch.actions.shape[1]),
            contradiction=float(options.contradiction) if options.use_rewards else 1.0,
        )
        if self.classes.by_state:
            return inputs
        return inputs._replace(class_likelihoods=self.likelihoods[h + 1])

    def steps(self) -> Iterator[SmoothedStep]:
        """Smoothed steps H, H−1, …, 0."""
        classes, horizon, kidnap = self.classes, self.transition.horizon, self._kidnap
        posterior = self.filtered_probs[horizon]
        beta = np.ones_like(posterior)
        pending = SmoothedStep(horizon, posterior, posterior, posterior, self.used[:, horizon])
        for h in reversed(range(horizon)):
            alpha = self.filtered_probs[h]
            message = beta * self.likelihoods[h + 1] if classes.by_state else beta
            inputs = self.inputs(h)
            earlier, agreeing, of_class = self.transition.backward(h, alpha, message, inputs)
            if kidnap > 0:
                anywhere = kidnap * (message @ self.transition.uniform_at(h + 1))
                earlier = (1 - kidnap) * earlier + anywhere[:, None] * (alpha > 0)
                agreeing *= 1 - kidnap
            # β is scaled by what α makes of it, so that it neither under- nor overflows.
            total = np.einsum("nm,nm->n", alpha, earlier) + 1e-300
            if not classes.by_state:
                pending = pending._replace(class_posterior=of_class / total[:, None])
            yield pending
            beta = earlier / total[:, None]
            posterior = alpha * beta
            faint = posterior < POSTERIOR_FLOOR
            posterior[faint] = beta[faint] = 0.0
            message = message / total[:, None]
            used, agreement = self.used[:, h], agreeing / total
            pending = SmoothedStep(h, alpha, posterior, posterior, used, agreement, message)
        if not classes.by_state:
            pending = pending._replace(class_posterior=pending.smoothed[:, classes.start_slots])
        yield pending

    def add_counts(
        self, step: SmoothedStep, weights: Float[Array, " n"], counts: Float[Array, "M A K"]
    ) -> None:
        """Add the posterior outcome counts of a step, times weights, to counts."""
        assert step.message is not None
        belief = step.filtered * weights[:, None] * (1 - self._kidnap)
        inputs = self.inputs(step.h)
        self.transition.expected_counts(step.h, belief, step.message, inputs, counts)


def batches(sequences: Sequences, transition: Transition, megabytes: float = 16) -> list[Sequences]:
    """Sequences in batches whose smoothing takes about so much memory each."""
    per_episode = 16 * (transition.horizon + 1) * transition.num_slots / 2**20
    size = int(np.clip(megabytes / per_episode, 1, 1024))
    return [sequences[first : first + size] for first in range(0, len(sequences), size)]
