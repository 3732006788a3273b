"""`tasid train`: learn a policy in a target."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tasid.cli import interrupt, ranges
from tasid.cli.answers import notice, print_json, print_training
from tasid.cli.arguments import (
    USUAL_ETA,
    Episodes,
    EtaOrMaps,
    Horizon,
    Json,
    MapSettings,
    Seed,
    Settings,
    Simulator,
    environment_options,
    eta_for,
    map_for,
    run_folder,
)
from tasid.cli.imports import Imports, import_all

if TYPE_CHECKING:
    from tasid.runs.certify import Certify


def train(
    context: typer.Context,
    env: Annotated[
        str | None, typer.Argument(help="An environment's name, e.g. combination-lock, or gym:ID.")
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="Learn from this log; play nowhere."),
    ] = None,
    simulator: Simulator = None,
    map_settings: MapSettings = None,
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
    sensor: Annotated[
        str | None, typer.Option(help="What a robot sees with: lidar, camera or both.")
    ] = None,
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
    env_seed: Annotated[
        int | None,
        typer.Option(
            help="Instance of the environment; the seed if not given.", callback=ranges.seeds
        ),
    ] = None,
    settings: Settings = None,
    imports: Imports = None,
    evaluation_episodes: Episodes = None,
    certify: Annotated[
        bool, typer.Option("--certify", help="Bound from below what the policy earns.")
    ] = False,
    certify_epsilon: Annotated[
        float | None, typer.Option(help="Up to what the plan's promise is to be kept.")
    ] = None,
    certify_episodes: Annotated[
        int | None, typer.Option(help="Fresh episodes for it, at most; 2000 if not given.")
    ] = None,
    certify_attempt: Annotated[
        int | None, typer.Option(help="Which policy this is of those tried; 1 if not given.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace that run.")] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run that stopped early there.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Learn a robust policy in a target environment and score it."""
    from tasid.runs.progress import Progress
    from tasid.runs.train import Order
    from tasid.runs.train import train as carry_out
    from tasid.runs.unfinished import how_to_go_on

    import_all(imports)
    if log is not None:
        from tasid.cli.train_log import train_from_log

        train_from_log(
            context,
            log,
            simulator=simulator,
            map_settings=map_settings,
            horizon=horizon,
            eta=eta,
            classes=classes,
            out=out,
            overwrite=overwrite,
            as_json=as_json,
        )
        return
    if env is None:
        raise ValueError("ENV: name an environment to learn in, or a log to learn --from")
    ours = not env.startswith("gym:")
    flags = {"horizon": horizon, "eta": eta} if ours else {}
    options = environment_options(settings, **flags, **_sensor(env, sensor))
    if ours:
        options.setdefault("eta", USUAL_ETA)
        options.setdefault("seed", seed if env_seed is None else env_seed)
        if starts is not None and options.setdefault("starts", starts) != starts:
            raise ValueError(f"--starts: {starts}, but --set says starts={options['starts']}")
    elif env_seed is not None:
        raise ValueError(f"--env-seed: {env_seed} with {env}, whose episodes come from --seed")
    usual = 10_000 if ours else 1_000
    number = usual if evaluation_episodes is None else evaluation_episodes
    if algorithm != "tasid":
        from tasid.cli.baseline import refuse_flags_of_tasid, train_baseline

        refuse_flags_of_tasid(context, wrapped=not ours)
        if not ours and horizon is not None:
            options.setdefault("horizon", horizon)
        _episodes(episodes)
        train_baseline(
            env,
            options,
            algorithm=algorithm,
            episodes=episodes,
            epopt_epsilon=epopt_epsilon,
            seed=seed,
            evaluation_episodes=number,
            out=out,
            overwrite=overwrite,
            resume=resume,
            as_json=as_json,
        )
        return
    if epopt_epsilon is not None:
        raise ValueError(
            f"--epopt-epsilon: {epopt_epsilon} with --algorithm tasid; it is for ppo+dr and "
            "ppo+rnd+dr, and filters their pre-training"
        )
    sim, source = map_for(env, options, simulator, map_settings, horizon)
    order = Order(
        environment=env,
        options=options,
        eta=eta_for(eta, sim),
        episodes=_episodes(episodes),
        seed=seed,
        method=method,
        evaluation_episodes=number,
        simulator=sim,
        source=source,
        starts=starts,
        classes=classes,
        certify=_certify(certify, certify_epsilon, certify_episodes, certify_attempt),
    )
    folder, quiet = out or run_folder(env, f"seed{seed}"), not sys.stderr.isatty()
    with interrupt.saying(partial(how_to_go_on, folder)), Progress(quiet=quiet) as progress:
        result = carry_out(
            order, folder, overwrite=overwrite, resume=resume, callbacks=[progress], notice=notice
        )
    if as_json:
        print_json(result)
    else:
        print_training(result)


def _sensor(env: str, sensor: str | None) -> dict[str, str]:
    if sensor is not None and env != "building":
        raise ValueError(f"--sensor: {sensor} with {env}; only the building has sensors to choose")
    return {} if sensor is None else {"sensor": sensor}


def _certify(
    asked: bool, epsilon: float | None, episodes: int | None, attempt: int | None
) -> Certify | None:
    from tasid.runs.certify import Certify

    numbers = {"epsilon": epsilon, "episodes": episodes, "attempt": attempt}
    given = {name: number for name, number in numbers.items() if number is not None}
    if asked:
        return Certify(**given)  # type: ignore[arg-type]
    for name, number in given.items():
        raise ValueError(f"--certify-{name}: {number} without --certify")
    return None


def _episodes(text: str) -> int | Literal["auto"]:
    if text == "auto":
        return "auto"
    try:
        number = int(text)
    except ValueError:
        raise ValueError(f"--episodes: {text!r:.80} is neither a whole number nor 'auto'") from None
    if number > ranges.MOST_EPISODES:
        raise ValueError(f"--episodes: {text:.80} is more than {ranges.MOST_EPISODES}")
    return number
