"""`tasid report`: the page of a run or an experiment."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tasid.cli.answers import answer
from tasid.cli.arguments import Json


def report(
    folder: Annotated[Path, typer.Argument(help="The folder of a run or an experiment.")],
    as_json: Json = False,
) -> None:
    """Write the self-contained HTML page of a run or an experiment."""
    from tasid.experiments.page import build_experiment_report, is_experiment
    from tasid.report.pages.page import build_report

    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder}: is a file; give the folder of a run or an experiment")
    page = build_experiment_report(folder).page if is_experiment(folder) else build_report(folder)
    answer({"page": str(page)}, lambda _: print(f"report            {page}"), as_json=as_json)
