"""Learning what states look like from episodes that somebody recorded, without the target.

Nothing can be tried, so returns cannot choose among fits. What was recorded has to: the episodes
are dealt into folds, every fit is made without one of them, and that one judges it. A right fit
*foresees*, from observations alone, when the target paid and when it ended the episode; beside it
stands a blind guess, which knows the map and the commands but does not look. Where rewards and
ends tell nothing, observations have to: does knowing the place explain how new ones look?

The fit that proved itself best goes on with all episodes. If none did, or if fits that are equally
good do not agree on where the episodes went, nothing is guessed: `Undecided` says what was found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from tasid.beliefs.classes import Classes
from tasid.beliefs.described import sharpness
from tasid.beliefs.episodes import Episodes
from tasid.beliefs.fitting import BeliefSetting, Chunks, Floats, by_episode, fit, schedule
from tasid.beliefs.gaussian import Gaussians, flat_gaussians
from tasid.beliefs.smoother import smoothed
from tasid.learning.belief.episodes import Recorded, as_chunks
from tasid.learning.belief.fits import BeliefFit, measured, setting_for, usual_kinds
from tasid.maps import RobustPlan

FEWEST = 8
"""Episodes without which nothing can be held out."""
BEGINNINGS = ("forward", "anneal")
_MANY = 256
"""From so many episodes on half of them are enough to fit, and two folds will do."""
_FOLDS = 4
_SURE = 3.0
"""Standard errors by which a fit must be better than knowing nothing."""
_LEAST = 1e-3
"""Nats of an episode that float32 may make up."""
_ALIKE = 2.0
"""Standard errors within which two fits are equally good."""
_NOTICED = 0.1
"""Nats of an episode that are no difference, whatever the error."""
_AGREE = 0.9
"""The share of steps that matter at which fits of one mind see an episode in the same place."""
_COMPARED = 64
"""Episodes in which fits are compared."""


class Undecided(ValueError):
    """The recorded episodes do not tell what states look like; the message says why."""


@dataclass(frozen=True)
class Measure:
    """A mean over episodes that the fit has not seen."""

    mean: float
    error: float

    @classmethod
    def of(cls, values: Floats) -> Measure:
        """Of one number for each episode."""
        return cls(float(values.mean()), float(values.std() / math.sqrt(values.size)))

    @property
    def sure(self) -> bool:
        """Is it above 0 beyond doubt?"""
        return self.mean > max(_SURE * self.error, _LEAST)

    def __str__(self) -> str:
        return f"{self.mean:.2f} ± {self.error:.2f}"


@dataclass(frozen=True)
class Judged:
    """A fit, and what the fold that it has not seen says of it."""

    fit: BeliefFit
    fold: int
    """The one that it has not seen."""
    foresight: Measure
    """ln p(rewards and ends | observations) of an episode, 0 at best."""
    lead: Measure
    """How much more that is than a blind guess has, over all folds of fits made in this way."""
    left: Measure
    """How much a blind guess leaves to be foreseen, over all folds."""
    evidence: Measure
    """Nats of an episode by which places explain its looks better than places nobody has seen."""

    @property
    def name(self) -> str:
        """How it was made and of what, for several are made alike of different folds."""
        return f"'{self.fit.name}' to all but part {self.fold + 1}"

    def equals(self, other: Judged) -> bool:
        """Is there nothing to choose between the two?"""
        return _alike(self.foresight, other.foresight) and _alike(self.evidence, other.evidence)


@dataclass(frozen=True)
class LearntFromLog:
    """What recorded episodes taught."""

    best: BeliefFit
    """Fitted to all of them."""
    judged: tuple[Judged, ...]
    """The fits to parts of them, the best first."""
    chunks: Chunks
    setting: BeliefSetting


def learn_log(
    recorded: Recorded, plan: RobustPlan, *, tells: bool, kinds: Sequence[str] | None = None
) -> LearntFromLog:
    """Fit recorded episodes; `tells` says whether their target would have told an end."""
    if recorded.number < FEWEST:
        raise Undecided(
            f"episodes: {recorded.number} are too few to hold any out; {FEWEST} are the least"
        )
    log = _Log(recorded, plan, tells, kinds)
    with threadpool_limits(1, "blas"):
        judged = _ranked(log.judge(log.fits()))
        best = decided(judged, log.agreement)
        final = log.gone_on(best.fit)
    return LearntFromLog(final, tuple(judged), log.chunks, log.setting)


def decided(judged: Sequence[Judged], agreement: Callable[[BeliefFit, BeliefFit], float]) -> Judged:
    """The first of the ranked fits, if it proved itself and no equal has another opinion."""
    best = judged[0]
    if not _proved(best):
        raise Undecided(
            f"the recorded episodes do not tell what states look like. None of {len(judged)} fits "
            "proved itself on episodes it had not seen: of the "
            f"{best.left} nats an episode that a blind guess leaves of rewards and ends, the best "
            f"foresees {best.lead}, and its places explain looks by {best.evidence}. More episodes "
            "would help, or such that get around and are paid differently in different places."
        )
    for rival in judged[1:]:
        if best.equals(rival) and (share := agreement(best.fit, rival.fit)) < _AGREE:
            raise Undecided(
                "the recorded episodes can be read in more than one way: the fits "
                f"{best.name} and {rival.name} are equally good (foresight "
                f"{best.foresight} and {rival.foresight} nats an episode, looks "
                f"{best.evidence} and {rival.evidence}), but see the episodes in the same place "
                f"at {share:.0%} of the steps that matter only. More episodes would help."
            )
    return best


def _proved(one: Judged) -> bool:
    """By foresight where there is enough to be foreseen; elsewhere by looks."""
    return one.lead.sure if one.left.sure else one.lead.mean > -_LEAST and one.evidence.sure


def _ranked(judged: Sequence[Judged]) -> list[Judged]:
    """The best first: by foresight, and by looks where foresight is alike."""
    first = max(judged, key=lambda one: one.foresight.mean)
    equal = [one for one in judged if _alike(one.foresight, first.foresight)]
    best = max(equal, key=lambda one: one.evidence.mean)
    rest = [one for one in judged if one is not best]
    return [best, *sorted(rest, key=lambda one: -one.foresight.mean)]


def _alike(a: Measure, b: Measure) -> bool:
    return abs(a.mean - b.mean) <= max(_ALIKE * math.hypot(a.error, b.error), _NOTICED)


class _Log:
    """Recorded episodes and the fits to parts of them."""

    def __init__(
        self, recorded: Recorded, plan: RobustPlan, tells: bool, kinds: Sequence[str] | None
    ) -> None:
        self._recorded, self._tells = recorded, tells
        self.setting = setting_for(plan)
        chain = self.setting.chain
        self._classes = [
            Classes.of(chain, kind, plan.simulator)
            for kind in (usual_kinds(chain) if kinds is None else kinds)
        ]
        self._looks = measured(recorded, self.setting.chain)
        self.chunks = self._chunks(recorded)
        number = 2 if recorded.number >= _MANY else _FOLDS
        # Neighbours may be of one policy or one day: every fold gets its share of each.
        self._fold = np.arange(recorded.number) % number

    def fits(self) -> list[tuple[int, BeliefFit]]:
        """From every beginning, for every kind of classes, without each of the folds."""
        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(lambda job: job(), self._jobs()))

    def _jobs(self) -> Iterator[Callable[[], tuple[int, BeliefFit]]]:
        def job(
            fold: int, chunks: Chunks, classes: Classes, beginning: str
        ) -> tuple[int, BeliefFit]:
            stages = schedule(beginning, self.setting.chain)
            emission, counts = fit(self.setting, classes, chunks, stages)
            return fold, BeliefFit(beginning, classes, self._looks, emission, counts)

        for fold in np.unique(self._fold).tolist():
            chunks = self._chunks(self._recorded.rows(self._fold != fold))
            for classes in self._classes:
                for beginning in BEGINNINGS:
                    yield partial(job, fold, chunks, classes, beginning)

    def judge(self, fits: Sequence[tuple[int, BeliefFit]]) -> list[Judged]:
        """Each fit by the fold that it has not seen."""
        held = [
            self._chunks(self._recorded.rows(self._fold == fold)) for fold in np.unique(self._fold)
        ]
        classes, size = self._classes[0], int(self.chunks[0].features.shape[-1])
        nobody = flat_gaussians(classes.number, size, self.setting.dimensions)
        blind = [self.setting.expect(classes, nobody, chunks, told=0.0) for chunks in held]
        found = [
            self.setting.expect(one.classes, one.emission, held[fold], told=0.0)
            for fold, one in fits
        ]
        leads: dict[str, list[Floats]] = {}
        for (fold, one), seen in zip(fits, found, strict=True):
            leads.setdefault(one.name, []).append(seen.foreseen - blind[fold].foreseen)
        left = Measure.of(np.concatenate([-guess.foreseen for guess in blind]))
        return [
            Judged(
                one,
                fold,
                foresight=Measure.of(seen.foreseen),
                lead=Measure.of(np.concatenate(leads[one.name])),
                left=left,
                evidence=Measure.of(self._evidence(one, seen.evidence, held[fold])),
            )
            for (fold, one), seen in zip(fits, found, strict=True)
        ]

    def _evidence(self, one: BeliefFit, seen: Floats, chunks: Chunks) -> Floats:
        """Nats of an episode by which places explain looks, of what was `seen` of them [N]."""
        emission = one.emission
        assert isinstance(emission, Gaussians)
        if self.setting.described is None or one.classes.kind != "place":
            return seen - by_episode(unseen, emission, chunks)
        # For ς < 1, ln E[p^ς] / ς is below ln E[p]: what is claimed is less than the truth.
        sharp = sharpness(self.setting.described, emission.spread.size)
        return seen / sharp - by_episode(unseen, undescribed(emission), chunks)

    def gone_on(self, best: BeliefFit) -> BeliefFit:
        """The best fit, carried on with all episodes."""
        begin = self.setting.expect(best.classes, best.emission, self.chunks)
        stages = schedule("warm", self.setting.chain)
        emission, counts = fit(self.setting, best.classes, self.chunks, stages, begin=begin)
        return BeliefFit(best.beginning, best.classes, self._looks, emission, counts)

    def agreement(self, one: BeliefFit, other: BeliefFit) -> float:
        """The share of steps at which two fits see some of the episodes in the same place.

        Steps count by how much a wrong action could cost there.
        """
        stake = -np.asarray(self.setting.advantage).min(axis=2)[:, :, None]
        same = total = 0.0
        for chunk in self._chunks(self._recorded.rows(slice(0, _COMPARED))):
            a, b = (self._places(each, chunk)[:-1] for each in (one, other))
            weight = ((a + b) / 2 * stake).sum(axis=1) * np.asarray(chunk.live)[:-1]
            same += float((np.minimum(a, b).sum(axis=1) * weight).sum())
            total += float(weight.sum())
        return same / total if total > 0 else 1.0

    def _places(self, one: BeliefFit, chunk: Episodes) -> NDArray[np.float32]:
        parts = self.setting.chain, one.classes, one.emission, chunk, self.setting.weights()
        return np.asarray(smoothed(*parts).after)

    def _chunks(self, recorded: Recorded) -> Chunks:
        return as_chunks(recorded, self.setting.chain, self._looks, tells=self._tells)


def undescribed(emission: Gaussians) -> Gaussians:
    """The same, with places never seen that differ by what descriptions tell apart as well.

    Who does not know the place does not know its description either.
    """
    means = np.asarray(emission.linear, np.float64) / (-2 * np.asarray(emission.square, np.float64))
    spread = np.asarray(emission.spread) + (means**2).mean(axis=0)
    return emission._replace(spread=jnp.asarray(spread, jnp.float32))


def unseen(emission: Gaussians, features: Any) -> Any:
    """ln p(x) if it were of a place never seen, up to `shared`, [n], of features [n, D].

    A Gaussian for all of them that does without this fit's idea of how much places differ would
    not do: a place that the fit has not seen would then count against it.
    """
    variance = 1 + emission.spread
    along = (features - emission.centre) @ emission.directions
    return -0.5 * (along**2 / variance + np.log(variance)).sum(axis=1)
