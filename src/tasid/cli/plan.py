"""`tasid plan`: robust dynamic programming on a map."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tasid.cli.answers import print_json, print_plan
from tasid.cli.arguments import (
    EnvSeed,
    Eta,
    Horizon,
    Json,
    MapSettings,
    Settings,
    environment_options,
    map_options,
    point,
    simulator_of,
)
from tasid.cli.imports import Imports, import_all


def plan(
    source: Annotated[
        str,
        typer.Argument(
            help="A map (.txt drawn, .yaml occupancy map, .npz tables, a saved simulator's "
            "folder, gym:ID) or an environment's name."
        ),
    ],
    eta: Eta = 0.1,
    horizon: Horizon = None,
    png: Annotated[Path | None, typer.Option(help="Draw the route to this file.")] = None,
    env_seed: EnvSeed = None,
    start: Annotated[str | None, typer.Option(help="Start of a .yaml map: x,y[,N|E|S|W].")] = None,
    goal: Annotated[str | None, typer.Option(help="Goal of a .yaml map: x,y in metres.")] = None,
    cell_size: Annotated[float | None, typer.Option(help="Cells of a .yaml map, metres.")] = None,
    robot_radius: Annotated[float | None, typer.Option(help="Walls grow by it, metres.")] = None,
    hazard: Annotated[
        list[str] | None,
        typer.Option(help="Zone of a .yaml map: x,y,radius or x,y,x,y; repeatable."),
    ] = None,
    moves: Annotated[str | None, typer.Option(help="How one moves: compass, turn.")] = None,
    deterministic: Annotated[
        str | None, typer.Option(help="Chances in a gym:ID map: refuse, most-likely.")
    ] = None,
    map_settings: MapSettings = None,
    settings: Settings = None,
    imports: Imports = None,
    as_json: Json = False,
) -> None:
    """Plan robustly on a map: value and route of Algorithm 1."""
    from tasid.mdp import certify, policy_value, robust_dp
    from tasid.mdp.flips import changes_of, in_words, likeliest_starts

    import_all(imports)
    options = environment_options(
        settings,
        start=point("--start", start),
        goal=point("--goal", goal),
        cell_size=cell_size,
        robot_radius=robot_radius,
        hazards=[point("--hazard", zone) for zone in hazard] if hazard else None,
        moves=moves,
        deterministic=deterministic,
        seed=env_seed,
    )
    sim = simulator_of(source, horizon, options | map_options(map_settings))
    robust = robust_dp(sim, eta=eta)
    nominal = robust_dp(sim, eta=0.0)
    likeliest = int(sim.starts[sim.start_probabilities.argmax()])
    route = robust.route(likeliest)
    result = {
        "worst_case_value": robust.start_value,
        "nominal_value": policy_value(sim, robust),
        "best_nominal_value": nominal.start_value,
        "certificate_gap": certify(robust).gap,
        "states": sim.num_states,
        "actions": sim.num_actions,
        "horizon": sim.horizon,
        "eta": eta,
        "route": [
            {"step": s.step, "state": s.state, "action": s.action, "reward": s.reward}
            for s in route
        ],
    }
    if sim.origin is not None and sim.origin.implied_eta is not None:
        result["implied_eta"] = sim.origin.implied_eta
    if png is None:
        changes = changes_of(robust, nominal, likeliest_starts(sim))
    else:
        from tasid.report.pictures import plan_picture
        from tasid.report.routes import Routes

        routes = Routes(robust, nominal)
        plan_picture(routes, png)
        changes = routes.changes
        result["png"] = str(png)
    result["flips"] = [change.as_json() for change in changes]
    if as_json:
        print_json(result)
    else:
        print_plan(result, in_words(changes, eta))
