"""Learning what classes look like: expectation maximisation over whole episodes.

From a bad beginning it ends in a wrong labelling, shifted or lagged, so there are several:
*forward* looks at the first few steps, then one more at a time, as Algorithm 2 walks; *anneal*
looks at everything, dimly at first; *warm* goes on from an emission that has proved itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tasid.beliefs.chain import Chain
from tasid.beliefs.classes import Classes
from tasid.beliefs.episodes import Episodes
from tasid.beliefs.gaussian import Gaussians, Moments, fit_gaussians, flat_gaussians
from tasid.beliefs.smoother import Expected, Weights, expect

_FIRST_LOOK = 3
_MOST_STAGES = 40
_SETTLE = 4
_TEMPERS = (0.05, 0.1, 0.2, 0.4, 0.7, 1.0)
_LEAST_ETA = 0.02
"""The filter allows for this much slipping at least: with none at all, one odd look is final."""

Stage = tuple[float, int]
"""How much observations count, and how many of them are looked at."""


def schedule(beginning: str, horizon: int) -> list[Stage]:
    """The rounds of expectation maximisation from a beginning."""
    everything = horizon + 1
    settle = [(1.0, everything)] * _SETTLE
    if beginning == "forward":
        first = min(_FIRST_LOOK, everything)
        number = min(everything - first + 1, _MOST_STAGES)
        ends = np.unique(np.linspace(first, everything, number).astype(int))
        return [(1.0, int(end)) for end in ends] + settle
    if beginning == "anneal":
        return [(temper, everything) for temper in _TEMPERS] + settle
    return settle + settle


@dataclass(frozen=True)
class Setting:
    """What all fits of one learner share."""

    chain: Chain
    advantage: jax.Array
    eta: float
    dimensions: int

    def weights(self, **given: Any) -> Weights:
        """Of a smoother that expects this setting's slips."""
        return Weights(**{"eta": max(self.eta, _LEAST_ETA), **given}).arrays()

    def expect(
        self, classes: Classes, emission: Gaussians, episodes: Episodes, **given: float | int
    ) -> Expected:
        """Smooth the episodes by an emission."""
        weights = self.weights(**given)
        return expect(self.chain, classes, emission, episodes, weights, self.advantage)


class Totals:
    """Moments of all observations of the first so many steps, whoever they are of."""

    def __init__(self, episodes: Episodes) -> None:
        self._features = np.asarray(episodes.features, np.float64)
        self._live = np.asarray(episodes.live, np.float64)
        size = self._features.shape[-1]
        self._upto, self._count = 0, 0.0
        self._sum, self._square = np.zeros(size), np.zeros((size, size))

    def moments(self, expected: Expected, upto: int) -> Moments:
        """With the counts of classes that an expectation step found; `upto` never shrinks."""
        for h in range(self._upto, upto):
            weighed = self._features[h] * self._live[h][:, None]
            self._count += self._live[h].sum()
            self._sum += weighed.sum(axis=0)
            self._square += weighed.T @ self._features[h]
        self._upto = upto
        counts, sums = (np.asarray(x, np.float64) for x in (expected.counts, expected.sums))
        return Moments(counts, sums, self._count, self._sum, self._square)


def fit(
    setting: Setting,
    classes: Classes,
    episodes: Episodes,
    stages: Sequence[Stage],
    *,
    begin: Expected | None = None,
) -> Gaussians:
    """The emission after all stages, from who looked how, or from knowing nothing."""
    totals = Totals(episodes)
    size = int(episodes.features.shape[-1])
    emission = flat_gaussians(classes.number, size, setting.dimensions)
    if begin is not None:
        everything = int(episodes.features.shape[0])
        totals = Totals(episodes)
        moments = totals.moments(begin, everything)
        emission = fit_gaussians(moments, dimensions=setting.dimensions)
    for temper, upto in stages:
        found = setting.expect(classes, emission, episodes, temper=temper, upto=upto)
        moments = totals.moments(found, upto)
        emission = fit_gaussians(moments, dimensions=setting.dimensions)
    return emission


def null_scores(episodes: Episodes, of: Episodes) -> jax.Array:
    """ln p(features) of each episode by one Gaussian for all places, fitted to other episodes."""
    totals = Totals(of)
    nobody = Expected(*(jnp.zeros(1), jnp.zeros((1, of.features.shape[-1]))), *[jnp.zeros(1)] * 3)
    moments = totals.moments(nobody, int(of.features.shape[0]))
    one = fit_gaussians(moments, dimensions=1)
    scores = jax.vmap(one.shared)(episodes.features) + jax.vmap(
        lambda z: one.scores(z, jnp.zeros(1, jnp.int32))[0]
    )(episodes.features)
    return (scores * (episodes.live > 0)).sum(axis=0)
