"""Learning from recorded episodes as a user asks for it: a log and a map in, a policy out."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tasid.beliefs.classes import KINDS
from tasid.learning.belief.agreement import agreed_findings
from tasid.learning.belief.findings import Findings
from tasid.learning.belief.fits import policy_of
from tasid.learning.belief.log_coverage import coverage
from tasid.learning.belief.logs import LearntFromLog, learn_log
from tasid.maps import AbstractSimulator, RobustPlan, robust_dp
from tasid.maps.planning.perturbation import check_decodable
from tasid.maps.simulator import check_map
from tasid.runs.episode_arrays import log_of_arrays
from tasid.runs.episode_log import EpisodeLog
from tasid.runs.learn import Diagnostics, LearningResult
from tasid.runs.warnings import map_warnings, slip_warnings

Given = str | os.PathLike[str] | EpisodeLog | Mapping[str, Any] | Sequence[Mapping[str, Any]]
_COVERED = 0.9
"""The share of what the plan will meet below which a log is said to show too little."""
_SURPRISED = 0.2
"""The share of a blind guess's surprise above which a model is said to be right in part only."""


def learn_from_episodes(
    episodes: Given,
    simulator: AbstractSimulator,
    *,
    eta: float,
    classes: str | None = None,
    run_dir: str | Path | None = None,
) -> LearningResult:
    """Learn a robust policy from episodes that somebody recorded, without the target.

    Whoever commanded, and how well, does not matter; where they never went, nothing can be learned,
    and `diagnostics.coverage` says how much that is.

    Args:
        episodes: The path of a log, an `EpisodeLog`, a mapping of arrays (`observations`,
            `commands`, `rewards`, perhaps `ended` and `own`) or a list of such mappings, one for
            each episode (docs/logs.md).
        simulator: The map.
        eta: How often actions may slip, in [0, ½).
        classes: What is expected to look alike, "place", "rank" or "action"; evidence decides if
            not given.
        run_dir: The policy is saved in its `policy` folder.

    Raises:
        Undecided: With the evidence, if the episodes do not tell what states look like.
    """
    check_decodable(eta)
    check_map(simulator)
    if classes is not None and classes not in KINDS:
        raise ValueError(f"classes: {classes!r} is none of {', '.join(KINDS)}")
    log = _log(episodes, simulator)
    check_match(log, simulator)
    plan = robust_dp(simulator, eta=eta)
    learnt = learn_log(
        log.recorded, plan, tells=log.tells_ends, kinds=None if classes is None else [classes]
    )
    policy = policy_of(learnt.setting, learnt.best, plan, log)
    notes = _diagnostics(learnt, plan)
    if run_dir is not None:
        policy.save(Path(run_dir) / "policy")
    return LearningResult(policy, 0, notes, logged_episodes=log.number)


def _log(episodes: Given, sim: AbstractSimulator) -> EpisodeLog:
    if isinstance(episodes, EpisodeLog):
        return episodes
    if isinstance(episodes, (str, os.PathLike)):
        return EpisodeLog.load(episodes)
    return log_of_arrays(episodes, horizon=sim.horizon, num_actions=sim.num_actions)


def check_match(log: EpisodeLog, sim: AbstractSimulator) -> None:
    """Refuse a map of something else than what was recorded."""
    if log.num_actions != sim.num_actions:
        raise ValueError(
            f"simulator: {sim.num_actions} actions on the map, {log.num_actions} in the log"
        )
    if log.horizon != sim.horizon:
        raise ValueError(f"simulator: horizon {sim.horizon} on the map, {log.horizon} in the log")


def _diagnostics(learnt: LearntFromLog, plan: RobustPlan) -> Diagnostics:
    found = _found(learnt, plan)
    covered = coverage(learnt.setting, learnt.best.classes, learnt.best.counts)
    judged = reversed(learnt.judged)  # the best of each name has the last word
    return Diagnostics(
        model=learnt.best.name,
        evidence={one.fit.name: one.evidence.mean / plan.simulator.horizon for one in judged},
        eta=found.eta,
        map_errors=found.map_errors,
        slips=found.slips,
        warnings=(*slip_warnings(found), *map_warnings(found), *_log_warnings(learnt, covered)),
        coverage=covered,
    )


def _found(learnt: LearntFromLog, plan: RobustPlan) -> Findings:
    """Slips and map errors, by the fit and by the best from every other beginning."""
    best = learnt.best
    others = {one.fit.name: one.fit for one in reversed(learnt.judged)}
    others.pop(best.name, None)
    fits = list(others.values())
    return agreed_findings(learnt.setting, best, fits, learnt.chunks, plan.simulator)


def _log_warnings(learnt: LearntFromLog, covered: float) -> Iterator[str]:
    best = learnt.judged[0]
    if covered < _COVERED:
        alone = (
            "alone" if learnt.setting.described is None else "and by what the map tells of looks"
        )
        yield (
            f"the log shows {covered:.0%} of what the plan will meet; elsewhere the policy goes by "
            f"its commands {alone}: record episodes that get there"
        )
    if best.left.sure and -best.foresight.mean > _SURPRISED * best.left.mean:
        yield (
            "rewards and ends of episodes that the model has not seen surprise it by "
            f"{-best.foresight.mean:.2f} nats an episode, a blind guess by {best.left.mean:.2f}: "
            "it is right in part only, and more episodes would help"
        )
