"""`tasid plan`: robust dynamic programming on a map."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tasid.cli import arguments, worlds
from tasid.cli.answers import print_json, print_plan
from tasid.cli.imports import import_all

if TYPE_CHECKING:
    from tasid.maps import AbstractSimulator, RobustPlan
    from tasid.maps.planning.thrifty import Plan, ThriftyPlan


def plan(
    source: Annotated[
        str,
        typer.Argument(
            help="A map (.txt drawn, .yaml occupancy map, .npz tables, a saved simulator's "
            "folder, gym:ID) or an environment's name."
        ),
    ],
    eta: arguments.Eta = 0.1,
    horizon: arguments.Horizon = None,
    png: Annotated[Path | None, typer.Option(help="Draw the route to this file.")] = None,
    env_seed: arguments.EnvSeed = None,
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
    map_settings: arguments.MapSettings = None,
    start_state: arguments.StartState = None,
    settings: arguments.Settings = None,
    imports: arguments.Imports = None,
    as_json: arguments.Json = False,
) -> None:
    """Plan robustly on a map: value and route of Algorithm 1."""
    from tasid.maps import RobustPlan, certify, policy_value
    from tasid.maps.planning.flips import (
        arrives,
        changes_of,
        in_words,
        leads_to_goal,
        likeliest_starts,
    )
    from tasid.maps.sources import is_map

    import_all(imports)
    options = worlds.environment_options(
        settings,
        start=worlds.point("--start", start),
        goal=worlds.point("--goal", goal),
        cell_size=cell_size,
        robot_radius=robot_radius,
        hazards=[worlds.point("--hazard", zone) for zone in hazard] if hazard else None,
        moves=moves,
        deterministic=deterministic,
        seed=env_seed,
    )
    if env_seed is not None and is_map(source):
        raise ValueError(f"--env-seed: {env_seed} with {source}, a map that is the same for all")
    options |= worlds.map_options(map_settings, start_state)
    sim = worlds.simulator_of(source, horizon, options)
    robust, nominal = _plans(sim, eta) if png is None else _whole_plans(sim, eta)
    likeliest = int(sim.starts[sim.start_probabilities.argmax()])
    route = robust.route(likeliest)
    result = {
        "worst_case_value": robust.start_value,
        "nominal_value": (
            policy_value(sim, robust) if isinstance(robust, RobustPlan) else robust.nominal_value()
        ),
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
    doors = worlds.lost_doors_of(source, options)
    if doors is not None:
        result["lost_doors"] = [asdict(door) for door in doors]
    if png is None or not isinstance(robust, RobustPlan):
        changes = changes_of(robust, nominal, likeliest_starts(sim))
    else:
        from tasid.report.figures.pictures import plan_picture
        from tasid.report.figures.routes import Routes

        routes = Routes(robust, nominal)
        plan_picture(routes, png, marks=[(door.x, door.y) for door in doors or ()])
        changes = routes.changes
        result["png"] = str(png)
    result["flips"] = [change.as_json() for change in changes]
    result["arrives"] = arrives(robust, likeliest)
    if result["arrives"] is False:
        result["goal_in_reach"] = leads_to_goal(sim, likeliest)
    if as_json:
        print_json(result)
    else:
        print_plan(result, in_words(changes, eta))
        for door in doors or ():
            print(f"lost on the way to cells: {door}")


def _plans(sim: AbstractSimulator, eta: float) -> tuple[RobustPlan | ThriftyPlan, Plan]:
    """The robust plan and the one for η = 0, of which nothing but routes and proofs is needed."""
    from tasid.maps.planning.flips import MAX_STARTS
    from tasid.maps.planning.thrifty import policy_is_huge, thrifty_plan

    if policy_is_huge(sim) and sim.starts.size <= MAX_STARTS:
        return thrifty_plan(sim, eta=eta), thrifty_plan(sim, eta=0.0)
    return _whole_plans(sim, eta)


def _whole_plans(sim: AbstractSimulator, eta: float) -> tuple[RobustPlan, Plan]:
    """The same with the robust plan's actions everywhere, as a picture shows them."""
    from tasid.maps import robust_dp, robust_plans
    from tasid.maps.planning.thrifty import policy_is_huge, thrifty_plan

    if not policy_is_huge(sim):
        robust, nominal = robust_plans(sim, etas=[eta, 0.0])
        return robust, nominal
    return robust_dp(sim, eta=eta), thrifty_plan(sim, eta=0.0)
