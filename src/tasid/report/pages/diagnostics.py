"""What learning noticed about itself, read from a run's summary and checked.

The paper's method notices less than the belief method: what is missing or null is None or empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tasid.files import ArtifactError
from tasid.learning.belief.slips import Outcome, Slip
from tasid.learning.monitor import Calibration
from tasid.learning.surprise import EtaEstimate, MapFault
from tasid.policies.certificate import ReturnCertificate
from tasid.runs.warnings import tell_of_slips

_CONFIDENCE, _CORRECT = "calibration.confidence", "calibration.correct"
_LABELS = ("state", "successor")
_MAY_BE_NULL = ("lower_bound", "mean", "blind_value", "void")
_Record = TypeVar("_Record", EtaEstimate, MapFault, Outcome, Slip)


@dataclass(frozen=True, eq=False)
class RunDiagnostics:
    """The model that won, and what it says about η, the map and its own confidence."""

    model: str | None
    evidence: tuple[tuple[str, float], ...]
    """Ways of modelling and what new episodes said in their favour, best first."""
    eta: EtaEstimate | None
    """None too where no transition could tell."""
    map_errors: tuple[MapFault, ...]
    slips: tuple[Slip, ...]
    """What commands came to, the most surprising first."""
    warnings: tuple[str, ...]
    calibration: Calibration | None

    @property
    def eta_too_small(self) -> bool:
        """Was it said that slips are more than was planned for?"""
        return tell_of_slips(self.warnings)


def read_diagnostics(
    summary: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], where: str
) -> RunDiagnostics:
    """The part of an evaluation that is not scores; `where` is what errors say it was in."""
    estimate = summary.get("eta_estimate")
    eta = None if estimate is None else _record(EtaEstimate, estimate, f"{where}: eta_estimate")
    return RunDiagnostics(
        model=optional_text(summary.get("model"), f"{where}: model"),
        evidence=_evidence(summary.get("evidence"), f"{where}: evidence"),
        eta=eta if eta is not None and eta.transitions else None,
        map_errors=tuple(
            _record(MapFault, row, f"{where}: map_errors, entry {number}")
            for number, row in enumerate(_rows(summary, "map_errors", where))
        ),
        slips=tuple(
            _slip(row, f"{where}: slips, entry {number}")
            for number, row in enumerate(_rows(summary, "slips", where))
        ),
        warnings=tuple(
            _text(row, f"{where}: warnings, entry {number}")
            for number, row in enumerate(_rows(summary, "warnings", where))
        ),
        calibration=_calibration(arrays, where),
    )


def _evidence(value: Any, where: str) -> tuple[tuple[str, float], ...]:
    if value is None:
        return ()
    if not isinstance(value, dict) or not all(is_number(nats) for nats in value.values()):
        raise ArtifactError(f"{where} is {value!r}; it should be a number for every way")
    return tuple(sorted(((way, float(n)) for way, n in value.items()), key=lambda pair: -pair[1]))


def _rows(summary: Mapping[str, Any], key: str, where: str) -> list[Any]:
    value = summary.get(key)
    if value is not None and not isinstance(value, list):
        raise ArtifactError(f"{where}: {key} is {value!r}; it should be a list")
    return value or []


def _slip(value: Any, where: str) -> Slip:
    if not isinstance(value, dict):
        raise ArtifactError(f"{where} is {value!r}; it should be a record")
    outcomes = tuple(_outcome(row, where) for row in _rows(value, "outcomes", where))
    if len(outcomes) < 2:
        raise ArtifactError(f"{where}: {len(outcomes)} outcomes, of which none can be a slip")
    return _record(Slip, value, where, outcomes=outcomes)


def _outcome(value: Any, where: str) -> Outcome:
    if not isinstance(value, dict):
        raise ArtifactError(f"{where}: {value!r} is no outcome")
    actions = tuple(_rows(value, "actions", where))
    if not actions or not all(type(action) is int for action in actions):
        raise ArtifactError(f"{where}: actions is {list(actions)!r}; it should name some")
    return _record(Outcome, value, where, actions=actions)


def _record(kind: type[_Record], value: Any, where: str, **read: Any) -> _Record:
    """One of our own records; every field but a state's label and those read is a number."""
    wanted = {field.name for field in fields(kind)}
    if not isinstance(value, dict) or value.keys() != wanted:
        raise ArtifactError(f"{where} is {value!r}; its keys should be {', '.join(sorted(wanted))}")
    for name, item in value.items():
        if name not in (*_LABELS, *read) and not is_number(item):
            raise ArtifactError(f"{where}: {name} is {item!r}; it should be a number")
    return kind(**{**value, **read})


def _calibration(arrays: Mapping[str, NDArray[Any]], where: str) -> Calibration | None:
    if _CONFIDENCE not in arrays and _CORRECT not in arrays:
        return None
    try:
        said, was = arrays[_CONFIDENCE], arrays[_CORRECT]
    except KeyError as missing:
        raise ArtifactError(f"{where}: {missing} is missing") from None
    fits = said.ndim == 1 and said.shape == was.shape and said.dtype.kind == "f"
    # The comparison is False for NaN as well.
    likely = was.dtype == bool or (was.dtype.kind == "f" and ((was >= 0) & (was <= 1.001)).all())
    if not fits or not likely or not ((said >= 0) & (said <= 1.001)).all():
        raise ArtifactError(
            f"{where}: {_CONFIDENCE} is {said.dtype} {said.shape} and {_CORRECT} is {was.dtype} "
            f"{was.shape}; they should be as many probabilities, and truth values or probabilities"
        )
    return Calibration(said.astype(np.float64), was) if said.size else None


def optional_text(value: Any, where: str) -> str | None:
    """Text, or null."""
    return None if value is None else _text(value, where)


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise ArtifactError(f"{where} is {value!r}; it should be text")
    return value


def is_number(value: Any) -> bool:
    """A number, which a truth value is not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def read_certificate(record: Any, where: str) -> ReturnCertificate | None:
    """The certificate of a run; None where none was asked for."""
    if record is None:
        return None
    try:
        if not isinstance(record, Mapping):
            raise TypeError(f"{record!r} is no record")
        for name in (field.name for field in fields(ReturnCertificate) if field.name != "range"):
            value = record[name]
            fits = isinstance(value, str) if name == "void" else is_number(value)
            if not fits and not (value is None and name in _MAY_BE_NULL):
                raise TypeError(f"{name} is {value!r}")
        return ReturnCertificate.of(record)
    except (KeyError, TypeError, ValueError) as error:
        raise ArtifactError(f"{where}: certificate is none of ours ({error})") from None
