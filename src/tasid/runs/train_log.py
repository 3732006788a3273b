"""One whole run without a target: learn from a log, and put it on disk."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasid.maps import AbstractSimulator
from tasid.runs.episode_log import EpisodeLog
from tasid.runs.learn_log import learn_from_episodes
from tasid.runs.record import Run, versions
from tasid.runs.train import reliability
from tasid.runs.unfinished import Commission

_UNKNOWN = (
    "return_mean",
    "return_ci95",
    "evaluation_episodes",
    "robust_value",
    "nominal_plan_value",
    "blind_value",
    "ratio",
    "skill",
    "decoder_accuracy",
    "calibration_error",
)
"""What only a target can tell."""


@dataclass(frozen=True)
class LogOrder:
    """What `tasid train --from` was asked for."""

    file: str
    log: EpisodeLog
    simulator: AbstractSimulator
    source: Mapping[str, Any]
    """Where the map came from: a name and options, for the record."""
    eta: float
    classes: str | None = None


def train_on_log(order: LogOrder, folder: str | Path, *, overwrite: bool = False) -> dict[str, Any]:
    """Carry out the order; the folder holds the policy, the returned summary the figures."""
    commission = Commission(folder, _asked(order), overwrite)
    if (done := commission.finished()) is not None:
        return done
    with commission.writing() as place:
        run = Run(place)
        started = time.perf_counter()
        result = learn_from_episodes(
            order.log, order.simulator, eta=order.eta, classes=order.classes
        )
        seconds = time.perf_counter() - started
        result.policy.save(run.policy_folder)
        summary = {
            "episodes": result.episodes,
            "logged_episodes": result.logged_episodes,
            "logged_return_mean": float(order.log.recorded.returns.mean()),
            **dict.fromkeys(_UNKNOWN),
            "worst_case_value": result.policy.plan.start_value,
            "coverage": result.diagnostics.coverage,
            **reliability(result.diagnostics),
            "seconds": seconds,
            "policy": str(Path(folder) / run.policy_folder.name),
        }
        run.write_summary(summary)
    return summary


def _asked(order: LogOrder) -> dict[str, Any]:
    return {
        "from": order.file,
        "environment": order.log.environment,
        "simulator": dict(order.source),
        "eta": order.eta,
        "method": "belief",
        **({} if order.classes is None else {"classes": order.classes}),
        "versions": versions(),
    }
