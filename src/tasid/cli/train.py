"""`tasid train`: learn a policy in a target."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tasid.cli import arguments, interrupt, worlds
from tasid.cli.answers import answer, counted, notice, print_scores, print_training
from tasid.cli.imports import code_of, import_all

if TYPE_CHECKING:
    from tasid.baselines.by_name import Baseline
    from tasid.baselines.training import Checkpoint
    from tasid.checks.certify import Certify
    from tasid.runs.progress import Forecast, Progress
    from tasid.runs.record import Callback
    from tasid.runs.train import AnyOrder

_EPISODES = 20_000
"""Of a baseline where no number is given; baselines have no evidence to decide by."""
_OF_TASID = (
    "simulator map_settings start_state method classes from_policy certify certify_epsilon "
    "certify_episodes certify_attempt"
).split()
"""Flags that say something to TASID and nothing to a baseline, which has no map."""


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
    simulator: arguments.Simulator = None,
    map_settings: arguments.MapSettings = None,
    start_state: arguments.StartState = None,
    horizon: arguments.Horizon = None,
    eta: arguments.EtaOrMaps = None,
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
            callback=arguments.within(1, arguments.MOST_STEPS),
        ),
    ] = None,
    sensor: arguments.Sensor = None,
    algorithm: Annotated[
        str, typer.Option(help="tasid, or a baseline: ppo, ppo+rnd, ppo+dr, ppo+rnd+dr.")
    ] = "tasid",
    epopt_epsilon: Annotated[
        float | None,
        typer.Option(
            help="With +dr: pre-train on this share of worst episodes.", callback=arguments.finite
        ),
    ] = None,
    seed: arguments.Seed = 0,
    seeds: Annotated[
        str | None,
        typer.Option(metavar="A-B", help="A run for each of these seeds, e.g. 100-199."),
    ] = None,
    workers: arguments.Workers = None,
    cluster: arguments.Cluster = None,
    env_seed: arguments.InstanceSeed = None,
    settings: arguments.Settings = None,
    reset: arguments.ResetOptions = None,
    imports: arguments.Imports = None,
    evaluation_episodes: arguments.Episodes = None,
    certify: Annotated[
        bool, typer.Option("--certify", help="Bound from below what the policy earns.")
    ] = False,
    certify_epsilon: Annotated[
        float | None,
        typer.Option(
            help="Up to what the plan's promise is to be kept.", callback=arguments.finite
        ),
    ] = None,
    certify_episodes: Annotated[
        int | None,
        typer.Option(
            help="Fresh episodes for it, at most; 2000 if not given.", callback=arguments.episodes
        ),
    ] = None,
    certify_attempt: Annotated[
        int | None,
        typer.Option(
            help="Which policy this is of those tried; 1 if not given.", callback=arguments.attempts
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace that run.")] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run that stopped early there.")
    ] = False,
    as_json: arguments.Json = False,
) -> None:
    """Learn a robust policy in a target environment and score it."""
    from tasid.runs.progress import Forecast, Progress
    from tasid.runs.train import BaselineOrder
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
    for name, value in (("workers", workers), ("cluster", cluster)):
        if value is not None:
            raise ValueError(f"--{name}: {value} without --seeds; it is for sweeps")
    order = order_of(context, seed)
    folder = out or arguments.run_folder(env, algorithm, f"seed{seed}")
    words = ("episode", "mean return")
    if isinstance(order, BaselineOrder):
        words = ("training batch", "mean return")
    elif method == "paper":
        words = ("learning step", "validation loss")
    progress, forecast = Progress(*words, quiet=not sys.stderr.isatty()), Forecast(notice)
    callbacks: list[Callback] = [progress, forecast]
    if isinstance(order, BaselineOrder):
        callbacks = [partial(_show, order.baseline, progress, forecast)]
    with interrupt.saying(partial(how_to_go_on, folder)), progress:
        result = carry_out(
            order,
            folder,
            overwrite=overwrite,
            resume=resume,
            callbacks=callbacks,
            notice=notice,
        )
    in_words = _print_baseline if isinstance(order, BaselineOrder) else print_training
    answer(result, in_words, as_json=as_json)


def _show(baseline: Baseline, progress: Progress, forecast: Forecast, here: Checkpoint) -> None:
    """How far a baseline is."""
    from tasid.baselines.ppo import PPOConfig

    done, total = baseline.episodes_at(here), baseline.episodes
    batch, earned = PPOConfig.batch, f"{here.returns.mean():.3f}"
    progress.show(done // batch, total // batch, episodes=done, figure=earned)
    forecast.pace(done, total)


def _print_baseline(result: dict[str, Any]) -> None:
    before = result["source_episodes"]
    print(
        f"learned from {counted(result['episodes'])}"
        + (f", after {before} in relatives of the target," if before else "")
        + f" in {result['seconds']:.1f} s"
    )
    print_scores(result)
    print(f"policy            {result['policy']}")


def order_of(context: typer.Context, seed: int) -> AnyOrder:
    """The order of this command for a seed."""
    from tasid.runs.train import BaselineOrder, Order

    given = SimpleNamespace(**context.params)
    ours = not given.env.startswith("gym:")
    options = worlds.world_options(given, seed=seed)
    starts = given.starts
    if ours and starts is not None and options.setdefault("starts", starts) != starts:
        raise ValueError(f"--starts: {starts}, but --set says starts={options['starts']}")
    usual = 10_000 if ours else 1_000
    number = usual if given.evaluation_episodes is None else given.evaluation_episodes
    episodes, imports = _episodes(given.episodes), tuple(given.imports or ())
    code = code_of(given.env, imports)
    if given.algorithm != "tasid":
        flags = _OF_TASID if ours else (*_OF_TASID, "starts", "eta")
        arguments.refuse_given(context, flags, "with a baseline; only --algorithm tasid has it")
        if not ours and given.horizon is not None:
            options.setdefault("horizon", given.horizon)
        baseline = _baseline(given.algorithm, episodes, given.epopt_epsilon)
        return BaselineOrder(given.env, options, baseline, seed, number, imports, code)
    if given.epopt_epsilon is not None:
        raise ValueError(
            f"--epopt-epsilon: {given.epopt_epsilon} with --algorithm tasid; it is for ppo+dr and "
            "ppo+rnd+dr, and filters their pre-training"
        )
    sim, source = worlds.map_for(given, options)
    return Order(
        environment=given.env,
        options=options,
        eta=worlds.eta_for(given.eta, sim),
        episodes=episodes,
        seed=seed,
        method=given.method,
        evaluation_episodes=number,
        simulator=sim,
        source=source,
        starts=starts,
        classes=given.classes,
        certify=_certify(given),
        from_policy=None if given.from_policy is None else str(given.from_policy),
        imports=imports,
        code=code,
    )


def _baseline(
    algorithm: str, episodes: int | Literal["auto"], epopt_epsilon: float | None
) -> Baseline:
    from tasid.baselines.by_name import BASELINES, Baseline

    if algorithm not in BASELINES:
        raise ValueError(f"--algorithm: {algorithm!r} is none of tasid, {', '.join(BASELINES)}")
    number = _EPISODES if episodes == "auto" else episodes
    return Baseline(
        algorithm,
        target_episodes=number,
        source_episodes=number,
        epopt_epsilon=1.0 if epopt_epsilon is None else epopt_epsilon,
        every=min(1000, number),
        evaluation_episodes=0,
    )


def _certify(asked: SimpleNamespace) -> Certify | None:
    from tasid.checks.certify import Certify

    numbers = {
        name: getattr(asked, f"certify_{name}") for name in ("epsilon", "episodes", "attempt")
    }
    given = {name: number for name, number in numbers.items() if number is not None}
    if asked.certify:
        return Certify(**given)
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
    if number > arguments.MOST_EPISODES:
        raise ValueError(f"--episodes: {text:.80} is more than {arguments.MOST_EPISODES}")
    return number
