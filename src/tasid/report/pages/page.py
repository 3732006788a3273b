"""The page of a run: one HTML file that needs nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tasid.files import write_bytes_atomically
from tasid.maps import policy_value
from tasid.maps.planning.thrifty import Plan
from tasid.report.figures.drawing import house_style
from tasid.report.figures.routes import Routes, walk
from tasid.report.pages import gallery, trust
from tasid.report.pages.baseline import build_baseline_report, is_baseline
from tasid.report.pages.beliefs import BeliefBatches
from tasid.report.pages.findings import RunFindings, read_findings
from tasid.report.pages.replay import Replay, replay
from tasid.report.pages.template import PAGE_NAME, render_page
from tasid.report.text import wording
from tasid.report.text.command import rerun_command
from tasid.report.text.wording import UNKNOWN, count, number, percent

_OPEN_TABLE = 12
"""A table of more steps is folded."""


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
        headline=wording.headline(found),
        certainty=wording.certainty(found),
        caution=wording.caution(found),
        found=found,
        figure={name: place for place, name in enumerate(shown, start=1)},
        trust=trust,
        **pictures,
        replayed=replayed,
        on_grid=routes.simulator.layout is not None,
        pay=[policy_value(routes.simulator, routes.plan), routes.nominal.start_value],
        actions=[_actions(routes, plan) for plan in (routes.plan, routes.nominal)],
        same_route=routes.same,
        map_errors=list(trust.map_error_rows(found)),
        slips=trust.slip_sentences(found),
        steps=list(_step_rows(found) if found.beliefs is None else _batch_rows(found.beliefs)),
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


def _batch_rows(beliefs: BeliefBatches) -> Iterator[tuple[str, ...]]:
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


def _rounded(value: float | None) -> str:
    """What is next to nothing is called that, not 2.7e−12."""
    if value is None:
        return "–"
    return number(value) if value == 0 or abs(value) >= 0.0005 else "≈ 0"


def _step_rows(found: RunFindings) -> Iterator[tuple[str, ...]]:
    assert found.learning is not None
    decoded, tracked = found.learning.decoder_accuracy, found.learning.tracking_accuracy
    # A loss that ran away, or one of no transition at all.
    missing = "not finite" if found.learning.by_epochs else "–"
    for row in found.steps:
        loss = found.learning.validation_loss[row.step]
        yield (
            str(row.step),
            count(row.episodes),
            *([count(row.epochs)] if found.learning.by_epochs else []),
            f"{loss:.4f}" if loss == loss else missing,
            UNKNOWN if decoded is None else percent(float(decoded[row.step])),
            UNKNOWN if tracked is None else percent(float(tracked[row.step + 1])),
            f"{row.seconds_collecting:.2f}",
            f"{row.seconds_fitting:.2f}",
        )


def _told(record: Any) -> list[tuple[str, str]]:
    """Names and values, as JSON unless they are text."""
    return [
        (name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        for name, value in wording.flat(record)
    ]
