"""What a run says about its own reliability, in plain sentences and tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tasid.report.findings import Findings
from tasid.report.wording import THIN, UNKNOWN, KeyFigure, count, number, percent, unbroken

_TRACKS = "So the policy knows, move by move, where it is."
_LOOKS = "looks at two observations, one after the other, and says which"
_MODELS = {
    "paper": (
        f"Every step has a model of its own. It {_LOOKS} action came between them; the map says "
        f"where that action leads. {_TRACKS}"
    ),
}


def models(found: Findings) -> str:
    """What decodes, for the method that learned it."""
    return _MODELS.get(found.policy.method, f"A model {_LOOKS} move came between them. {_TRACKS}")


def winner(found: Findings) -> str | None:
    """The model in use."""
    name = found.noticed.model
    if name is None or not found.steps:
        return None
    return f"The model in use: {name}."


def evidence_rows(found: Findings) -> list[tuple[str, str, str]]:
    """Every way still in the race, the nats it lost, and how far it is behind."""
    evidence = found.noticed.evidence
    if not found.steps or not evidence:
        return []
    best = evidence[0][1]
    return [
        (
            f"{way} (in use)" if way == found.noticed.model else way,
            f"{nats:.1f}",
            f"{nats - best:.1f}",
        )
        for way, nats in evidence
    ]


def trust_figures(found: Findings) -> tuple[KeyFigure, ...]:
    """η as planned and as seen, and the calibration error."""
    return (
        KeyFigure(
            "η planned",
            f"{found.policy.plan.eta:g}",
            "The plan allows for this probability, at any place, that an action comes out as "
            "another one.",
        ),
        KeyFigure("η estimated", *_estimate(found)),
        KeyFigure(
            "Calibration error",
            percent(found["calibration_error"]),
            "How far confidence and what came true lie apart, averaged over all transitions in "
            "bins of confidence (expected calibration error).",
        ),
    )


def _estimate(found: Findings) -> tuple[str, str]:
    eta = found.noticed.eta
    if eta is None:
        return UNKNOWN, "Nobody counted how often an outcome was not the intended one."
    return (
        number(eta.rate),
        f"How often the outcome was not the intended one, decoding errors included, in "
        f"{count(eta.transitions)} transitions. 95{THIN}% interval: {number(eta.low)} to "
        f"{number(eta.high)}. An average over the visited places with a choice of outcomes, and so "
        "a lower bound on the paper’s η, which is to hold at every place.",
    )


def verdict(found: Findings) -> str | None:
    """Does what was seen speak against the planned η?"""
    eta = found.noticed.eta
    if eta is None:
        return None
    planned = unbroken(f"η = {eta.planned:g}")
    if eta.exceeded:
        return (
            f"If {planned} were right, so many unintended outcomes would be all but impossible "
            f"({unbroken(_probability(eta.p_value))}): the plan allows for too little."
        )
    if eta.rate > eta.planned:
        return (
            f"This is more than {planned}, but chance alone explains it "
            f"({unbroken(_probability(eta.p_value))})."
        )
    return f"Nothing here speaks against {planned}."


def _probability(p_value: float) -> str:
    return "p < 0.0001" if p_value < 0.0001 else f"p = {p_value:.2g}"


def map_error_rows(found: Findings) -> Iterator[tuple[str, ...]]:
    """Step, state, action, visits, surprises of every place where the map is wrong."""
    origin = found.policy.simulator.origin
    names = None if origin is None else origin.actions
    for error in found.noticed.map_errors:
        action = str(error.action)
        if names is not None and error.action in range(len(names)):
            action = f"{names[error.action]} ({action})"
        yield (
            count(error.step),
            _label(error.state),
            action,
            count(error.visits),
            f"{count(error.surprises)} ({percent(error.surprises / max(1, error.visits))})",
        )


def _label(state: Any) -> str:
    """A state's label as it was before JSON made lists of tuples."""
    if isinstance(state, list):
        return f"({', '.join(_label(part) for part in state)})"
    return str(state)
