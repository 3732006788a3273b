"""`tasid train`: learn a policy in a target."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tasid.cli import interrupt, ranges
from tasid.cli.answers import answer, notice, print_training
from tasid.cli.arguments import (
    Cluster,
    Episodes,
    EtaOrMaps,
    Horizon,
    InstanceSeed,
    Json,
    MapSettings,
    ResetOptions,
    Seed,
    Sensor,
    Settings,
    Simulator,
    StartState,
    Workers,
    refuse_sweep_flags,
    run_folder,
)
from tasid.cli.imports import Imports, import_all
from tasid.cli.train_order import order_of


def train(
    context: typer.Context,
    env: Annotated[
        str | None, typer.Argument(help="An environment's name, e.g. combination-lock, or gym:ID.")
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="Learn from this log; play nowhere."),
    ] = None,
    from_policy: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Go on from what this policy, or this run's, knows."),
    ] = None,
    simulator: Simulator = None,
    map_settings: MapSettings = None,
    start_state: StartState = None,
    horizon: Horizon = None,
    eta: EtaOrMaps = None,
    episodes: Annotated[
        str, typer.Option(metavar="N|auto", help="Episodes to learn from, or as evidence asks.")
    ] = "auto",
    method: Annotated[str, typer.Option(help="How to learn: belief or paper.")] = "belief",
    classes: Annotated[
        str | None,
        typer.Option(help="What looks alike: place, rank or action, if not by evidence."),
    ] = None,
    starts: Annotated[
        int | None,
        typer.Option(
            help="Number of start states N; episodes begin in any of them.",
            callback=ranges.within(1, ranges.MOST_STEPS),
        ),
    ] = None,
    sensor: Sensor = None,
    algorithm: Annotated[
        str, typer.Option(help="tasid, or a baseline: ppo, ppo+rnd, ppo+dr, ppo+rnd+dr.")
    ] = "tasid",
    epopt_epsilon: Annotated[
        float | None,
        typer.Option(
            help="With +dr: pre-train on this share of worst episodes.", callback=ranges.finite
        ),
    ] = None,
    seed: Seed = 0,
    seeds: Annotated[
        str | None,
        typer.Option(metavar="A-B", help="A run for each of these seeds, e.g. 100-199."),
    ] = None,
    workers: Workers = None,
    cluster: Cluster = None,
    env_seed: InstanceSeed = None,
    settings: Settings = None,
    reset: ResetOptions = None,
    imports: Imports = None,
    evaluation_episodes: Episodes = None,
    certify: Annotated[
        bool, typer.Option("--certify", help="Bound from below what the policy earns.")
    ] = False,
    certify_epsilon: Annotated[
        float | None,
        typer.Option(help="Up to what the plan's promise is to be kept.", callback=ranges.finite),
    ] = None,
    certify_episodes: Annotated[
        int | None,
        typer.Option(
            help="Fresh episodes for it, at most; 2000 if not given.", callback=ranges.episodes
        ),
    ] = None,
    certify_attempt: Annotated[
        int | None,
        typer.Option(
            help="Which policy this is of those tried; 1 if not given.", callback=ranges.attempts
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace that run.")] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run that stopped early there.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Learn a robust policy in a target environment and score it."""
    from tasid.runs.forecast import Forecast
    from tasid.runs.progress import Progress
    from tasid.runs.train import Order
    from tasid.runs.train import train as carry_out
    from tasid.runs.unfinished import how_to_go_on

    import_all(imports)
    if log is not None:
        from tasid.cli.train_log import train_from_log

        train_from_log(context, log)
        return
    if env is None:
        raise ValueError("ENV: name an environment to learn in, or a log to learn --from")
    if seeds is not None:
        from tasid.cli.train_seeds import train_seeds

        train_seeds(context, seeds)
        return
    refuse_sweep_flags(context)
    order = order_of(context, seed)
    if not isinstance(order, Order):
        from tasid.cli.baseline import train_baseline

        train_baseline(order, out=out, overwrite=overwrite, resume=resume, as_json=as_json)
        return
    folder, quiet = out or run_folder(env, f"seed{seed}"), not sys.stderr.isatty()
    words = ("episode", "mean return") if method == "belief" else ()
    progress = Progress(*words, quiet=quiet)
    with interrupt.saying(partial(how_to_go_on, folder)), progress:
        result = carry_out(
            order,
            folder,
            overwrite=overwrite,
            resume=resume,
            callbacks=[progress, Forecast(notice)],
            notice=notice,
        )
    answer(result, print_training, as_json=as_json)
