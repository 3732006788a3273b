"""The belief method: learn the emissions of the map as a hidden Markov model.

The map gives the transitions, the actions are known, and only the emissions are unknown. Batches of
whole episodes are played by the policies of the current fits. After each batch, emissions are
fitted to all episodes by EM from several initialisations, and the *next* batch tells which fit is
right, because no fit has used it: a right one predicts rewards and ends from observations alone,
and its policy earns. The likelihood of observations decides only where these do not, because wrong
labellings often have the higher one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv

from tasid.episodes import Episodes
from tasid.hmm.classifier import (
    ClassifierEmission,
    TrainingConfig,
    classifier_from,
    network_classifier,
)
from tasid.hmm.em import (
    EMConfig,
    HiddenMarkovModel,
    single_gaussian,
)
from tasid.hmm.emissions import Emission, GaussianEmission, MapViews, Moments, PLDAConfig
from tasid.hmm.features import FeatureConfig, FeatureMap, is_picture
from tasid.hmm.smoother import Classes, Sequences, batches
from tasid.hmm.transitions import TransitionGraph
from tasid.keys import Phase, fold_in, seed_key
from tasid.learning.base import Callback, Event, Learner, LearningResult, mean_and_error
from tasid.learning.diagnostics import (
    DiagnosisConfig,
    Findings,
    agreed_findings,
    diagnose_result,
    span,
)
from tasid.learning.memory import check_memory
from tasid.planning.perturbation import worst_case_value
from tasid.planning.robust_dp import RobustPlan
from tasid.policies.belief_policy import Advantages, BeliefPolicy, unfamiliarity_limit
from tasid.targets.base import Target
from tasid.targets.rollout import exploration, rollout

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class BeliefConfig:
    """Hyper-parameters of the belief method."""

    episodes: int | None = None
    """Episodes to learn from; None lets the evidence decide ("auto")."""
    max_episodes: int = 2_048
    """Episodes after which "auto" stops in any case."""
    first_batch: int = 16
    """Episodes of the first batch, and of the smallest."""
    growth: float = 0.5
    """Later batches are this part of all episodes before them."""
    exploration: float = 0.05
    """Share of random actions while learning."""
    tolerance: float = 0.06
    """"auto" stops when the regret is below this part of the range of returns …"""
    confidence: float = 0.95
    """… with this confidence …"""
    patience: int = 2
    """… in the held-out episodes of the last batches, so many or more …"""
    mean_tolerance: float = 0.02
    """… and no more than this part of the range on average. By so much a fit must also earn more
    than the policy that learning continues from."""
    settled_tolerance: float = 0.05
    """On large maps, a fit with less regret than this is refined alone, without other
    initialisations."""
    reward_threshold: float = -0.5
    """Held-out log-likelihood of an episode's rewards and ends below which a fit is wrong."""
    reward_weight: float = 0.5
    """Weight of that log-likelihood in the held-out score of a fit."""
    return_weight: float = 2.0
    """Weight of the mean return, in units of the range of returns."""
    return_prior: float = 2.0
    """Episodes' worth of the common mean that a fit's own mean return is shrunk by."""
    hopeless_gap: float = 1.0
    """An initialisation whose last fit scored so far behind the best does not play."""
    feature_episodes: int = 300
    """Episodes up to which features are computed anew after every batch."""
    network_episodes: int = 96
    """Episodes after which a network is tried where Gaussians do not tell states apart."""
    realignments: int = 2
    """How often a classifier is fitted again to the labels it produces."""
    max_network_classes: int = 2_048
    max_labels: int = 1 << 26
    """A classifier is fitted to the latest episodes with so many observations times classes."""
    many_states: int = 256
    """Where states belong to steps and are more than this, some may not be visited twice:
    observations are then also classed by the edge that led to them."""
    class_kinds: tuple[str, ...] | None = None
    """"state", "rank", "action" (`tasid.hmm.smoother.Classes`); None chooses."""
    model: Any = None
    """A classifier of single observations (`tasid.hmm.classifier`); None: Gaussians."""
    em: EMConfig = field(default_factory=EMConfig)
    plda: PLDAConfig = field(default_factory=PLDAConfig)
    features: FeatureConfig = field(default_factory=FeatureConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    diagnosis: DiagnosisConfig = field(default_factory=DiagnosisConfig)


@dataclass(frozen=True)
class BatchEnded(Event):
    """A batch of episodes was played and learned from."""

    batch: int
    mean_return: float
    """Of the new episodes."""
    best: str
    """The fit that the new episodes speak for."""
    reward_log_likelihood: float
    """Its held-out log-likelihood of rewards and ends, an episode."""
    estimated_regret: float
    """Estimated loss of an episode because the state is not known exactly: of the best fit's
    choices, by the credible fit that finds most fault with them."""
    estimated_regret_error: float
    likelihood_gain: float
    """Held-out nats a step by which states explain observations better than one Gaussian."""
    likelihood_gain_error: float
    seconds_playing: float
    seconds_fitting: float


@dataclass(frozen=True, eq=False)
class HeldOutScore:
    """What n episodes that a fit has not used say about it."""

    reward_log_likelihoods: Floats
    """ln p(rewards and ends | observations), floored, [n]."""
    likelihood_gains: Floats
    """Nats a step by which observations are explained better than by one Gaussian, [n]."""
    own: range = range(0)
    """The episodes that the fit's policy played."""
    mean_return: float = 0.0
    """Of these, shrunk to the mean of all."""

    @property
    def reward_log_likelihood(self) -> float:
        """Mean over episodes."""
        return float(self.reward_log_likelihoods.mean())

    @property
    def likelihood_gain(self) -> tuple[float, float]:
        """Mean over episodes and its standard error."""
        return mean_and_error(self.likelihood_gains)


@dataclass(frozen=True, eq=False)
class Fit:
    """An emission and where it came from."""

    initialisation: str
    kind: str
    """Of its classes."""
    features: FeatureMap
    emission: Emission
    counts: Floats
    """Expected observations of each class, [C]."""
    score: HeldOutScore = HeldOutScore(np.zeros(0), np.zeros(0))
    """On the latest batch."""
    prior: Moments | None = None
    """Moments of earlier observations that are not among the episodes."""
    gap: float | None = None
    """How far the last fit from this initialisation scored behind the best."""

    @property
    def name(self) -> str:
        """Initialisation and kind of classes."""
        return f"{self.initialisation}, by {self.kind}"


class Evidence(NamedTuple):
    """What n held-out episodes say about the best fit."""

    regrets: Floats
    """Of its choices, by the credible fit that finds most fault with them, [n]."""
    returns: Floats
    """Of the episodes that credible fits played."""
    reward_log_likelihood: float


@dataclass(frozen=True, eq=False)
class BeliefResult:
    """Everything that a run of the belief method ends with."""

    best: Fit
    fits: tuple[Fit, ...]
    episodes: Episodes
    sequences: Sequences
    """The episodes in the features of the best fit."""
    history: tuple[BatchEnded, ...]
    stopped: str
    model: HiddenMarkovModel
    """Of the best fit."""
    returns: Floats
    """Of the episodes that credible fits played in the last batches, with exploration."""
    promise: float
    """The least that these are worth on average if the map and η are right."""
    at_limit: bool = False
    """Did "auto" stop at `max_episodes`?"""


class BeliefLearner(Learner):
    """Learns what states look like from whole episodes, and acts on beliefs."""

    name = "belief"

    def __init__(
        self, config: BeliefConfig | None = None, initial_policy: BeliefPolicy | None = None
    ) -> None:
        self.config = config or BeliefConfig()
        self.initial_policy = initial_policy

    def run(
        self,
        target: Target,
        plan: RobustPlan,
        *,
        seed: int = 0,
        callbacks: Sequence[Callback] = (),
        run_dir: Path | None = None,
    ) -> LearningResult:
        from threadpoolctl import threadpool_limits

        training = Training(self.config, target, plan, seed, self.initial_policy)
        check_memory(training.model.graph, plan.simulator.num_states, target, self.config)
        with threadpool_limits(1, "blas"):
            stopped = None
            while stopped is None:
                event = training.batch()
                for callback in callbacks:
                    callback(event)
                stopped = training.stopping_reason()
            found, result = training.findings(), training.result(stopped)
            policy = training.policy(result.best)
            continued = training.continued
            diagnostics = diagnose_result(result, found, plan, self.config, continued=continued)
        return LearningResult(policy, len(result.episodes), diagnostics)


class Training:
    """One run: episodes so far and the current fits."""

    def __init__(
        self,
        config: BeliefConfig,
        target: Target,
        plan: RobustPlan,
        seed: int,
        initial_policy: BeliefPolicy | None = None,
    ) -> None:
        self.config, self.target, self.plan, self.seed = config, target, plan, seed
        self.models = models(plan, config)
        self.model = next(iter(self.models.values()))
        """With one class per state."""
        self.continued = initial_policy is not None
        shape = target.observation_shape
        self.classifier = None if config.model is None else classifier_from(config.model, shape)
        self.span = span(plan.simulator)
        # Random actions of exploration are slips, too.
        slips = plan.eta + (1 - plan.eta) * config.exploration
        self.promise = worst_case_value(plan.simulator, plan, eta=slips)
        self.parts: list[Episodes] = []
        self.fits: list[Fit] = []
        self.history: list[BatchEnded] = []
        self.evidence: list[Evidence] = []
        """Of every batch that fits were scored on."""
        self._features: tuple[FeatureMap, list[NDArray[np.float32]]] | None = None
        self._phase_key = fold_in(seed_key(seed), Phase.LEARNING)
        self.saved: BeliefPolicy | None = None
        """The policy that learning continues from, on this map."""
        self.saved_returns = np.zeros(0)
        """Of the episodes that it played."""
        if initial_policy is not None:
            kind = initial_policy.class_kind
            if kind not in self.models:
                self.models |= models(plan, replace(config, class_kinds=(kind,)))
            self.saved = transferred(initial_policy, target, plan, self.models[kind])
            emission, prior = self.saved.emission, None
            if isinstance(emission, GaussianEmission):
                prior = emission.moments(config.plda, has_views=self.model.views is not None)
            counts = np.zeros(emission.num_classes)
            self.fits = [Fit("saved", kind, self.saved.features, emission, counts, prior=prior)]
            key = fold_in(seed_key(seed), Phase.CONTINUED)
            self._phase_key = fold_in(key, int(initial_policy.digest[:8], 16))

    @property
    def num_episodes(self) -> int:
        """Episodes so far."""
        return sum(len(part) for part in self.parts)

    def batch(self) -> BatchEnded:
        """Play a batch, score the fits on it, and fit again to all episodes."""
        started = time.perf_counter()
        limit = self.config.episodes or self.config.max_episodes
        size = max(self.config.first_batch, int(self.num_episodes * self.config.growth))
        if self.config.episodes is None:
            size = max(size, self._missing_evidence())
        fresh, players = self._play(min(size, limit - self.num_episodes))
        played = time.perf_counter()
        self.fits = self._scored(fresh, players)
        best = max(self.fits, key=self._rank, default=None)
        saved = [fit for fit in self.fits if fit.initialisation == "saved"]
        keeps = False
        if best and saved:
            returns = self.saved_returns = np.append(
                self.saved_returns, fresh.returns[saved[0].score.own]
            )
            # It is learned from until a fit predicts better what neither has used, and returned
            # until such a fit earns more, too: behind a closed door the best one may earn less.
            if is_credible(saved[0].score, best.score, self.plan.simulator.horizon):
                best = saved[0]
            least = returns.mean() if returns.size else -math.inf
            lead = (best.score.mean_return - least) / self.span
            keeps = best is saved[0] or lead <= self.config.mean_tolerance
        self.parts.append(fresh)
        rewards, regret, gain = math.nan, (math.nan, math.nan), (math.nan, math.nan)
        alone, gaps = False, dict[str, float]()
        if best is not None:
            rewards, gain = best.score.reward_log_likelihood, best.score.likelihood_gain
            self.evidence.append(self._evidence(best, fresh))
            regret = mean_and_error(self.evidence[-1].regrets)
            alone = self._settled(best, regret)
            # On a large map all initialisations fail for a while, and the first to do well is not
            # the first to fail less: none is discarded before one predicts rewards.
            if not self.model.is_large or rewards >= self.config.reward_threshold:
                gaps = {f.name: self._rank(best)[0] - self._rank(f)[0] for f in self.fits}
        fits = islice(self._refitted(best), 1 if alone else None)
        self.fits = [fit if alone else replace(fit, gap=gaps.get(fit.name)) for fit in fits]
        saved = [replace(fit, gap=gaps.get(fit.name)) for fit in saved]
        self.fits = [*saved, *self.fits] if keeps else [*self.fits, *saved]
        event = BatchEnded(
            episodes=self.num_episodes,
            total_episodes=self.config.episodes,
            batch=len(self.history),
            mean_return=float(fresh.returns.mean()),
            best="none" if best is None else best.name,
            reward_log_likelihood=rewards,
            estimated_regret=regret[0],
            estimated_regret_error=regret[1],
            likelihood_gain=gain[0],
            likelihood_gain_error=gain[1],
            seconds_playing=played - started,
            seconds_fitting=time.perf_counter() - played,
        )
        self.history.append(event)
        return event

    def stopping_reason(self) -> str | None:
        """Why no more episodes are needed; None if more may help."""
        config, threshold = self.config, self.config.reward_threshold
        if config.episodes is not None:
            done = self.num_episodes >= config.episodes
            return f"{config.episodes} episodes were requested" if done else None
        if self.num_episodes >= config.max_episodes:
            return f"the limit of {config.max_episodes} episodes was reached"
        streak = takewhile(lambda e: e.reward_log_likelihood >= threshold, reversed(self.evidence))
        batches = [*streak]
        for last in range(config.patience, len(batches) + 1):
            regrets = np.concatenate([evidence.regrets for evidence in batches[:last]])
            small = regrets.mean() <= config.mean_tolerance * self.span
            if small and self._regret_bound(regrets) <= config.tolerance:
                break
        else:
            return None
        earned = np.concatenate([evidence.returns for evidence in batches[:last]]).mean()
        if earned < self.promise - config.tolerance * self.span:
            return None
        found = self.findings()
        if found.map_errors or found.eta.p_value < config.diagnosis.slip_level:
            return None
        return (
            f"the estimated regret was {regrets.mean() / self.span:.2%} of the range of returns in "
            f"{regrets.size} held-out episodes of the last {last} batches"
        )

    def _regret_bound(self, regrets: Floats) -> float:
        """Upper confidence bound of the mean regret, as a part of the range of returns.

        Regrets are mostly 0 and now and then the whole range, so their sum is bounded as a Poisson
        variable: without any regret in n episodes, the bound at 95 % is 3/n.
        """
        total = float(regrets.sum()) / self.span
        return float(gammaincinv(total + 1, self.config.confidence)) / regrets.size

    def _missing_evidence(self) -> int:
        """Episodes that complete the evidence of the last batch if they have as little regret.

        0 if that batch alone has more than is tolerated.
        """
        if not self.evidence:
            return 0
        regrets, tolerance = self.evidence[-1].regrets, self.config.tolerance
        if regrets.mean() > tolerance * self.span:
            return 0
        needed = regrets.size * self._regret_bound(regrets) / tolerance
        return math.ceil(1.1 * needed) - regrets.size  # a little regret is found in most batches

    def findings(self) -> Findings:
        """What the fits agree on about slips and the map.

        States that learned each other's appearance contradict the map, too. So the best fit forgets
        what the states of an error look like and learns it again. Where that explains all episodes
        better and leaves fewer errors, the fit was wrong and not the map.
        """
        simulator, config = self.plan.simulator, self.config.diagnosis
        found = agreed_findings(self.result(""), simulator, config)
        while found.doubtful:
            best, other = self.fits[0], self._learned_again(found.doubtful)
            self.fits[0] = other
            again = agreed_findings(self.result(""), simulator, config)
            better = self._log_evidence(other) > self._log_evidence(best)
            if not better or len(again.map_errors) >= len(found.map_errors):
                self.fits[0] = best
                break
            found = again
        return found

    def _learned_again(self, classes: Sequence[int]) -> Fit:
        """The best fit, continued without what it knows of some classes."""
        best = self.fits[0]
        assert isinstance(best.emission, GaussianEmission)
        model, sequences = self.models[best.kind], self._sequences(best.features)
        rows = np.arange(best.emission.num_classes)
        rows[[*classes]] = -1
        initial = model.expect(best.emission.select(rows), sequences)
        stages = model.schedule("warm")
        emission, counts = model.fit(sequences, stages, initial=initial, prior=best.prior)
        return replace(best, initialisation="relearned", emission=emission, counts=counts)

    def _log_evidence(self, fit: Fit) -> float:
        assert isinstance(fit.emission, GaussianEmission)
        return self.models[fit.kind].log_evidence(fit.emission, self._sequences(fit.features))

    def result(self, stopped: str) -> BeliefResult:
        """The current fits and all episodes."""
        best, config = self.fits[0], self.config
        last = self.evidence[-config.patience :]
        return BeliefResult(
            best=best,
            fits=tuple(self.fits),
            episodes=Episodes.concatenate(self.parts),
            sequences=self._sequences(best.features),
            history=tuple(self.history),
            stopped=stopped,
            model=self.models[best.kind],
            returns=np.concatenate([np.zeros(0), *(e.returns for e in last)]),
            promise=self.promise,
            at_limit=config.episodes is None and self.num_episodes >= config.max_episodes,
        )

    def policy(self, fit: Fit, *, final: bool = True) -> BeliefPolicy:
        """The policy of a fit; a final one also knows which observations are unfamiliar."""
        model = self.models[fit.kind]
        limit, repeats = None, None
        if final and fit.initialisation == "saved" and self.saved is not None:
            return self.saved
        if final:
            sequences = self._sequences(fit.features)
            counts = fit.counts if fit.prior is None else fit.counts + fit.prior.counts
            limit = unfamiliarity_limit(
                fit.emission, model.classes, counts, sequences.features, sequences.valid
            )
            repeats = max(longest_repeat(part) for part in self.parts)
        policy = BeliefPolicy(
            plan=self.plan,
            class_kind=fit.kind,
            features=fit.features,
            emission=fit.emission,
            eta=model.options().eta,
            observation_shape=self.target.observation_shape,
            observation_dtype=self.target.observation_dtype,
            environment=self.target.environment,
            min_log_prob=limit,
            max_repeats=repeats,
        )
        # The same for all policies of a run, and expensive on large maps.
        shared = {"graph": model.graph, "classes": model.classes, "advantages": model.advantages}
        policy.__dict__.update(shared)
        return policy

    def _play(self, size: int) -> tuple[Episodes, dict[str, range]]:
        """A batch, divided among the fits that are not hopeless, and which fit played what."""
        hopeless = self.config.hopeless_gap
        playing = [fit for fit in self.fits if fit.gap is None or fit.gap < hopeless]
        playing = playing or [self._flat_fit(next(iter(self.models)))]
        parts, players, first = [], {}, 0
        for i, fit in enumerate(playing):
            count = -(-(size - first) // (len(playing) - i))
            numbers = np.arange(first, first + count) + self.num_episodes
            players[fit.name] = range(first, first + count)
            first += count
            if count == 0:
                continue
            keys = fold_in(self._phase_key, numbers)
            overrides = exploration(
                keys, self.config.exploration, self.target.num_actions, self.target.horizon
            )
            policy = self.policy(fit, final=False)
            parts.append(rollout(self.target, policy, keys, overrides=overrides))
        return Episodes.concatenate(parts), players

    def _flat_fit(self, kind: str) -> Fit:
        """A fit that knows nothing: its policy goes by its actions alone."""
        shape, number = self.target.observation_shape, self.models[kind].classes.number
        dtype = np.uint8 if is_picture(shape) else np.float32
        features = FeatureMap.fit(np.zeros((2, *shape), dtype), self.config.features)
        flat = GaussianEmission.flat(number, features.size, self.config.plda.dimensions)
        return Fit("flat", kind, features, flat, np.zeros(number))

    def _sequences(self, features: FeatureMap, part: Episodes | None = None) -> Sequences:
        """All episodes, or one part, in the features of a map; features are computed once."""
        graph, ends_early = self.model.graph, self.target.ends_early
        if part is not None:
            return Sequences.of(part, graph, features, ends_early)
        if self._features is None or self._features[0] is not features:
            self._features = (features, [])
        cached = self._features[1]
        for known in self.parts[len(cached) :]:
            assert known.observations is not None
            cached.append(features.sequences(known.observations))
        episodes = Episodes.concatenate([replace(p, observations=None) for p in self.parts])
        return Sequences.of(episodes, graph, np.concatenate(cached), ends_early)

    def _scored(self, fresh: Episodes, players: dict[str, range]) -> list[Fit]:
        """The fits with their scores on fresh episodes."""
        scored = {}
        for features in {fit.features for fit in self.fits}:
            sequences = self._sequences(features, fresh)
            priors = [fit.prior for fit in self.fits if fit.features is features and fit.prior]
            before = self._sequences(features) if self.parts else sequences
            null = single_gaussian(before if self.parts or not priors else before[:0], *priors[:1])
            for fit in self.fits:
                if fit.features is not features:
                    continue
                own, prior = players.get(fit.name, range(0)), self.config.return_prior
                returns = fresh.returns[own]
                mean = (returns.sum() + prior * fresh.returns.mean()) / (returns.size + prior)
                score = held_out_score(self.models[fit.kind], fit.emission, sequences, null)
                scored[fit] = replace(score, own=own, mean_return=float(mean))
        return [replace(fit, score=scored[fit]) for fit in self.fits]

    def _rank(self, fit: Fit) -> tuple[float, float]:
        score = self.config.reward_weight * fit.score.reward_log_likelihood
        score += self.config.return_weight * fit.score.mean_return / self.span
        return (round(score, 2), fit.score.likelihood_gain[0])

    def _evidence(self, best: Fit, fresh: Episodes) -> Evidence:
        """What fresh episodes say about the best fit, and those that predict them as well.

        A wrong labelling flatters itself: its own states confirm its actions. So all credible fits
        are asked, about episodes that none has used, and the largest regret counts. It is small
        only where they agree on what to do.
        """
        horizon = self.plan.simulator.horizon
        credible = [f for f in self.fits if is_credible(f.score, best.score, horizon)]
        rows = [row for fit in credible for row in fit.score.own] or [*range(len(fresh))]
        read = {fit: self._sequences(fit.features, fresh) for fit in credible}
        estimates = [
            cross_regret(*((self.models[f.kind], f.emission, read[f]) for f in (best, judge)))
            for judge in credible
        ]
        worst = max(estimates, key=lambda regrets: sum(mean_and_error(regrets)))
        return Evidence(worst, fresh.returns[rows], best.score.reward_log_likelihood)

    def _settled(self, best: Fit, regret: tuple[float, float]) -> bool:
        """Is one fit good enough to go on alone, where others take long or one was given?"""
        tolerance = self.config.settled_tolerance * self.span
        # Where no reward is ever paid, say behind a closed door, predicting it is no feat.
        earns = best.score.mean_return >= self.promise - tolerance
        predicts = best.score.reward_log_likelihood >= self.config.reward_threshold
        needed = self.continued or self.model.is_large
        return needed and earns and predicts and regret[0] + 2 * regret[1] <= tolerance

    def _refitted(self, best: Fit | None) -> Iterator[Fit]:
        """Fits to all episodes from every initialisation, the one that continues the best first."""
        features = self._feature_map()
        if best is not None:
            classified = isinstance(best.emission, ClassifierEmission)
            few = self.num_episodes < self.config.network_episodes
            if classified and best.initialisation == "saved" and few:
                # Of the observations that trained it nothing is left: too few to train it again.
                return
            if not classified:
                yield self._gaussian_fit("warm", best.kind, features, best)
            yield from self._network_fits(best, features)
            if classified:
                yield self._gaussian_fit("warm", best.kind, features, best)
        for kind in self.models:
            for initialisation in ("forward", "anneal"):
                yield self._gaussian_fit(initialisation, kind, features)

    def _feature_map(self) -> FeatureMap:
        """The features of all fits but those of a user's model; refitted in early batches."""
        current = next((f.features for f in self.fits if f.features.components is not None), None)
        layered = self.model.graph.layered
        early = self.num_episodes <= self.config.feature_episodes and not self.continued
        if current is not None and not (early and (current.pool > 0 or layered)):
            return current
        episodes = Episodes.concatenate(self.parts)
        return fit_features(episodes, self.config.features, by_step=layered)

    def _gaussian_fit(
        self, initialisation: str, kind: str, features: FeatureMap, previous: Fit | None = None
    ) -> Fit:
        """A fit by EM, from the posteriors of the previous fit if there is one."""
        model, initial, prior = self.models[kind], None, None
        if previous is not None:
            before, prior = self._sequences(previous.features), previous.prior
            counted = self._sequences(features).features
            initial = model.expect(previous.emission, before, counted=counted)
        emission, counts = model.fit(
            self._sequences(features),
            model.schedule(initialisation),
            initial=initial,
            prior=prior,
        )
        return Fit(initialisation, kind, features, emission, counts, prior=prior)

    def _network_fits(self, best: Fit, features: FeatureMap) -> Iterator[Fit]:
        """Fits of the user's model, or of a network where Gaussians have failed so far.

        Each is fitted to the posteriors of a teacher, then to its own. The teachers are the best
        fit, and one that knows actions, rewards and ends only.
        """
        config, model = self.config, self.models[best.kind]
        needed = self.classifier is not None or self._needs_network(best)
        if not needed or model.classes.number > config.max_network_classes:
            return
        size = (model.graph.horizon + 1) * model.classes.number
        latest = slice(-max(1, config.max_labels // size), None)
        name, inputs, classifier = "model", FeatureMap.raw(self.target.observation_shape), None
        if (classifier := self.classifier) is None:
            classifier = network_classifier(features.size, config.training)
            name, inputs = "network", features
        for suffix, teacher in (("", best), (" from actions", self._flat_fit(best.kind))):
            sequences, emission = self._sequences(teacher.features)[latest], teacher.emission
            for _ in range(1 + config.realignments):
                labels = class_labels(model, emission, sequences)
                sequences = self._sequences(inputs)[latest]
                valid = sequences.valid
                emission = fitted = ClassifierEmission.fit(
                    classifier, sequences.features[valid], labels[valid]
                )
            yield Fit(name + suffix, best.kind, inputs, fitted, fitted.counts)

    def _needs_network(self, best: Fit) -> bool:
        if isinstance(best.emission, ClassifierEmission):
            return True
        (gain, error), rewards = best.score.likelihood_gain, best.score.reward_log_likelihood
        failed = gain <= 2 * error or rewards < self.config.reward_threshold
        return failed and self.num_episodes >= self.config.network_episodes


def transferred(
    policy: BeliefPolicy, target: Target, plan: RobustPlan, model: HiddenMarkovModel
) -> BeliefPolicy:
    """A policy on another map: what a state looks like does not depend on transitions or rewards.

    States are matched by their labels; new ones count as never observed.
    """
    classes, sim, old = model.classes, plan.simulator, policy.simulator
    if policy.features.components is None:
        raise ValueError("from_policy: it has a model of the user's own, which cannot be continued")
    by_step = ("horizon",) if len(policy.features.step_means) > 1 else ()
    for name in ("observation_shape", "observation_dtype", "num_actions", *by_step):
        before, now = getattr(policy, name), getattr(target, name)
        if before != now:
            raise ValueError(f"from_policy: its {name} is {before}, that of the target is {now}")
    same_number = classes.number == policy.classes.number
    if classes.by_state and (same_number or None not in (old.labels, sim.labels)):
        row_of = {old.states[state]: row for row, state in enumerate(policy.graph.places)}
        rows = np.array([row_of.get(sim.states[state], -1) for state in model.graph.places])
    else:
        rows = np.arange(classes.number) if same_number else np.full(classes.number, -1)
    if (rows >= 0).sum() < 0.5 * max(classes.number, policy.classes.number):
        raise ValueError(
            f"from_policy: of the {policy.classes.number} states of its map and {classes.number} "
            "of this one, fewer than half are known to be the same; learn without it"
        )
    emission: Any = policy.emission
    limit = policy.min_log_prob
    if limit is not None:
        limit = np.where(rows >= 0, limit[rows], np.inf).astype(np.float32)
    return replace(
        policy,
        plan=plan,
        emission=emission.select(rows),
        eta=model.options().eta,
        environment=target.environment,
        min_log_prob=limit,
    )


def held_out_score(
    model: HiddenMarkovModel, emission: Emission, sequences: Sequences, null: GaussianEmission
) -> HeldOutScore:
    """Score of an emission on episodes that it has not used; `null` is one Gaussian for all."""
    expected = model.expect(emission, sequences, use_rewards=False)
    gains = expected.log_likelihood
    if isinstance(emission, GaussianEmission):
        flat = sequences.features.reshape(-1, sequences.features.shape[2])
        shared = emission.log_prob_shared(flat) - null.log_prob_shared(flat)
        shared -= null.log_prob(flat, np.zeros(1, np.int32))[:, 0]
        # For a sharpness below 1, ln E[p^ς] / ς is below ln E[p]: the gain is underestimated.
        shared = shared.reshape(sequences.valid.shape) * sequences.valid
        gains = gains / emission.sharpness + shared.sum(axis=1, dtype=np.float64)
    gains = gains / model.graph.horizon
    return HeldOutScore(expected.reward_log_likelihood, gains)


Reading = tuple[HiddenMarkovModel, Emission, Sequences]
"""A fit, and episodes in its features."""


def cross_regret(actor: Reading, judge: Reading) -> Floats:
    """Σ_h E[max_a Q̃_h(s, a) − Q̃_h(s, a_h)] of the same episodes as both read them, [n].

    a_h is what the actor's policy chooses given the past, whatever was done; the judge infers the
    states from whole episodes.
    """
    (model, *_), regrets = actor, []
    assert model.advantages is not None
    parts = (batches(sequences, model.graph) for _, _, sequences in (actor, judge))
    for own, other in zip(*parts, strict=True):
        acting = model.smoother(actor[1], own, model.options(use_rewards=False))
        total = np.zeros(len(own))
        for step in judge[0].smoother(judge[1], other).steps():
            if step.h < model.graph.horizon:
                table = model.advantages.at(step.h)
                chosen = (acting.filtered_probs[step.h] @ table).argmax(axis=1)
                values = (step.smoothed @ table)[np.arange(len(own)), chosen]
                total -= np.where(own.lengths > step.h, values, 0.0)
        regrets.append(total)
    return np.concatenate(regrets)


def is_credible(score: HeldOutScore, best: HeldOutScore, horizon: int) -> bool:
    """Does a fit predict the episodes as well as the best one does, up to two standard errors?"""
    behind = best.reward_log_likelihoods - score.reward_log_likelihoods
    behind = behind + horizon * (best.likelihood_gains - score.likelihood_gains)
    mean, error = mean_and_error(behind)
    return mean <= 2 * error


def models(plan: RobustPlan, config: BeliefConfig) -> dict[str, HiddenMarkovModel]:
    """Models for every kind of classes that is tried; by state first."""
    graph = TransitionGraph.from_simulator(plan.simulator)
    advantages = Advantages(plan, graph)
    large = not graph.layered and graph.num_slots > config.em.large_map
    views = MapViews.from_simulator(plan.simulator, graph) if large else None
    kinds = config.class_kinds
    if kinds is None:
        many = graph.layered and graph.places.size > config.many_states
        kinds = ("state", "rank", "action") if many else ("state",)
    result = {}
    for kind in kinds:
        own = graph.with_classes(kind)
        result[kind] = HiddenMarkovModel(
            own, Classes.of(own), plan.eta, config.em, config.plda, advantages, views
        )
    return result


def fit_features(episodes: Episodes, config: FeatureConfig, *, by_step: bool) -> FeatureMap:
    """Features for the observations of these episodes, centred by step where steps differ."""
    observations, valid = episodes.observations, episodes.valid
    assert observations is not None
    flat = observations.reshape(-1, *observations.shape[2:])
    chosen = np.random.default_rng(0).permutation(np.flatnonzero(valid))[: config.sample]
    features = FeatureMap.fit(flat[np.sort(chosen)], config)
    return features.centred_by_step(observations, valid) if by_step else features


def class_labels(
    model: HiddenMarkovModel, emission: Emission, sequences: Sequences
) -> NDArray[np.float32]:
    """p(class of each observation | whole episode), [N, H+1, C]."""
    classes = model.classes
    labels = np.zeros((*sequences.valid.shape, classes.number), np.float32)
    first = 0
    for batch in batches(sequences, model.graph):
        for step in model.smoother(emission, batch).steps():
            members = classes.at(step.h)
            exists = members >= 0
            posterior = step.class_posterior * step.used[:, None]
            labels[first : first + len(batch), step.h, members[exists]] = posterior[:, exists]
        first += len(batch)
    return labels


def longest_repeat(episodes: Episodes) -> int:
    """How often in a row an observation equalled the one before, at most."""
    observations, longest = episodes.observations, 0
    assert observations is not None
    run = np.zeros(len(episodes), np.int64)
    for h in range(1, observations.shape[1]):
        pair = observations[:, h] == observations[:, h - 1]
        same = pair.reshape(len(episodes), -1).all(axis=1)
        run = np.where(same & (h <= episodes.lengths), run + 1, 0)
        longest = max(longest, int(run.max(initial=0)))
    return longest
