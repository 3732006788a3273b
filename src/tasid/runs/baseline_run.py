"""One whole run of a baseline, put on disk as a run of TASID is."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasid.baselines.by_name import Baseline, Paused, pause_arrays, paused_from, train_baseline
from tasid.baselines.domain_randomization import FINE_TUNING
from tasid.baselines.training import Callback, Checkpoint
from tasid.checks.scoring import score
from tasid.files import read_artifact, write_artifact
from tasid.runs.journaled import on_record
from tasid.runs.record import Run, versions
from tasid.runs.unfinished import RECORD, Commission, Notice, silent
from tasid.targets.registry import open_world

_STATE = "unfinished-run"
_KEEP_SECONDS = 10.0
"""Of training that a kill may cost."""


@dataclass(frozen=True)
class BaselineOrder:
    """What `tasid train --algorithm` was asked for."""

    environment: str
    options: Mapping[str, Any]
    """Options of the environment, its instance seed included."""
    baseline: Baseline
    seed: int
    evaluation_episodes: int = 10_000
    imports: Sequence[str] = ()
    """Files and modules of the user's that were run first, for the record."""


def run_baseline(
    order: BaselineOrder,
    folder: str | Path,
    *,
    home: str | Path | None = None,
    overwrite: bool = False,
    resume: bool = False,
    callbacks: Sequence[Callback] = (),
    notice: Notice = silent,
) -> dict[str, Any]:
    """Carry out the order as `tasid.runs.train.train` does."""
    source = open_world(order.environment, **order.options)
    asked = _asked(order, source)
    commission = Commission(folder, asked, overwrite, resume, notice)
    if (done := commission.finished()) is not None:
        return done
    with commission.writing() as place, on_record(source, place / RECORD) as world:
        run, log = Run(place), _Log(place / RECORD / "state")
        started = time.perf_counter()
        trained = train_baseline(
            order.baseline,
            world,
            seed=order.seed,
            paused=log.paused(order, world),
            callbacks=[log, *callbacks],
        )
        seconds = time.perf_counter() - started
        trained.policy.save(run.policy_folder)
        run.write_rows("training.jsonl", log.rows)
        scored, figures = score(
            trained.policy, world, episodes=order.evaluation_episodes, seed=order.seed
        )
        summary = {
            "algorithm": order.baseline.algorithm,
            "episodes": trained.episodes,
            "source_episodes": order.baseline.episodes_before,
            **figures,
            "decoder_accuracy": None,
            "seconds": seconds,
            "policy": str(Path(home or folder) / run.policy_folder.name),
        }
        run.write_evaluation(summary, {"returns": scored.returns})
    return summary


class _Log:
    """A row for every checkpoint; and the training as it was there, on disk every now and then."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kept = time.monotonic()
        self.rows: list[dict[str, Any]] = []

    def paused(self, order: BaselineOrder, world: Any) -> Paused | None:
        """Where to go on, with the rows up to there; None to begin."""
        if not self._folder.exists():
            return None
        try:
            state = read_artifact(self._folder, kind=_STATE)
            stage, rows = int(state.metadata["stage"]), list(state.metadata["rows"])
            paused = paused_from(
                order.baseline, world, seed=order.seed, stage=stage, arrays=state.arrays
            )
        except (KeyError, TypeError, ValueError) as error:
            warnings.warn(f"{error}; this run starts anew", stacklevel=2)
            return None
        self.rows = rows
        return paused

    def __call__(self, here: Checkpoint) -> None:
        """Note it, and write it down, unless that was done a moment ago."""
        if here.returns.size:  # none, if resumed at its very end
            row = {
                "stage": "target" if here.stage == FINE_TUNING else "source",
                "episodes": here.episodes,
                "training": float(here.returns.mean()),
                "mean": None if here.evaluation is None else here.evaluation.mean,
                "seconds": here.seconds,
            }
            self.rows.append(row)
        if time.monotonic() - self._kept >= _KEEP_SECONDS:
            metadata = {"stage": here.stage, "rows": self.rows}
            write_artifact(self._folder, kind=_STATE, metadata=metadata, arrays=pause_arrays(here))
            self._kept = time.monotonic()


def _asked(order: BaselineOrder, world: Any) -> dict[str, Any]:
    return {
        "environment": {"name": order.environment, "options": dict(order.options)},
        "algorithm": order.baseline.algorithm,
        "baseline": order.baseline.describe(order.baseline.config_for(world)),
        "seed": order.seed,
        "evaluation_episodes": order.evaluation_episodes,
        **({"imports": list(order.imports)} if order.imports else {}),
        "versions": versions(),
    }
