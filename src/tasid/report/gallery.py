"""The pictures of a page, each with its words for those who do not see it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup
from matplotlib.figure import Figure

from tasid.report import reliability
from tasid.report.drawing import inline_svg
from tasid.report.figures import (
    accuracy_panel,
    episodes_panel,
    epochs_panel,
    loss_panel,
    returns_figure,
)
from tasid.report.findings import Findings
from tasid.report.marks import Mark
from tasid.report.pictures import NARROW, WIDE, draw_routes
from tasid.report.routes import Routes, in_words
from tasid.report.wording import count, number, percent


@dataclass(frozen=True)
class Picture:
    """One drawing, in a wide and a narrow version where the width matters."""

    wide: Markup
    narrow: Markup | None = None


def learning_panels(found: Findings) -> Iterator[Picture]:
    """How every step was learned; none where nothing was."""
    learning = found.learning
    if not found.steps:
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
    for name, figure, said in panels:
        title = said.partition(",")[0]
        yield Picture(inline_svg(figure, name=f"learning-{name}", title=title, description=said))


def reliability_panels(found: Findings) -> Iterator[Picture]:
    """Confidence against what came true; none where nothing could be compared."""
    calibration = found.noticed.calibration
    if not found.steps or calibration is None:
        return
    said = reliability.in_words(calibration)
    for name, title, figure in (
        ("diagram", "Came true, by confidence", reliability.reliability_panel(calibration)),
        ("counts", "Transitions, by confidence", reliability.counts_panel(calibration)),
    ):
        svg = inline_svg(figure, name=f"reliability-{name}", title=title, description=said)
        yield Picture(svg)


def returns_picture(found: Findings) -> Picture:
    """What the policy earned, beside the yardsticks."""
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


def routes_picture(routes: Routes) -> Picture:
    """The ways of the robust and the nominal plan."""
    return _twins(
        "routes",
        "Routes of the plans",
        in_words(routes),
        lambda width: draw_routes(routes, width=width),
    )


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


def _twins(name: str, title: str, said: str, draw: Callable[[float], Figure]) -> Picture:
    wide, narrow = (
        inline_svg(draw(width), name=f"{name}-{size}", title=title, description=said)
        for size, width in (("wide", WIDE), ("narrow", NARROW))
    )
    return Picture(wide, narrow)
