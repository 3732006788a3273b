"""`tasid reproduce`: an experiment of the paper, from the first episode to the page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tasid.cli.answers import print_json
from tasid.cli.arguments import Cluster, Json, Workers, executor_of


def reproduce(
    name: Annotated[str, typer.Argument(help="An experiment, e.g. combination-lock, or all.")],
    size: Annotated[
        str, typer.Option(help="smoke (seconds), quick (minutes) or full (the paper's sizes).")
    ] = "quick",
    out: Annotated[
        Path | None, typer.Option(help="Folder of the experiment; of all of them, for all.")
    ] = None,
    workers: Workers = None,
    cluster: Cluster = None,
    as_json: Json = False,
) -> None:
    """Make figures and tables of the paper again; an interrupted sweep goes on where it was."""
    from tasid.experiments import EXPERIMENTS, experiment
    from tasid.experiments.page import build_experiment_report
    from tasid.experiments.progress import SweepProgress
    from tasid.experiments.sweep import sweep

    names = list(EXPERIMENTS) if name == "all" else [name]
    answers: dict[str, Any] = {}
    for one in names:
        asked = experiment(one)
        folder = _folder(one, size, out, all_of_them=name == "all")
        with SweepProgress() as progress:
            executor = executor_of(workers, cluster)
            sweep(asked, folder, size=size, executor=executor, watchers=[progress])
        built = build_experiment_report(folder)
        answers[one] = {
            "records": str(folder / "records"),
            "figures": [str(path) for path in built.figures],
            "table": built.table,
            "page": str(built.page),
        }
        if not as_json:
            print(f"{one:<17} {built.page}")
    if as_json:
        print_json(answers if name == "all" else answers[name])


def _folder(name: str, size: str, out: Path | None, *, all_of_them: bool) -> Path:
    if out is None:
        return Path("runs") / f"{name}-{size}"
    return out / name if all_of_them else out
