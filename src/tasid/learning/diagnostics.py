"""What episodes say about slips and about the map, once emissions are known.

On a right map an action misses its intended outcome with probability at most η in every state, so
misses are dominated by a binomial: too many in all mean that η was chosen too small, too many in
one state mean that the map is wrong there. Misses are posterior probabilities: a transition of
which nothing is known counts as the prior has it and contradicts nothing.

A wrong labelling contradicts the map, too, but each labelling in its own states. So only what all
credible fits find is reported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tasid.hmm.em import HiddenMarkovModel
from tasid.hmm.emissions import Emission, GaussianEmission
from tasid.hmm.smoother import Sequences, batches
from tasid.hmm.transitions import TransitionGraph
from tasid.learning.base import Diagnostics, EtaEstimate, MapError, mean_and_error, shortened
from tasid.planning.robust_dp import RobustPlan
from tasid.planning.values import return_range
from tasid.simulator import AbstractSimulator
from tasid.theory import at_least

if TYPE_CHECKING:
    from tasid.learning.belief import BeliefConfig, BeliefResult, Fit

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class DiagnosisConfig:
    """Thresholds of the diagnosis."""

    level: float = 0.01
    """Family-wise error level of map errors."""
    allowance: float = 0.15
    """How far above η misses may lie in a state before the map is blamed: smoothing errs, too."""
    slip_level: float = 1e-3
    """Error level of the test whether slips are more frequent than η."""
    min_visits: float = 8.0
    """Visits below which nothing is estimated."""
    kidnap: float = 1e-4
    """Probability of transitions that are not on the map."""
    credible: float = 1.0
    """Nats an observation by which a fit may explain the episodes worse, and still be asked."""
    passage_gain: float = 30.0
    """Nats that a closed passage must gain with the same emission."""
    max_passages: int = 3
    max_candidates: int = 6
    """Passages, or exchanges, that are tried at a time."""


@dataclass(frozen=True, eq=False)
class Findings:
    """What credible fits agree on."""

    eta: EtaEstimate
    map_errors: tuple[MapError, ...]
    doubtful: tuple[int, ...]
    """Classes of the states, and of the outcomes, of blamed actions."""


def diagnose_result(
    result: BeliefResult,
    found: Findings,
    plan: RobustPlan,
    config: BeliefConfig,
    *,
    continued: bool,
) -> Diagnostics:
    """Diagnostics of a run of the belief method."""
    last = result.history[-1]
    uncertain = last.estimated_regret + 2 * last.estimated_regret_error
    trusted = (
        last.reward_log_likelihood >= config.reward_threshold
        and uncertain <= config.settled_tolerance * span(plan.simulator)
    )
    return Diagnostics(
        model=result.best.name,
        history=result.history,
        stopped=result.stopped,
        eta=found.eta if trusted else replace(found.eta, low=None, high=None),
        map_errors=found.map_errors,
        warnings=tuple(
            learning_warnings(result, plan, found, config.diagnosis, continued=continued)
        ),
        details={"likelihood_gain": [event.likelihood_gain for event in result.history[1:]]},
    )


def span(sim: AbstractSimulator) -> float:
    """Width of the range of returns, positive."""
    low, high = return_range(sim)
    return max(high - low, 1e-12)


def agreed_findings(
    result: BeliefResult, sim: AbstractSimulator, config: DiagnosisConfig
) -> Findings:
    """What the best fit and all credible others find, in the numbers of the best."""
    model, sequences, graph = result.model, result.sequences, result.model.graph
    fits = _credible_fits(result, config)
    tallies = [_tally(model, fit.emission, sequences, config) for fit in fits]
    blamed = np.all([tally.blamed for tally in tallies], axis=0)
    errors = _map_errors(graph, sim, tallies[0], blamed)
    gaussians = [
        (fit.emission, tally)
        for fit, tally in zip(fits, tallies, strict=True)
        if isinstance(fit.emission, GaussianEmission)
    ]
    if model.views is not None and gaussians:
        errors = closed_passages(model, sequences, sim, gaussians, config)
    # Places where the map is wrong do not count as slips.
    several = ((graph.share > 0)[:, :, None] & (graph.probability == 0)).any(axis=-1)
    etas = []
    for tally in tallies:
        avoidable = several & ~tally.blamed
        transitions = round(float(tally.taken[avoidable].sum()))
        missed = min(round(float(tally.misses[avoidable].sum())), transitions)
        rates = {"planned": model.eta, "assumed": model.options().eta}
        etas.append(EtaEstimate.from_counts(missed, transitions, **rates))
    can_forget = model.views is None and isinstance(result.best.emission, GaussianEmission)
    return Findings(
        eta=max(etas, key=lambda eta: eta.p_value),
        map_errors=errors,
        doubtful=_doubtful(model, tallies[0], blamed) if can_forget else (),
    )


def _credible_fits(result: BeliefResult, config: DiagnosisConfig) -> list[Fit]:
    """The best fit, and others of the same kind that explain the episodes about as well.

    A classifier's likelihoods are relative to p(x), which is unknown: classifiers are asked only if
    there are no Gaussians. On maps with views all fits are asked.
    """
    best, model, sequences = result.best, result.model, result.sequences
    fits = [fit for fit in result.fits if fit.kind == best.kind and fit.features is best.features]
    scores = {
        fit: model.log_evidence(fit.emission, sequences)
        for fit in fits
        if isinstance(fit.emission, GaussianEmission) and model.views is None
    }
    if scores:
        least = scores.get(best, max(scores.values())) - config.credible * sequences.valid.sum()
        fits = [fit for fit in fits if fit is best or scores.get(fit, -np.inf) >= least]
    return sorted(fits, key=lambda fit: fit is not best)


class _Tally(NamedTuple):
    """Expected transitions by one emission; T is 1 where the map is the same at all steps."""

    counts: Floats
    """By outcome, [T, M, A, K]."""
    taken: Floats
    """How often each action was taken, [T, M, A]."""
    misses: Floats
    """How often its outcome was not on the map, [T, M, A]."""
    p_values: Floats
    """Probability of at least as many misses on a right map, [T, M, A]."""
    blamed: NDArray[np.bool_]
    """Is the map wrong? [T, M, A]"""


def _tally(
    model: HiddenMarkovModel,
    emission: Emission,
    sequences: Sequences,
    config: DiagnosisConfig,
) -> _Tally:
    graph, options = model.graph, model.options(kidnap=config.kidnap)
    counts = np.zeros(graph.probability.shape)
    taken = np.zeros(graph.probability.shape[:3])
    for batch in batches(sequences, graph):
        smoother = model.smoother(emission, batch, options)
        following = None
        for step in smoother.steps():
            if following is not None:
                t = step.h if len(counts) > 1 else 0
                weights = following.astype(np.float64)
                smoother.add_counts(step, weights, counts[t])
                np.add.at(taken[t].T, batch.actions[:, step.h], step.smoothed * weights[:, None])
            following = step.used
    hits = (counts * (graph.probability > 0)).sum(axis=-1)
    misses = np.maximum(taken - hits, 0)
    tested = taken >= config.min_visits
    allowed = min(model.eta + config.allowance, 0.9)
    p_values = at_least(np.ceil(misses - 1e-6), np.floor(taken + 1e-6), allowed)
    return _Tally(
        counts, taken, misses, p_values, tested & (p_values * tested.sum() < config.level)
    )


def _map_errors(
    graph: TransitionGraph, sim: AbstractSimulator, tally: _Tally, blamed: NDArray[np.bool_]
) -> tuple[MapError, ...]:
    """Blamed transitions [T, M, A] as records, the surest first."""

    def usual(t: int, m: int, a: int) -> Any:
        slot = graph.successor[t, m, tally.counts[t, m, a].argmax()]
        return sim.states[int(graph.states_at(t + 1)[slot])]

    errors = [
        MapError(
            step=t if len(graph.successor) > 1 else -1,
            state=sim.states[int(graph.states_at(t)[m])],
            action=a,
            visits=round(float(tally.taken[t, m, a])),
            misses=round(float(tally.misses[t, m, a])),
            p_value=float(tally.p_values[t, m, a]),
            usual_outcome=usual(t, m, a),
        )
        for t, m, a in np.argwhere(blamed).tolist()
    ]
    return tuple(sorted(errors, key=lambda error: error.p_value))


def _doubtful(
    model: HiddenMarkovModel, tally: _Tally, blamed: NDArray[np.bool_]
) -> tuple[int, ...]:
    """Classes of the states of blamed actions, and of their intended and their usual outcomes."""
    found, graph, classes = set[int](), model.graph, model.classes
    for t, m, a in np.argwhere(blamed) if classes.by_state else ():
        outcomes = graph.intended[t, m, a], tally.counts[t, m, a].argmax()
        found |= {int(classes.at(int(t))[m])}
        found |= {int(classes.at(int(t) + 1)[graph.successor[t, m, k]]) for k in outcomes}
    return tuple(sorted(found))


def closed_passages(
    model: HiddenMarkovModel,
    sequences: Sequences,
    sim: AbstractSimulator,
    fits: Sequence[tuple[GaussianEmission, _Tally]],
    config: DiagnosisConfig,
) -> tuple[MapError, ...]:
    """Actions through passages that the episodes find closed though the map has them open.

    In front of a closed door a robot stays where it is, and a fit may explain that in any way. So
    the passages near actions that miss their outcomes are closed one by one on the map, emissions
    are fitted again, and the closed passage must explain the episodes better.
    """
    sequences = sequences[max(0, len(sequences) - 128) :]
    passages = _passages(model.graph, sim)
    named: list[MapError] = []
    score = max(model.log_evidence(emission, sequences) for emission, _ in fits)
    tallies = [tally for _, tally in fits]
    for _ in range(config.max_passages):
        best: tuple[Any, ...] | None = None
        for passage in _candidates(model.graph, passages, tallies, config):
            through = passages == passage
            graph = _closed(model.graph, through)
            if graph is None:
                continue
            closed = replace(model, graph=graph)
            emission, _ = closed.fit(sequences, closed.schedule("anneal"))
            gained = closed.log_evidence(emission, sequences)
            if gained > (best[0] if best else score) and (
                gained - model.log_evidence(emission, sequences) >= config.passage_gain
            ):
                best = (gained, through, closed, emission)
        if best is None:
            break
        score, through, model, emission = best
        tally = _tally(model, emission, sequences, config)
        tallies = [tally]
        # The closed map expects the agent to stay: what is a miss on the user's map.
        stayed = np.take_along_axis(tally.counts, model.graph.intended[..., None], axis=-1)[..., 0]
        p_values = at_least(np.round(stayed), np.round(tally.taken), model.eta + config.allowance)
        missed = tally._replace(misses=stayed, p_values=p_values)
        often = (tally.taken >= config.min_visits) & through
        named += _map_errors(model.graph, sim, missed, often)
    return tuple(sorted(named, key=lambda error: error.p_value))


def _passages(graph: TransitionGraph, sim: AbstractSimulator) -> NDArray[np.int64]:
    """The passage between two cells that an action leads through, by number, [M, A]; −1 if none."""
    assert sim.layout is not None
    size = sim.layout.cells.shape
    cells = np.ravel_multi_index(tuple(sim.layout.positions[graph.states[0]].T), size)
    leads = np.take_along_axis(graph.successor[0], graph.intended[0], axis=1)
    low, high = np.sort(np.broadcast_arrays(cells[:, None], cells[leads]), axis=0)
    return np.where(low == high, -1, low * sim.layout.cells.size + high)


def _candidates(
    graph: TransitionGraph,
    passages: NDArray[np.int64],
    tallies: Sequence[_Tally],
    config: DiagnosisConfig,
) -> list[int]:
    """Passages before, at and after actions that miss their outcomes, most misses first."""
    leads = np.take_along_axis(graph.successor[0], graph.intended[0], axis=1)
    misses: Counter[int] = Counter()
    for tally in tallies:
        for slot, action in np.argwhere(tally.blamed[0]):
            places = [slot, leads[slot, action], *np.flatnonzero(leads[:, action] == slot)]
            for passage in passages[places, action]:
                misses[int(passage)] += round(tally.misses[0, slot, action])
    del misses[-1]
    return [passage for passage, _ in misses.most_common(config.max_candidates)]


def _closed(graph: TransitionGraph, through: NDArray[np.bool_]) -> TransitionGraph | None:
    """The graph on which these actions [M, A] stay; None if a state has no edge to itself."""
    probability, bits = graph.probability.copy(), graph.reward_bits.copy()
    for slot, action in np.argwhere(through):
        stays = (graph.successor[0, slot] == slot) & (graph.share[0, slot] > 0)
        if not stays.any():
            return None
        stay, was = int(stays.argmax()), int(graph.intended[0, slot, action])
        probability[0, slot, action] = 0
        probability[0, slot, action, stay] = 1
        bits[:, slot, stay] |= bits[:, slot, was]
    return replace(graph, probability=probability, share=probability.mean(axis=2), reward_bits=bits)


def learning_warnings(
    result: BeliefResult,
    plan: RobustPlan,
    found: Findings,
    config: DiagnosisConfig,
    *,
    continued: bool,
) -> list[str]:
    """What a user should know before trusting the policy, a sentence each."""
    warnings = reward_warnings(result.episodes.rewards, plan.simulator)
    n = len(result.episodes)
    if len(result.history) < 2 and not continued:
        return [
            *warnings,
            f"too few episodes: no episode of {n} is left to test what was learned; use 32 or more",
        ]
    last = result.history[-1]
    uncertain = last.estimated_regret / span(plan.simulator)
    if uncertain > 0.05 and last.likelihood_gain <= 2 * last.likelihood_gain_error:
        warnings.append(
            "observations do not tell states apart: knowing the state explains new observations by "
            f"{last.likelihood_gain:.3f} ± {last.likelihood_gain_error:.3f} nats a step; use more "
            "episodes or observations that show more"
        )
    elif uncertain > 0.05:
        warnings.append(
            f"the state estimate is often ambiguous, at an estimated cost of "
            f"{min(uncertain, 1):.0%} of the range of returns after {n} episodes; if more episodes "
            "do not help, `tasid check` may find the map wrong"
        )
    if result.at_limit:
        warnings.append(f"not converged: {result.stopped}")
    if result.returns.size:
        earned, error = mean_and_error(result.returns)
        if earned + min(2 * error, 0.1 * abs(result.promise)) < result.promise - 1e-9:
            warnings.append(
                f"the last {result.returns.size} episodes of the best fits earned {earned:.3g} on "
                f"average; with a right map and η they are worth at least {result.promise:.3g}"
            )
    if found.eta.p_value < config.slip_level and uncertain <= 0.05:
        warnings.append(
            f"outcomes differ from the intended ones in {found.eta.rate:.1%} of the steps, more "
            f"than the planned η = {found.eta.planned:g}: plan with a larger eta"
        )
    if found.map_errors:
        first = found.map_errors[0]
        when = "" if first.step < 0 else f"step {first.step}, "
        warnings.append(
            f"the map seems wrong in {len(found.map_errors)} place(s), first at {when}state "
            f"{shortened(first.state)}, action {first.action}: {first.misses} of {first.visits} "
            "transitions had another outcome"
        )
    elif last.reward_log_likelihood < -2.0:
        warnings.append(
            f"rewards and ends are predicted poorly ({last.reward_log_likelihood:.1f} nats an "
            "episode): too few episodes, or the target pays and ends unlike the map"
        )
    return warnings


def reward_warnings(rewards: NDArray[np.floating[Any]], sim: AbstractSimulator) -> list[str]:
    """Does the target pay rewards that are nowhere on the map?"""
    known = np.unique(np.append(sim.reward, 0.0))
    paid, times = np.unique(rewards.astype(np.float64), return_counts=True)
    distance = [np.abs(known - reward).min() for reward in paid]
    strange = np.array(distance) > 0.1 * max(np.ptp(known), 1e-9)
    if not strange.any():
        return []
    often = paid[strange][times[strange].argmax()]
    return [
        f"the target pays rewards that are not on the map, {often:g} most often, in "
        f"{times[strange].sum() / times.sum():.2%} of the steps: the plan weighs other rewards "
        "than there are; correct the map's"
    ]
