"""The page of a run: one HTML file that needs nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from tasid.files import write_bytes_atomically
from tasid.maps import policy_value
from tasid.maps.planning.thrifty import Plan
from tasid.policies import BeliefPolicy
from tasid.report.figures.drawing import house_style
from tasid.report.figures.learning import BeliefBatches, Learning
from tasid.report.figures.routes import Routes, walk
from tasid.report.pages import gallery
from tasid.report.pages.baseline import build_baseline_report, is_baseline
from tasid.report.pages.findings import RunFindings, read_findings
from tasid.report.pages.player import Replay, replay
from tasid.report.pages.template import PAGE_NAME, render_page
from tasid.report.text import wording
from tasid.report.text.command import rerun_command
from tasid.report.text.wording import UNKNOWN, count, number, percent, sentence

_OPEN_TABLE = 12
"""A table of more steps is folded."""
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


def build_report(folder: str | Path) -> Path:
    """Write `report.html` into a finished run's folder, from its recorded files alone.

    The same records give the same bytes. Records that are missing or damaged raise
    `ArtifactError`, and no page is written. Runs in a building get a page beside it, which plays
    two more episodes.
    """
    if is_baseline(folder):
        return build_baseline_report(folder)
    found = read_findings(folder)
    page = render(found, replay(found.policy, folder))
    return write_bytes_atomically(Path(folder) / PAGE_NAME, page.encode(errors="replace"))


def render(found: RunFindings, replayed: Replay | None = None) -> str:
    """The page as text."""
    routes = Routes.of(found.policy.plan)
    with house_style():
        pictures = {
            "starts": None if found.starts is None else found.starts.picture(),
            "learning": list(gallery.learning_panels(found)),
            "visits": gallery.visits_picture(found, routes),
            "reliability": list(gallery.reliability_panels(found)),
            "returns": gallery.returns_picture(found),
            "routes": gallery.routes_picture(routes),
        }
    shown = [name for name, picture in pictures.items() if picture]
    return render_page(
        "run.html",
        kind="a learning run",
        made_from="the files of this run",
        title=_title(found),
        found=found,
        figure={name: place for place, name in enumerate(shown, start=1)},
        winner=_winner(found),
        **pictures,
        replayed=replayed,
        on_grid=routes.simulator.layout is not None,
        pay=[policy_value(routes.simulator, routes.plan), routes.nominal.start_value],
        actions=[_actions(routes, plan) for plan in (routes.plan, routes.nominal)],
        same_route=routes.same,
        map_errors=list(_map_error_rows(found)),
        slips=_slip_sentences(found),
        steps=[*_step_rows(found.learning), *_batch_rows(found.beliefs)],
        open_table=_OPEN_TABLE,
        configuration=_told({k: v for k, v in found.asked.items() if k != "versions"}),
        versions=_told(found.asked.get("versions", {})),
        command=rerun_command(found.asked),
    )


def _title(found: RunFindings) -> str:
    environment = found.asked.get("environment")
    name = environment.get("name") if isinstance(environment, dict) else None
    return f"{name or 'environment unknown'}, horizon {found.policy.simulator.horizon}"


def _actions(routes: Routes, plan: Plan) -> str:
    states = walk(plan, routes.starts[0])[:-1]
    return " ".join(str(plan.action(h, state)) for h, state in enumerate(states))


def _batch_rows(beliefs: BeliefBatches | None) -> Iterator[tuple[str, ...]]:
    if beliefs is None:
        return
    for batch, size in zip(beliefs.batches, beliefs.sizes.tolist(), strict=True):
        known = (batch.return_mean, batch.regret, batch.foresight, batch.evidence)
        yield (
            str(batch.batch),
            count(size),
            count(batch.episodes),
            *(_rounded(value) for value in known),
            batch.best,
            f"{batch.seconds_playing:.1f}",
            f"{batch.seconds_fitting:.1f}",
        )


def _rounded(value: float) -> str:
    """What is next to nothing is called that, not 2.7e−12."""
    if value != value:
        return "–"
    return number(value) if value == 0 or abs(value) >= 0.0005 else "≈ 0"


def _step_rows(learning: Learning | None) -> Iterator[tuple[str, ...]]:
    if learning is None:
        return
    decoded, tracked = learning.decoder_accuracy, learning.tracking_accuracy
    # A loss that ran away, or one of no transition at all.
    missing = "not finite" if learning.by_epochs else "–"
    for row in learning.steps:
        loss = row.validation_loss
        yield (
            str(row.step),
            count(row.episodes),
            *([count(row.epochs)] if learning.by_epochs else []),
            f"{loss:.4f}" if loss == loss else missing,
            UNKNOWN if decoded is None else percent(float(decoded[row.step])),
            UNKNOWN if tracked is None else percent(float(tracked[row.step + 1])),
            f"{row.seconds_collecting:.2f}",
            f"{row.seconds_fitting:.2f}",
        )


def _winner(found: RunFindings) -> str | None:
    """The model in use and what its name means."""
    name = found.model
    if name is None or not (found.learning or found.beliefs):
        return None
    meanings = []
    if isinstance(found.policy, BeliefPolicy):
        begun = next((said for way, said in _BEGINNINGS.items() if name.startswith(way)), None)
        meanings = [said for said in (_ALIKE.get(found.policy.classes), begun) if said]
    explained = "; ".join(meanings)
    return f"The model in use: {name}." + (f" Here {explained}." if explained else "")


def _map_error_rows(found: RunFindings) -> Iterator[tuple[str, ...]]:
    """Step, state, action, visits, surprises of every place where the map is wrong."""
    names = _action_names(found)
    for error in found.map_errors:
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


def _slip_sentences(found: RunFindings) -> list[str]:
    """The surest of the commands that came out as another more often than expected."""
    names = _action_names(found)
    sure = (one for one in found.slips if one.evidence >= _SURE and one.astray is not None)
    return [
        sentence(replace(one, state=_label(one.state)).sentence(names))
        for one in islice(sure, _TOLD)
    ]


def _label(state: Any) -> str:
    """A state's label as it was before JSON made lists of tuples."""
    if isinstance(state, list):
        return f"({', '.join(_label(part) for part in state)})"
    return str(state)


def _action_names(found: RunFindings) -> Sequence[str] | None:
    origin = found.policy.simulator.origin
    return None if origin is None else origin.actions


def _told(record: Any) -> list[tuple[str, str]]:
    """Names and values, as JSON unless they are text."""
    return [
        (name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        for name, value in wording.flat(record)
    ]
