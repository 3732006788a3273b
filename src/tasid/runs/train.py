"""One whole run: build the environment and its map, learn, score, and write the run folder.

    config.json    the `RunConfig`
    episodes/      episodes of wrapped environments, as they were played
    policy/        the learned policy
    result.json    the figures; it is written last, so a folder without it is an unfinished run

A run that was interrupted is continued by starting it again in its folder: logged episodes are read
instead of played, and the policy has the bytes of an uninterrupted run.
"""

from __future__ import annotations

import contextlib
import math
import shutil
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasid.policies.certify import certify_return
from tasid.runs.config import ConfigError, RunConfig, import_modules
from tasid.simulator import AbstractSimulator
from tasid.storage import EpisodeLog, plain_json, read_json, write_json, writer_lock
from tasid.targets.base import Target

if TYPE_CHECKING:
    from tasid.learning.base import Callback, LearningResult

KEPT = 0.9
"""A policy that earns less than this part of what its plan promises is worth a warning."""
SMALL = 0.05
"""Promises below this part of the range of returns are missed by chance: all of the score's
interval has to miss them. Where nothing positive is promised, the range is the scale."""
SCORES = (
    "return_mean return_ci95 robust_value optimal_value worst_case_value ratio skill "
    "decoder_accuracy certificate"
).split()
"""Figures that need an environment; null for a policy that was learned from a log alone."""


@dataclass(frozen=True)
class RunResult:
    """A finished run."""

    config: RunConfig
    folder: Path
    summary: dict[str, Any]
    """Content of `result.json`: episodes, return_mean, robust_value, warnings, …"""


def train(
    config: RunConfig,
    out: str | Path | None = None,
    *,
    resume: bool = False,
    overwrite: bool = False,
    callbacks: Sequence[Callback] = (),
) -> RunResult:
    """Learn a policy and score it.

    Parameters
    ----------
    config
        What to learn.
    out
        The run folder; `config.default_folder` if None. An unfinished run of the same config that
        is there is continued.
    resume
        Require such a run; if it is finished, return its result.
    overwrite
        Delete the run that is there.
    callbacks
        Called with every event of the learner.
    """
    folder = config.default_folder if out is None else Path(out)
    with contextlib.ExitStack() as stack:
        import_modules(config.imports)
        target = None if config.environment is None else config.build_target()
        stack.callback(getattr(target, "close", lambda: None))
        log = None if config.log is None else EpisodeLog.open(config.log)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            simulator = config.build_map(target, None if log is None else log.header)
        config.learner_config()  # errors come before the folder is touched
        if config.certify:
            try:
                signature(certify_return).bind(None, None, **config.certificate)
            except TypeError as error:
                raise ConfigError(f"certificate: {error}") from None
        stack.enter_context(writer_lock(folder))
        if _claim(folder, config, resume=resume, overwrite=overwrite):
            return RunResult(config, folder, read_json(folder / "result.json"))
        started = time.perf_counter()
        learned = _learn(config, folder, target, simulator, log, callbacks)
        summary = {
            "environment": config.environment,
            "method": config.method,
            "seed": config.seed,
            "eta": config.eta,
            "episodes": learned.episodes,
            "logged_episodes": learned.logged_episodes,
            "seconds": time.perf_counter() - started,
            "policy": str(folder / "policy"),
            **learned.diagnostics.to_json(),
            **dict.fromkeys(SCORES),
        }
        summary["history"] = [
            # JSON has neither NaN nor infinities.
            {k: None if v in (math.inf, -math.inf) or v != v else v for k, v in vars(event).items()}
            for event in learned.diagnostics.history
        ]
        summary["warnings"] += [str(warning.message) for warning in caught]
        if target is not None:
            summary |= _score(config, target.with_log(folder / "episodes"), learned)
            summary["warnings"] += _shortfall(summary, simulator)
        write_json(folder / "result.json", summary)
    return RunResult(config, folder, plain_json(summary, "result"))


def _learn(
    config: RunConfig,
    folder: Path,
    target: Target | None,
    simulator: AbstractSimulator,
    log: EpisodeLog | None,
    callbacks: Sequence[Callback],
) -> LearningResult:
    """Learn in the target, or from the log; the policy is on disk afterwards."""
    settings: dict[str, Any] = {
        "eta": config.eta,
        "seed": config.seed,
        "config": config.learner_config(),
        "callbacks": callbacks,
    }
    if log is not None:
        from tasid.learning.offline import learn_from_episodes

        learned: LearningResult = learn_from_episodes(log, simulator, **settings)
        learned.policy.save(folder / "policy")
        return learned
    from tasid.learning.learn import learn

    assert target is not None  # a config has a log or an environment
    return learn(
        target,
        simulator,
        episodes=config.episodes,
        method=config.method,
        starts=config.starts,
        from_policy=config.from_policy,
        run_dir=folder,
        **settings,
    )


def _score(config: RunConfig, target: Target, learned: LearningResult) -> dict[str, Any]:
    """Score, exact values, accuracy and certificate."""
    from tasid.policies.evaluate import evaluate, summary, tracking_accuracy, yardsticks

    policy = learned.policy
    promised = None if policy.plan is None else policy.plan.start_value
    number = config.evaluation_episodes or (1_000 if config.wrapped else 10_000)
    score = evaluate(policy, target, episodes=number, seed=config.seed)
    scores = summary(score, yardsticks(policy, target), worst_case=promised)
    own, plan = target.simulator, policy.plan
    if own is not None and plan is not None and own.same_tables(plan.simulator):
        played = min(number, 2_048)
        accuracy = tracking_accuracy(policy, target, episodes=played, seed=config.seed)[1:]
        scores["decoder_accuracy"] = float(accuracy.mean()) if accuracy.size else None
        scores["decoder_accuracy_by_step"] = accuracy.tolist()
    if config.certify:
        certificate = certify_return(policy, target, seed=config.seed, **config.certificate)
        scores["certificate"] = certificate.to_json()
    return scores


def _shortfall(summary: Mapping[str, Any], simulator: AbstractSimulator) -> list[str]:
    """A warning where the score is clearly below what the plan promises."""
    from tasid.planning import return_range

    earned, exact, worst = (summary[k] for k in ("return_mean", "robust_value", "worst_case_value"))
    if (promised := worst if exact is None else exact) is None:
        return []
    low, high = return_range(simulator)
    if 0 < promised <= SMALL * (high - low):  # less than chance may take away
        upper = summary["return_ci95"][1]
        earned_at_most = math.inf if upper is None else upper
    else:
        earned_at_most = earned
    if earned_at_most >= promised - (1 - KEPT) * (promised if promised > 0 else high - low):
        return []
    return [
        f"the policy earns {earned:.4g} where its plan promises {promised:.4g}; more episodes or "
        "more informative observations may help, and `tasid check` compares the map with the "
        "environment"
    ]


def _claim(folder: Path, config: RunConfig, *, resume: bool, overwrite: bool) -> bool:
    """Make the folder this run's; returns whether the same run is finished there and resumed."""
    content = [path for path in folder.iterdir() if not path.name.startswith(".")]
    requested = config.to_dict()
    stored = read_json(folder / "config.json") if (folder / "config.json").exists() else None
    finished = (folder / "result.json").exists()
    if stored is None and (content or resume):
        what = "files that are not a run" if content else "no run to resume"
        raise ConfigError(f"out: {folder} holds {what}; choose another folder")
    if overwrite:
        for path in content:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    elif stored is not None and (finished or len(content) > 1):
        for name in {**requested, **stored}:
            if stored.get(name) != requested.get(name):
                raise ConfigError(
                    f"out: {folder} holds a run with {name} = {stored.get(name)!r:.60}, not "
                    f"{requested.get(name)!r:.60}; choose another folder, or pass --overwrite"
                )
        if finished and not resume:
            raise ConfigError(
                f"out: {folder} holds this run, finished; choose another folder, or pass "
                "--overwrite"
            )
        if finished:
            return True
    write_json(folder / "config.json", requested)
    return False
