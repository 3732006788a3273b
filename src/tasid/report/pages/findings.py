"""What a finished run found, read from its folder and checked; nothing is computed anew."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasid.files import ArtifactError
from tasid.learning.paper.tasid import EpochEnded, StepEnded
from tasid.policies import BeliefPolicy, Policy, load
from tasid.policies.certificate import ReturnCertificate
from tasid.policies.ppo_policy import PPOPolicy
from tasid.report.figures.clusters import Starts, read_starts
from tasid.report.figures.learning import Learning
from tasid.report.pages.beliefs import BeliefBatches, read_beliefs
from tasid.report.pages.diagnostics import (
    RunDiagnostics,
    is_number,
    read_certificate,
    read_diagnostics,
)
from tasid.runs.record import Run

_NUMBERS = (
    "episodes seconds ratio skill robust_value worst_case_value nominal_plan_value blind_value "
    "population_value decoder_accuracy calibration_error"
).split()


@dataclass(frozen=True, eq=False)
class RunFindings:
    """A run's records, each of the type it should have."""

    asked: dict[str, Any]
    """run.json as it is; its content is anybody's."""
    policy: BeliefPolicy | Policy
    summary: dict[str, float | None]
    """The summary's numbers; None where a value is unknown."""
    interval: tuple[float, float] | None
    """95 % interval of the mean return."""
    returns: NDArray[np.float64]
    diagnostics: RunDiagnostics
    steps: tuple[StepEnded, ...] = ()
    learning: Learning | None = None
    """How the paper's method learned, step by step."""
    beliefs: BeliefBatches | None = None
    """How the belief method learned, batch by batch."""
    certificate: ReturnCertificate | None = None
    starts: Starts | None = None
    """How several starts were told apart."""

    def __getitem__(self, key: str) -> float | None:
        """A number of the summary."""
        return self.summary[key]

    @property
    def mean(self) -> float:
        """The mean return."""
        return float(self.returns.mean())


def read_findings(folder: str | Path) -> RunFindings:
    """Read a run; anything missing, damaged or of the wrong kind raises `ArtifactError`."""
    run = Run(folder)
    asked = run.asked()
    evaluation = run.evaluation()
    policy = load(run.policy_folder)
    if isinstance(policy, PPOPolicy):
        raise ArtifactError(f"{run.policy_folder}: a baseline's policy in a run of tasid")
    where = run.folder / "evaluation"
    models = policy.simulator.horizon - 1
    arrays = {
        name: _vector(evaluation.arrays[name], f"{where}: {name}", length)
        for name, length in (
            ("returns", None),
            ("decoder_accuracy", models),
            ("tracking_accuracy", models + 1),
            ("visits", policy.simulator.num_states),
        )
        if name in evaluation.arrays
    }
    if "returns" not in arrays or arrays["returns"].size == 0:
        raise ArtifactError(f"{where}: it holds no returns; evaluate at least one episode")
    steps: tuple[StepEnded, ...] = ()
    learning, beliefs = None, None
    if isinstance(policy, BeliefPolicy):
        beliefs = read_beliefs(run, evaluation.metadata, arrays)
    else:
        steps = _steps(run, models)
        learning = _learning(run, policy, steps, arrays)
    return RunFindings(
        asked=asked,
        policy=policy,
        summary={key: _number(evaluation.metadata.get(key), f"{where}: {key}") for key in _NUMBERS},
        interval=_interval(evaluation.metadata.get("return_ci95"), f"{where}: return_ci95"),
        returns=arrays["returns"],
        steps=steps,
        learning=learning,
        beliefs=beliefs,
        certificate=read_certificate(evaluation.metadata.get("certificate"), str(where)),
        diagnostics=read_diagnostics(evaluation.metadata, evaluation.arrays, str(where)),
        starts=read_starts(evaluation.metadata, evaluation.arrays, str(where)),
    )


def _steps(run: Run, models: int) -> tuple[StepEnded, ...]:
    steps = tuple(run.rows(StepEnded))
    if [row.step for row in steps] != list(range(models)):
        raise ArtifactError(
            f"{run.folder / 'steps.jsonl'}: {len(steps)} rows that are not one for each of the "
            f"policy's {models} models; it belongs to another run or was edited"
        )
    return steps


def _learning(
    run: Run, policy: Policy, steps: tuple[StepEnded, ...], arrays: dict[str, NDArray[np.float64]]
) -> Learning:
    losses: list[list[float]] = [[] for _ in steps]
    try:
        for row in run.rows(EpochEnded):
            losses[row.step].append(_loss(row.validation_loss))
        kept = np.array([_loss(row.validation_loss) for row in steps])
        epochs, episodes = (
            np.array([int(getattr(row, name)) for row in steps], dtype=np.int64)
            for name in ("epochs", "episodes")
        )
        for row in steps:
            for value in (row.episodes, row.epochs, row.seconds_collecting, row.seconds_fitting):
                if not isinstance(value, int | float):
                    raise TypeError(f"{value!r} at step {row.step} is not a number")
    except (IndexError, TypeError, ValueError) as error:
        raise ArtifactError(
            f"{run.folder}: epochs.jsonl or steps.jsonl holds a row of no such run ({error})"
        ) from None
    return Learning(
        validation_loss=kept,
        curves=tuple(np.array(curve) for curve in losses),
        epochs=epochs,
        episodes=episodes,
        decoder_accuracy=arrays.get("decoder_accuracy"),
        tracking_accuracy=arrays.get("tracking_accuracy"),
        guessing_loss=math.log(policy.simulator.num_actions),
    )


def _loss(recorded: Any) -> float:
    """A loss that ran away, or of no transition at all, was recorded as null; it leaves a gap."""
    return math.nan if recorded is None else float(recorded)


def _vector(array: NDArray[Any], where: str, length: int | None) -> NDArray[np.float64]:
    if array.ndim != 1 or length not in (None, array.size) or array.dtype.kind not in "iuf":
        wanted = "numbers" if length is None else f"{length} numbers"
        raise ArtifactError(f"{where} is {array.dtype} {array.shape}; it should be {wanted}")
    values = array.astype(np.float64)
    if not np.isfinite(values).all():
        raise ArtifactError(f"{where} holds numbers that are not finite")
    return values


def _number(value: Any, where: str) -> float | None:
    if value is not None and not is_number(value):
        raise ArtifactError(f"{where} is {value!r}; it should be a number or null")
    return None if value is None else float(value)


def _interval(value: Any, where: str) -> tuple[float, float] | None:
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != 2:
        raise ArtifactError(f"{where} is {value!r}; it should be two numbers")
    low, high = (_number(bound, where) for bound in value)
    return None if low is None or high is None else (low, high)
