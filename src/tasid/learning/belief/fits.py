"""Fits: an emission, how it came about, and what new episodes say of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tasid.beliefs.actor import BeliefActor, advantages
from tasid.beliefs.chain import Chain
from tasid.beliefs.classes import Classes
from tasid.beliefs.described import descriptions
from tasid.beliefs.familiar import anything, least_scores
from tasid.beliefs.features import AsSeen, FeatureMap, by_step, fit_features, is_picture
from tasid.beliefs.filter import LEAP, BeliefFilter
from tasid.beliefs.fitting import BeliefSetting, Chunks, Floats
from tasid.beliefs.gaussian import Gaussians, flat_gaussians
from tasid.beliefs.moments import Moments
from tasid.beliefs.nearby import is_large
from tasid.beliefs.scaled import Scaled
from tasid.learning.belief.episodes import Recorded
from tasid.maps import RobustPlan
from tasid.policies.belief_policy import BeliefPolicy
from tasid.targets.device import on_device

DIMENSIONS = 64
"""Directions in which classes are told apart, at most. In those left out all classes are one, and
a place never seen before would count as impossible."""
MANY_PLACES = 256
"""Where places belong to steps and are more than this, some may not be met twice: what led there
is tried as well."""
_KEPT = 4_000
"""Observations that features are measured on."""
FORESEEN = -0.5
"""Nats of foresight below which something is still wrong."""
_FORESIGHT, _RETURN = 0.5, 2.0
"""What a nat of foresight and the whole range of returns are worth beside each other."""


@dataclass(frozen=True)
class Judgement:
    """What new episodes said about a fit."""

    foresight: float
    """Mean ln p(rewards and ends | observations) of an episode, 0 at best."""
    returns: float
    """Mean return of the episodes it played itself; the common mean if it played none."""
    evidence: float
    """Mean ln p(observations) of a step, beside that of one Gaussian for all places."""
    evidence_error: float
    played: int

    def score(self, span: float) -> float:
        """Larger is better."""
        return _FORESIGHT * self.foresight + _RETURN * self.returns / max(span, 1e-12)


@dataclass(frozen=True)
class BeliefFit:
    """An emission and how it came about."""

    beginning: str
    classes: Classes
    feature_map: FeatureMap | AsSeen
    emission: Gaussians | Scaled
    counts: Floats
    """How often each class was seen, [C]."""
    judged: Judgement | None = None
    """What episodes said that the fit has not seen."""
    known: Moments | None = None
    """What episodes that are not here any more tell of the looks of its classes."""
    before: float | None = None
    """How far the last fit from this beginning scored behind the best; None if there was none."""

    @property
    def name(self) -> str:
        """Beginning and kind of classes."""
        return f"{self.beginning}, by {self.classes.kind}"


def actor_of(setting: BeliefSetting, fit: BeliefFit) -> BeliefActor:
    """The policy that acts by a fit."""
    tracker = BeliefFilter(
        setting.chain,
        fit.classes,
        fit.emission,
        on_device(setting.weights().eta, np.float32),
        on_device(LEAP, np.float32),
        anything(fit.classes.number),
    )
    return BeliefActor(tracker, fit.feature_map, setting.advantage)


def policy_of(
    setting: BeliefSetting,
    fit: BeliefFit,
    plan: RobustPlan,
    source: Any,
    recorded: Recorded,
    chunks: Chunks,
) -> BeliefPolicy:
    """The same with its plan, to keep; `source`, target or log, taught it by these episodes."""
    seen = fit.counts if fit.known is None else fit.counts + fit.known.counts
    return BeliefPolicy(
        plan,
        fit.classes.kind,
        fit.feature_map,
        fit.emission,
        float(setting.weights().eta),
        source.observation_shape,
        source.observation_dtype,
        source.environment,
        least=least_scores(fit.classes, fit.emission, seen, chunks),
        repetitions=recorded.longest_repetition,
    )


def setting_for(plan: RobustPlan) -> BeliefSetting:
    """What all fits for a plan share."""
    chain = Chain.of(plan.simulator)
    described = descriptions(plan.simulator, chain) if is_large(chain) else None
    return BeliefSetting(chain, advantages(plan, chain), plan.eta, DIMENSIONS, described)


def flat_fit(
    setting: BeliefSetting, classes: Classes, observation_shape: tuple[int, ...]
) -> BeliefFit:
    """A fit that knows nothing: its policy goes by its commands alone."""
    dtype = np.uint8 if is_picture(observation_shape) else np.float32
    feature_map = fit_features(np.zeros((2, *observation_shape), dtype))
    size = int(feature_map.components.shape[1])
    if setting.chain.layered:  # as `measured` has them, so that one compiled programme serves both
        feature_map = replace(
            feature_map, usual=on_device(np.zeros((setting.chain.horizon + 1, size)), np.float32)
        )
    flat = flat_gaussians(classes.number, size, setting.dimensions)
    return BeliefFit("flat", classes, feature_map, flat, np.zeros(classes.number))


def measured(recorded: Recorded, chain: Chain) -> FeatureMap:
    """Features for what was seen in these episodes."""
    seen = recorded.observations
    flat = seen.reshape(-1, *seen.shape[2:])
    live = np.arange(seen.shape[1]) <= recorded.ended[:, None]
    chosen = np.random.default_rng(0).permutation(np.flatnonzero(live))[:_KEPT]
    feature_map = fit_features(flat[np.sort(chosen)])
    return by_step(feature_map, seen, live) if chain.layered else feature_map


def usual_kinds(chain: Chain) -> list[str]:
    """Places, and what led there where some places may not be met twice."""
    number = len(np.unique(np.asarray(chain.states)))
    return ["place", "rank", "action"] if chain.layered and number > MANY_PLACES else ["place"]
