"""The certificate of a run, read from its summary, and what it says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from tasid.files import ArtifactError
from tasid.policies.certificate import ReturnCertificate
from tasid.report.text.wording import THIN, UNKNOWN, KeyFigure, count, number

_MAY_BE_NULL = ("lower_bound", "mean", "blind_value", "void")


def read_certificate(record: Any, where: str) -> ReturnCertificate | None:
    """The certificate; None where none was asked for."""
    if record is None:
        return None
    try:
        _check(record)
        return ReturnCertificate.of(record)
    except (KeyError, TypeError, ValueError) as error:
        raise ArtifactError(f"{where}: certificate is none of ours ({error})") from None


def _check(record: Any) -> None:
    if not isinstance(record, Mapping):
        raise TypeError(f"{record!r} is no record")
    for field in fields(ReturnCertificate):
        value = record[field.name]
        if field.name == "range":
            continue
        wanted: Any = str if field.name == "void" else int | float
        fits = isinstance(value, wanted) and not isinstance(value, bool)
        if not fits and not (value is None and field.name in _MAY_BE_NULL):
            raise TypeError(f"{field.name} is {value!r}")


def certificate_figures(found: ReturnCertificate) -> tuple[KeyFigure, ...]:
    """The bound, what it took, and what it is held against."""
    sure = f"{100 * (1 - found.delta):.4g}{THIN}%"
    return (
        KeyFigure(
            "Earns at least",
            UNKNOWN if found.void else number(found.lower_bound),
            f"The mean return is no less, and this is {sure} sure, however the policy was learned.",
        ),
        KeyFigure(
            "Certifying episodes",
            count(found.episodes),
            "Fresh ones, beside those of learning and of evaluation: no other number on this page "
            "rests on them.",
        ),
        KeyFigure(
            "Promise kept",
            "yes" if found.passed else "not shown",
            f"Asked for: {number(found.epsilon)} less than the worst case of the plan, "
            f"{number(found.worst_case_value)}.",
        ),
        KeyFigure(
            "Paper’s guarantee",
            "yes" if found.paper_guarantee else "not shown",
            f"Within {number(found.epsilon)} of the plan with the state in view, whatever goes "
            "wrong that the map allows for: at least "
            f"{number(found.best_case_value - found.epsilon)}.",
        ),
    )
