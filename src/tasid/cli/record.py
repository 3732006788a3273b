"""`tasid record`: play episodes and keep them, to learn from later."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tasid.cli.answers import counted, print_json
from tasid.cli.arguments import (
    EtaOrMaps,
    Horizon,
    InstanceSeed,
    Json,
    MapSettings,
    ResetOptions,
    Seed,
    Sensor,
    Settings,
    StartState,
    eta_for,
    map_for,
    world_options,
)
from tasid.cli.imports import Imports, import_all

if TYPE_CHECKING:
    from tasid.maps import AbstractSimulator
    from tasid.targets import Target


def record(
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
    map_settings: MapSettings = None,
    start_state: StartState = None,
    horizon: Horizon = None,
    eta: EtaOrMaps = None,
    seed: Seed = 0,
    env_seed: InstanceSeed = None,
    sensor: Sensor = None,
    settings: Settings = None,
    reset: ResetOptions = None,
    imports: Imports = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace that log.")] = False,
    as_json: Json = False,
) -> None:
    """Play whole episodes and write down what was seen, commanded and paid."""
    from tasid.runs.recording import check_free, record_episodes
    from tasid.targets.registry import open_world
    from tasid.targets.target import for_horizon

    import_all(imports)
    check_free(out, overwrite=overwrite)
    ours = not env.startswith("gym:")
    options = world_options(
        env,
        settings,
        reset,
        seed=seed,
        env_seed=env_seed,
        horizon=horizon,
        eta=eta,
        sensor=sensor,
    )
    sim = None
    if simulator is not None or ours:
        sim, _ = map_for(env, options, simulator, map_settings, horizon, start_state)
    world: Target = open_world(env, **options)
    sim = sim or world.simulator
    if (steps := horizon or (sim.horizon if sim else 0)) > 0:
        world = for_horizon(world, steps)
    who = policy or ("plan" if sim is not None else "random")
    log = record_episodes(
        world, _player(who, world, sim, eta), episodes=episodes, explore=explore, seed=seed
    )
    log.save(out)
    returns = log.recorded.returns
    answer: dict[str, Any] = {
        "episodes": log.number,
        "file": str(out),
        "return_mean": float(returns.mean()),
        "horizon": log.horizon,
        "actions": log.num_actions,
        "policy": who,
        "explore": 1.0 if who == "random" else explore,
        "seed": seed,
    }
    if as_json:
        print_json(answer)
        return
    print(f"recorded {counted(log.number)} of at most {counted(log.horizon, 'steps')}")
    print(f"return            {answer['return_mean']:.4f}")
    print(f"file              {out}")


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
    return eyes_shut(world, sim, eta=eta_for(eta, sim))
