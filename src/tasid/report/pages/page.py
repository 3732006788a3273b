"""The page of a run: one HTML file that needs nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tasid.files import write_bytes_atomically
from tasid.maps import policy_value
from tasid.maps.planning.thrifty import Plan
from tasid.report.figures.drawing import house_style
from tasid.report.figures.routes import Routes, walk
from tasid.report.pages import gallery, trust
from tasid.report.pages.baseline import build_baseline_report, is_baseline
from tasid.report.pages.certified import certificate_figures
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
    by_beliefs = found.beliefs is not None
    with house_style():
        panels = gallery.batch_panels if by_beliefs else gallery.learning_panels
        learning = list(panels(found))
        visits = gallery.visits_picture(found, routes)
        reliability = list(gallery.reliability_panels(found))
        returns = gallery.returns_picture(found)
        picture = gallery.routes_picture(routes)
        clusters = None if found.starts is None else found.starts.picture()
    shown = [
        ("starts", clusters),
        ("learning", learning),
        ("visits", visits),
        ("reliability", reliability),
        ("returns", 1),
        ("routes", 1),
    ]
    return render_page(
        "belief.html" if by_beliefs else "run.html",
        {"number": number, "episodes": wording.episodes_of, "sentence": wording.sentence},
        kind="a learning run",
        made_from="the files of this run",
        title=_title(found),
        headline=wording.headline(found),
        certainty=wording.certainty(found),
        caution=wording.caution(found),
        groups=wording.key_figures(found),
        found=found,
        figure={
            name: place for place, name in enumerate((n for n, there in shown if there), start=1)
        },
        trust=trust,
        clusters=clusters,
        learning=learning,
        visits=visits,
        certificate=None if found.certificate is None else certificate_figures(found.certificate),
        reliability=reliability,
        returns=returns,
        routes=picture,
        replayed=replayed,
        on_grid=routes.simulator.layout is not None,
        pay=[policy_value(routes.simulator, routes.plan), routes.nominal.start_value],
        actions=[_actions(routes, plan) for plan in (routes.plan, routes.nominal)],
        same_route=routes.same,
        map_errors=list(trust.map_error_rows(found)),
        slips=trust.slip_sentences(found),
        step_columns=_BATCH_COLUMNS if by_beliefs else _step_columns(found),
        steps=list(_batch_rows(found) if by_beliefs else _step_rows(found)),
        open_table=_OPEN_TABLE,
        configuration=list(_flat(_without_versions(found.asked))),
        versions=list(_flat(found.asked.get("versions", {}))),
        command=rerun_command(found.asked),
    )


def _title(found: RunFindings) -> str:
    environment = found.asked.get("environment")
    name = environment.get("name") if isinstance(environment, dict) else None
    return f"{name or 'environment unknown'}, horizon {found.policy.simulator.horizon}"


def _actions(routes: Routes, plan: Plan) -> str:
    states = walk(plan, routes.starts[0])[:-1]
    return " ".join(str(plan.action(h, state)) for h, state in enumerate(states))


_BATCH_COLUMNS = [
    "batch",
    "episodes",
    "so far",
    "return",
    "regret",
    "foresight",
    "evidence",
    "best fit",
    "playing, s",
    "fitting, s",
]


def _batch_rows(found: RunFindings) -> Iterator[tuple[str, ...]]:
    assert found.beliefs is not None
    for batch, size in zip(found.beliefs.batches, found.beliefs.sizes.tolist(), strict=True):
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


def _step_columns(found: RunFindings) -> list[str]:
    assert found.learning is not None
    return [
        "step",
        "episodes",
        *(["epochs"] if found.learning.by_epochs else []),
        "validation loss",
        "transition decoded",
        "next state right",
        "collecting, s",
        "fitting, s",
    ]


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


def _without_versions(asked: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in asked.items() if key != "versions"}


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Nested records as rows of a dotted name and a value."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _flat(item, f"{path}.{key}" if path else str(key))
    elif path:
        yield path, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
