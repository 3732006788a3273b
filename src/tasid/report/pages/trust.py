"""What a run says about its own reliability, in plain sentences and tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

from tasid.policies import BeliefPolicy
from tasid.report.pages.findings import RunFindings
from tasid.report.text.wording import count, percent, sentence

_ALIKE = {
    "place": "every place of the map has a look of its own",
    "rank": "looks are shared by outcomes of the same rank, because places are too many to be met "
    "twice",
    "action": "looks are shared by outcomes with the same lowest action",
}
_BEGINNINGS = {
    "warm": "it goes on from the fit before it",
    "forward": "it was begun at the first steps, one more at a time",
    "anneal": "it was begun with observations that count little, then more and more",
}

_SURE = 5.0
"""Nats of evidence from which on a slip is told of."""
_TOLD = 5
"""Slips that are told of, at most."""


def winner(found: RunFindings) -> str | None:
    """The model in use and what its name means."""
    name = found.diagnostics.model
    if name is None or not (found.steps or found.beliefs):
        return None
    meanings = []
    if isinstance(found.policy, BeliefPolicy):
        begun = next((said for way, said in _BEGINNINGS.items() if name.startswith(way)), None)
        meanings = [said for said in (_ALIKE.get(found.policy.classes), begun) if said]
    explained = "; ".join(meanings)
    return f"The model in use: {name}." + (f" Here {explained}." if explained else "")


def map_error_rows(found: RunFindings) -> Iterator[tuple[str, ...]]:
    """Step, state, action, visits, surprises of every place where the map is wrong."""
    origin = found.policy.simulator.origin
    names = None if origin is None else origin.actions
    for error in found.diagnostics.map_errors:
        action = str(error.action)
        if names is not None and error.action in range(len(names)):
            action = f"{names[error.action]} ({action})"
        yield (
            "any" if error.step < 0 else count(error.step),
            _label(error.state),
            action,
            count(error.visits),
            f"{count(error.surprises)} ({percent(error.surprises / max(1, error.visits))})",
        )


def slip_sentences(found: RunFindings) -> list[str]:
    """The surest of the commands that came out as another more often than expected."""
    origin = found.policy.simulator.origin
    names = None if origin is None else origin.actions
    sure = (
        one for one in found.diagnostics.slips if one.evidence >= _SURE and one.astray is not None
    )
    return [
        sentence(replace(one, state=_label(one.state)).sentence(names))
        for one in islice(sure, _TOLD)
    ]


def _label(state: Any) -> str:
    """A state's label as it was before JSON made lists of tuples."""
    if isinstance(state, list):
        return f"({', '.join(_label(part) for part in state)})"
    return str(state)
