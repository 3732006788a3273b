"""Learning as a user asks for it: an environment and a map in, a policy and its records out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from tasid.beliefs.classes import KINDS
from tasid.learning import METHODS
from tasid.learning.belief.agreement import agreed_findings
from tasid.learning.belief.fits import policy_of
from tasid.learning.belief.method import BatchEnded, Learnt, belief
from tasid.learning.belief.saved import check_saved
from tasid.learning.belief.slips import Slip
from tasid.learning.memory import Memory
from tasid.learning.paper.initial_state_test import StartCounts, StartsFound, learn_each_start
from tasid.learning.paper.method import PaperLearner
from tasid.learning.paper.tasid import Learned, StepEnded, tasid
from tasid.learning.surprise import EtaEstimate, MapFault
from tasid.maps import AbstractSimulator, RobustPlan, robust_dp
from tasid.maps.planning.perturbation import check_decodable
from tasid.maps.simulator import check_map
from tasid.maps.size import check_seed
from tasid.maps.symmetry import symmetric_starts
from tasid.policies import BeliefPolicy, Policy
from tasid.policies.stored import load
from tasid.runs.journal import FitsOnRecord
from tasid.runs.journaled import learning_on_record
from tasid.runs.memory import check_memory
from tasid.runs.record import Callback
from tasid.runs.side_by_side import side_by_side
from tasid.runs.starts import check_starts, start_counts, start_warnings
from tasid.runs.unfinished import RECORD
from tasid.runs.warnings import belief_warnings
from tasid.targets import Target
from tasid.targets.target import check_wrapped, for_horizon

Episodes = int | Literal["auto"] | StartCounts
_SLIPS = 8
"""Estimates of what commands come to that go on record."""


@dataclass(frozen=True)
class Diagnostics:
    """How learning went, and what it noticed."""

    model: str
    """What tells states or actions apart."""
    steps: tuple[StepEnded, ...] = ()
    """The steps of the paper's method."""
    batches: tuple[BatchEnded, ...] = ()
    """The batches of the belief method."""
    stopped: str | None = None
    """Why no more episodes were played."""
    evidence: Mapping[str, float] = field(default_factory=dict)
    """Nats a step by which places explain new observations better than one look for all."""
    eta: EtaEstimate | None = None
    """How often the outcome was not the intended one; the paper's method does not keep count."""
    map_errors: tuple[MapFault, ...] = ()
    """Places where the target does not do what the map says."""
    slips: tuple[Slip, ...] = ()
    """What commands really came to in each place, as probabilities: the estimated perturbation ξ.
    What differs most surely from what was expected comes first; the belief method only."""
    warnings: tuple[str, ...] = ()
    symmetric_starts: tuple[tuple[Any, Any], ...] = ()
    """Pairs of starts that the map cannot tell apart: no return is lost, but `.state` may name the
    one for the other."""
    visits: NDArray[np.float64] | None = field(default=None, compare=False)
    """How often the episodes were believed to be in each state, [S]; by the belief method only."""
    starts: StartsFound | None = None
    """How the paper's method told start states apart, where there are several."""
    coverage: float | None = None
    """The share of what the plan will meet that recorded episodes show; None if there are none."""

    def record(self) -> dict[str, Any]:
        """What was noticed about the model, the perturbation and the map, ready for JSON."""
        return {
            "model": self.model,
            "stopped": self.stopped,
            "evidence": dict(self.evidence),
            "eta_estimate": None if self.eta is None else asdict(self.eta),
            "map_errors": [asdict(error) for error in self.map_errors],
            "slips": [asdict(slip) for slip in self.slips[:_SLIPS]],
            "warnings": list(self.warnings),
            "symmetric_starts": [[str(s) for s in pair] for pair in self.symmetric_starts],
        }


@dataclass(frozen=True)
class LearningResult:
    """A learned policy and what it cost."""

    policy: BeliefPolicy | Policy
    episodes: int
    """All episodes spent on learning."""
    diagnostics: Diagnostics
    logged_episodes: int = 0
    """Episodes that somebody else had recorded."""


@overload
def learn(
    target: Target,
    simulator: AbstractSimulator | None = None,
    *,
    eta: float,
    episodes: Episodes = "auto",
    seed: int = 0,
    method: str = "belief",
    classes: str | None = None,
    model: Any = None,
    starts: int | None = None,
    run_dir: str | Path | None = None,
    record: Path | None = None,
    from_policy: BeliefPolicy | str | Path | None = None,
    callbacks: Sequence[Callback] = (),
) -> LearningResult: ...
@overload
def learn(
    target: Target | Sequence[Target],
    simulator: AbstractSimulator | Sequence[AbstractSimulator] | None = None,
    *,
    eta: float,
    episodes: Episodes = "auto",
    seeds: Sequence[int],
    method: str = "belief",
    classes: str | None = None,
    model: Any = None,
    starts: int | None = None,
    run_dir: str | Path | None = None,
    from_policy: BeliefPolicy | str | Path | None = None,
    callbacks: Sequence[Callback] = (),
) -> list[LearningResult]: ...
def learn(
    target: Target | Sequence[Target],
    simulator: AbstractSimulator | Sequence[AbstractSimulator] | None = None,
    *,
    eta: float,
    episodes: Episodes = "auto",
    seed: int = 0,
    seeds: Sequence[int] | None = None,
    method: str = "belief",
    classes: str | None = None,
    model: Any = None,
    starts: int | None = None,
    run_dir: str | Path | None = None,
    record: Path | None = None,
    from_policy: BeliefPolicy | str | Path | None = None,
    callbacks: Sequence[Callback] = (),
) -> LearningResult | list[LearningResult]:
    """Learn a robust policy in a target with the help of its map.

    Args:
        target: Where to act; with `seeds`, perhaps one for each.
        simulator: The map; worlds of ours bring theirs.
        eta: How often actions may slip, in [0, ½).
        episodes: How many to learn from. With "auto" the belief method plays as long as it helps,
            and the paper's takes 1000 a step.
        seed: Draws the episodes and all that is random in learning.
        seeds: Several, for one result each, the same as that of the seed alone.
        method: "belief" learns what states look like from whole episodes and acts on beliefs
            (docs/belief-method.md); "paper" is Algorithm 2.
        classes: What is expected to look alike, "place", "rank" or "action"; evidence decides if
            not given.
        model: A classifier of your own that single observations are told apart by:
            `init(key, num_classes)` and `apply(parameters, x)` in JAX, fitted by Adam, or
            `fit(X, y)` and `predict_proba(X)`. It is fitted to what whole episodes say. A policy's
            file holds what `init` and `apply` learned, and `tasid.load` asks for the model again.
        starts: How many start states the map has, as a check. If there are several, the first
            belief is spread over them.
        run_dir: The policy is saved in its `policy` folder, and fits and the episodes of wrapped
            environments are on record there until then: the same call goes on after an
            interruption, and asks the target nothing twice.
        record: For those who look after such a folder themselves: fits are kept in it.
        from_policy: A policy or its folder; the belief method goes on from what it knows, with more
            episodes, another η, or a corrected map, whose places are found again by their labels.
            It plays the first batch, and episodes are others than those that taught it.
        callbacks: Called with every event (`tasid.runs.record.Event`).
    """
    check_choices(method, eta, classes, model, run_dir)
    begin = None if from_policy is None else saved_policy(from_policy, method)
    if begin is not None and classes not in (None, begin.classes):
        raise ValueError(f"classes: {classes!r}, but from_policy tells apart by {begin.classes!r}")
    group = [seed] if seeds is None else list(seeds)
    for number in group:
        check_seed(number)
    if not group or len(set(group)) != len(group):
        raise ValueError(f"seeds: {group} should name at least one seed, and each once")
    worlds = _one_each("target", target, len(group))
    maps = [
        _map_of(world, given)
        for world, given in zip(worlds, _one_each("simulator", simulator, len(group)), strict=True)
    ]
    if run_dir is not None:
        for sim in maps:
            sim.metadata()  # labels that no file holds are refused before anything is learned
    targets = [for_horizon(world, sim.horizon) for world, sim in zip(worlds, maps, strict=True)]
    for one, sim in zip(targets, maps, strict=True):
        check_match(sim, one, "target")
        if isinstance(episodes, int):
            shape, dtype = one.observation_shape, one.observation_dtype
            check_memory(method, episodes, horizon=sim.horizon, shape=shape, dtype=dtype)
        check_starts(sim, starts)
        if begin is not None:
            check_saved(begin, sim, one.observation_shape, one.observation_dtype)
    # Line 1 of Algorithm 2: the robust plan.
    plans = [robust_dp(sim, eta=eta) for sim in maps]
    folders = [_folder(run_dir, None if seeds is None else number) for number in group]
    request = {"eta": eta, "episodes": episodes, "method": method, "classes": classes}
    if begin is not None:
        request["from_policy"] = begin.digest
    with ExitStack() as stack:
        # Last in, first out: a seed's record goes when all policies are saved.
        targets = [
            stack.enter_context(learning_on_record(one, folder, {**request, "seed": number}))
            for one, folder, number in zip(targets, folders, group, strict=True)
        ]
        places = [record if folder is None else folder / RECORD for folder in folders]
        memories = [None if place is None else FitsOnRecord(place) for place in places]
        how: dict[str, Any] = {"episodes": episodes}
        if method == "belief":
            how |= {"classes": classes, "model": model, "begin": begin}
        jobs = [
            partial(_LEARNERS[method], *each, **how)
            for each in zip(targets, plans, group, memories, strict=True)
        ]
        # Beliefs use all processors for one seed; environments of others may not bear threads.
        if method == "paper" and len(jobs) > 1 and all(one.traceable for one in targets):
            results = side_by_side(jobs, callbacks)
        else:
            results = [job(callbacks) for job in jobs]
        for result, folder in zip(results, folders, strict=True):
            if folder is not None:
                result.policy.save(folder / "policy")
    return results[0] if seeds is None else results


def check_choices(
    method: str, eta: float, classes: str | None, model: Any = None, run_dir: Any = None
) -> None:
    """Refuse what does not exist, and what does not go together."""
    if method == "outcome":
        raise ValueError(
            "method: 'outcome' is gone; 'belief', the default, needs far fewer episodes"
        )
    if method not in METHODS:
        raise ValueError(f"method: {method!r} is none of {', '.join(METHODS)}")
    if classes is not None and classes not in KINDS:
        raise ValueError(f"classes: {classes!r} is none of {', '.join(KINDS)}")
    if method == "paper" and classes is not None:
        raise ValueError(f"classes: {classes!r} with method 'paper', whose labels are actions")
    if model is not None and method == "paper":
        raise ValueError("model: with method 'paper', which trains the paper's networks")
    if model is not None and run_dir is not None:
        raise ValueError(
            "run_dir: with a model of your own, whose fits are not put on record; save the policy "
            "by result.policy.save(path)"
        )
    check_decodable(eta)


def saved_policy(given: BeliefPolicy | str | Path, method: str) -> BeliefPolicy:
    """The policy to go on from."""
    if method != "belief":
        raise ValueError(f"from_policy: with method {method!r}; only beliefs go on from a policy")
    policy = load(given) if isinstance(given, (str, Path)) else given
    if not isinstance(policy, BeliefPolicy):
        raise ValueError(
            f"from_policy: {type(policy).__name__} knows nothing of what states look like; give "
            "a policy that method 'belief' learned"
        )
    return policy


def _folder(run_dir: str | Path | None, seed: int | None) -> Path | None:
    if run_dir is None:
        return None
    folder = Path(run_dir) if seed is None else Path(run_dir) / f"seed-{seed}"
    if (folder / "run.json").exists():
        raise ValueError(f"run_dir: {folder} is a run of `tasid train`; give a folder of its own")
    return folder


def _learn_beliefs(
    target: Target,
    plan: RobustPlan,
    seed: int,
    memory: Memory | None,
    callbacks: Sequence[Callback],
    *,
    episodes: Episodes,
    classes: str | None,
    model: Any,
    begin: BeliefPolicy | None,
) -> LearningResult:
    if episodes != "auto" and (isinstance(episodes, bool) or not isinstance(episodes, int)):
        raise ValueError(f"episodes: {episodes!r} is neither a whole number nor 'auto'")
    if isinstance(episodes, int) and episodes < 1:
        raise ValueError(f"episodes: {episodes} is below 1")
    learnt = belief(
        target,
        plan,
        episodes=None if episodes == "auto" else episodes,
        seed=seed,
        kinds=None if classes is None else [classes],
        model=model,
        callbacks=callbacks,
        memory=memory,
        begin=begin,
    )
    policy = policy_of(learnt.setting, learnt.best, plan, target, learnt.recorded, learnt.chunks)
    return LearningResult(policy, learnt.recorded.number, _belief_diagnostics(learnt, plan))


def _belief_diagnostics(learnt: Learnt, plan: RobustPlan) -> Diagnostics:
    best = learnt.best
    sim = plan.simulator
    found = agreed_findings(learnt.setting, best, learnt.fits, learnt.chunks, sim)
    return Diagnostics(
        model=best.name,
        batches=learnt.batches,
        stopped=learnt.stopped,
        evidence={f"after {one.episodes} episodes": one.evidence for one in learnt.batches[1:]},
        eta=found.eta,
        map_errors=found.map_errors,
        slips=found.slips,
        warnings=tuple(belief_warnings(learnt, found, sim)),
        symmetric_starts=symmetric_starts(sim),
        visits=found.visits,
    )


def _learn_paper(
    target: Target,
    plan: RobustPlan,
    seed: int,
    memory: Memory | None,
    callbacks: Sequence[Callback],
    *,
    episodes: Episodes,
) -> LearningResult:
    if plan.simulator.starts.size > 1:
        counts = start_counts(plan.simulator, episodes)
        run, found = learn_each_start(
            target, plan, counts=counts, seed=seed, callbacks=callbacks, memory=memory
        )
        warnings = tuple(start_warnings(plan.simulator, found))
        name = f"{_paper_model(run)} and cluster"
        notes = Diagnostics(name, run.steps, starts=found, warnings=warnings)
    else:
        if episodes == "auto":
            episodes = StartCounts.practical(plan.simulator.horizon, 1).learn
        if not isinstance(episodes, int):
            raise ValueError(
                f"episodes: {episodes!r} with method 'paper', which needs a number or 'auto'"
            )
        learner = PaperLearner(target, plan, episodes=episodes, seed=seed, memory=memory)
        run = tasid(target, plan, learner, seed=seed, callbacks=callbacks)
        notes = Diagnostics(_paper_model(run), run.steps)
    policy = Policy(
        plan,
        run.decoder,
        target.observation_shape,
        target.observation_dtype,
        "paper",
        target.environment,
    )
    return LearningResult(policy, run.episodes, notes)


_LEARNERS: dict[str, Callable[..., LearningResult]] = {
    "belief": _learn_beliefs,
    "paper": _learn_paper,
}


def _paper_model(learned: Learned) -> str:
    kind = learned.decoder.network.describe()["kind"].upper()
    return f"{kind}, actions, a model per step"


def _one_each(name: str, given: object, number: int) -> list:  # type: ignore[type-arg]
    if not isinstance(given, (list, tuple)):
        return [given] * number
    if len(given) != number:
        raise ValueError(f"{name}: {len(given)} given for {number} seeds; give one, or one each")
    return list(given)


def _map_of(target: Target, given: AbstractSimulator | None) -> AbstractSimulator:
    check_wrapped(target)
    found = target.simulator if given is None else given
    if found is not None:
        check_map(found)
        return found
    raise ValueError("simulator: this target brings no map of its own; give one")


def check_match(sim: AbstractSimulator, given: Any, where: str) -> None:
    """Refuse a map of something else than the target, or what was recorded."""
    ours, theirs = sim.num_actions, given.num_actions
    if ours != theirs:
        raise ValueError(f"simulator: {ours} actions on the map, {theirs} in the {where}")
    if sim.horizon != given.horizon:
        raise ValueError(
            f"simulator: horizon {sim.horizon} on the map, {given.horizon} in the {where}"
        )
