"""What a finished run found, read from its folder and checked; nothing is computed anew.

The paper's method notices less than the belief method: what is missing or null is None or empty.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
from numpy.typing import NDArray

from tasid.files import ArtifactError
from tasid.learning.belief.method import BatchEnded
from tasid.learning.belief.slips import Slip
from tasid.learning.monitor import Calibration
from tasid.learning.paper.tasid import EpochEnded, StepEnded
from tasid.learning.surprise import EtaEstimate, MapFault
from tasid.maps import AbstractSimulator
from tasid.policies import BeliefPolicy, Policy, load
from tasid.policies.certificate import ReturnCertificate
from tasid.policies.ppo_policy import PPOPolicy
from tasid.report.figures.clusters import Starts, read_starts
from tasid.report.figures.learning import BeliefBatches, Learning
from tasid.report.pages.checked import checked
from tasid.runs.record import Run
from tasid.runs.warnings import tell_of_slips

_NUMBERS = (
    "episodes seconds ratio skill robust_value worst_case_value nominal_plan_value blind_value "
    "population_value decoder_accuracy calibration_error"
).split()
_CONFIDENCE, _CORRECT = "calibration.confidence", "calibration.correct"


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
    model: str | None
    """The one in use."""
    eta: EtaEstimate | None
    """None too where no transition could tell."""
    map_errors: tuple[MapFault, ...]
    slips: tuple[Slip, ...]
    """What commands came to, the most surprising first."""
    warnings: tuple[str, ...]
    calibration: Calibration | None
    certificate: ReturnCertificate | None
    starts: Starts | None
    """How several starts were told apart."""
    learning: Learning | None
    """How the paper's method learned, step by step; None where there was nothing to learn."""
    beliefs: BeliefBatches | None
    """How the belief method learned, batch by batch."""

    def __getitem__(self, key: str) -> float | None:
        """A number of the summary."""
        return self.summary[key]

    @property
    def mean(self) -> float:
        """The mean return."""
        return float(self.returns.mean())

    @property
    def eta_too_small(self) -> bool:
        """Was it said that slips are more than was planned for?"""
        return tell_of_slips(self.warnings)


def read_findings(folder: str | Path) -> RunFindings:
    """Read a run; anything missing, damaged or of the wrong kind raises `ArtifactError`."""
    run = Run(folder)
    asked, evaluation, policy = run.asked(), run.evaluation(), load(run.policy_folder)
    if isinstance(policy, PPOPolicy):
        raise ArtifactError(f"{run.policy_folder}: a baseline's policy in a run of tasid")
    where = str(run.folder / "evaluation")

    def told(key: str, kind: Any) -> Any:
        return checked(kind, evaluation.metadata.get(key), f"{where}: {key}")

    arrays = _vectors(evaluation.arrays, policy, where)
    eta, slips = told("eta_estimate", EtaEstimate | None), told("slips", tuple[Slip, ...])
    if any(len(slip.outcomes) < 2 for slip in slips):
        raise ArtifactError(f"{where}: slips of one outcome, of which none can be a slip")
    by_beliefs = isinstance(policy, BeliefPolicy)
    return RunFindings(
        asked=asked,
        policy=policy,
        summary={key: told(key, float | None) for key in _NUMBERS},
        interval=_interval(told("return_ci95", tuple[float | None, ...]), where),
        returns=arrays["returns"],
        model=told("model", str | None),
        eta=eta if eta is not None and eta.transitions else None,
        map_errors=told("map_errors", tuple[MapFault, ...]),
        slips=slips,
        warnings=told("warnings", tuple[str, ...]),
        calibration=_calibration(evaluation.arrays, where),
        certificate=_certificate(evaluation.metadata.get("certificate"), where),
        starts=read_starts(evaluation.metadata, evaluation.arrays, where),
        learning=None if by_beliefs else _learning(run, policy.simulator, arrays),
        beliefs=_beliefs(run, told, arrays) if by_beliefs else None,
    )


def _vectors(
    stored: Mapping[str, NDArray[Any]], policy: BeliefPolicy | Policy, where: str
) -> dict[str, NDArray[np.float64]]:
    """The arrays with a number for every episode, step or state."""
    if "returns" not in stored or stored["returns"].size == 0:
        raise ArtifactError(f"{where}: it holds no returns; evaluate at least one episode")
    sim, arrays = policy.simulator, {}
    for name, length in (
        ("returns", stored["returns"].size),
        ("decoder_accuracy", sim.horizon - 1),
        ("tracking_accuracy", sim.horizon),
        ("visits", sim.num_states),
    ):
        if name in stored:
            array = stored[name]
            if array.shape != (length,) or array.dtype.kind not in "iuf":
                told = f"{where}: {name} is {array.dtype} {array.shape}"
                raise ArtifactError(f"{told}; it should be {length} numbers")
            if not np.isfinite(array).all():
                raise ArtifactError(f"{where}: {name} holds numbers that are not finite")
            arrays[name] = array.astype(np.float64)
    return arrays


def _interval(bounds: tuple[float | None, ...], where: str) -> tuple[float, float] | None:
    if len(bounds) not in (0, 2):
        raise ArtifactError(f"{where}: return_ci95 is {bounds}; it should be two numbers")
    low, high = bounds or (None, None)
    return None if low is None or high is None else (low, high)


def _events(run: Run, kind: type[Any], file: str) -> list[Any]:
    """Recorded events, checked; a number that was not finite was recorded as null."""
    hints = get_type_hints(kind)

    def row_of(event: Any) -> dict[str, Any]:
        row = vars(event)
        gaps = [name for name, value in row.items() if value is None and hints[name] is float]
        return row | dict.fromkeys(gaps, math.nan)

    return [
        checked(kind, row_of(event), f"{run.folder / file}, line {number}")
        for number, event in enumerate(run.rows(kind), start=1)
    ]


def _learning(
    run: Run, sim: AbstractSimulator, arrays: Mapping[str, NDArray[np.float64]]
) -> Learning | None:
    steps = _events(run, StepEnded, "steps.jsonl")
    if [row.step for row in steps] != list(range(sim.horizon - 1)):
        raise ArtifactError(
            f"{run.folder / 'steps.jsonl'}: {len(steps)} rows that are not one for each of the "
            f"policy's {sim.horizon - 1} models; it belongs to another run or was edited"
        )
    curves: list[list[float]] = [[] for _ in steps]
    for row in _events(run, EpochEnded, "epochs.jsonl"):
        if row.step not in range(len(steps)):
            raise ArtifactError(f"{run.folder / 'epochs.jsonl'}: a row of no such run ({row})")
        curves[row.step].append(row.validation_loss)
    if not steps:
        return None
    return Learning(
        steps=tuple(steps),
        curves=tuple(np.array(curve) for curve in curves),
        decoder_accuracy=arrays.get("decoder_accuracy"),
        tracking_accuracy=arrays.get("tracking_accuracy"),
        guessing_loss=math.log(sim.num_actions),
    )


def _beliefs(
    run: Run, told: Callable[[str, Any], Any], arrays: Mapping[str, NDArray[np.float64]]
) -> BeliefBatches:
    where = run.folder / "batches.jsonl"
    found = BeliefBatches(
        batches=tuple(_events(run, BatchEnded, "batches.jsonl")),
        stopped=told("stopped", str | None),
        tracking_accuracy=arrays.get("tracking_accuracy"),
        visits=arrays.get("visits"),
    )
    if not found.batches or (found.sizes <= 0).any():
        raise ArtifactError(f"{where}: its rows are not the batches of one run")
    spent = told("episodes", int | None)
    if spent not in (None, found.ends[-1]):
        raise ArtifactError(
            f"{where}: {found.ends[-1]} episodes, but the run spent {spent}; it belongs to "
            "another run or was edited"
        )
    return found


def _calibration(arrays: Mapping[str, NDArray[Any]], where: str) -> Calibration | None:
    if _CONFIDENCE not in arrays and _CORRECT not in arrays:
        return None
    said, was = arrays.get(_CONFIDENCE, np.zeros(0)), arrays.get(_CORRECT, np.zeros(0))
    # The comparison is False for NaN as well.
    fits = said.ndim == 1 and said.shape == was.shape and said.dtype.kind == "f"
    if not fits or not all(((one >= 0) & (one <= 1.001)).all() for one in (said, was)):
        raise ArtifactError(
            f"{where}: {_CONFIDENCE} is {said.dtype} {said.shape} and {_CORRECT} is {was.dtype} "
            f"{was.shape}; they should be as many probabilities, and truth values or probabilities"
        )
    return Calibration(said.astype(np.float64), was) if said.size else None


def _certificate(record: Any, where: str) -> ReturnCertificate | None:
    if record is None:
        return None
    try:
        proof = ReturnCertificate.of(record)
        checked(ReturnCertificate, vars(proof) | {"range": list(proof.range)}, where)
    except (KeyError, TypeError, ValueError) as error:
        raise ArtifactError(f"{where}: certificate is none of ours ({error})") from None
    return proof
