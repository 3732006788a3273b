"""Learning as a user asks for it: an environment and a map in, a policy and its records out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal, overload

import jax
import numpy as np

from tasid.algorithms import Policy
from tasid.algorithms.budget import EvidenceQuota, FixedQuota, Quota
from tasid.algorithms.evaluate import oracle
from tasid.algorithms.initial_state_test import StartCounts
from tasid.algorithms.initial_states import Placed, StartsFound
from tasid.algorithms.outcome_method import OutcomeLearner
from tasid.algorithms.paper_method import PaperLearner
from tasid.algorithms.surprise import EtaEstimate, MapError
from tasid.algorithms.tasid import Callback, Learned, StepEnded, tasid
from tasid.envs import BlockMDP, Target
from tasid.envs.target import check_wrapped, seed_key
from tasid.learning.own import Own
from tasid.learning.pictures import is_picture
from tasid.mdp import AbstractSimulator, RobustPlan, robust_dp
from tasid.mdp.visitation import choice_mass
from tasid.runs.starts import check_starts, outcome_starts, paper_starts, start_warnings

METHODS = ("outcome", "paper")
Episodes = int | Literal["auto"] | EvidenceQuota | StartCounts
PICTURES = 1_000
"""Episodes a step that "auto" takes for pictures: what a network has seen of a few of them is too
little to judge it by."""


@dataclass(frozen=True)
class Diagnostics:
    """How learning went, and what it noticed."""

    steps: tuple[StepEnded, ...]
    model: str
    """What predicts outcomes: model class, numbering of the labels, centring."""
    evidence: Mapping[str, float] = field(default_factory=dict)
    """Nats lost on held-out transitions by every way of modelling that stayed in the race."""
    eta: EtaEstimate | None = None
    """How often the outcome was not the intended one; the paper's method does not keep count."""
    map_errors: tuple[MapError, ...] = ()
    """Places where the target does not do what the map says."""
    warnings: tuple[str, ...] = ()
    starts: StartsFound | None = None
    """How start states were told apart, where there are several."""


@dataclass(frozen=True)
class LearningResult:
    """A learned policy and what it cost."""

    policy: Policy
    episodes: int
    """All episodes spent on learning."""
    diagnostics: Diagnostics


World = BlockMDP | Target


@overload
def learn(
    target: World,
    simulator: AbstractSimulator | None = None,
    *,
    eta: float,
    episodes: Episodes,
    seed: int = 0,
    method: str = "outcome",
    labels: str | None = None,
    model: Own | None = None,
    starts: int | None = None,
    starts_by: str = "evidence",
    run_dir: str | Path | None = None,
    callbacks: Sequence[Callback] = (),
) -> LearningResult: ...
@overload
def learn(
    target: World | Sequence[World],
    simulator: AbstractSimulator | Sequence[AbstractSimulator] | None = None,
    *,
    eta: float,
    episodes: Episodes,
    seeds: Sequence[int],
    method: str = "outcome",
    labels: str | None = None,
    model: Own | None = None,
    starts: int | None = None,
    starts_by: str = "evidence",
    run_dir: str | Path | None = None,
    callbacks: Sequence[Callback] = (),
) -> list[LearningResult]: ...
def learn(
    target: World | Sequence[World],
    simulator: AbstractSimulator | Sequence[AbstractSimulator] | None = None,
    *,
    eta: float,
    episodes: Episodes,
    seed: int = 0,
    seeds: Sequence[int] | None = None,
    method: str = "outcome",
    labels: str | None = None,
    model: Own | None = None,
    starts: int | None = None,
    starts_by: str = "evidence",
    run_dir: str | Path | None = None,
    callbacks: Sequence[Callback] = (),
) -> LearningResult | list[LearningResult]:
    """Learn a robust policy in a target with the help of its map.

    `simulator` may be left out for environments of ours, which bring theirs. With `seeds`, the
    seeds train together under `vmap` (and `target` may be one environment per seed): one result
    per seed comes back. They draw the episodes a lone run would draw, but float32 rounds otherwise
    under `vmap`, so that parameters differ and early stopping may choose another epoch. With
    `run_dir`, the policy is saved in its `policy` folder.

    With `episodes="auto"` evidence decides their number; for pictures, and by the paper's method,
    it is 1000 a step. With method "outcome" it may be an `EvidenceQuota` with an ε and a δ of your
    own, and `labels` fixes how outcomes are numbered, which evidence decides otherwise. `model`, a
    function of the observations' shape and the number of labels, brings a network or a classifier
    of your own (`tasid.learning.own`).

    If the map has several start states, which one an episode begins in is learned, too
    (docs/several-starts.md); `starts` checks their number. `starts_by="return"` tells them apart
    by the returns of policies alone, as one must where two starts have the same first step.
    """
    if method == "paper" and labels is not None:
        raise ValueError(f"labels: {labels!r} with method 'paper', whose labels are actions")
    if method == "paper" and model is not None:
        raise ValueError("model: with method 'paper', which has networks of its own")
    if method not in METHODS:
        raise ValueError(f"method: {method!r} is none of {', '.join(METHODS)}")
    if not 0 <= eta < 0.5:
        raise ValueError(f"eta: {eta} is outside [0, 0.5), where actions can be decoded")
    group = [seed] if seeds is None else list(seeds)
    if not group or len(set(group)) != len(group):
        raise ValueError(f"seeds: {group} should name at least one seed, and each once")
    worlds = _one_each("target", target, len(group))
    maps = [
        _map_of(world, given)
        for world, given in zip(worlds, _one_each("simulator", simulator, len(group)), strict=True)
    ]
    targets = [oracle(world, sim.horizon) for world, sim in zip(worlds, maps, strict=True)]
    for one, sim in zip(targets, maps, strict=True):
        _check_match(one, sim)
        check_starts(sim, starts, starts_by)
    # Line 1 of Algorithm 2: the robust plan.
    plans = [robust_dp(sim, eta=eta) for sim in maps]
    if method == "paper":
        learned = _run_paper(targets, plans, group, episodes, callbacks)
    else:
        way = partial(OutcomeLearner, labels=labels, model=model)
        learned = _run_outcome(targets, plans, group, episodes, way, starts_by, callbacks)
    results = [
        _result(*one, world, target, method)
        for one, world, target in zip(learned, worlds, targets, strict=True)
    ]
    if run_dir is not None:
        for result, number in zip(results, group, strict=True):
            folder = Path(run_dir) if seeds is None else Path(run_dir) / f"seed-{number}"
            result.policy.save(folder / "policy")
    return results[0] if seeds is None else results


Runs = list[tuple[Learned, Diagnostics]]


def _run_paper(
    targets: Sequence[Target],
    plans: Sequence[RobustPlan],
    seeds: Sequence[int],
    episodes: Episodes,
    callbacks: Sequence[Callback],
) -> Runs:
    """All seeds together under `vmap`; with several starts, a seed's hypotheses together."""
    if any(plan.simulator.starts.size > 1 for plan in plans):
        runs: Runs = []
        for target, plan, seed in zip(targets, plans, seeds, strict=True):
            one, found = paper_starts(
                target, plan, seed=seed, episodes=episodes, callbacks=callbacks
            )
            notes = Diagnostics(one.steps, f"{_paper_model(one)} and cluster")
            runs.append((one, _with_starts(notes, plan, found)))
        return runs
    if episodes == "auto":
        episodes = StartCounts.practical(plans[0].simulator.horizon, 1).learn
    if not isinstance(episodes, int):
        raise ValueError(
            f"episodes: {episodes!r} with method 'paper', which needs a number or 'auto'"
        )
    learner = PaperLearner(targets, plans, episodes=episodes, seeds=seeds)
    learned = tasid(targets, plans, learner, seeds=seeds, callbacks=callbacks)
    return [(one, Diagnostics(one.steps, _paper_model(one))) for one in learned]


def _paper_model(learned: Learned) -> str:
    kind = learned.decoder.network.describe()["kind"].upper()
    return f"{kind}, actions, a model per step"


def _run_outcome(
    targets: Sequence[Target],
    plans: Sequence[RobustPlan],
    seeds: Sequence[int],
    episodes: Episodes,
    way: Callable[..., OutcomeLearner],
    starts_by: str,
    callbacks: Sequence[Callback],
) -> Runs:
    """One seed after the other: each chooses its own way of modelling."""
    runs: Runs = []
    for target, plan, seed in zip(targets, plans, seeds, strict=True):
        once = partial(_run_once, target, plan, way, callbacks)
        if plan.simulator.starts.size == 1:
            runs.append(once(seed, episodes))
            continue
        learned, notes, found = outcome_starts(
            target, plan, seed=seed, episodes=episodes, by=starts_by, once=once
        )
        runs.append((learned, _with_starts(notes, plan, found)))
    return runs


def _run_once(
    target: Target,
    plan: RobustPlan,
    way: Callable[..., OutcomeLearner],
    callbacks: Sequence[Callback],
    seed: int,
    episodes: Episodes,
    found: StartsFound | None = None,
) -> tuple[Learned, Diagnostics]:
    """Algorithm 2 by the outcome method, from the starts that were found."""
    learner = way(target, plan, quota=_quota(episodes, plan, target), seed=seed)
    led = learner if found is None else Placed(learner, found.clusterer, found.starts)
    (learned,) = tasid([target], [plan], led, seeds=[seed], callbacks=callbacks)
    decoder = learner.finish()
    if found is not None:
        decoder = decoder.with_starts(found.clusterer, found.starts)
    learned = replace(learned, decoder=decoder)
    return learned, _diagnostics(learner, learned)


def _with_starts(notes: Diagnostics, plan: RobustPlan, found: StartsFound) -> Diagnostics:
    warnings = (*notes.warnings, *start_warnings(plan.simulator, found))
    return replace(notes, starts=found, warnings=warnings)


def _quota(episodes: Episodes, plan: RobustPlan, target: Target) -> Quota:
    horizon = plan.simulator.horizon
    if isinstance(episodes, EvidenceQuota):
        return episodes
    if episodes == "auto" and is_picture(target.observation_shape):
        episodes = PICTURES * horizon
    if episodes == "auto":
        return EvidenceQuota()
    if isinstance(episodes, bool) or not isinstance(episodes, int):
        raise ValueError(f"episodes: {episodes!r} is neither a whole number nor 'auto'")
    return FixedQuota(episodes, tuple(choice_mass(plan)[: horizon - 1]))


def _diagnostics(learner: OutcomeLearner, learned: Learned) -> Diagnostics:
    seen = learner.surprises()
    estimate, errors = seen.eta(), seen.map_errors()
    return Diagnostics(
        steps=learned.steps,
        model=learner.model,
        evidence=learner.evidence,
        eta=estimate,
        map_errors=errors,
        warnings=tuple(_warnings(estimate, errors, learner.indistinct())),
    )


def _warnings(
    estimate: EtaEstimate, errors: Sequence[MapError], indistinct: Sequence[int]
) -> Iterator[str]:
    if estimate.exceeded:
        yield (
            f"outcomes differ from the intended ones in {estimate.rate:.1%} of the steps "
            f"(95 % interval {estimate.low:.1%} … {estimate.high:.1%}), more than the η = "
            f"{estimate.planned:g} planned for: plan with a larger eta"
        )
    if estimate.transitions and estimate.high > 0.45:
        yield f"η may be near ½ ({estimate.high:.2f}), where outcomes cannot be decoded"
    if indistinct:
        yield (
            f"outcomes can hardly be told apart at step(s) {', '.join(map(str, indistinct))}: more "
            "episodes, or observations that show more, are needed"
        )
    if errors:
        first = errors[0]
        yield (
            f"the map is wrong in {len(errors)} place(s), first at step {first.step}, state "
            f"{first.state}, action {first.action}: {first.surprises} of {first.visits} "
            "transitions went elsewhere"
        )


def _one_each(name: str, given: object, number: int) -> list:  # type: ignore[type-arg]
    if not isinstance(given, (list, tuple)):
        return [given] * number
    if len(given) != number:
        raise ValueError(f"{name}: {len(given)} given for {number} seeds; give one, or one each")
    return list(given)


def _map_of(world: World, given: AbstractSimulator | None) -> AbstractSimulator:
    if isinstance(world, BlockMDP):
        return world.simulator if given is None else given
    check_wrapped(world)
    if given is not None:
        return given
    raise ValueError("simulator: this target brings no map of its own; give one")


def _check_match(target: Target, sim: AbstractSimulator) -> None:
    if target.num_actions != sim.num_actions:
        raise ValueError(
            f"simulator: {sim.num_actions} actions on the map, {target.num_actions} in the target"
        )
    if target.horizon != sim.horizon:
        raise ValueError(
            f"simulator: horizon {sim.horizon} on the map, {target.horizon} in the target"
        )


def _result(
    run: Learned, diagnostics: Diagnostics, world: World, target: Target, method: str
) -> LearningResult:
    environment = (
        {"name": world.name, "options": dict(world.options)}
        if isinstance(world, BlockMDP)
        else getattr(target, "environment", None)
    )
    dtype = getattr(target, "observation_dtype", None)
    if dtype is None:
        dtype = np.dtype(jax.eval_shape(target.reset, seed_key(0)[None])[1].dtype).name
    policy = Policy(run.plan, run.decoder, target.observation_shape, dtype, method, environment)
    return LearningResult(policy, run.episodes, diagnostics)
