"""The page of an experiment: figures and tables from its records alone, in one HTML file.

What stands on the page is an experiment's own business (`Content`); this file finds it by the name
on record, lays it out and writes page, figures and table.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from tasid.report.drawing import house_style, inline_svg, picture_bytes
from tasid.report.sheet import PAGE_NAME, render_sheet
from tasid.runs.experiments.records import Records
from tasid.storage import ArtifactError, write_bytes_atomically

CONTENTS = {
    "combination-lock": "tasid.report.experiment_lock",
    "minigrid-eta": "tasid.report.experiment_grid",
    "minigrid-height": "tasid.report.experiment_grid",
    "building": "tasid.report.experiment_building",
}
"""Every module has `content(records) → Content`."""


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


@dataclass(frozen=True)
class Built:
    """What was written."""

    page: Path
    figures: tuple[Path, ...]
    table: Sequence[Mapping[str, Any]]


def is_experiment(folder: str | Path) -> bool:
    """Does this folder hold an experiment's records?"""
    return (Path(folder) / "experiment.json").exists()


def build_experiment_report(folder: str | Path) -> Built:
    """Write page, figures and table of an experiment into its folder, from its records alone.

    The same records give the same bytes.
    """
    records = Records(folder)
    name = records.description().get("name")
    if name not in CONTENTS:
        raise ValueError(f"{folder}: records of {name!r}, which has no page in this version")
    try:
        content: Content = importlib.import_module(CONTENTS[name]).content(records)
    except ArtifactError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise ArtifactError(f"{folder}: not the records of {name!r} ({error!r})") from None
    with house_style():
        page = render(content)
        figures = tuple(
            write_bytes_atomically(
                Path(folder) / "figures" / f"{panel.name}.svg", picture_bytes(panel.draw(), "svg")
            )
            for panel in _panels(content)
        )
    table = json.dumps(content.table, indent=1, allow_nan=False) + "\n"
    write_bytes_atomically(Path(folder) / "table.json", table.encode())
    written = write_bytes_atomically(Path(folder) / PAGE_NAME, page.encode())
    return Built(written, figures, content.table)


def render(
    content: Content,
    *,
    kind: str = "an experiment",
    made_from: str = "the records of this experiment",
) -> str:
    """The page as text."""
    drawings = {
        name: inline_svg(draw(), name=name, title=panel.title, description=panel.description)
        for panel in _panels(content)
        for name, draw in ((panel.name, panel.draw), (f"{panel.name}-narrow", panel.narrow))
        if draw is not None
    }
    return render_sheet(
        "experiment.html",
        {},
        kind=kind,
        made_from=made_from,
        title=content.title,
        headline=content.headline,
        certainty=content.state,
        content=content,
        drawings=drawings,
    )


def _panels(content: Content) -> list[Panel]:
    return [
        panel for section in content.sections for plate in section.plates for panel in plate.panels
    ]
