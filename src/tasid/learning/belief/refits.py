"""One round of fits to all episodes so far, from several beginnings.

The one that goes on from what proved itself comes first. Where Gaussians have failed so far, or a
user gave a model, classifiers learn the labels that others give, and then their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

import jax
import numpy as np

from tasid.beliefs.classes import Classes
from tasid.beliefs.features import AsSeen, FeatureMap
from tasid.beliefs.fitting import BeliefSetting, Chunks, Seen, fit, schedule
from tasid.beliefs.gaussian import Gaussians
from tasid.beliefs.moments import Moments
from tasid.beliefs.scaled import (
    MOST_CLASSES,
    Classifier,
    Differentiable,
    Layers,
    Scaled,
    fit_scaled,
)
from tasid.beliefs.smoother import labelled
from tasid.learning.belief.episodes import Recorded, as_chunks
from tasid.learning.belief.fits import FORESEEN, BeliefFit, flat_fit
from tasid.learning.belief.memory import StoredFit, remembered, stored_fits
from tasid.learning.memory import Memory, seal_of

_BEFORE_NETWORKS = 96
"""Episodes after which networks are tried where Gaussians do not tell places apart."""
_REALIGNED = 2
"""How often a network is fitted again to the labels it gives."""
_GOING_ON = ("saved", "warm")
"""Beginnings that keep what is known from before."""


@dataclass(frozen=True)
class Round:
    """What the fits of one round are made of."""

    number: int
    setting: BeliefSetting
    classes: Sequence[Classes]
    recorded: Recorded
    tells: bool
    """Does the target tell when an episode ends?"""
    given: Classifier | None = None
    """A user's own."""
    memory: Memory | None = None

    def fits(self, best: BeliefFit, feature_map: FeatureMap, *, alone: bool) -> list[BeliefFit]:
        """From all beginnings, unless they are remembered; if `alone`, from the best alone."""
        recorded, chunks = self.recorded, self._chunks(feature_map)
        seal = seal_of(recorded.commands, recorded.rewards, recorded.ended)
        found = None if self.memory is None else self.memory.recall(self.number, seal)
        if found is not None:
            kinds = {one.kind: one for one in self.classes}
            again = [
                BeliefFit(one.beginning, kinds[one.kind], feature_map, one.emission, one.counts)
                for one in stored_fits(found)
            ]
            return [
                replace(one, known=best.known) if one.beginning in _GOING_ON else one
                for one in again
            ]
        with ThreadPoolExecutor(2) as pool:
            jobs = self._jobs(best, feature_map, chunks)
            fits = list(pool.map(lambda job: job(), islice(jobs, 1) if alone else jobs))
        if self.memory is not None:
            made = [
                StoredFit(one.beginning, one.classes.kind, one.emission, one.counts) for one in fits
            ]
            self.memory.keep(self.number, seal, remembered(made))
        return fits

    def _jobs(
        self, best: BeliefFit, feature_map: FeatureMap, chunks: Chunks
    ) -> Iterator[Callable[[], BeliefFit]]:
        def job(
            beginning: str,
            classes: Classes,
            begin: Seen | None = None,
            known: Moments | None = None,
        ) -> BeliefFit:
            stages = schedule(beginning, self.setting.chain)
            emission, counts = fit(self.setting, classes, chunks, stages, begin=begin, known=known)
            return BeliefFit(beginning, classes, feature_map, emission, counts, known=known)

        def warm() -> BeliefFit:
            begin = self._carried_over(best, feature_map, chunks)
            return job("warm", best.classes, begin, best.known)

        if best.beginning == "saved" and self._keeps(best):
            yield partial(replace, best, judged=None, before=None)
        elif best.judged is not None:
            networks = self._network_jobs(best, feature_map)
            if isinstance(best.emission, Scaled):
                yield from networks
                yield warm
            else:
                yield warm
                yield from networks
        for classes in self.classes:
            for beginning in ("forward", "anneal"):
                yield partial(job, beginning, classes)

    def _network_jobs(
        self, best: BeliefFit, feature_map: FeatureMap
    ) -> list[Callable[[], BeliefFit]]:
        """Fits of the user's model, or of a network where Gaussians have failed so far."""
        if best.classes.number > MOST_CLASSES or not (self.given or self._needs_network(best)):
            return []
        before = self._chunks(best.feature_map)
        flat = flat_fit(self.setting, best.classes, self.recorded.observations.shape[2:])
        seen: FeatureMap | AsSeen = feature_map
        classifier: Classifier = Differentiable(Layers(int(feature_map.components.shape[1])))
        if self.given is not None:
            seen, classifier = AsSeen(self.recorded.observations.shape[2:]), self.given

        def job(beginning: str, teacher: BeliefFit, chunks: Chunks) -> BeliefFit:
            fitted = self._taught(classifier, teacher, chunks, self._chunks(seen))
            counts = np.expm1(np.asarray(-np.log1p(-fitted.trust), np.float64))
            return BeliefFit(beginning, best.classes, seen, fitted, counts)

        again = "network" if self.given is None else "model"
        return [
            partial(job, again, best, before),
            partial(job, f"{again} from commands", flat, self._chunks(flat.feature_map)),
        ]

    def _keeps(self, best: BeliefFit) -> bool:
        """Is a network better left as it is? Of what taught it nothing is left."""
        return isinstance(best.emission, Scaled) and self.recorded.number < _BEFORE_NETWORKS

    def _needs_network(self, best: BeliefFit) -> bool:
        judged = best.judged
        if isinstance(best.emission, Scaled):
            return True
        if judged is None or self.recorded.number < _BEFORE_NETWORKS:
            return False
        return judged.foresight < FORESEEN or judged.evidence <= 2 * judged.evidence_error

    def _taught(
        self, classifier: Classifier, teacher: BeliefFit, chunks: Chunks, seen: Chunks
    ) -> Scaled:
        """A classifier that has learned a teacher's labels, then its own."""
        weights, chain = self.setting.weights(), self.setting.chain

        def labels(emission: Gaussians | Scaled, chunks: Chunks) -> list[jax.Array]:
            return [labelled(chain, teacher.classes, emission, one, weights) for one in chunks]

        fitted = fit_scaled(classifier, seen, labels(teacher.emission, chunks))
        for _ in range(_REALIGNED):
            fitted = fit_scaled(classifier, seen, labels(fitted, seen))
        return fitted

    def _carried_over(self, best: BeliefFit, feature_map: FeatureMap, chunks: Chunks) -> Seen:
        """Who looked how, by the best fit, counted in the features of another measurement."""
        seen = chunks if feature_map is best.feature_map else self._chunks(best.feature_map)
        return self.setting.expect(best.classes, best.emission, seen, counted=chunks)

    def _chunks(self, feature_map: FeatureMap | AsSeen) -> Chunks:
        return as_chunks(self.recorded, self.setting.chain, feature_map, tells=self.tells)
