"""The page of an experiment: figures and tables from its records alone, in one HTML file.

What stands on the page is an experiment's own business (`Content`); this file finds it by the name
on record, and writes page, figures and table.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasid.experiments import EXPERIMENTS
from tasid.experiments.records import Records
from tasid.files import ArtifactError, write_bytes_atomically
from tasid.report.figures.drawing import house_style, picture_bytes
from tasid.report.pages.content import Content, panels, render
from tasid.report.pages.template import PAGE_NAME


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
    if name not in EXPERIMENTS:
        raise ValueError(f"{folder}: records of {name!r}, which has no page in this version")
    try:
        page_of = importlib.import_module(f"{EXPERIMENTS[name][0]}.page")
        content: Content = page_of.content(records)
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
            for panel in panels(content)
        )
    table = json.dumps(content.table, indent=1, allow_nan=False) + "\n"
    write_bytes_atomically(Path(folder) / "table.json", table.encode())
    written = write_bytes_atomically(Path(folder) / PAGE_NAME, page.encode())
    return Built(written, figures, content.table)
