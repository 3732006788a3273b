"""The pictures of a page, each with its words for those who do not see it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure

from tasid.report.figures import reliability
from tasid.report.figures.batches import regret_panel, returns_panel
from tasid.report.figures.drawing import inline_svg
from tasid.report.figures.grid_heat import visit_heat
from tasid.report.figures.grid_picture import draw_grid
from tasid.report.figures.labels import Mark
from tasid.report.figures.learning import (
    accuracy_panel,
    episodes_panel,
    epochs_panel,
    loss_panel,
    returns_figure,
)
from tasid.report.figures.pictures import NARROW, WIDE, draw_routes
from tasid.report.figures.routes import Routes, in_words
from tasid.report.pages.findings import RunFindings
from tasid.report.text.wording import count, number, percent

_NAMES = {
    "robust_value": "robust plan",
    "nominal_plan_value": "nominal plan",
    "blind_value": "blind",
}
_COLOURS = {"robust_value": "robust", "nominal_plan_value": "nominal", "blind_value": "blind"}


@dataclass(frozen=True)
class Picture:
    """One drawing, in a wide and a narrow version where the width matters."""

    wide: Markup
    narrow: Markup | None = None


def learning_panels(found: RunFindings) -> Iterator[Picture]:
    """How every step was learned; none where nothing was."""
    learning = found.learning
    if learning is None or not found.steps:
        return
    losses = _spread("Validation loss", learning.validation_loss, number)
    panels: list[tuple[str, Figure, str]] = [("loss", loss_panel(learning), losses)]
    if learning.by_epochs:
        epochs = _spread("Epochs", learning.epochs, count)
        panels.append(("epochs", epochs_panel(learning), epochs))
    else:
        episodes = _spread("Episodes", learning.episodes, count)
        panels.append(("episodes", episodes_panel(learning), episodes))
    for name, title, values, colour in (
        ("decoded", "transitions decoded rightly", learning.decoder_accuracy, "robust"),
        ("tracked", "states tracked rightly", learning.tracking_accuracy, "robust"),
    ):
        if values is not None:
            said = _spread(title.capitalize(), values, percent)
            panels.append((name, accuracy_panel(title, values, colour), said))
    yield from _drawn(panels)


def batch_panels(found: RunFindings) -> Iterator[Picture]:
    """What new episodes earned and lost, batch by batch, and how often the state was known."""
    beliefs = found.beliefs
    if beliefs is None:
        return
    returns, regret = beliefs.column("return_mean"), beliefs.column("regret")
    panels: list[tuple[str, Figure, str]] = [
        (
            "earned",
            returns_panel(beliefs, _marks(found, "robust_value", "blind_value")),
            _spread("Return of new episodes", returns, number, "batch"),
        )
    ]
    if np.isfinite(regret).any():
        said = _spread("Estimated regret", regret, number, "batch")
        panels.append(("regret", regret_panel(beliefs), said))
    if beliefs.tracking_accuracy is not None:
        tracked = beliefs.tracking_accuracy
        title = "states tracked rightly"
        said = _spread(title.capitalize(), tracked, percent)
        panels.append(("tracked", accuracy_panel(title, tracked, "robust"), said))
    yield from _drawn(panels)


def visits_picture(found: RunFindings, routes: Routes) -> Picture | None:
    """Where the learning episodes are believed to have been; None without a grid to draw it on."""
    visits = None if found.beliefs is None else found.beliefs.visits
    layout = routes.simulator.layout
    if visits is None or layout is None:
        return None
    heat = visit_heat(layout, visits)
    if np.isnan(heat.cells).all():
        return None
    met = int(np.isfinite(heat.cells).sum())
    said = (
        f"The map with the routes of the plans, its cells coloured by visits: {met} cells were "
        f"visited, one of them {count(float(np.nanmax(heat.cells)))} times."
    )
    return _twins(
        "visits",
        "Visits of the learning episodes",
        said,
        lambda width: draw_grid(routes, width=width, heat=heat, flips=False),
    )


def _drawn(panels: list[tuple[str, Figure, str]]) -> Iterator[Picture]:
    for name, figure, said in panels:
        title = said.partition(",")[0]
        yield Picture(inline_svg(figure, name=f"learning-{name}", title=title, description=said))


def reliability_panels(found: RunFindings) -> Iterator[Picture]:
    """Confidence against what came true; none where nothing could be compared."""
    calibration = found.diagnostics.calibration
    if calibration is None or not (found.steps or found.beliefs):
        return
    said = reliability.in_words(calibration)
    what = "transitions" if found.beliefs is None else "decisions"
    for name, title, figure in (
        ("diagram", "Came true, by confidence", reliability.reliability_panel(calibration)),
        (
            "counts",
            f"{what.capitalize()}, by confidence",
            reliability.counts_panel(calibration, what),
        ),
    ):
        svg = inline_svg(figure, name=f"reliability-{name}", title=title, description=said)
        yield Picture(svg)


def returns_picture(found: RunFindings) -> Picture:
    """What the policy earned, beside the yardsticks."""
    exact = _marks(found, "robust_value", "nominal_plan_value", "blind_value")
    marks = [Mark("learned policy", found.mean, "learned"), *exact]
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


def _marks(found: RunFindings, *keys: str) -> tuple[Mark, ...]:
    """Those of these exact values that are known."""
    known = ((_NAMES[key], found[key], _COLOURS[key]) for key in keys)
    return tuple(Mark(name, value, colour) for name, value, colour in known if value is not None)


def routes_picture(routes: Routes) -> Picture:
    """The ways of the robust and the nominal plan, on the grid if there is one."""
    if routes.simulator.layout is not None:
        return _twins(
            "routes",
            "Routes of the plans on the map",
            f"{in_words(routes)} Cells are coloured by the plan’s worst-case value on arrival.",
            lambda width: draw_grid(routes, width=width, flips=False),
        )
    return _twins(
        "routes",
        "Routes of the plans",
        in_words(routes),
        lambda width: draw_routes(routes, width=width),
    )


def _spread(what: str, values: Any, spelled: Callable[[float], str], unit: str = "step") -> str:
    """A series in words."""
    known = [float(value) for value in values if value == value]
    if not known:
        return f"{what} per {unit}, never a finite number."
    units = unit if len(values) == 1 else f"{unit}es" if unit.endswith("ch") else f"{unit}s"
    return (
        f"{what} per {unit}, over {len(values)} {units}: between {spelled(min(known))} and "
        f"{spelled(max(known))}, {spelled(known[0])} at the first and {spelled(known[-1])} at the "
        "last."
    )


def _twins(name: str, title: str, said: str, draw: Callable[[float], Figure]) -> Picture:
    wide, narrow = (
        inline_svg(draw(width), name=f"{name}-{size}", title=title, description=said)
        for size, width in (("wide", WIDE), ("narrow", NARROW))
    )
    return Picture(wide, narrow)
