"""The page of an experiment: figures and tables from its records alone."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from numpy.typing import ArrayLike

from tasid.report.figures import PALETTE, style
from tasid.report.page import PAGE, Figure, Section, Table, figure, number, render_page
from tasid.storage import write_bytes_atomically

if TYPE_CHECKING:
    from reproduction.records import Experiment, Record

EDITIONS = {"0.1.0": "first edition"}
"""Versions whose learners differ from the present ones."""
LOOKS: dict[str, tuple[str, str]] = {
    "tasid-belief": (PALETTE["learned"], "-"),
    "tasid-paper": (PALETTE["robust"], "-"),
    "ppo": (PALETTE["muted"], "-"),
    "ppo-rnd": (PALETTE["nominal"], "-"),
    "ppo-dr": (PALETTE["muted"], "--"),
    "ppo-rnd-dr": (PALETTE["nominal"], "--"),
    "robust": (PALETTE["ink"], ":"),
    "nominal": (PALETTE["optimal"], ":"),
    "random_walk": (PALETTE["open_loop"], ":"),
}
"""Colour and line of every method and of exact values."""


@dataclass
class Page:
    """What an experiment shows."""

    sections: list[Section] = field(default_factory=list)
    figures: dict[str, Figure] = field(default_factory=dict)
    """Those of the sections, by the name of their file."""
    table: list[dict[str, Any]] = field(default_factory=list)
    """The main results, ready for JSON."""

    def draw(self, name: str, drawing: Drawing, caption: str = "") -> Figure:
        """A figure for a section, which is also written to `figures/NAME.svg`."""
        self.figures[name] = figure(drawing, caption)
        return self.figures[name]


def write_page(experiment: Experiment, size: str, folder: str | Path) -> tuple[Path, Page]:
    """Write report.html, figures/*.svg and table.json into the experiment's folder."""
    from reproduction.records import Records

    folder = Path(folder)
    records = list(Records(folder))
    page = experiment.page(size, records)
    planned = {(job.setting, job.seed) for job in experiment.jobs(size)}
    missing = sorted(planned - {(record.setting, record.seed) for record in records})
    done = len(planned) - len(missing)
    subtitle = f"Size {size}: {done} of {len(planned)} runs are complete."
    old = Counter(EDITIONS[r.version] for r in records if r.version in EDITIONS)
    for name, count in old.items():
        subtitle += f" {count} of {len(records)} records are of the {name}."
    command = f"python -m reproduction {experiment.name} --size {size} --out FOLDER"
    sections = [*page.sections, provenance(records), Section("Run it again", code=command)]
    if missing:
        settings = Counter(setting for setting, _ in missing)
        named = ", ".join(f"{name} ({count})" for name, count in settings.items())
        sections.insert(-1, Section("Not run yet: settings (seeds)", paragraphs=[named]))
    html = render_page(experiment.title, sections, subtitle=subtitle)
    for name, drawn in page.figures.items():
        write_bytes_atomically(folder / "figures" / f"{name}.svg", drawn.svg.encode())
    table = json.dumps(page.table, indent=1, ensure_ascii=False) + "\n"
    write_bytes_atomically(folder / "table.json", table.encode())
    return write_bytes_atomically(folder / PAGE, html.encode()), page


def provenance(records: Sequence[Record]) -> Section:
    """Which code made which records, and the time that their jobs took."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        groups.setdefault((record.version, record.commit or "unknown"), []).append(record)
    rows = []
    for (version, commit), members in sorted(groups.items()):
        settings = Counter(member.setting for member in members)
        named = ", ".join(f"{name} ({count})" for name, count in sorted(settings.items()))
        hours = sum(member.seconds or 0.0 for member in members) / 3600
        edition = f"{version}, {EDITIONS[version]}" if version in EDITIONS else version
        rows.append((named, edition, commit, str(len(members)), f"{hours:.2f}"))
    caption = "Seconds are of one process each, beside whatever else its machine did."
    columns = ("settings (seeds)", "tasid", "commit", "runs", "hours")
    return Section("Code that made the records", tables=[Table(columns, rows, caption)])


def editions(records: Sequence[Record]) -> str:
    """Versions of the package that made these records."""
    return ", ".join(sorted({record.version for record in records}))


def spread(values: Sequence[float], digits: int = 3) -> str:
    """Median, lowest and highest."""
    if not values:
        return "–"
    low, middle, high = min(values), float(np.median(values)), max(values)
    text = f"{middle:.{digits}f}"
    return text if len(values) == 1 else f"{text} ({low:.{digits}f} … {high:.{digits}f})"


@dataclass(frozen=True, eq=False)
class Line:
    """One line of a chart."""

    look: str
    """A key of `LOOKS`."""
    label: str
    x: ArrayLike
    y: ArrayLike
    deviation: ArrayLike | None = None
    """Half the height of the band around the line, a standard deviation over seeds."""
    markers: bool = False


@style()
def chart(
    lines: Sequence[Line],
    *,
    xlabel: str,
    ylabel: str,
    title: str = "",
    log: bool = False,
    reference: tuple[str, float] | None = None,
) -> Drawing:
    """Lines with bands, and a horizontal line at a reference value."""
    drawing = Drawing(figsize=(6.4, 3.2), layout="constrained")
    axes = drawing.add_subplot(xlabel=xlabel, ylabel=ylabel)
    axes.set_title(title, fontsize=10, loc="left")
    for line in lines:
        colour, dashes = LOOKS[line.look]
        y, marker = np.asarray(line.y, float), "o" if line.markers else ""
        axes.plot(line.x, y, dashes, marker=marker, markersize=4, color=colour, label=line.label)
        if line.deviation is not None:
            low, high = y - line.deviation, y + line.deviation
            axes.fill_between(line.x, low, high, color=colour, alpha=0.15, linewidth=0)
    if reference is not None:
        name, value = reference
        axes.axhline(value, color=PALETTE["ink"], linestyle=":", linewidth=1.0, label=name)
    if log:
        logarithmic(axes)
    axes.legend(fontsize=8.5, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return drawing


def logarithmic(axes: Any) -> None:
    """Numbers along a logarithmic x-axis, without formulas."""
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    if high < 100 * low:  # powers of ten alone would be too few
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    axes.xaxis.set_minor_formatter(NullFormatter())
