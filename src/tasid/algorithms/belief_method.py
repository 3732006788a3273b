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
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from tasid.algorithms.belief_episodes import Recorded, as_episodes, joined, play
from tasid.beliefs.actor import BeliefActor, advantages
from tasid.beliefs.chain import Chain
from tasid.beliefs.classes import Classes
from tasid.beliefs.episodes import Episodes
from tasid.beliefs.filter import LEAP, BeliefFilter
from tasid.beliefs.fitting import Setting, fit, null_scores, schedule
from tasid.beliefs.gaussian import Gaussians, flat_gaussians
from tasid.beliefs.looks import Looks, fit_looks, is_picture
from tasid.beliefs.smoother import Expected
from tasid.envs.target import Target, seed_key
from tasid.mdp import RobustPlan, return_range

FIRST = 16
"""Episodes of the first batch, and of the smallest."""
GROWTH = 0.5
"""Later batches are this part of all episodes before them."""
EXPLORE = 0.05
"""The share of random commands while learning."""
DIMENSIONS = {False: 16, True: 48}
"""Directions in which classes are told apart: of vectors, of pictures."""
MOST_PLACES = 1 << 16
_KEPT = 4_000
"""Observations that features are measured on."""
_MEASURED = 300
"""Episodes after which features of pictures are not measured again."""
_FORESIGHT, _RETURN = 0.5, 2.0
"""What a nat of foresight and the whole range of returns are worth beside each other."""
_HOPELESS = 3.0
"""A fit so far behind the best no longer plays."""
_SHRINK = 2.0
"""Episodes' worth of the common mean that a fit's own mean return is mixed with."""


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
class Fit:
    """An emission and how it came about."""

    beginning: str
    classes: Classes
    looks: Looks
    emission: Gaussians
    judged: Judgement | None = None

    @property
    def name(self) -> str:
        """Beginning and kind of classes."""
        return f"{self.beginning}, by {self.classes.kind}"


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
    """Estimated loss of an episode to not knowing where one is."""
    evidence: float
    seconds_playing: float
    seconds_fitting: float


BeliefCallback = Callable[[BatchEnded], None]


@dataclass(frozen=True)
class Learnt:
    """What the belief method ends with."""

    best: Fit
    fits: tuple[Fit, ...]
    episodes: Episodes
    recorded: Recorded
    batches: tuple[BatchEnded, ...]
    stopped: str
    """Why no more episodes were played."""
    setting: Setting

    def actor(self) -> BeliefActor:
        """The policy of the best fit."""
        return actor_of(self.setting, self.best)


def actor_of(setting: Setting, fit: Fit) -> BeliefActor:
    """The policy that acts by a fit."""
    tracker = BeliefFilter(
        setting.chain,
        fit.classes,
        fit.emission,
        jnp.float32(setting.weights().eta),
        jnp.float32(LEAP),
    )
    return BeliefActor(tracker, fit.looks, setting.advantage)


class BeliefLearner:
    """One seed's episodes and fits."""

    def __init__(
        self,
        target: Target,
        plan: RobustPlan,
        *,
        seed: int,
        kinds: Sequence[str] | None = None,
        explore: float = EXPLORE,
    ) -> None:
        self._target, self._plan, self._seed, self._explore = target, plan, seed, explore
        chain = Chain.of(plan.simulator)
        picture = is_picture(target.observation_shape)
        self.setting = Setting(chain, advantages(plan, chain), plan.eta, DIMENSIONS[picture])
        self._classes = [
            Classes.of(chain, kind, plan.simulator)
            for kind in (usual_kinds(plan, chain) if kinds is None else kinds)
        ]
        self._tells = hasattr(target, "finished")
        low, high = return_range(plan.simulator)
        self._span = high - low
        self._parts: list[Recorded] = []
        self._fits: list[Fit] = []
        self.batches: list[BatchEnded] = []

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
        played = time.perf_counter()
        fresh = joined(new)
        with threadpool_limits(1, "blas"):
            fits = self._judge(
                fresh, [(f, part) for (f, _, _), part in zip(shares, new, strict=True)]
            )
            best = self._best(fits)
            self._parts.append(fresh)
            regret = self._regret(best, fresh) if best.judged else math.nan
            self._fits = self._refit(best)
        judged = best.judged
        ended = BatchEnded(
            seed=self._seed,
            batch=len(self._parts) - 1,
            episodes=self.episodes,
            of=of,
            return_mean=float(fresh.returns.mean()),
            best=best.name,
            foresight=judged.foresight if judged else math.nan,
            regret=regret,
            evidence=judged.evidence if judged else math.nan,
            seconds_playing=played - started,
            seconds_fitting=time.perf_counter() - played,
        )
        self.batches.append(ended)
        return ended

    def finish(self, stopped: str) -> Learnt:
        """The fit that goes on from what proved itself, on all episodes."""
        best = self._fits[0]
        episodes = self._episodes(best.looks)
        return Learnt(
            best,
            tuple(self._fits),
            episodes,
            self.recorded,
            tuple(self.batches),
            stopped,
            self.setting,
        )

    def _play(self, fit: Fit, first: int, share: int) -> Recorded:
        return play(
            self._target,
            actor_of(self.setting, fit),
            seed_key(self._seed),
            first=self.episodes + first,
            episodes=share,
            explore=self._explore,
        )

    def _shares(self, number: int) -> list[tuple[Fit, int, int]]:
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

    def _playing(self) -> list[Fit]:
        if not self._fits:
            classes = self._classes[0]
            shape = self._target.observation_shape
            dtype = np.uint8 if is_picture(shape) else np.float32
            looks = fit_looks(np.zeros((2, *shape), dtype))
            size = int(looks.components.shape[1])
            flat = flat_gaussians(classes.number, size, self.setting.dimensions)
            return [Fit("flat", classes, looks, flat)]
        return self._fits

    def _episodes(self, looks: Looks, recorded: Recorded | None = None) -> Episodes:
        recorded = self.recorded if recorded is None else recorded
        return as_episodes(recorded, self.setting.chain, looks, tells=self._tells)

    def _judge(self, fresh: Recorded, played: Sequence[tuple[Fit, Recorded]]) -> list[Fit]:
        """The fits with what the new episodes say of them."""
        if not self._fits:
            return [played[0][0]]
        own = {id(fit): part.returns for fit, part in played}
        common = float(fresh.returns.mean())
        null = self._null(fresh)
        judged = []
        for one in self._fits:
            episodes = self._episodes(one.looks, fresh)
            found = self.setting.expect(one.classes, one.emission, episodes, told=0.0)
            shared = jax.vmap(one.emission.shared)(episodes.features) * (episodes.live > 0)
            gain = np.asarray(found.evidence + shared.sum(axis=0))[: fresh.number] - null
            gain = gain / self.setting.chain.horizon
            mine = own.get(id(one), np.zeros(0))
            mean = (mine.sum() + _SHRINK * common) / (mine.size + _SHRINK)
            judgement = Judgement(
                foresight=float(np.asarray(found.foreseen)[: fresh.number].mean()),
                returns=float(mean),
                evidence=float(gain.mean()),
                evidence_error=float(gain.std() / math.sqrt(fresh.number)),
                played=int(mine.size),
            )
            judged.append(replace(one, judged=judgement))
        return judged

    def _null(self, fresh: Recorded) -> NDArray[np.float64]:
        """ln p of the new episodes by one Gaussian for all places."""
        looks = self._fits[0].looks
        known = self._episodes(looks)
        return np.asarray(null_scores(self._episodes(looks, fresh), known))[: fresh.number]

    def _best(self, fits: Sequence[Fit]) -> Fit:
        def rank(one: Fit) -> tuple[float, float]:
            if one.judged is None:
                return (0.0, 0.0)
            return (round(one.judged.score(self._span), 2), one.judged.evidence)

        return max(fits, key=rank)

    def _regret(self, best: Fit, fresh: Recorded) -> float:
        found = self.setting.expect(best.classes, best.emission, self._episodes(best.looks, fresh))
        return float(np.asarray(found.regret)[: fresh.number].mean())

    def _refit(self, best: Fit) -> list[Fit]:
        """Fits on all episodes from every beginning, the one that goes on from the best first."""
        recorded = self.recorded
        looks = best.looks
        if best.judged is None or (looks.pool and recorded.number <= _MEASURED):
            looks = self._measured(recorded)
        episodes = self._episodes(looks)
        jobs = list(self._jobs(best, looks, episodes))
        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(lambda job: job(), jobs))

    def _jobs(self, best: Fit, looks: Looks, episodes: Episodes) -> Iterator[Callable[[], Fit]]:
        horizon = self.setting.chain.horizon

        def job(beginning: str, classes: Classes, begin: Expected | None = None) -> Fit:
            stages = schedule(beginning, horizon)
            emission = fit(self.setting, classes, episodes, stages, begin=begin)
            return Fit(beginning, classes, looks, emission)

        def warm() -> Fit:
            return job("warm", best.classes, self._carried_over(best, looks, episodes))

        if best.judged is not None:
            yield warm
        for classes in self._classes:
            for beginning in ("forward", "anneal"):
                yield partial(job, beginning, classes)

    def _carried_over(self, best: Fit, looks: Looks, episodes: Episodes) -> Expected:
        """Who looked how, by the best fit, counted in the features of another measurement."""
        if looks is best.looks:
            return self.setting.expect(best.classes, best.emission, episodes)
        old = self._episodes(best.looks)
        size = old.features.shape[-1]
        both = old._replace(features=jnp.concatenate([old.features, episodes.features], axis=-1))
        wide = best.emission.widened(int(episodes.features.shape[-1]))
        found = self.setting.expect(best.classes, wide, both)
        return found._replace(sums=found.sums[:, size:])

    def _measured(self, recorded: Recorded) -> Looks:
        """Features for what was seen so far."""
        seen = recorded.observations
        flat = seen.reshape(-1, *seen.shape[2:])
        live = (np.arange(seen.shape[1]) <= recorded.ended[:, None]).ravel()
        rows = np.flatnonzero(live)
        chosen = np.random.default_rng(0).permutation(rows)[:_KEPT]
        return fit_looks(flat[np.sort(chosen)])


def usual_kinds(plan: RobustPlan, chain: Chain) -> list[str]:
    """Places, and what led there where places may be too many to be met twice."""
    return ["place", "rank"] if chain.num_slots > 100 and chain.states.shape[0] > 1 else ["place"]


def belief(
    target: Target,
    plan: RobustPlan,
    *,
    episodes: int | None,
    seed: int,
    kinds: Sequence[str] | None = None,
    callbacks: Sequence[BeliefCallback] = (),
) -> Learnt:
    """Learn from so many episodes; with None, from as many as help."""
    learner = BeliefLearner(target, plan, seed=seed, kinds=kinds)
    stopped = f"{episodes} episodes were asked for"
    while episodes is None or learner.episodes < episodes:
        wanted = learner.next_batch()
        number = wanted if episodes is None else min(wanted, episodes - learner.episodes)
        ended = learner.batch(number, of=episodes)
        for callback in callbacks:
            callback(ended)
        if episodes is None and (why := enough(learner)) is not None:
            stopped = why
            break
    return learner.finish(stopped)


def enough(learner: BeliefLearner) -> str | None:
    """Why more episodes would not help; None if they might."""
    return None
