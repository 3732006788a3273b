"""Expectation maximisation over whole episodes, from several initialisations.

From a bad initialisation EM ends in a wrong labelling, shifted or lagged, often with the higher
likelihood. So there are several: *forward* uses the first few observations of every episode, then
one more at a time, as Algorithm 2 proceeds; *anneal* uses all observations with tempered
likelihoods; *warm* starts from an emission that has proved itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float32, Float64

from tasid.hmm.emissions import Emission, GaussianEmission, MapViews, Moments, PLDAConfig
from tasid.hmm.smoother import Classes, Sequences, Smoother, SmoothingOptions, batches
from tasid.hmm.transitions import Array, TransitionGraph


@dataclass(frozen=True)
class EMConfig:
    """Schedules of expectation maximisation."""

    temperatures: tuple[float, ...] = (0.05, 0.1, 0.2, 0.4, 0.7, 1.0)
    """Of *anneal*."""
    large_map_temperatures: tuple[float, ...] = (0.02, 0.04, 0.08, 0.15, 0.3, 0.6, 1.0)
    """Of *anneal* on large maps: in long corridors faster schedules end up some states behind."""
    first_steps: int = 3
    """Observations of every episode in the first stage of *forward*."""
    max_stages: int = 40
    """Stages of *forward*."""
    large_map_stages: int = 6
    final_iterations: int = 4
    """Iterations with all observations at temperature 1 that follow every schedule."""
    large_map: int = 512
    """States above which only the part of the map near the episodes takes part in a fit."""
    margin: int = 2
    """Steps around the states of one stage that take part in the next, on large maps."""
    min_eta: float = 0.02
    """η of the filter at least: without any slips a single outlier would be final."""
    threads: int = 2
    """Batches of episodes that are smoothed at the same time."""
    contradiction: float = 0.05
    """How likely a reward or an end is where the map has none, beside where it has one."""


class Stage(NamedTuple):
    """One iteration of EM."""

    temperature: float
    observed_steps: int


class Expectation(NamedTuple):
    """Expected sufficient statistics of all episodes."""

    counts: Float64[Array, " C"]
    """Expected observations of each class."""
    sums: Float64[Array, "C D"]
    """Sums of their features."""
    log_likelihood: Float64[Array, " N"]
    """ln p(observations, rewards, ends | actions) of episodes, up to what classes share."""
    reward_log_likelihood: Float64[Array, " N"]
    """Σ_h ln p(reward and end of step h | observations), floored."""


@dataclass(frozen=True, eq=False)
class HiddenMarkovModel:
    """A map as a hidden Markov model, without its emission."""

    graph: TransitionGraph
    classes: Classes
    eta: float
    config: EMConfig
    plda: PLDAConfig
    advantages: Any = None
    """`at(h)` [M, A] is never positive: how much worse than the plan's own each action is."""
    views: MapViews | None = None

    @property
    def is_large(self) -> bool:
        """Is the map large, and the same at every step?"""
        return not self.graph.layered and self.graph.num_slots > self.config.large_map

    def options(self, **changes: Any) -> SmoothingOptions:
        """Smoothing with this model's η."""
        eta = max(self.eta, self.config.min_eta)
        return SmoothingOptions(eta, contradiction=self.config.contradiction)._replace(**changes)

    def smoother(
        self, emission: Emission, batch: Sequences, options: SmoothingOptions | None = None
    ) -> Smoother:
        """A batch of episodes, filtered and ready to be smoothed."""
        return Smoother(self.graph, emission, self.classes, batch, options or self.options())

    def expect(
        self,
        emission: Emission,
        sequences: Sequences,
        *,
        counted: Float32[Array, "N frames D"] | None = None,
        **options: Any,
    ) -> Expectation:
        """The expectation step. `counted` are summed up in place of the features."""
        counted = sequences.features if counted is None else counted
        run = partial(self._expect_batch, emission, self.options(**options))
        parts = batches(sequences, self.graph)
        if len(parts) == 1:
            return run(sequences, counted)
        bounds = np.cumsum([len(part) for part in parts])[:-1]
        counts = np.zeros(self.classes.number)
        sums, evidence = np.zeros((counts.size, counted.shape[2])), []
        with ThreadPoolExecutor(self.config.threads) as pool:
            # Added up as they come: sums of all batches together would take much memory.
            for part in pool.map(run, parts, np.split(counted, bounds)):
                counts, sums = counts + part.counts, sums + part.sums
                evidence.append(part[2:])
        return Expectation(counts, sums, *map(np.concatenate, zip(*evidence, strict=True)))

    def _expect_batch(
        self,
        emission: Emission,
        options: SmoothingOptions,
        batch: Sequences,
        counted: Float32[Array, "N frames D"],
    ) -> Expectation:
        smoother, classes = self.smoother(emission, batch, options), self.classes
        counts, sums = np.zeros(classes.number), np.zeros((classes.number, counted.shape[2]))
        agreement = np.zeros(len(batch))
        for step in smoother.steps():
            weights = step.class_posterior * step.used[:, None]
            columns = np.flatnonzero(weights.any(axis=0))
            active = classes.at(step.h)[columns]
            weights = np.ascontiguousarray(weights[:, columns].T)
            counts[active] += weights.sum(axis=1)
            sums[active] += weights @ counted[:, step.h]
            if step.agreement is not None:
                agreement += np.log(np.maximum(step.agreement, options.contradiction))
        return Expectation(counts, sums, smoother.log_likelihood, agreement)

    def log_evidence(self, emission: GaussianEmission, sequences: Sequences) -> float:
        """ln p(all observations, rewards and ends), comparable between Gaussian emissions."""
        evidence = self.expect(emission, sequences).log_likelihood.sum()
        scale = emission.sharpness * emission.log_det
        return float(evidence) + scale * float(sequences.valid.sum())

    def near(self, counts: Float64[Array, " C"], *, steps: int) -> HiddenMarkovModel:
        """The model of the observed classes and all states within this many steps of them.

        A class that no episode visited learns nothing from them. The whole model where the map is
        small or most of it would remain.
        """
        graph, classes = self.graph, self.classes
        if not classes.by_state or not self.is_large:
            return self
        visited = (counts > 1e-3)[classes.members[0]] | (graph.start > 0)
        own = np.arange(visited.size)[:, None]
        successor = np.where(graph.share[0] > 0, graph.successor[0], own)
        for _ in range(steps):
            reached = visited.copy()
            reached[successor[visited].ravel()] = True
            visited = reached
        slots = np.flatnonzero(visited)
        if slots.size > 0.8 * graph.num_slots:
            return self
        return replace(self, graph=graph.restricted(slots), classes=classes.restricted(slots))

    def schedule(self, initialisation: str) -> list[Stage]:
        """The stages of EM from an initialisation: "forward", "anneal" or "warm"."""
        config, everything = self.config, self.graph.horizon + 1
        final = [Stage(1.0, everything)] * config.final_iterations
        if initialisation == "forward":
            first = min(config.first_steps, everything)
            stages = config.large_map_stages if self.is_large else config.max_stages
            number = min(everything - first + 1, stages)
            ends = np.unique(np.linspace(first, everything, number).astype(int))
            return [Stage(1.0, int(end)) for end in ends] + final
        if initialisation == "anneal":
            temperatures = config.large_map_temperatures if self.is_large else config.temperatures
            return [Stage(temperature, everything) for temperature in temperatures] + final
        return final if self.is_large else final + final

    def fit(
        self,
        sequences: Sequences,
        stages: Sequence[Stage],
        *,
        initial: Expectation | None = None,
        prior: Moments | None = None,
    ) -> tuple[GaussianEmission, Float64[Array, " C"]]:
        """Run EM; returns the emission and the expected counts of the classes.

        `initial` are expected statistics to start from, flat if None; `prior` are moments of
        earlier observations, which count as well.
        """
        totals, counts = TotalMoments(sequences), np.zeros(self.classes.number)
        _, steps, size = sequences.features.shape

        def maximise(expected: Expectation, observed_steps: int) -> GaussianEmission:
            moments = totals.up_to(observed_steps, expected)
            moments = moments if prior is None else moments + prior
            views = self.views if self.classes.by_state else None
            return GaussianEmission.from_moments(moments, self.plda, views)

        emission = GaussianEmission.flat(self.classes.number, size, self.plda.dimensions)
        further = stages[0].observed_steps
        if initial is not None:
            counts, further, emission = initial.counts, 0, maximise(initial, steps)
        for index, stage in enumerate(stages):
            part = self.near(counts, steps=self.config.margin + further)
            expected = part.expect(emission, sequences, **stage._asdict())
            counts, emission = expected.counts, maximise(expected, stage.observed_steps)
            following = stages[min(index + 1, len(stages) - 1)]
            further = following.observed_steps - stage.observed_steps
        return emission, counts


class TotalMoments:
    """Moments of all observations of the first steps, whatever their class."""

    def __init__(self, sequences: Sequences) -> None:
        self._features, self._valid = sequences.features, sequences.valid
        self._included, self._totals = 0, Moments.of(self._features[:0, 0], np.zeros((0, 0)))

    def up_to(self, steps: int, expected: Expectation) -> Moments:
        """With the expected counts and sums of classes; `steps` never decreases."""
        for h in range(self._included, steps):
            rows = self._features[self._valid[:, h], h]
            self._totals += Moments.of(rows, np.zeros((len(rows), 0)))
        self._included = max(steps, self._included)
        return self._totals._replace(counts=expected.counts, sums=expected.sums)


def single_gaussian(sequences: Sequences, prior: Moments | None = None) -> GaussianEmission:
    """One Gaussian for all observations, also earlier ones: the emission to improve on."""
    features = sequences.features[sequences.valid]
    moments = Moments.of(features, np.zeros((len(features), 1)))
    if prior is not None:
        moments += prior._replace(counts=moments.counts, sums=moments.sums)
    return GaussianEmission.from_moments(moments, PLDAConfig(dimensions=1))
