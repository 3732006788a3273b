"""`tasid report`: the page of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tasid.cli.answers import print_json
from tasid.cli.arguments import Json


def report(
    folder: Annotated[Path, typer.Argument(help="A run's folder.")], as_json: Json = False
) -> None:
    """Write the self-contained HTML page of a run."""
    from tasid.report import build_report

    page = build_report(folder)
    if as_json:
        print_json({"page": str(page)})
    else:
        print(f"report            {page}")
