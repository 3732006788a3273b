"""Arguments that several commands share, and which numbers they take."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tasid.runs.executors.dispatch import Executor

MOST_SEED = 2**32 - 1
"""JAX keeps 32 bits of a seed: larger ones would be other seeds in disguise."""
MOST_EPISODES = 10**8
MOST_STEPS = 10**6
MOST_ATTEMPTS = 10**6
MOST_CHECKED = 10**6


def within(least: int, most: int) -> Callable[..., Any]:
    """A check that a whole number is in least … most, if it was given."""

    def check(parameter: typer.CallbackParam, value: Any) -> Any:
        if value is not None and not least <= value <= most:
            raise ValueError(f"{parameter.opts[0]}: {value} is not in {least} … {most}")
        return value

    return check


def finite(parameter: typer.CallbackParam, value: Any) -> Any:
    """A check that a number is one, if it was given."""
    if value is not None and not isfinite(value):
        raise ValueError(f"{parameter.opts[0]}: {value} is not a finite number")
    return value


seeds = within(0, MOST_SEED)
steps = within(1, MOST_STEPS)
episodes = within(1, MOST_EPISODES)
attempts = within(1, MOST_ATTEMPTS)

Json = Annotated[
    bool, typer.Option("--json", help="One JSON object on standard output, nothing else.")
]
Horizon = Annotated[int | None, typer.Option(help="Steps per episode H.", callback=steps)]
Eta = Annotated[
    float,
    typer.Option(help="Perturbation level η the plan guards against.", callback=finite),
]
EtaOrMaps = Annotated[
    float | None,
    typer.Option(
        help="Perturbation level η the plan guards against; the map's own if it has one, or 0.1.",
        callback=finite,
    ),
]
Seed = Annotated[int, typer.Option(help="Seeds everything.", callback=seeds)]
Workers = Annotated[
    int | None,
    typer.Option(help="Jobs of a sweep at a time; as many as processors if not given."),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Do the jobs of a sweep on this Ray cluster: HOST:PORT, auto, or local.",
    ),
]
EpisodesSeed = Annotated[
    int, typer.Option(help="Draws the episodes, nothing else.", callback=seeds)
]
EnvSeed = Annotated[int | None, typer.Option(help="Instance of the environment.", callback=seeds)]
InstanceSeed = Annotated[
    int | None,
    typer.Option(help="Instance of the environment; the seed if not given.", callback=seeds),
]
Sensor = Annotated[str | None, typer.Option(help="What a robot sees with: lidar, camera or both.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="An option of the environment; repeatable."),
]
Simulator = Annotated[
    str | None,
    typer.Option(metavar="SOURCE", help="The map, as for `tasid plan`; gym:ID needs one."),
]
MapSettings = Annotated[
    list[str] | None,
    typer.Option("--map", metavar="KEY=VALUE", help="An option of the map; repeatable."),
]
StartState = Annotated[
    str | None,
    typer.Option(
        metavar="STATE",
        help="Where episodes begin on the map, by label (3,4) or index; as --map start_state=….",
    ),
]
ResetOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--reset-option",
        metavar="KEY=VALUE",
        help="Given to reset() of gym:ID at every episode; repeatable.",
    ),
]
Episodes = Annotated[
    int | None,
    typer.Option(
        help="Episodes to evaluate on; 10 000, or 1000 in gym:ID, if not given.",
        callback=episodes,
    ),
]
Imports = Annotated[
    list[str] | None,
    typer.Option(
        "--import",
        metavar="FILE.py",
        help="Run this file or import this module first, to register environments; repeatable.",
    ),
]
SavedPolicy = Annotated[Path, typer.Argument(help="A policy's folder, or a run's.")]
OtherEnv = Annotated[str | None, typer.Option(help="Another environment than the recorded one.")]


def refuse_given(context: typer.Context, names: Sequence[str], why: str) -> None:
    """Refuse arguments that say something elsewhere and nothing here, if they were given."""
    spelled = {parameter.name: parameter.opts[0] for parameter in context.command.params}
    for name in names:
        source, flag = context.get_parameter_source(name), spelled[name]
        if source is not None and source.name == "COMMANDLINE":
            raise ValueError(f"{flag if flag.startswith('-') else flag.upper()}: {why}")


def executor_of(workers: int | None, cluster: str | None) -> Executor:
    """Who does the jobs of a sweep."""
    if cluster is not None:
        from tasid.runs.executors.cluster import RayCluster

        return RayCluster(cluster, workers=workers)
    from tasid.runs.executors.processes import Processes

    return Processes(os.cpu_count() or 1 if workers is None else workers)


def run_folder(env: str, algorithm: str, seeds: str) -> Path:
    """Where a run goes if --out is not given."""
    parts = [env.replace("/", "-").replace(":", "-"), algorithm, seeds]
    return Path("runs") / "-".join(part for part in parts if part != "tasid")
