"""One whole run of a baseline, put on disk as a run of TASID is."""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tasid import __version__
from tasid.algorithms.domain_randomization import FINE_TUNING
from tasid.algorithms.ppo_training import Callback, Checkpoint
from tasid.envs.registry import open_world
from tasid.runs.baselines import Baseline, train_baseline
from tasid.runs.journaled import on_record
from tasid.runs.record import Run
from tasid.runs.scoring import score
from tasid.runs.unfinished import Notice, silent


@dataclass(frozen=True)
class BaselineOrder:
    """What `tasid train --algorithm` was asked for."""

    environment: str
    options: Mapping[str, Any]
    """Options of the environment, its instance seed included."""
    baseline: Baseline
    seed: int
    evaluation_episodes: int = 10_000


def run_baseline(
    order: BaselineOrder,
    folder: str | Path,
    *,
    overwrite: bool = False,
    resume: bool = False,
    callbacks: Sequence[Callback] = (),
    notice: Notice = silent,
) -> dict[str, Any]:
    """Carry out the order as `tasid.runs.train.train` does."""
    source = open_world(order.environment, **order.options)
    asked = _asked(order, source)
    if resume and (done := Run.complete(folder, asked)) is not None:
        notice(f"{folder}: the run of this order is complete")
        return done
    rows: list[dict[str, Any]] = []

    def note(here: Checkpoint) -> None:
        rows.append(
            {
                "stage": "target" if here.stage == FINE_TUNING else "source",
                "episodes": here.episodes,
                "training": float(here.returns.mean()),
                "mean": None if here.evaluation is None else here.evaluation.mean,
                "seconds": here.seconds,
            }
        )

    with (
        Run.writing(folder, asked, overwrite=overwrite, resume=resume, notice=notice) as run,
        on_record(source, run.record) as world,
    ):
        started = time.perf_counter()
        trained = train_baseline(
            order.baseline, world, seed=order.seed, callbacks=[note, *callbacks]
        )
        seconds = time.perf_counter() - started
        trained.policy.save(run.policy_folder)
        run.write_rows("training.jsonl", rows)
        scored, figures = score(
            trained.policy, world, episodes=order.evaluation_episodes, seed=order.seed
        )
        summary = {
            "algorithm": order.baseline.algorithm,
            "episodes": trained.episodes,
            "source_episodes": order.baseline.source_episodes * order.baseline.randomized,
            **figures,
            "decoder_accuracy": None,
            "seconds": seconds,
            "policy": str(Path(folder) / run.policy_folder.name),
        }
        run.write_evaluation(summary, {"returns": scored.returns})
    return summary


def _asked(order: BaselineOrder, world: Any) -> dict[str, Any]:
    return {
        "environment": {"name": order.environment, "options": dict(order.options)},
        "algorithm": order.baseline.algorithm,
        "baseline": order.baseline.describe(order.baseline.config_for(world)),
        "seed": order.seed,
        "evaluation_episodes": order.evaluation_episodes,
        "versions": {
            "tasid": __version__,
            "python": platform.python_version(),
            "jax": version("jax"),
            "numpy": version("numpy"),
        },
    }
