"""Learning from recorded episodes as a user asks for it: a log and a map in, a policy out.

`train_on_log` makes a whole run of it, on disk.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasid.learning.belief.agreement import agreed_findings
from tasid.learning.belief.fits import policy_of
from tasid.learning.belief.log_coverage import coverage
from tasid.learning.belief.logs import LearntFromLog, learn_log
from tasid.maps import AbstractSimulator, RobustPlan, robust_dp
from tasid.maps.simulator import check_map
from tasid.runs.episode_arrays import log_of_arrays
from tasid.runs.episode_log import EpisodeLog
from tasid.runs.learn import Diagnostics, LearningResult, check_choices, check_match
from tasid.runs.record import Run, versions
from tasid.runs.unfinished import Commission
from tasid.runs.warnings import map_warnings, reward_warnings, slip_warnings

Given = str | os.PathLike[str] | EpisodeLog | Mapping[str, Any] | Sequence[Mapping[str, Any]]
_COVERED = 0.9
"""The share of what the plan will meet below which a log is said to show too little."""
_SURPRISED = 0.2
"""The share of a blind guess's surprise above which a model is said to be right in part only."""
_UNKNOWN = (
    "return_mean return_ci95 evaluation_episodes robust_value nominal_plan_value blind_value "
    "ratio skill decoder_accuracy calibration_error"
).split()
"""What only a target can tell."""


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
    check_choices("belief", eta, classes)
    check_map(simulator)
    log = _log(episodes, simulator)
    check_match(simulator, log, "log")
    plan = robust_dp(simulator, eta=eta)
    learnt = learn_log(
        log.recorded, plan, tells=log.tells_ends, kinds=None if classes is None else [classes]
    )
    policy = policy_of(learnt.setting, learnt.best, plan, log, log.recorded, learnt.chunks)
    if run_dir is not None:
        policy.save(Path(run_dir) / "policy")
    notes = _diagnostics(learnt, plan, log.recorded.rewards)
    return LearningResult(policy, 0, notes, logged_episodes=log.number)


def train_on_log(
    log: EpisodeLog,
    simulator: AbstractSimulator,
    folder: str | Path,
    *,
    file: str,
    source: Mapping[str, Any],
    eta: float,
    classes: str | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Learn from a log; the folder holds the policy, the returned summary the figures.

    `file` and `source` say where the log and the map came from, for the record.
    """
    asked = {
        "from": file,
        "environment": log.environment,
        "simulator": dict(source),
        "eta": eta,
        "method": "belief",
        **({} if classes is None else {"classes": classes}),
        "versions": versions(),
    }
    commission = Commission(folder, asked, overwrite)
    if (done := commission.finished()) is not None:
        return done
    with commission.writing() as place:
        run = Run(place)
        started = time.perf_counter()
        result = learn_from_episodes(log, simulator, eta=eta, classes=classes)
        seconds = time.perf_counter() - started
        result.policy.save(run.policy_folder)
        summary = {
            "episodes": result.episodes,
            "logged_episodes": result.logged_episodes,
            "logged_return_mean": float(log.recorded.returns.mean()),
            **dict.fromkeys(_UNKNOWN),
            "worst_case_value": result.policy.plan.start_value,
            "coverage": result.diagnostics.coverage,
            **result.diagnostics.record(),
            "seconds": seconds,
            "policy": str(Path(folder) / run.policy_folder.name),
        }
        run.write_summary(summary)
    return summary


def _log(episodes: Given, sim: AbstractSimulator) -> EpisodeLog:
    if isinstance(episodes, EpisodeLog):
        return episodes
    if isinstance(episodes, (str, os.PathLike)):
        return EpisodeLog.load(episodes)
    return log_of_arrays(episodes, horizon=sim.horizon, num_actions=sim.num_actions)


def _diagnostics(
    learnt: LearntFromLog, plan: RobustPlan, rewards: NDArray[np.floating]
) -> Diagnostics:
    best, sim = learnt.best, plan.simulator
    # Slips and map errors are those that the best fit from every other beginning finds as well.
    others = {one.fit.name: one.fit for one in reversed(learnt.judged)}
    others.pop(best.name, None)
    fits = list(others.values())
    found = agreed_findings(learnt.setting, best, fits, learnt.chunks, sim)
    covered = coverage(learnt.setting, best.classes, best.counts)
    judged = reversed(learnt.judged)  # the best of each name has the last word
    return Diagnostics(
        model=best.name,
        evidence={one.fit.name: one.evidence.mean / sim.horizon for one in judged},
        eta=found.eta,
        map_errors=found.map_errors,
        slips=found.slips,
        warnings=(
            *reward_warnings(rewards, plan.simulator),
            *slip_warnings(found),
            *map_warnings(found),
            *_log_warnings(learnt, covered),
        ),
        coverage=covered,
    )


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
