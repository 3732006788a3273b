"""`tasid record`: play episodes and keep them, to learn from later."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tasid.cli import arguments, worlds
from tasid.cli.answers import answer, counted
from tasid.cli.imports import import_all

if TYPE_CHECKING:
    from tasid.maps import AbstractSimulator
    from tasid.targets import Target


def record(
    context: typer.Context,
    env: Annotated[
        str, typer.Argument(help="An environment's name, e.g. combination-lock, or gym:ID.")
    ],
    episodes: Annotated[int, typer.Option(help="How many episodes to play.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where the log goes.")],
    policy: Annotated[
        str | None,
        typer.Option(
            help="A policy's folder, or a run's; plan: the robust plan with eyes shut; or random. "
            "The plan if there is a map."
        ),
    ] = None,
    explore: Annotated[float, typer.Option(help="The share of random commands.")] = 0.3,
    simulator: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE",
            help="The map, as for `tasid plan`; random commands in gym:ID need none but --horizon.",
        ),
    ] = None,
    map_settings: arguments.MapSettings = None,
    start_state: arguments.StartState = None,
    horizon: arguments.Horizon = None,
    eta: arguments.EtaOrMaps = None,
    seed: arguments.Seed = 0,
    env_seed: arguments.InstanceSeed = None,
    sensor: arguments.Sensor = None,
    settings: arguments.Settings = None,
    reset: arguments.ResetOptions = None,
    imports: arguments.Imports = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace that log.")] = False,
    as_json: arguments.Json = False,
) -> None:
    """Play whole episodes and write down what was seen, commanded and paid."""
    from tasid.runs.recording import check_free, record_episodes
    from tasid.targets.registry import open_world
    from tasid.targets.target import for_horizon

    import_all(imports)
    check_free(out, overwrite=overwrite)
    given = SimpleNamespace(**context.params)
    options, sim = worlds.world_options(given, seed=seed), None
    if simulator is not None or not env.startswith("gym:"):
        sim, _ = worlds.map_for(given, options)
    world: Target = open_world(env, **options)
    sim = sim or world.simulator
    if (steps := horizon or (sim.horizon if sim else 0)) > 0:
        world = for_horizon(world, steps)
    who = policy or ("plan" if sim is not None else "random")
    log = record_episodes(
        world, _player(who, world, sim, eta), episodes=episodes, explore=explore, seed=seed
    )
    log.save(out)
    result = {
        "episodes": log.number,
        "file": str(out),
        "return_mean": float(log.recorded.returns.mean()),
        "horizon": log.horizon,
        "actions": log.num_actions,
        "policy": who,
        "explore": 1.0 if who == "random" else explore,
        "seed": seed,
    }
    answer(result, _print, as_json=as_json)


def _print(result: dict[str, Any]) -> None:
    steps = counted(result["horizon"], "steps")
    print(f"recorded {counted(result['episodes'])} of at most {steps}")
    print(f"return            {result['return_mean']:.4f}")
    print(f"file              {result['file']}")


def _player(who: str, world: Target, sim: AbstractSimulator | None, eta: float | None) -> Any:
    """A loaded policy, the plan with eyes shut, or nobody."""
    from tasid.policies import load
    from tasid.runs.recording import eyes_shut

    if who == "random":
        return None
    if who != "plan":
        return load(who)
    if sim is None:
        raise ValueError("--policy: plan, but there is no map to plan on; give --simulator")
    return eyes_shut(world, sim, eta=worlds.eta_for(eta, sim))
