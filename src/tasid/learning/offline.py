"""Recording episodes, and learning from them without the target.

Nothing can be tried, so returns cannot choose among fits. Held-out episodes have to: the episodes
are divided into folds, every fit is made without one of them, and is judged by that one. A right
fit predicts from observations alone when the target pays and when it ends an episode, better than
a blind guess from the map and the actions. Where rewards and ends tell nothing, states have to
explain new observations better than a state that was never observed.

The fit that proves itself best goes on with all episodes. The log is ambiguous, which is an error,
if no fit does, or if an equally good one takes the actions of the best for mistakes. What the
policy will meet and the log does not show, no held-out episode reveals: that is the *coverage*.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from tasid.hmm.em import HiddenMarkovModel
from tasid.hmm.emissions import GaussianEmission
from tasid.hmm.features import FeatureMap
from tasid.hmm.smoother import Sequences
from tasid.keys import Phase, episode_keys, seed_key
from tasid.learning.base import Callback, LearningResult, mean_and_error
from tasid.learning.belief import (
    BatchEnded,
    BeliefConfig,
    Fit,
    Training,
    cross_regret,
    fit_features,
    held_out_score,
)
from tasid.learning.diagnostics import diagnose_result
from tasid.learning.memory import check_memory
from tasid.planning.perturbation import check_eta
from tasid.planning.robust_dp import robust_dp
from tasid.planning.values import simulator_problems
from tasid.policy import OpenLoopPolicy, Policy
from tasid.simulator import AbstractSimulator
from tasid.storage import ArtifactError, EpisodeLog, read_artifact
from tasid.targets.base import Target
from tasid.targets.rollout import exploration, rollout

Floats = NDArray[np.float64]

HEADER = "observation_shape observation_dtype horizon num_actions ends_early environment".split()
"""Attributes of the target that a log keeps."""


@dataclass(frozen=True)
class CrossValidationConfig:
    """How held-out episodes decide."""

    folds: int = 4
    """A log of fewer than two episodes for each is refused."""
    significance: float = 3.0
    """Standard errors by which a fit must be better than a blind guess."""
    equality: float = 2.0
    """Standard errors within which two fits are equally good."""
    negligible: float = 0.1
    """Nats an episode that make no difference, however small the error."""
    max_regret: float = 0.1
    """What acting by the best fit may cost, if an equally good one is right, in ranges of
    returns."""
    known_count: float = 3.0
    """Observations after which the appearance of a class is known."""
    coverage: float = 0.9
    """Least coverage without a warning."""


class AmbiguousLogError(ValueError):
    """The recorded episodes do not determine what observations look like in each state."""


class Candidate(NamedTuple):
    """A fit and what the n episodes of its fold say about it, in nats an episode."""

    fit: Fit
    held_out: Sequences
    rewards: Floats
    """ln p(rewards and ends | observations), [n]."""
    lead: Floats
    """By how much that exceeds a blind guess, [n]."""
    gain: Floats
    """How much better states explain observations than one that was never observed, [n]."""

    def equals(self, other: Candidate, config: CrossValidationConfig) -> bool:
        """Is the other fit equally good?"""
        pairs = (self.rewards, other.rewards), (self.gain, other.gain)
        return all(_same(a, b, config) for a, b in pairs)


def record(
    target: Target,
    path: str | Path,
    *,
    policy: Policy | None = None,
    episodes: int,
    explore: float = 0.3,
    seed: int = 0,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Play episodes and write them into an `EpisodeLog`; episode i is the same for any number.

    Parameters
    ----------
    target
        Where to play.
    path
        The log, a folder.
    policy
        Who acts; None takes random actions.
    episodes
        How many.
    explore
        Probability of a random action, at every step.
    seed
        Determines the episodes.
    overwrite
        Replace the log that is there.

    Returns
    -------
    Number of episodes, mean return, horizon and path.
    """
    folder = Path(path)
    if folder.exists() and (folder.is_file() or any(folder.iterdir())):
        if not overwrite:
            raise ArtifactError(f"out: {folder} exists; choose another place, or pass --overwrite")
        read_artifact(folder, kind="episodes")  # nothing else is deleted
        shutil.rmtree(folder)
    log = EpisodeLog.create(folder, {name: getattr(target, name) for name in HEADER})
    rate, returns = 1.0 if policy is None else explore, 0.0
    for first in range(0, episodes, target.width):
        count = min(target.width, episodes - first)
        keys = episode_keys(seed, Phase.RECORDING, first, count)
        overrides = exploration(keys, rate, target.num_actions, target.horizon)
        batch = rollout(target, policy or OpenLoopPolicy(target), keys, overrides=overrides)
        log.append(batch, [(int(Phase.RECORDING), first + i) for i in range(count)])
        returns += float(batch.returns.sum())
    return {
        "file": str(folder),
        "episodes": episodes,
        "return_mean": returns / episodes,
        "horizon": target.horizon,
        "explore": rate,
    }


def learn_from_episodes(
    log: EpisodeLog | str | Path,
    simulator: AbstractSimulator,
    *,
    eta: float,
    seed: int = 0,
    config: BeliefConfig | None = None,
    judging: CrossValidationConfig | None = None,
    callbacks: Sequence[Callback] = (),
) -> LearningResult:
    """Learn a robust policy from recorded episodes of any policy.

    Parameters
    ----------
    log
        A log, or its folder (`tasid record` writes one).
    simulator
        The map.
    eta
        How often actions may slip, in [0, ½).
    seed
        Divides the episodes into folds.
    config, judging
        Hyper-parameters of the fits, and of what decides among them.
    callbacks
        Called with a `BatchEnded` at the end.

    Raises
    ------
    AmbiguousLogError
        If the episodes do not determine what observations look like in each state.
    """
    log = log if isinstance(log, EpisodeLog) else EpisodeLog.open(log)
    config, judging = config or BeliefConfig(), judging or CrossValidationConfig()
    if not isinstance(simulator, AbstractSimulator):
        raise TypeError(f"simulator: {type(simulator).__name__} is not a tasid.AbstractSimulator")
    check_eta(eta, decodable=True)
    for name in ("horizon", "num_actions"):
        ours, theirs = getattr(simulator, name), log.header[name]
        if ours != theirs:
            raise ValueError(f"simulator: its {name} is {ours}, that of the log is {theirs}")
    if config.model is not None:
        raise ValueError("config: a model of your own needs a target; leave it out")
    episodes, started = log.read(), time.perf_counter()
    if (n := len(episodes)) < 2 * judging.folds:
        raise AmbiguousLogError(
            f"log: {n} whole episodes are fewer than {2 * judging.folds}, 2 for each of "
            f"{judging.folds} folds; record more"
        )
    ended = bool((episodes.lengths < episodes.horizon).any())
    seen: dict[str, Any] = {"ends_early": ended, "environment": None, **log.header}
    seen["observation_shape"] = tuple(seen["observation_shape"])
    plan = robust_dp(simulator, eta=eta, keep_values=True)
    target: Any = SimpleNamespace(**seen)
    training = Training(config, target, plan, seed)
    training.parts, graph = [episodes], training.model.graph
    check_memory(graph, simulator.num_states, target, replace(config, episodes=n))
    with threadpool_limits(1, "blas"):
        features = fit_features(episodes, config.features, by_step=graph.layered)
        sequences = Sequences.of(episodes, graph, features, seen["ends_early"])
        folds: Any = np.random.default_rng(seed_key(seed)).permutation(n) % judging.folds
        candidates = [
            candidate
            for fold in range(judging.folds)
            for candidate in _candidates(
                training.models, features, sequences[folds != fold], sequences[folds == fold]
            )
        ]
        best = _best(candidates, judging)
        model = training.models[best.fit.kind]
        rivals = [o for o in candidates if o.fit.kind == best.fit.kind and best.equals(o, judging)]
        acting, *readings = ((model, o.fit.emission, best.held_out) for o in (best, *rivals))
        costs = [mean_and_error(cross_regret(acting, reading)) for reading in readings]
        worst = max(range(len(costs)), key=lambda i: costs[i][0] + 2 * costs[i][1])
        cost, rival = costs[worst], rivals[worst]
        if cost[0] > judging.max_regret * training.span:
            raise AmbiguousLogError(
                f"log: it can be read in several ways. {rival.fit.name!r} predicts new episodes as "
                f"well as {best.fit.name!r}, whose actions would cost {cost[0]:.3g} an episode if "
                "it is right. Record more episodes"
            )
        initial = model.expect(best.fit.emission, sequences)
        schedule = model.schedule("warm")
        emission, counts = model.fit(sequences, schedule, initial=initial)
        final = replace(best.fit, emission=emission, counts=counts)
        earned, rewards = float(episodes.returns.mean()), float(best.rewards.mean())
        gain, seconds = mean_and_error(best.gain / graph.horizon), time.perf_counter() - started
        event = BatchEnded(n, n, 0, earned, final.name, rewards, *cost, *gain, 0.0, seconds)
        for callback in callbacks:
            callback(event)
        others = {other.fit.name: other.fit for other in candidates}
        others.pop(final.name)
        training.fits, training.history = [final, *others.values()], [event]
        result = training.result(f"all {n} recorded episodes were used")
        diagnostics = diagnose_result(result, training.findings(), plan, config, continued=True)
        policy = training.policy(final)
    covered = coverage(training.models[final.kind], counts, judging.known_count)
    diagnostics.details["coverage"] = covered
    warnings = [*simulator_problems(simulator), *diagnostics.warnings]
    if covered < judging.coverage:
        warnings.append(
            f"the log shows {covered:.0%} of what the plan will meet; elsewhere the policy goes by "
            "its actions alone: record episodes that get there"
        )
    diagnostics = replace(diagnostics, warnings=tuple(warnings))
    return LearningResult(policy, 0, diagnostics, logged_episodes=n)


def _candidates(
    kinds: Mapping[str, HiddenMarkovModel],
    features: FeatureMap,
    training: Sequences,
    held_out: Sequences,
) -> Iterator[Candidate]:
    """Fits to the training episodes, of every kind and from every initialisation."""
    for kind, model in kinds.items():
        knows_nothing = GaussianEmission.flat(model.classes.number, features.size, 1)
        blind = model.expect(knows_nothing, held_out, use_rewards=False)
        for initialisation in ("forward", "anneal"):
            emission, counts = model.fit(training, model.schedule(initialisation))
            # One Gaussian for all states would be no fair rival: a state that was not observed in
            # training costs the fit much, and the single Gaussian little.
            null = replace(emission, sharpness=1.0)
            if model.views is not None and model.classes.by_state:
                # Where views predict observations, an unknown state has an unknown view.
                means = emission.linear / (-2 * emission.quadratic)
                null = replace(null, between=emission.between + (means**2).mean(axis=0))
            score = held_out_score(model, emission, held_out, null.select(np.array([-1])))
            fit = Fit(initialisation, kind, features, emission, counts)
            gain = score.likelihood_gains * model.graph.horizon
            lead = score.reward_log_likelihoods - blind.reward_log_likelihood
            yield Candidate(fit, held_out, score.reward_log_likelihoods, lead, gain)


def _best(candidates: Sequence[Candidate], config: CrossValidationConfig) -> Candidate:
    """The candidate that predicts rewards and ends best; among equals, the one with the most gain.

    It has to predict rewards and ends significantly better than a blind guess, or to explain
    observations significantly where a blind guess misses nothing.
    """

    def significant(values: Floats) -> bool:
        mean, error = mean_and_error(values)
        return mean > max(config.significance * error, 1e-3)

    first = max(candidates, key=lambda c: c.rewards.mean())
    leading = [c for c in candidates if _same(c.rewards, first.rewards, config)]
    best = max(leading, key=lambda c: c.gain.mean())
    missed = best.lead - best.rewards
    if not significant(best.lead if significant(missed) else best.gain):
        raise AmbiguousLogError(
            "log: it does not tell what observations look like in each state. On new episodes the "
            f"best fit predicts {best.lead.mean():.2f} of the {missed.mean():.2f} nats of rewards "
            "and ends that a blind guess misses, and its states explain observations by "
            f"{best.gain.mean():.2f}. Record more episodes, or such that reach more states"
        )
    return best


def _same(a: Floats, b: Floats, config: CrossValidationConfig) -> bool:
    """Do two samples, of different episodes, have the same mean as far as one can tell?"""
    (mean, error), (other, other_error) = mean_and_error(a), mean_and_error(b)
    tolerance = config.equality * float(np.hypot(error, other_error))
    return abs(mean - other) <= max(tolerance, config.negligible)


def coverage(model: HiddenMarkovModel, counts: Floats, known_count: float) -> float:
    """Share of the plan's arrivals, slips as expected, whose class was observed; counts [C]."""
    classes, graph = model.classes, model.graph
    assert model.advantages is not None
    slots, belief, eta = np.arange(graph.num_slots), graph.start, model.options().eta
    met = known = 0.0
    for h in range(graph.horizon):
        t = min(h, len(graph.successor) - 1)
        actions = model.advantages.at(h).argmax(axis=1)
        going = belief * ~graph.terminal[min(h, len(graph.terminal) - 1)]
        happens = (1 - eta) * graph.probability[t, slots, actions] + eta * graph.share[t]
        arrivals = going[:, None] * happens
        edges = graph.successor[t] if graph.edge_class is None else graph.edge_class[t]
        met += float(arrivals.sum())
        known += float(arrivals[counts[classes.at(h + 1)[edges]] >= known_count].sum())
        belief = np.zeros(graph.num_slots)
        np.add.at(belief, graph.successor[t], arrivals)
    return known / met if met > 0 else 1.0
