"""What a page of figures and tables says, laid out in one HTML file.

Experiments and baselines fill in a `Content`; how it looks is the same for all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from matplotlib.figure import Figure

from tasid.maps import RobustPlan
from tasid.report.figures.drawing import inline_svg
from tasid.report.figures.grid_picture import draw_grid
from tasid.report.figures.pictures import NARROW, WIDE
from tasid.report.figures.routes import Routes
from tasid.report.pages.template import render_page


@dataclass(frozen=True, eq=False)
class Panel:
    """One drawing."""

    name: str
    """Of its file, and in the page's ids."""
    title: str
    description: str
    """What it shows, for those who do not see it."""
    draw: Callable[[], Figure]
    narrow: Callable[[], Figure] | None = None
    """The same for narrow windows, where the letters of the first would be too small."""


def twin_panel(name: str, title: str, said: str, draw: Callable[[float], Figure]) -> Panel:
    """A panel that is drawn for two widths."""
    return Panel(name, title, said, lambda: draw(WIDE), lambda: draw(NARROW))


def routes_panel(name: str, title: str, said: str, plan: RobustPlan) -> Panel:
    """A grid map with the ways of a plan and of that for η = 0."""
    routes = Routes.of(plan)
    return twin_panel(name, title, said, lambda width: draw_grid(routes, width=width))


@dataclass(frozen=True, eq=False)
class Plate:
    """A figure of the page: panels side by side, and a caption."""

    panels: tuple[Panel, ...]
    caption: str


@dataclass(frozen=True)
class Table:
    """Columns and rows of text; the first cell of a row names it."""

    name: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, eq=False)
class Section:
    """A heading and what stands under it, in this order."""

    heading: str
    words: tuple[str, ...] = ()
    plates: tuple[Plate, ...] = ()
    tables: tuple[Table, ...] = ()
    points: tuple[str, ...] = ()
    """Remarks, one by one."""


@dataclass(frozen=True, eq=False)
class Content:
    """All that the page of an experiment says."""

    title: str
    headline: str
    state: str
    """How complete it is."""
    sections: tuple[Section, ...]
    command: str
    """What makes it again."""
    table: Sequence[Mapping[str, Any]] = field(default_factory=tuple)
    """Its main result, ready for JSON."""
    versions: tuple[str, ...] = ()
    note: str = (
        "In the folder of an interrupted sweep the same command continues it. Every row of the "
        "records names its configuration and its seed in the heading of its file."
    )
    """What to know about running it again."""


def render(
    content: Content,
    *,
    kind: str = "an experiment",
    made_from: str = "the records of this experiment",
) -> str:
    """The page as text."""
    drawings = {
        name: inline_svg(draw(), name=name, title=panel.title, description=panel.description)
        for panel in panels(content)
        for name, draw in ((panel.name, panel.draw), (f"{panel.name}-narrow", panel.narrow))
        if draw is not None
    }
    return render_page(
        "experiment.html",
        kind=kind,
        made_from=made_from,
        title=content.title,
        headline=content.headline,
        certainty=content.state,
        content=content,
        drawings=drawings,
    )


def panels(content: Content) -> list[Panel]:
    """All drawings of a page."""
    return [
        panel for section in content.sections for plate in section.plates for panel in plate.panels
    ]
