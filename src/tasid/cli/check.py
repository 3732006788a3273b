"""`tasid check`: does this target fit this map?"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated

import typer

from tasid.cli import arguments, worlds
from tasid.cli.answers import answer, counted
from tasid.cli.imports import import_all

if TYPE_CHECKING:
    from tasid.checks.check import Check

_MARKS = {"ok": "ok      ", "problem": "PROBLEM ", "note": "        "}


def check(
    context: typer.Context,
    env: Annotated[str, typer.Argument(help="An environment's name, or gym:ID.")],
    simulator: arguments.Simulator = None,
    map_settings: arguments.MapSettings = None,
    start_state: arguments.StartState = None,
    horizon: arguments.Horizon = None,
    eta: arguments.EtaOrMaps = None,
    episodes: Annotated[
        int,
        typer.Option(
            help="Episodes for each test.", callback=arguments.within(2, arguments.MOST_CHECKED)
        ),
    ] = 160,
    seed: arguments.EpisodesSeed = 0,
    env_seed: arguments.EnvSeed = None,
    sensor: arguments.Sensor = None,
    settings: arguments.Settings = None,
    reset: arguments.ResetOptions = None,
    imports: arguments.Imports = None,
    method: Annotated[str, typer.Option(help="How it is to be learned: belief or paper.")] = (
        "belief"
    ),
    as_json: arguments.Json = False,
) -> None:
    """Hold a target against a map before anything is learned: what does not fit?"""
    from tasid.checks.check import check_target
    from tasid.targets.registry import open_world

    import_all(imports)
    given = SimpleNamespace(**context.params)
    options = worlds.world_options(given, seed=0)
    sim, _ = worlds.map_for(given, options)
    if eta is None and worlds.implied_eta(sim) >= 0.5:
        eta = worlds.USUAL_ETA  # nothing to plan for: the check says so instead of being refused
    planned = worlds.eta_for(eta, sim)
    world = open_world(env, **options)
    found = check_target(world, sim, eta=planned, episodes=episodes, seed=seed, method=method)
    answer(found.as_json(), lambda _: _print(found), as_json=as_json)


def _print(found: Check) -> None:
    for finding in found.findings:
        print(f"{_MARKS[finding.status]}{finding.name}: {finding.text}")
    number = counted(len(found.problems), "problems")
    print("fits" if found.ok else f"does not fit: {number}")
