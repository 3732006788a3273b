"""`tasid check`: does this target fit this map?"""

from __future__ import annotations

from typing import Annotated

import typer

from tasid.cli import ranges
from tasid.cli.answers import print_json
from tasid.cli.arguments import (
    USUAL_ETA,
    EnvSeed,
    EpisodesSeed,
    EtaOrMaps,
    Horizon,
    Json,
    MapSettings,
    ResetOptions,
    Sensor,
    Settings,
    Simulator,
    StartState,
    eta_for,
    implied_eta,
    map_for,
    world_options,
)
from tasid.cli.imports import Imports, import_all

_MARKS = {"ok": "ok      ", "problem": "PROBLEM ", "note": "        "}


def check(
    env: Annotated[str, typer.Argument(help="An environment's name, or gym:ID.")],
    simulator: Simulator = None,
    map_settings: MapSettings = None,
    start_state: StartState = None,
    horizon: Horizon = None,
    eta: EtaOrMaps = None,
    episodes: Annotated[
        int,
        typer.Option(
            help="Episodes for each test.", callback=ranges.within(2, ranges.MOST_CHECKED)
        ),
    ] = 160,
    seed: EpisodesSeed = 0,
    env_seed: EnvSeed = None,
    sensor: Sensor = None,
    settings: Settings = None,
    reset: ResetOptions = None,
    imports: Imports = None,
    method: Annotated[str, typer.Option(help="How it is to be learned: belief or paper.")] = (
        "belief"
    ),
    as_json: Json = False,
) -> None:
    """Hold a target against a map before anything is learned: what does not fit?"""
    from tasid.checks.check import check_target
    from tasid.targets.registry import open_world

    import_all(imports)
    options = world_options(
        env,
        settings,
        reset,
        seed=0,
        env_seed=env_seed,
        horizon=horizon,
        eta=eta,
        sensor=sensor,
    )
    sim, _ = map_for(env, options, simulator, map_settings, horizon, start_state)
    if eta is None and implied_eta(sim) >= 0.5:
        eta = USUAL_ETA  # nothing to plan for: the check says so instead of being refused
    planned = eta_for(eta, sim)
    world = open_world(env, **options)
    found = check_target(world, sim, eta=planned, episodes=episodes, seed=seed, method=method)
    if as_json:
        print_json(found.as_json())
        return
    for finding in found.findings:
        print(f"{_MARKS[finding.status]}{finding.name}: {finding.text}")
    number = len(found.problems)
    print("fits" if found.ok else f"does not fit: {number} problem{'s' if number > 1 else ''}")
