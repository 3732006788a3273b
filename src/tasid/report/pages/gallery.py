"""The pictures of a page, each with its words for those who do not see it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure
from numpy.typing import NDArray

from tasid.report.figures import reliability
from tasid.report.figures.drawing import inline_svg
from tasid.report.figures.grid_heat import visit_heat
from tasid.report.figures.grid_picture import draw_grid
from tasid.report.figures.labels import Mark
from tasid.report.figures.learning import (
    BeliefBatches,
    Learning,
    accuracy_panel,
    bars_panel,
    loss_panel,
    regret_panel,
    returns_figure,
    returns_panel,
)
from tasid.report.figures.pictures import NARROW, WIDE, draw_routes
from tasid.report.figures.routes import Routes, in_words
from tasid.report.pages.findings import RunFindings
from tasid.report.text.wording import count, number, percent

_MARKS = {
    "robust_value": ("robust plan", "robust"),
    "nominal_plan_value": ("nominal plan", "nominal"),
    "blind_value": ("blind", "blind"),
}
Twins = tuple[Markup, Markup]
"""One drawing for wide windows and one for narrow ones."""


def learning_panels(found: RunFindings) -> Iterator[Markup]:
    """How every step or batch was learned; none where nothing was."""
    if found.beliefs is not None:
        yield from _batches(found, found.beliefs)
    elif found.learning is not None:
        yield from _steps(found.learning)


def _steps(learning: Learning) -> Iterator[Markup]:
    losses = learning.column("validation_loss")
    yield _panel("loss", loss_panel(learning), "Validation loss", losses, number)
    name, title = "episodes", "episodes"
    if learning.by_epochs:
        name, title = "epochs", "epochs until the loss stopped falling"
    numbers = learning.column(name)
    yield _panel(name, bars_panel(title, numbers), name.capitalize(), numbers, count)
    yield from _accuracy("decoded", "transitions decoded rightly", learning.decoder_accuracy)
    yield from _accuracy("tracked", "states tracked rightly", learning.tracking_accuracy)


def _batches(found: RunFindings, beliefs: BeliefBatches) -> Iterator[Markup]:
    """What new episodes earned and lost, batch by batch, and how often the state was known."""
    returns, regret = beliefs.column("return_mean"), beliefs.column("regret")
    figure = returns_panel(beliefs, _marks(found, "robust_value", "blind_value"))
    yield _panel("earned", figure, "Return of new episodes", returns, number, "batch")
    if beliefs.has_regret:
        yield _panel("regret", regret_panel(beliefs), "Estimated regret", regret, number, "batch")
    yield from _accuracy("tracked", "states tracked rightly", beliefs.tracking_accuracy)


def _accuracy(name: str, title: str, values: NDArray[np.float64] | None) -> Iterator[Markup]:
    if values is not None:
        yield _panel(name, accuracy_panel(title, values), title.capitalize(), values, percent)


def _panel(
    name: str,
    figure: Figure,
    what: str,
    values: NDArray[Any],
    spelled: Callable[[float], str],
    unit: str = "step",
) -> Markup:
    """A series as a drawing, and in words."""
    title = f"{what} per {unit}"
    known = [float(value) for value in values if value == value]
    said = f"{title}, never a finite number."
    if known:
        units = unit if len(values) == 1 else f"{unit}es" if unit.endswith("ch") else f"{unit}s"
        said = (
            f"{title}, over {len(values)} {units}: between {spelled(min(known))} and "
            f"{spelled(max(known))}, {spelled(known[0])} at the first and {spelled(known[-1])} at "
            "the last."
        )
    return inline_svg(figure, name=f"learning-{name}", title=title, description=said)


def visits_picture(found: RunFindings, routes: Routes) -> Twins | None:
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


def reliability_panels(found: RunFindings) -> Iterator[Markup]:
    """Confidence against what came true; none where nothing could be compared."""
    calibration = found.calibration
    if calibration is None or not (found.learning or found.beliefs):
        return
    said = reliability.in_words(calibration)
    what = "transitions" if found.beliefs is None else "decisions"
    diagram = reliability.reliability_panel(calibration)
    title = "Came true, by confidence"
    yield inline_svg(diagram, name="reliability-diagram", title=title, description=said)
    counts = reliability.counts_panel(calibration, what)
    title = f"{what.capitalize()}, by confidence"
    yield inline_svg(counts, name="reliability-counts", title=title, description=said)


def returns_picture(found: RunFindings) -> Twins:
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
    known = ((*_MARKS[key], found[key]) for key in keys)
    return tuple(Mark(name, value, colour) for name, colour, value in known if value is not None)


def routes_picture(routes: Routes) -> Twins:
    """The ways of the robust and the nominal plan, on the grid if there is one."""
    said = in_words(routes)
    if routes.simulator.layout is None:
        title = "Routes of the plans"
        return _twins("routes", title, said, lambda width: draw_routes(routes, width=width))
    said += " Cells are coloured by the plan’s worst-case value on arrival."
    title = "Routes of the plans on the map"
    return _twins("routes", title, said, lambda width: draw_grid(routes, width=width, flips=False))


def _twins(name: str, title: str, said: str, draw: Callable[[float], Figure]) -> Twins:
    wide, narrow = (
        inline_svg(draw(width), name=f"{name}-{size}", title=title, description=said)
        for size, width in (("wide", WIDE), ("narrow", NARROW))
    )
    return wide, narrow
