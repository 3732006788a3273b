"""Learning what classes look like: expectation maximisation over whole episodes.

From a bad beginning it ends in a wrong labelling, shifted or lagged, so there are several:
*forward* looks at the first few steps, then one more at a time, as Algorithm 2 walks; *anneal*
looks at everything, dimly at first; *warm* goes on from an emission that has proved itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from tasid.beliefs.chain import Chain
from tasid.beliefs.classes import Classes
from tasid.beliefs.described import sharpness
from tasid.beliefs.episodes import Episodes
from tasid.beliefs.fused import expect_fused, is_fused
from tasid.beliefs.gaussian import Gaussians, flat_gaussians
from tasid.beliefs.moments import Moments, fit_gaussians
from tasid.beliefs.nearby import is_large, near, part_of
from tasid.beliefs.smoother import Emission, Expected, Weights, expect

if TYPE_CHECKING:
    from jaxtyping import Float64

_FIRST_LOOK = 3
_MOST_STAGES = 40
_SETTLE = 4
_TEMPERS = (0.05, 0.1, 0.2, 0.4, 0.7, 1.0)
_FEW_STAGES = 6
_SLOW_TEMPERS = (0.02, 0.04, 0.08, 0.15, 0.3, 0.6, 1.0)
"""On large maps: in long corridors, who sharpens his looks faster ends up some places behind."""
_MARGIN = 2
"""Steps around the places of one stage that take part in the next, on large maps."""
_LEAST_ETA = 0.02
"""The filter allows for this much slipping at least: with none at all, one odd look is final."""

Floats = NDArray[np.float64]
Stage = tuple[float, int]
"""How much observations count, and how many of them are looked at."""
Chunks = Sequence[Episodes]
"""Episodes in chunks of one width, so that compiled code serves any number of them."""


def schedule(beginning: str, chain: Chain) -> list[Stage]:
    """The rounds of expectation maximisation from a beginning."""
    everything, large = chain.horizon + 1, is_large(chain)
    settle = [(1.0, everything)] * _SETTLE
    if beginning == "forward":
        first = min(_FIRST_LOOK, everything)
        number = min(everything - first + 1, _FEW_STAGES if large else _MOST_STAGES)
        ends = np.unique(np.linspace(first, everything, number).astype(int))
        return [(1.0, int(end)) for end in ends] + settle
    if beginning == "anneal":
        tempers = _SLOW_TEMPERS if large else _TEMPERS
        return [(temper, everything) for temper in tempers] + settle
    return settle if large else settle + settle


class Seen(NamedTuple):
    """What the smoother found in all episodes."""

    counts: Float64[np.ndarray, " C"]
    """How often each class was seen, [C]."""
    sums: Float64[np.ndarray, "C D"]
    """Sums of the features of each class, [C, D]."""
    evidence: Float64[np.ndarray, " N"]
    """ln p(observations, and what was told) of each episode, up to what classes share, [N]."""
    foreseen: Float64[np.ndarray, " N"]
    regret: Float64[np.ndarray, " N"]
    """As in `Expected`, [N]."""


@dataclass(frozen=True)
class BeliefSetting:
    """What all fits of one learner share."""

    chain: Chain
    advantage: jax.Array
    eta: float
    dimensions: int
    described: Floats | None = None
    """What the map says of every place, [C, P]."""

    def weights(self, **given: Any) -> Weights:
        """Of a smoother that expects this setting's slips."""
        return Weights(**{"eta": max(self.eta, _LEAST_ETA), **given}).arrays()

    def expect(
        self,
        classes: Classes,
        emission: Emission,
        chunks: Chunks,
        *,
        counted: Chunks | None = None,
        **given: Any,
    ) -> Seen:
        """Smooth the episodes by an emission; sums may be of other features of theirs."""
        weights, fused = self.weights(**given), is_fused(self.chain, classes)
        step, over_all = (expect_fused, _two_at_a_time().map) if fused else (expect, map)

        def one(chunk: Episodes, counted: Episodes) -> Expected:
            how = chunk, weights, self.advantage, counted.features
            return step(self.chain, classes, emission, *how)

        found: list[Expected] = list(over_all(one, chunks, counted or chunks))
        real = [np.asarray(chunk.weight) > 0 for chunk in chunks]

        def each(values: list[jax.Array]) -> Floats:
            parts = [np.asarray(v, np.float64)[r] for v, r in zip(values, real, strict=True)]
            return np.concatenate(parts)

        return Seen(
            counts=np.sum([np.asarray(one.counts, np.float64) for one in found], axis=0),
            sums=np.sum([np.asarray(one.sums, np.float64) for one in found], axis=0),
            evidence=each([one.evidence for one in found]),
            foreseen=each([one.foreseen for one in found]),
            regret=each([one.regret for one in found]),
        )

    def log_evidence(self, classes: Classes, emission: Gaussians, chunks: Chunks) -> float:
        """ln p(all that was seen and told), looks counting as much as they do in the smoother."""
        sharp = sharpness(self.described, emission.spread.size)
        evidence = self.expect(classes, emission, chunks).evidence
        return float(evidence.sum()) + sharp * float(emission.log_volume) * number_seen(chunks)

    def gaussians(self, classes: Classes, moments: Moments) -> Gaussians:
        """The emission that explains the moments of these classes."""
        described = self.described if classes.kind == "place" else None
        return fit_gaussians(moments, dimensions=self.dimensions, described=described)

    def near(
        self, classes: Classes, counts: Floats, *, steps: int
    ) -> tuple[BeliefSetting, Classes]:
        """The same where classes were seen so often [C] and around, if the map is large."""
        if classes.kind != "place" or not is_large(self.chain):
            return self, classes
        slots = near(self.chain, classes, counts, steps=steps)
        if slots is None:
            return self, classes
        chain, those = part_of(self.chain, classes, slots)
        return replace(self, chain=chain, advantage=self.advantage[:, np.maximum(slots, 0)]), those


@cache
def _two_at_a_time() -> Executor:
    """For all fits together: a chunk on a large map takes half a gigabyte."""
    return ThreadPoolExecutor(2)


class Totals:
    """Moments of all observations of the first so many steps, whoever they are of."""

    def __init__(self, chunks: Chunks) -> None:
        tables: list[Episodes] = jax.device_get(list(chunks))
        self._features = [np.asarray(chunk.features, np.float64) for chunk in tables]
        self._live = [np.asarray(chunk.live, np.float64) for chunk in tables]
        self.steps, _, size = self._features[0].shape
        self._upto, self._count = 0, 0.0
        self._sum, self._square = np.zeros(size), np.zeros((size, size))

    def moments(self, counts: Floats, sums: Floats, upto: int) -> Moments:
        """With the counts and sums of classes; `upto` never shrinks."""
        new = slice(self._upto, upto)
        for features, live in zip(self._features, self._live, strict=True):
            here = features[new].reshape(-1, features.shape[-1])
            weighed = here * live[new].reshape(-1, 1)
            self._count += live[new].sum()
            self._sum += weighed.sum(axis=0)
            self._square += weighed.T @ here
        self._upto = max(upto, self._upto)
        return Moments(counts, sums, self._count, self._sum, self._square)


def fit(
    setting: BeliefSetting,
    classes: Classes,
    chunks: Chunks,
    stages: Sequence[Stage],
    *,
    begin: Seen | None = None,
    known: Moments | None = None,
) -> tuple[Gaussians, Floats]:
    """The emission after all stages, from who looked how, or from knowing nothing.

    Also gives how often each class was seen. What is `known` of the looks of classes from earlier
    episodes counts besides, whatever these ones are taken for.
    """
    totals = Totals(chunks)
    size = int(chunks[0].features.shape[-1])
    counts = np.zeros(classes.number)
    emission = flat_gaussians(classes.number, size, setting.dimensions)
    if begin is not None:
        moments = totals.moments(begin.counts, begin.sums, totals.steps)
        emission = setting.gaussians(classes, moments.plus(known))
    met, further = (counts, stages[0][1]) if begin is None else (begin.counts, 0)
    part, those = setting.near(classes, met, steps=_MARGIN + further)
    for number, (temper, upto) in enumerate(stages):
        found = part.expect(those, emission, chunks, temper=temper, upto=upto)
        counts = found.counts
        moments = totals.moments(counts, found.sums, upto)
        emission = setting.gaussians(classes, moments.plus(known))
        further = stages[min(number + 1, len(stages) - 1)][1] - upto
        part, those = setting.near(classes, counts, steps=_MARGIN + further)
    return emission, counts


def number_seen(chunks: Chunks) -> float:
    """How many observations there are in all."""
    return sum(float(chunk.live.sum()) for chunk in jax.device_get(list(chunks)))


def one_look(chunks: Chunks) -> Gaussians:
    """The emission to be better than: one Gaussian for all places."""
    totals = Totals(chunks)
    size = int(chunks[0].features.shape[-1])
    moments = totals.moments(np.zeros(1), np.zeros((1, size)), totals.steps)
    return fit_gaussians(moments, dimensions=1)


def plain(emission: Gaussians, features: Any) -> Any:
    """ln p(x) by an emission with one class, [n], of features [n, D]."""
    return emission.shared(features) + emission.scores(features, np.zeros(1, np.intp))[0]


def by_episode(
    score: Callable[[Gaussians, Any], Any], emission: Gaussians, chunks: Chunks
) -> Floats:
    """A score of observations [n, D], in NumPy, summed up over each real episode, [N]."""
    emission = jax.device_get(emission)

    def one(chunk: Episodes) -> Floats:
        scores = score(emission, chunk.features.reshape(-1, chunk.features.shape[-1]))
        live = chunk.live > 0
        return (scores.reshape(live.shape) * live).sum(axis=0, dtype=np.float64)[chunk.weight > 0]

    return np.concatenate([one(chunk) for chunk in jax.device_get(list(chunks))])
