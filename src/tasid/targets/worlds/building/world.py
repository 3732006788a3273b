"""A robot with a floor plan: it drives through a building and sees lidar scans, pictures or both.

The paper's running example. The latent state is a pose, a place of a lattice over an occupancy map
and a heading; the robot drives forward and back, turns left and right, or stays, and now and then
does something else. It never stands twice at the same point of its cell, the light changes from
episode to episode, people and chairs stand in the way, and a door may be closed that is open on the
plan. The task is a delivery: from a dock to the goal, without falling down the stairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tasid.maps import AbstractSimulator, perturb
from tasid.maps.layout import FREE, GOAL, HAZARD, WALL
from tasid.maps.size import MapError
from tasid.maps.sources.grid import Rewards, grid_simulator
from tasid.maps.sources.map_server import OccupancyMap, read_map
from tasid.maps.sources.occupancy_map import Floor
from tasid.maps.sources.text_map import parse
from tasid.targets.block import BlockMDP, block_mdp, plain_options
from tasid.targets.worlds.building.doors import with_doors
from tasid.targets.worlds.building.episode import days_of, worlds_with
from tasid.targets.worlds.building.floor import RESOLUTION, Site, office_floor
from tasid.targets.worlds.building.places import Places, places_of
from tasid.targets.worlds.building.sensors import SENSORS, emission_of
from tasid.targets.worlds.route import ROUTE_ETA, layout_of, robust_horizon

NAME = "building"
ANYWHERE = "anywhere"
_JITTER = 0.2
"""Metres beside the middle of a cell, where cells are not too narrow for it."""
_LONGEST = 4096
"""Steps, beyond which a plan that does not arrive never will."""


def building(
    *,
    map: str | None = None,
    floor: int | None = None,
    sensor: str = "lidar",
    cell_size: float = 1.0,
    robot_radius: float = 0.2,
    headings: int = 4,
    start: Sequence[float | str] | None = None,
    goal: Sequence[float] | None = None,
    starts: int | str = 1,
    hazards: Sequence[Sequence[float]] | None = None,
    unknown: str = "wall",
    eta: float = 0.1,
    per_step: bool = False,
    horizon: int | None = None,
    step_reward: float = -0.005,
    beams: int = 64,
    range_limit: float = 10.0,
    noise: float = 0.03,
    dropout: float = 0.03,
    jitter: float | None = None,
    turn_jitter: float = 3.0,
    obstacles: float = 0.0,
    closed_doors: int | Sequence[Sequence[float]] = 0,
    seed: int = 0,
) -> BlockMDP:
    """A building whose perturbation is drawn from `seed`; lengths in metres, angles in degrees.

    `map` is a ROS map (.yaml), a text map (.txt, or the text itself, a character per cell) or the
    floor that comes with the package, `floor` one of the generated ones. `start` is (x, y, heading)
    and `goal` (x, y); maps without them get their own. With several `starts` an episode begins at
    any of so many docks, all equally likely, with "anywhere" at any pose. `hazards` are circles
    (x, y, radius) or rectangles (x, y, x, y). `obstacles` is the share of episodes in which a
    person or a chair stands on the route; `closed_doors` are points, or how many doors on the route
    of the plan are closed in the target. Slips differ from place to place, and with `per_step` from
    step to step, which takes H times the memory. A robot stands up to `jitter` beside the middle of
    its cell, 0.2 or half a narrow cell if nobody says. Without a `horizon` it is three times the
    steps of the robust plan's longest route. The goal pays 1, a hazard −1, every other step
    `step_reward`: less than in the lava crossing, since routes are several times as long.
    """
    jitter = min(_JITTER, cell_size / 2) if jitter is None else jitter
    options = plain_options(building, locals())
    _check(options)
    places, source = _places(options)
    sim = _simulator(places, source, options)
    shut, world_map = with_doors(places, sim, closed_doors)
    world = perturb(world_map, eta=eta, seed=seed, per_step=per_step)
    emission, poses = emission_of(places, sim, shut, options)
    days = days_of(places, sim, poses, float(obstacles))
    return block_mdp(
        NAME,
        options,
        world,
        emission,
        map_given=sim,
        circumstances=days,
        worlds=partial(worlds_with, world, days),
    )


def remarks(env: BlockMDP) -> list[str]:
    """What was made of a map of the user's without asking: places chosen, doors lost."""
    if env.name != NAME or env.options["map"] is None:
        return []
    doors = _floor(env.options, _site(env.options)).doors()
    return [*_chosen(env), *(f"lost on the way to cells: {door}" for door in doors)]


def _chosen(env: BlockMDP) -> list[str]:
    options, sim = env.options, env.simulator
    site, layout = _site(options), layout_of(sim)
    goals = np.flatnonzero(layout.cells[tuple(layout.positions.T)] == GOAL)
    chosen = []
    if options["start"] is None and not site.docks and options["starts"] != ANYWHERE:
        more = f" and {sim.starts.size - 1} more" if sim.starts.size > 1 else ""
        chosen.append(f"start={_point(sim.states[sim.starts[0]])}{more}")
    if options["goal"] is None and not site.goals:
        chosen.append(f"goal={_point(sim.states[goals[0]][:2])}")
    return [f"chosen, since nobody said: {' and '.join(chosen)}"] if chosen else []


def _point(label: Any) -> str:
    return ",".join(f"{part:g}" if isinstance(part, float) else str(part) for part in label)


def _check(options: dict[str, Any]) -> None:
    if options["sensor"] not in SENSORS:
        raise ValueError(f"sensor: {options['sensor']!r} is none of {', '.join(SENSORS)}")
    starts = options["starts"]
    if starts != ANYWHERE and (isinstance(starts, (bool, str)) or int(starts) < 1):
        raise ValueError(f"starts: {starts!r} is neither a number of docks nor {ANYWHERE!r}")
    limits = {
        "beams": (1, 4096),
        "range_limit": (0.1, 1000.0),
        "noise": (0.0, 10.0),
        "dropout": (0.0, 1.0),
        "jitter": (0.0, options["cell_size"] / 2),
        "turn_jitter": (0.0, 45.0),
        "obstacles": (0.0, 1.0),
    }
    for name, (low, high) in limits.items():
        if not low <= options[name] <= high:
            raise ValueError(f"{name}: {options[name]} is outside {low:g} … {high:g}")
    for name, lengths in (("start", (2, 3)), ("goal", (2,))):
        point = options[name]
        if point is not None and (len(point) not in lengths or isinstance(point[0], str)):
            form = "(x, y)" if name == "goal" else "(x, y) or (x, y, heading)"
            raise ValueError(f"{name}: {point!r} is not {form}, in metres")
    if options["headings"] not in (4, 8):
        raise ValueError(f"headings: {options['headings']} is neither 4 nor 8")


def _site(options: Mapping[str, Any]) -> Site:
    """The floor that comes with the package, one by number, a ROS map, or a text map.

    A text map is a file or the text itself; a character is a cell.
    """
    where, number, size = options["map"], options["floor"], options["cell_size"]
    if where is None:
        return office_floor(number)
    if number is not None:
        raise MapError(f"floor: {number} with a map; floors by number are drawn, not read")
    if "\n" in where:
        return _written(where, size, "text map")
    path = Path(where)
    if path.suffix.lower() in (".yaml", ".yml"):
        return Site(read_map(path), source=f"occupancy map {path.name}")
    if path.suffix.lower() != ".txt":
        raise MapError(f"map: {where!r} is neither a .yaml (ROS map) nor a .txt (drawn map)")
    if not path.is_file():
        raise MapError(f"map: {where}: no such file")
    return _written(path.read_text(encoding="utf-8"), size, f"text map {path.name}")


def _written(text: str, size: float, source: str) -> Site:
    cells, starts = parse(text)
    every = max(round(size / RESOLUTION), 1)
    rows = cells.shape[0]
    pixels = np.where(cells == WALL, np.uint8(WALL), np.uint8(FREE))
    pixels = pixels.repeat(every, axis=0).repeat(every, axis=1)

    def centre(place: Any) -> tuple[float, float]:
        return (float(place[1]) + 0.5) * size, (rows - float(place[0]) - 0.5) * size

    # Smaller than the cell by more than a robot's radius, so that its neighbours stay free.
    lava = [(*centre(place), 0.01 * size) for place in np.argwhere(cells == HAZARD)]
    return Site(
        OccupancyMap(pixels, size / every, (0.0, 0.0)),
        hazards=lava,
        docks=[(*centre(start), "E") for start in starts],
        goals=[centre(goal) for goal in np.argwhere(cells == GOAL)],
        source=source,
    )


def _floor(options: Mapping[str, Any], site: Site) -> Floor:
    return Floor.of(
        site.picture,
        cell_size=options["cell_size"],
        robot_radius=options["robot_radius"],
        unknown=options["unknown"],
        hazards=site.hazards if options["hazards"] is None else options["hazards"],
        headings=options["headings"],
    )


def _places(options: dict[str, Any]) -> tuple[Places, str]:
    site = _site(options)
    places = places_of(
        _floor(options, site),
        docks=site.docks if options["start"] is None else [options["start"]],
        goals=site.goals if options["goal"] is None else [options["goal"]],
        number=1 if options["starts"] == ANYWHERE else int(options["starts"]),
    )
    return places, site.source


def _simulator(places: Places, source: str, options: dict[str, Any]) -> AbstractSimulator:
    grid = places.grid
    far = grid_simulator(  # of all poses; the horizon is to be chosen later
        grid,
        places.docks,
        horizon=grid.cells.size * grid.headings,
        rewards=Rewards(step=options["step_reward"]),
        source=source,
        **places.floor.scale,
    )
    if options["starts"] == ANYWHERE:
        kinds = layout_of(far).cells[tuple(layout_of(far).positions.T)]
        far = far.with_start(np.flatnonzero(kinds == FREE).tolist())
    horizon = options["horizon"]
    if horizon is None:
        horizon = robust_horizon(far, first=32, longest=_LONGEST)
    if horizon is None:
        raise MapError(
            f"horizon: none given, and the robust plan for η = {ROUTE_ETA} does not lead to the "
            "goal from every start; give one, or move hazards away from the only way"
        )
    return far.with_horizon(horizon)
