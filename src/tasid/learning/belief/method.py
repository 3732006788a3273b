"""Whole episodes, whole beliefs: learning what states look like by which policies act well.

The map is the transition model of a hidden Markov model, the commands are known, and the only
unknown is what states look like. Every batch of whole episodes is played by the policies so far,
and after it emissions are fitted anew from several beginnings. Which of them is right, new episodes
tell: those that none of the fits has seen. A right one *foresees* from observations alone when the
target pays and when it ends an episode, and its policy earns; the likelihood of observations
decides only where these do not, because wrong labellings often have the higher one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from threadpoolctl import threadpool_limits

from tasid.beliefs.actor import BeliefActor
from tasid.beliefs.classes import Classes
from tasid.beliefs.described import sharpness
from tasid.beliefs.features import AsSeen, FeatureMap
from tasid.beliefs.fitting import (
    BeliefSetting,
    Chunks,
    Floats,
    by_episode,
    one_look,
    plain,
)
from tasid.beliefs.gaussian import Gaussians
from tasid.beliefs.nearby import is_large
from tasid.beliefs.scaled import (
    classifier_for,
)
from tasid.learning.belief.episodes import Recorded, as_chunks, joined, play
from tasid.learning.belief.fits import (
    FORESEEN,
    BeliefFit,
    Judgement,
    actor_of,
    flat_fit,
    measured,
    setting_for,
    usual_kinds,
)
from tasid.learning.belief.refits import Round
from tasid.learning.belief.saved import taken_over
from tasid.learning.memory import Memory
from tasid.maps import RobustPlan, return_range
from tasid.policies.belief_policy import BeliefPolicy
from tasid.targets.streams import CONTINUING
from tasid.targets.target import Target, seed_key

FIRST = 16
"""Episodes of the first batch, and of the smallest."""
GROWTH = 0.5
"""Later batches are this part of all episodes before them."""
EXPLORE = 0.05
"""The share of random commands while learning."""
MOST = 2_048
"""Episodes after which evidence is not waited for any longer."""
_MEASURED = 300
"""Episodes after which features are not measured again."""
_HOPELESS = 1.0
"""A beginning whose last fit scored so far behind the best does not play."""
_ENOUGH = 0.01
"""The share of the range of returns that may be lost to not knowing where one is."""
_NEARLY = 0.05
"""The same where a fit that foresees, and earns what was planned, is the only one to go on."""
_PATIENCE = 2
"""Batches in a row that must be good enough."""
_SHRINK = 2.0
"""Episodes' worth of the common mean that a fit's own mean return is mixed with."""


Share = tuple[BeliefFit, int, int]
"""Who plays, from which of a batch's episodes on, and how many."""


@dataclass(frozen=True)
class BatchEnded:
    """A batch of episodes was played and learned from."""

    seed: int
    batch: int
    episodes: int
    """All episodes so far."""
    of: int | None
    """How many there will be, if that is known."""
    return_mean: float
    """Of the new episodes."""
    best: str
    """The fit that the new episodes speak for."""
    foresight: float
    regret: float
    """Estimated loss of an episode to not knowing where one is, of the best fit's policy."""
    regret_error: float
    evidence: float
    """Nats a step by which places explain new observations better than one look for all."""
    evidence_error: float
    seconds_playing: float
    seconds_fitting: float


BeliefCallback = Callable[[BatchEnded], None]


@dataclass(frozen=True)
class Learnt:
    """What the belief method ends with."""

    best: BeliefFit
    fits: tuple[BeliefFit, ...]
    chunks: Chunks
    recorded: Recorded
    batches: tuple[BatchEnded, ...]
    stopped: str
    """Why no more episodes were played."""
    setting: BeliefSetting

    def actor(self) -> BeliefActor:
        """The policy of the best fit."""
        return actor_of(self.setting, self.best)


class BeliefLearner:
    """One seed's episodes and fits."""

    def __init__(
        self,
        target: Target,
        plan: RobustPlan,
        *,
        seed: int,
        kinds: Sequence[str] | None = None,
        model: Any = None,
        explore: float = EXPLORE,
        memory: Memory | None = None,
        begin: BeliefPolicy | None = None,
    ) -> None:
        self._memory = memory
        self._key, self._begun = seed_key(seed), begin is not None
        self._target, self._plan, self._seed, self._explore = target, plan, seed, explore
        self._given = None if model is None else classifier_for(model, target.observation_shape)
        self.setting = setting_for(plan)
        chain = self.setting.chain
        self._classes = [
            Classes.of(chain, kind, plan.simulator)
            for kind in (usual_kinds(chain) if kinds is None else kinds)
        ]
        self._tells = target.ends_early
        low, high = return_range(plan.simulator)
        self._span = high - low
        self._parts: list[Recorded] = []
        self._fits: list[BeliefFit] = []
        if begin is not None:
            self._take_over(begin)
        self.batches: list[BatchEnded] = []

    def _take_over(self, policy: BeliefPolicy) -> None:
        """Begin with what a policy knows, and play other episodes than those that taught it."""
        taken = taken_over(policy, self.setting, self._plan.simulator)
        kinds = [one.kind for one in self._classes]
        if taken.classes.kind not in kinds:
            self._classes.append(taken.classes)
        self._fits = [
            BeliefFit("saved", *taken[:3], np.zeros(taken.classes.number), known=taken.known)
        ]
        key = jax.random.fold_in(self._key, CONTINUING)
        self._key = jax.random.fold_in(key, int(policy.digest[:8], 16))

    @property
    def episodes(self) -> int:
        """How many episodes were played."""
        return sum(part.number for part in self._parts)

    @property
    def recorded(self) -> Recorded:
        """All episodes."""
        return joined(self._parts)

    def next_batch(self) -> int:
        """How many episodes the next batch wants."""
        return max(FIRST, int(self.episodes * GROWTH))

    def batch(self, number: int, *, of: int | None = None) -> BatchEnded:
        """Play, judge the fits so far by what is new, and fit again."""
        started = time.perf_counter()
        shares = self._shares(number)
        new = [self._play(fit, first, share) for fit, first, share in shares]
        fresh = joined(new)
        played = time.perf_counter()
        with threadpool_limits(1, "blas"):
            fits = self._judge(fresh, shares)
            best = max(fits, key=self._rank)
            regret = self._regret(best, fresh, shares)
            self._parts.append(fresh)
            mean, error = _mean_and_error(regret)
            behind = {one.name: self._behind(one, best) for one in fits}
            self._fits = self._refit(best, behind, alone=self._settled(best, mean, error))
        judged = best.judged or Judgement(math.nan, math.nan, math.nan, math.nan, 0)
        ended = BatchEnded(
            seed=self._seed,
            batch=len(self._parts) - 1,
            episodes=self.episodes,
            of=of,
            return_mean=float(fresh.returns.mean()),
            best=best.name,
            foresight=judged.foresight,
            regret=mean,
            regret_error=error,
            evidence=judged.evidence,
            evidence_error=judged.evidence_error,
            seconds_playing=played - started,
            seconds_fitting=time.perf_counter() - played,
        )
        self.batches.append(ended)
        return ended

    def finish(self, stopped: str) -> Learnt:
        """The fit that goes on from what proved itself, on all episodes."""
        best = self._fits[0]
        return Learnt(
            best,
            tuple(self._fits),
            self._chunks(best.feature_map),
            self.recorded,
            tuple(self.batches),
            stopped,
            self.setting,
        )

    def enough(self) -> str | None:
        """Why more episodes would not help; None if they might."""
        last = self.batches[-_PATIENCE:]
        if self.episodes >= MOST:
            return f"{MOST} episodes are the most that evidence is waited for"
        if len(last) < _PATIENCE:
            return None
        lost = [self._lost(one.regret, one.regret_error) for one in last]
        good = all(share <= _ENOUGH for share in lost)
        if not (good and all(one.foresight >= FORESEEN for one in last)):
            return None
        return (
            f"in the last {_PATIENCE} batches not knowing where one is cost at most "
            f"{max(lost):.2%} of the range of returns"
        )

    def _play(self, fit: BeliefFit, first: int, share: int) -> Recorded:
        return play(
            self._target,
            actor_of(self.setting, fit),
            self._key,
            first=self.episodes + first,
            episodes=share,
            explore=self._explore,
        )

    def _shares(self, number: int) -> list[Share]:
        """Who plays which of the next episodes: fits not known to be hopeless, in turn."""
        playing = self._playing()
        each, more = divmod(number, len(playing))
        shares = [each + (i < more) for i in range(len(playing))]
        firsts = np.concatenate([[0], np.cumsum(shares)]).tolist()
        return [
            (fit, first, share)
            for fit, first, share in zip(playing, firsts[:-1], shares, strict=True)
            if share > 0
        ]

    def _playing(self) -> list[BeliefFit]:
        """Fits whose beginnings have not failed of late; at first, one that knows nothing."""
        if self._fits:
            return [one for one in self._fits if one.before is None or one.before < _HOPELESS]
        return [flat_fit(self.setting, self._classes[0], self._target.observation_shape)]

    def _chunks(self, feature_map: FeatureMap | AsSeen, recorded: Recorded | None = None) -> Chunks:
        recorded = self.recorded if recorded is None else recorded
        return as_chunks(recorded, self.setting.chain, feature_map, tells=self._tells)

    def _judge(self, fresh: Recorded, shares: Sequence[Share]) -> list[BeliefFit]:
        """The fits with what the new episodes say of them."""
        if not self._fits:
            return [shares[0][0]]
        feature_map = self._measured()
        assert feature_map is not None
        chunks = self._chunks(feature_map, fresh)
        before = self._chunks(feature_map) if self._parts else chunks
        null = by_episode(plain, one_look(before), chunks)
        common = float(fresh.returns.mean())
        judged = []
        for one in self._fits:
            seen = (
                chunks if one.feature_map is feature_map else self._chunks(one.feature_map, fresh)
            )
            found = self.setting.expect(one.classes, one.emission, seen, told=0.0)
            gain = found.evidence
            if isinstance(one.emission, Gaussians):  # scaled likelihoods are beside p(x) already
                # For ς < 1, ln E[p^ς] / ς is below ln E[p]: what is claimed is less than the truth.
                gain = gain / sharpness(self.setting.described, one.emission.spread.size)
                gain = gain + by_episode(Gaussians.shared, one.emission, chunks) - null
            gain = gain / self.setting.chain.horizon
            mine = _own(one, fresh.returns, shares)
            judgement = Judgement(
                foresight=float(found.foreseen.mean()),
                returns=float((mine.sum() + _SHRINK * common) / (mine.size + _SHRINK)),
                evidence=float(gain.mean()),
                evidence_error=float(gain.std() / math.sqrt(gain.size)),
                played=int(mine.size),
            )
            judged.append(replace(one, judged=judgement))
        return judged

    def _rank(self, one: BeliefFit) -> tuple[float, float]:
        if one.judged is None:
            return (0.0, 0.0)
        return (round(one.judged.score(self._span), 2), one.judged.evidence)

    def _behind(self, one: BeliefFit, best: BeliefFit) -> float | None:
        if best.judged is None:
            return None
        # On a large map all beginnings fail for a while, and the first to do well is not the first
        # to fail less: until one is right, nobody is ruled out.
        if is_large(self.setting.chain) and best.judged.foresight < FORESEEN:
            return None
        return self._rank(best)[0] - self._rank(one)[0]

    def _regret(self, best: BeliefFit, fresh: Recorded, shares: Sequence[Share]) -> Floats:
        """Of the episodes that the best fit played itself, or of all if it played none."""
        if best.judged is None:
            return np.zeros(0)
        chunks = self._chunks(best.feature_map, fresh)
        regret = self.setting.expect(best.classes, best.emission, chunks).regret
        return _own(best, regret, shares) if best.judged.played else regret

    def _settled(self, best: BeliefFit, regret: float, error: float) -> bool:
        """Does one fit keep the plan's promise, where others take long or one was given?"""
        if best.judged is None or not (self._begun or is_large(self.setting.chain)):
            return False
        # Where nothing is ever paid, say behind a door that is closed, foreseeing that is no feat.
        earns = best.judged.returns >= self._plan.start_value - _NEARLY * self._span
        return earns and best.judged.foresight >= FORESEEN and self._lost(regret, error) <= _NEARLY

    def _lost(self, regret: float, error: float) -> float:
        """What not knowing where one is costs at most, as a share of the range of returns."""
        return (regret + 2 * error) / max(self._span, 1e-12)

    def _measured(self) -> FeatureMap | None:
        """The features that all fits have in common, but those of a user's own model."""
        found = (one.feature_map for one in self._fits)
        return next((one for one in found if isinstance(one, FeatureMap)), None)

    def _refit(
        self, best: BeliefFit, behind: dict[str, float | None], *, alone: bool
    ) -> list[BeliefFit]:
        """Fits on all episodes from every beginning, the one that goes on from the best first.

        If that one needs no company, it is fitted alone.
        """
        recorded, chain = self.recorded, self.setting.chain
        feature_map = self._measured()
        early = (
            feature_map and recorded.number <= _MEASURED and (feature_map.pool > 0 or chain.layered)
        )
        if feature_map is None or (early and not self._begun):
            feature_map = measured(recorded, chain)
        number = len(self._parts) - 1
        again = Round(
            number, self.setting, self._classes, recorded, self._tells, self._given, self._memory
        )
        fits = again.fits(best, feature_map, alone=alone)
        return [one if alone else replace(one, before=behind.get(one.name)) for one in fits]


def _mean_and_error(values: Floats) -> tuple[float, float]:
    """NaN both if there are none."""
    if not values.size:
        return math.nan, math.nan
    return float(values.mean()), float(values.std() / math.sqrt(values.size))


def _own(one: BeliefFit, values: Floats, shares: Sequence[Share]) -> Floats:
    """The values of the episodes that a fit played itself."""
    for player, first, share in shares:
        if player.name == one.name:
            return values[first : first + share]
    return values[:0]


def belief(
    target: Target,
    plan: RobustPlan,
    *,
    episodes: int | None,
    seed: int,
    kinds: Sequence[str] | None = None,
    model: Any = None,
    callbacks: Sequence[BeliefCallback] = (),
    memory: Memory | None = None,
    begin: BeliefPolicy | None = None,
) -> Learnt:
    """Learn from so many episodes; with None, from as many as help.

    A policy to `begin` with plays the first batch, and what it knows counts with what is new.
    """
    learner = BeliefLearner(
        target, plan, seed=seed, kinds=kinds, model=model, memory=memory, begin=begin
    )
    stopped: str | None = None
    while stopped is None:
        left = (MOST if episodes is None else episodes) - learner.episodes
        ended = learner.batch(min(learner.next_batch(), left), of=episodes)
        for callback in callbacks:
            callback(ended)
        if episodes is None:
            stopped = learner.enough()
        elif learner.episodes >= episodes:
            stopped = f"{episodes} episode{'s were' if episodes > 1 else ' was'} asked for"
    return learner.finish(stopped)
