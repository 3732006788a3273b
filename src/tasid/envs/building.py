"""A robot with a floor plan: it drives through a building and sees lidar scans, pictures or both.

The paper's running example. The latent state is a pose, a place of a lattice over an occupancy map
and a heading; the robot drives forward and back, turns left and right, or stays, and now and then
does something else. It never stands twice at the same point of its cell, the light changes from
episode to episode, people and chairs stand in the way, and a door may be closed that is open on the
plan. The task is a delivery: from a dock to the goal, without falling down the stairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tasid.envs.block import BlockMDP, block_mdp
from tasid.envs.building_both import BothEmission
from tasid.envs.building_camera import CameraEmission
from tasid.envs.building_doors import closed, doors_on
from tasid.envs.building_episode import CHAIR, PERSON, BuildingDays, worlds_with
from tasid.envs.building_lidar import LidarEmission
from tasid.envs.building_places import Places, places_of, site_of
from tasid.envs.building_pose import Whereabouts, headings, room_at
from tasid.envs.building_rays import ray_map
from tasid.mdp import AbstractSimulator, RobustPlan, perturb, robust_dp
from tasid.mdp.layout import FREE, GOAL, HAZARD, GridLayout
from tasid.mdp.sources.floor import Floor
from tasid.mdp.sources.grid import Rewards
from tasid.mdp.sources.trouble import MapError

NAME = "building"
SENSORS = ("lidar", "camera", "both")
ANYWHERE = "anywhere"
_ROUTE_ETA = 0.1
_ROUTES = 3
"""Episodes last this many times the route of the robust plan for η = _ROUTE_ETA."""
_SPOTS = 6
"""Places on the route where somebody may stand."""


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
    jitter: float = 0.2,
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
    step to step, which takes H times the memory. Without a `horizon` it is three times the steps of
    the robust plan's longest route. The goal pays 1, a hazard −1, every other step `step_reward`:
    less than in the lava crossing, since routes are several times as long.
    """
    options: dict[str, Any] = {
        "map": map,
        "floor": floor,
        "sensor": str(sensor),
        "cell_size": float(cell_size),
        "robot_radius": float(robot_radius),
        "headings": int(headings),
        "start": None if start is None else list(start),
        "goal": None if goal is None else list(goal),
        "starts": starts,
        "hazards": None if hazards is None else [list(zone) for zone in hazards],
        "unknown": unknown,
        "eta": float(eta),
        "per_step": bool(per_step),
        "horizon": None if horizon is None else int(horizon),
        "step_reward": float(step_reward),
        "beams": int(beams),
        "range_limit": float(range_limit),
        "noise": float(noise),
        "dropout": float(dropout),
        "jitter": float(jitter),
        "turn_jitter": float(turn_jitter),
        "obstacles": float(obstacles),
        "closed_doors": closed_doors
        if isinstance(closed_doors, int)
        else [list(point) for point in closed_doors],
        "seed": int(seed),
    }
    _check(options)
    places, source = _places(options)
    sim = _simulator(places, source, options)
    shut, world_map = _with_doors(places, sim, closed_doors)
    world = perturb(world_map, eta=eta, seed=seed, per_step=per_step)
    emission, whereabouts = _emission(places, sim, shut, options)
    days = _days(places, sim, whereabouts, float(obstacles))
    return block_mdp(
        NAME,
        options,
        world,
        emission,
        map_given=sim,
        circumstances=days,
        worlds=partial(worlds_with, world, days),
    )


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
    if options["headings"] not in (4, 8):
        raise ValueError(f"headings: {options['headings']} is neither 4 nor 8")


def _places(options: dict[str, Any]) -> tuple[Places, str]:
    site = site_of(options["map"], options["floor"], options["cell_size"])
    floor = Floor.of(
        site.picture,
        cell_size=options["cell_size"],
        robot_radius=options["robot_radius"],
        unknown=options["unknown"],
        hazards=site.hazards if options["hazards"] is None else options["hazards"],
        directions=options["headings"],
    )
    places = places_of(
        floor,
        docks=site.docks if options["start"] is None else [options["start"]],
        goals=site.goals if options["goal"] is None else [options["goal"]],
        number=1 if options["starts"] == ANYWHERE else int(options["starts"]),
    )
    return places, site.source


def _simulator(places: Places, source: str, options: dict[str, Any]) -> AbstractSimulator:
    far = places.simulator(Rewards(step=options["step_reward"]), source)
    if options["starts"] == ANYWHERE:
        kinds = layout_of(far).cells[tuple(layout_of(far).positions.T)]
        far = far.with_start(np.flatnonzero(kinds == FREE).tolist())
    given = options["horizon"]
    return far.with_horizon(robust_horizon(far) if given is None else given)


def robust_horizon(sim: AbstractSimulator) -> int:
    """Three times the longest route of the robust plan, made for a robot that has that long."""
    horizon, most = 32, 4 * sim.num_states
    while horizon <= most:
        plan = robust_dp(sim.with_horizon(min(horizon, sim.horizon)), eta=_ROUTE_ETA)
        steps = route_steps(plan)
        if steps is not None and _ROUTES * steps <= horizon:
            return _ROUTES * steps
        horizon *= 2
    raise MapError(
        f"horizon: none given, and the robust plan for η = {_ROUTE_ETA} does not lead to the goal "
        "from every start; give one, or move hazards away from the only way"
    )


def route_steps(plan: RobustPlan) -> int | None:
    """Steps to a goal if nothing goes wrong, from the worst start; None if one does not arrive."""
    sim = plan.simulator
    layout = layout_of(sim)
    goal = layout.cells[tuple(layout.positions.T)] == GOAL
    states = np.asarray(sim.starts)
    for step in range(sim.horizon + 1):
        if goal[states].all():
            return step
        if step < sim.horizon:
            states = sim.successor_at(step)[states, plan.actions[step][states]]
    return None


def layout_of(sim: AbstractSimulator) -> GridLayout:
    """Where the poses lie."""
    if sim.layout is None or sim.layout.headings is None:
        raise ValueError("simulator: it has no poses, so there is nothing to see from them")
    return sim.layout


def _with_doors(
    places: Places, sim: AbstractSimulator, doors: int | Sequence[Sequence[float]]
) -> tuple[Floor, AbstractSimulator]:
    """The floor and the map as they really are."""
    if not isinstance(doors, int):
        return _shut(places, sim, doors) if len(doors) else (places.floor, sim)
    shut: list[tuple[float, float]] = []
    truth = places.floor, sim
    while len(shut) < doors:
        for door in _candidates(places, truth[1], shut):
            tried = _shut(places, sim, [*shut, door])
            if _hinders(truth[1], tried[1]) and _arrives(tried[1]):
                shut.append(door)
                truth = tried
                break
        else:
            raise MapError(
                f"closed_doors: {doors}, but only {len(shut)} doors on the route can be closed "
                "with another way left; give points (x, y) instead"
            )
    return truth


def _candidates(
    places: Places, sim: AbstractSimulator, shut: Sequence[tuple[float, float]]
) -> list[tuple[float, float]]:
    plan = robust_dp(sim, eta=_ROUTE_ETA)
    route = plan.route(int(sim.starts[0]))
    points = [step.state[:2] for step in route]  # type: ignore[index]
    return [door for door in doors_on(places.floor, points) if door not in shut]


def _shut(
    places: Places, sim: AbstractSimulator, doors: Sequence[Sequence[float]]
) -> tuple[Floor, AbstractSimulator]:
    """The same poses on a map with closed doors: moves through them do not move."""
    floor = places.floor
    picture = closed(floor.picture, doors)
    truth = Floor.of(
        picture,
        cell_size=floor.lattice.size,
        robot_radius=floor.radius,
        unknown="wall" if floor.pixels is floor.picture.pixels else "free",
        directions=floor.lattice.directions,
    )
    layout = layout_of(sim)
    poses = places.grid.poses(layout.positions, layout.headings)  # type: ignore[arg-type]
    after = truth.grid(places.cells, "drive").successors(poses)
    order = np.argsort(poses)
    successor = order[np.searchsorted(poses[order], after)]
    stay = places.grid.actions.index("stay")
    reward = np.where(successor == sim.successor, sim.reward, sim.reward[:, [stay]])
    return truth, AbstractSimulator(
        successor,
        reward,
        horizon=sim.horizon,
        start=sim.starts.tolist(),
        start_probabilities=sim.start_probabilities.tolist(),
        states=sim.labels,
        origin=sim.origin,
    )


def _hinders(before: AbstractSimulator, after: AbstractSimulator) -> bool:
    """Is the first start's route no longer what it was?"""
    plan = robust_dp(before, eta=_ROUTE_ETA)
    state = int(before.starts[0])
    for step in range(before.horizon):
        action = int(plan.actions[step, state])
        if before.successor_at(step)[state, action] != after.successor_at(step)[state, action]:
            return True
        state = int(before.successor_at(step)[state, action])
    return False


def _arrives(sim: AbstractSimulator) -> bool:
    return route_steps(robust_dp(sim, eta=0.0)) is not None


def _emission(
    places: Places, sim: AbstractSimulator, truth: Floor, options: dict[str, Any]
) -> tuple[LidarEmission | CameraEmission | BothEmission, Whereabouts]:
    solid, offset = _solid(truth)
    pixel, layout = truth.picture.resolution, layout_of(sim)
    centres = layout.centres(np.arange(sim.num_states))
    points = (centres - truth.picture.corner) / pixel - offset
    ahead = headings_of(layout)
    whereabouts = Whereabouts(
        rays=ray_map(solid),
        poses=jnp.asarray(np.concatenate([points, ahead], axis=1), jnp.float32),
        room=jnp.asarray(room_at(solid, points, options["jitter"] / pixel), jnp.float32),
        turn=jnp.float32(np.deg2rad(options["turn_jitter"])),
        pixel=float(pixel),
    )
    lidar = LidarEmission(
        whereabouts,
        jnp.float32(options["noise"]),
        jnp.float32(options["dropout"]),
        options["beams"],
        options["range_limit"],
    )
    stairs = _stairs(places) / pixel - np.tile(offset, 2)
    camera = CameraEmission(whereabouts, jnp.asarray(stairs, jnp.float32))
    emissions = {"lidar": lidar, "camera": camera, "both": BothEmission(camera, lidar)}
    return emissions[options["sensor"]], whereabouts


def headings_of(layout: GridLayout) -> NDArray[np.float64]:
    """Unit vectors ahead [S, 2]."""
    angles = layout.angles
    assert angles is not None
    return headings(angles)


def _solid(floor: Floor) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """What stops rays, row 0 at the bottom, cut to what is free; and how much was cut off."""
    solid = np.pad(floor.pixels[::-1] != FREE, 1, constant_values=True)
    rows, columns = (np.flatnonzero((~solid).any(axis=axis)) for axis in (1, 0))
    cut = np.s_[rows[0] - 1 : rows[-1] + 2, columns[0] - 1 : columns[-1] + 2]
    return solid[cut], np.array([columns[0] - 2.0, rows[0] - 2.0])


def _stairs(places: Places) -> NDArray[np.float64]:
    """Hazards as rectangles x, y, x, y in metres from the map's corner: runs of hazard cells."""
    size = places.floor.lattice.size
    rows = places.cells.shape[0]
    zones: list[tuple[float, float, float, float]] = []
    for row, line in enumerate(places.cells == HAZARD):
        edges = np.flatnonzero(np.diff(np.concatenate([[0], line.astype(int), [0]])))
        for first, last in edges.reshape(-1, 2).tolist():
            low = (rows - 1 - row) * size
            above = [z for z in zones if (z[0], z[2], z[1]) == (first * size, last * size, low + size)]
            if above:
                zones.remove(above[0])
                zones.append((first * size, low, last * size, above[0][3]))
            else:
                zones.append((first * size, low, last * size, low + size))
    return np.array(zones, dtype=np.float64).reshape(-1, 4)


def _days(
    places: Places, sim: AbstractSimulator, whereabouts: Whereabouts, chance: float
) -> BuildingDays:
    layout = layout_of(sim)
    spots = _spots(places, sim) if chance > 0 else np.zeros((0, 2), np.int64)
    if chance > 0 and not len(spots):
        raise MapError(
            "obstacles: every place on the route is the only way, so nobody may stand there"
        )
    place = layout.positions.astype(np.int64)
    after = place[sim.successor]  # [S, A, 2]
    moved = (after != place[:, None]).any(axis=-1)
    enters = np.full(sim.successor.shape, -1, dtype=np.int32)
    for number, spot in enumerate(spots):
        enters[moved & (after == spot).all(axis=-1)] = number
    states = [int(np.flatnonzero((place == spot).all(axis=1))[0]) for spot in spots]
    where = np.asarray(whereabouts.poses)[states, :2] if len(spots) else np.zeros((1, 2))
    kinds = [(PERSON, CHAIR)[number % 2] for number in range(max(len(spots), 1))]
    return BuildingDays(
        spots=jnp.asarray(where, jnp.float32),
        kinds=jnp.asarray(kinds, jnp.int32),
        enters=jnp.asarray(enters),
        chance=jnp.float32(chance),
        stay=places.grid.actions.index("stay"),
        pixel=float(places.floor.picture.resolution),
    )


def _spots(places: Places, sim: AbstractSimulator) -> NDArray[np.int64]:
    """Places on the robust route, apart from each other, that one can get around."""
    layout = layout_of(sim)
    where = {label: index for index, label in enumerate(sim.states)}
    route = robust_dp(sim, eta=_ROUTE_ETA).route(int(sim.starts[0]))
    met = list(dict.fromkeys(tuple(layout.positions[where[step.state]].tolist()) for step in route))
    kept = []
    for place in met[3:-3]:
        if layout.cells[place] == FREE and _can_pass(sim, layout, place):
            kept.append(place)
    chosen = kept[:: max(-(-len(kept) // _SPOTS), 1)]
    return np.array(chosen, dtype=np.int64).reshape(-1, 2)


def _can_pass(sim: AbstractSimulator, layout: GridLayout, place: tuple[int, ...]) -> bool:
    """Is there a way to the goal around this place?"""
    here = (layout.positions == place).all(axis=1)
    goal = layout.cells[tuple(layout.positions.T)] == GOAL
    reached = np.zeros(sim.num_states, dtype=bool)
    level = np.array(sim.starts[:1])
    while level.size:
        reached[level] = True
        after = np.unique(sim.successor[level])
        level = after[~reached[after] & ~here[after]]
    return bool((reached & goal).any())
