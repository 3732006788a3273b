"""The page of a run: one HTML file that needs nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

from tasid.mdp import RobustPlan, policy_value
from tasid.report import wording
from tasid.report.command import rerun_command
from tasid.report.drawing import DARK, LIGHT, house_style, inline_svg
from tasid.report.figures import accuracy_panel, epochs_panel, loss_panel, returns_figure
from tasid.report.findings import Findings, read_findings
from tasid.report.marks import Mark
from tasid.report.pictures import NARROW, WIDE, draw_routes
from tasid.report.routes import Routes, in_words
from tasid.report.wording import UNKNOWN, count, number, percent
from tasid.storage import write_bytes_atomically

PAGE_NAME = "report.html"
_OPEN_TABLE = 12
"""A table of more steps is folded."""


def build_report(folder: str | Path) -> Path:
    """Write `report.html` into a finished run's folder, from its recorded files alone.

    The same records give the same bytes. Records that are missing or damaged raise
    `ArtifactError`, and no page is written.
    """
    page = render(read_findings(folder))
    return write_bytes_atomically(Path(folder) / PAGE_NAME, page.encode(errors="replace"))


def render(found: Findings) -> str:
    """The page as text."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(number=number, percent=percent, episodes=wording.episodes_of)
    template = environment.from_string(_resource("template.html"))
    routes = Routes.of(found.policy.plan)
    with house_style():
        learning = list(_learning_panels(found))
        returns = _returns(found)
        picture = _routes(routes)
    return template.render(
        css=Markup(_resource("style.css")),
        light=_variables(LIGHT),
        dark=_variables(DARK),
        title=_title(found),
        headline=wording.headline(found),
        certainty=wording.certainty(found),
        caution=wording.caution(found),
        groups=wording.key_figures(found),
        found=found,
        learning=learning,
        returns=returns,
        routes=picture,
        pay=[_pay(routes, plan) for plan in (routes.plan, routes.nominal)],
        actions=[_actions(routes, plan) for plan in (routes.plan, routes.nominal)],
        same_route=routes.same,
        steps=list(_step_rows(found)),
        open_table=len(found.steps) <= _OPEN_TABLE,
        configuration=list(_flat(_without_versions(found.asked))),
        versions=list(_flat(found.asked.get("versions", {}))),
        command=rerun_command(found.asked),
    )


@dataclass(frozen=True)
class Picture:
    """One drawing, in a wide and a narrow version where the width matters."""

    wide: Markup
    narrow: Markup | None = None


def _learning_panels(found: Findings) -> Iterator[Picture]:
    learning = found.learning
    if not found.steps:
        return
    panels: list[tuple[str, Figure, str]] = [
        (
            "loss",
            loss_panel(learning),
            _spread("Validation loss", learning.validation_loss, number),
        ),
        ("epochs", epochs_panel(learning), _spread("Epochs", learning.epochs, count)),
    ]
    for name, title, values, colour in (
        ("decoded", "transitions decoded rightly", learning.decoder_accuracy, "robust"),
        ("tracked", "states tracked rightly", learning.tracking_accuracy, "robust"),
    ):
        if values is not None:
            said = _spread(title.capitalize(), values, percent)
            panels.append((name, accuracy_panel(title, values, colour), said))
    for name, figure, said in panels:
        title = said.partition(",")[0]
        yield Picture(inline_svg(figure, name=f"learning-{name}", title=title, description=said))


def _spread(what: str, values: Any, spelled: Callable[[float], str]) -> str:
    """A series in words."""
    known = [float(value) for value in values if value == value]
    if not known:
        return f"{what} per step, never a finite number."
    return (
        f"{what} per step, over {len(values)} steps: between {spelled(min(known))} and "
        f"{spelled(max(known))}, {spelled(known[0])} at the first and {spelled(known[-1])} at the "
        "last."
    )


def _returns(found: Findings) -> Picture:
    known = (
        ("learned policy", found.mean, "learned"),
        ("robust plan", found["robust_value"], "robust"),
        ("nominal plan", found["nominal_plan_value"], "nominal"),
        ("blind", found["blind_value"], "blind"),
    )
    marks = [Mark(name, value, colour) for name, value, colour in known if value is not None]
    said = (
        f"Histogram of {count(found.returns.size)} returns between {number(found.returns.min())} "
        f"and {number(found.returns.max())}. Vertical lines: "
        + ", ".join(f"{mark.name} {number(mark.value)}" for mark in marks)
        + "."
    )
    return _twins(
        "returns",
        "Returns per episode",
        said,
        lambda width: returns_figure(found.returns, marks, width=width),
    )


def _routes(routes: Routes) -> Picture:
    return _twins(
        "routes",
        "Routes of the plans",
        in_words(routes),
        lambda width: draw_routes(routes, width=width),
    )


def _twins(name: str, title: str, said: str, draw: Callable[[float], Figure]) -> Picture:
    wide, narrow = (
        inline_svg(draw(width), name=f"{name}-{size}", title=title, description=said)
        for size, width in (("wide", WIDE), ("narrow", NARROW))
    )
    return Picture(wide, narrow)


def _title(found: Findings) -> str:
    environment = found.asked.get("environment")
    name = environment.get("name") if isinstance(environment, dict) else None
    return f"{name or 'environment unknown'}, horizon {found.policy.simulator.horizon}"


def _pay(routes: Routes, plan: RobustPlan) -> float:
    return policy_value(routes.simulator, plan)


def _actions(routes: Routes, plan: RobustPlan) -> str:
    return " ".join(str(step.action) for step in plan.route(routes.starts[0]))


def _step_rows(found: Findings) -> Iterator[tuple[str, ...]]:
    decoded, tracked = found.learning.decoder_accuracy, found.learning.tracking_accuracy
    for row in found.steps:
        loss = found.learning.validation_loss[row.step]
        yield (
            str(row.step),
            count(row.episodes),
            count(row.epochs),
            f"{loss:.4f}" if loss == loss else "not finite",
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


def _variables(palette: Mapping[str, str]) -> Markup:
    return Markup("; ".join(f"--{name}: {code}" for name, code in palette.items()))


def _resource(name: str) -> str:
    return files("tasid.report").joinpath(name).read_text(encoding="utf-8")
