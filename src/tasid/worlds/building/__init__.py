"""A robot with a floor plan: it drives through a building and observes scans or pictures.

The paper's running example. The latent state is a pose: a place of a lattice over an occupancy map
and a heading. The robot drives forward or back, turns left or right, or stays, and sometimes does
another of these. It never stands twice at the same point of its cell; the light differs between
episodes; a door may be closed that is open on the map. The task is a delivery: from a dock to the
goal, without falling down the stairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasid.layout import FREE, GOAL, HAZARD, HEADINGS, WALL
from tasid.planning import perturb
from tasid.simulator import AbstractSimulator, SimulatorError
from tasid.sources.grid import ACTIONS, Grid, GridRewards, parse_text_map, read_text
from tasid.sources.occupancy import Lattice, OccupancyMap, Place, read_map
from tasid.storage import plain_json
from tasid.targets.block import BlockMDP
from tasid.worlds import check_options, robust_horizon
from tasid.worlds.building.sensors import Light, make_sensor

NAME = "building"
ANYWHERE = "anywhere"
SENSORS = ("lidar", "camera")
OFFICE = Path(__file__).with_name("office.yaml")
STAIRS, DOCK, GOAL_ROOM = (45.3, 11.3, 49.7, 17.7), (44.5, 23.5, "S"), (54.5, 1.5)
"""The task in the office."""
JITTER = 0.2
"""Default of `jitter` in metres, where cells are wide enough."""
LONGEST = 4096
"""Longest horizon that is chosen automatically."""
TEXT_PIXEL = 0.05
"""Pixels of text maps, in metres."""
DOCK_STEPS = (30, 45)
"""Distance of automatic docks from the goal, on maps that are large enough."""

Points = Sequence[Sequence[Any]]


def building(
    *,
    map: str | None = None,
    sensor: str = "lidar",
    cell_size: float = 1.0,
    robot_radius: float = 0.2,
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
    closed_doors: Sequence[Sequence[float]] = (),
    seed: int = 0,
) -> BlockMDP:
    """A building whose perturbation is drawn from `seed`; lengths in metres, angles in degrees.

    Parameters
    ----------
    map
        A ROS map (.yaml), a text map (.txt, or the text itself) whose characters are cells, or None
        for the office of the package.
    sensor
        "lidar" or "camera".
    cell_size, robot_radius, unknown, hazards
        As in `tasid.sources.occupancy.Lattice.build`.
    start, goal
        (x, y) or (x, y, heading), and (x, y). By default those of the map; a goal must be given
        where the map marks none.
    starts
        Number of docks where episodes begin, all equally likely, or "anywhere": at any pose.
    eta, per_step
        Largest probability of a slip; whether slips differ from step to step, too.
    horizon
        Three times the longest route of the robust plan by default.
    step_reward
        As in `GridRewards`; the goal earns 1, a hazard −1.
    beams, range_limit, noise, dropout
        Of the lidar: number, limit, standard deviation, and probability that a beam returns 0.
    jitter, turn_jitter
        Largest deviation from the point of a cell, 0.2 m or half a narrow cell by default, and from
        the heading.
    closed_doors
        Points (x, y) in doors that are closed but open on the map.
    """
    jitter = min(JITTER, cell_size / 2) if jitter is None else jitter
    options = plain_json(locals(), NAME)
    limits = {"beams": (1, 4096), "range_limit": (0.1, 1e3), "noise": (0, 10), "dropout": (0, 1)}
    limits |= {"jitter": (0, cell_size / 2), "turn_jitter": (0, 45)}
    check_options(options, limits, {"sensor": SENSORS})
    if starts != ANYWHERE and (isinstance(starts, str) or starts < 1):
        raise ValueError(f"starts: {starts!r} is neither a number of docks nor {ANYWHERE!r}")

    picture, source, zones, docks, goals = _read_task(map, cell_size)
    docks = docks if start is None else [start]
    goals = goals if goal is None else [goal]
    robot = {name: options[name] for name in ("cell_size", "robot_radius", "unknown")}
    build: Any = partial(Lattice.build, **robot)
    lattice = build(picture, hazards=zones if hazards is None else hazards)
    docks = _choose_docks(lattice, docks, goals, 1 if starts == ANYWHERE else int(starts))
    grid = lattice.grid(goals, "drive")
    sim = grid.simulator(
        [lattice.start(grid, dock, goals) for dock in docks],
        horizon=LONGEST if horizon is None else horizon,
        rewards=GridRewards(step_reward=step_reward),
        source=source,
        **lattice.layout,
    )
    assert sim.layout is not None
    places = tuple(sim.layout.positions.T)
    if starts == ANYWHERE:
        sim = sim.with_start(np.flatnonzero(grid.cells[places] == FREE).tolist())
    if horizon is None:
        sim = sim.with_horizon(robust_horizon(sim, shortest=32, longest=LONGEST))
    true_lattice, true_sim = lattice, sim
    if closed_doors:
        true_lattice, true_sim = _close_doors(lattice, grid, sim, build, closed_doors)
    return BlockMDP(
        perturb(true_sim, eta=eta, seed=seed, per_step=per_step),
        make_sensor(true_lattice.picture, true_lattice.points[places], sim.layout, options),
        name=NAME,
        options=options,
        simulator=sim,
        circumstances=Light(),
    )


def _read_task(
    map: str | None, cell_size: float
) -> tuple[OccupancyMap, str, Points, Points, Points]:
    """The picture, where it is from, and its hazards, docks and goals as far as known."""
    if map is None:
        return read_map(OFFICE), "office", [STAIRS], [DOCK], [GOAL_ROOM]
    if map.endswith((".yaml", ".yml")):
        return read_map(map), f"occupancy map {Path(map).name}", [], [], []
    cells, starts = parse_text_map(map if "\n" in map else read_text(map))
    size = max(round(cell_size / TEXT_PIXEL), 1)
    pixels = np.where(cells == WALL, WALL, FREE).repeat(size, axis=0).repeat(size, axis=1)
    picture = OccupancyMap(pixels.astype(np.uint8), cell_size / size, (0.0, 0.0))

    def points(places: Any) -> list[tuple[float, float]]:
        return [((c + 0.5) * cell_size, (len(cells) - r - 0.5) * cell_size) for r, c in places]

    # Smaller than the cell by more than the robot's radius, so that its neighbours stay free.
    hazards = [(x, y, 0.01 * cell_size) for x, y in points(np.argwhere(cells == HAZARD))]
    return picture, "text map", hazards, points(starts), points(np.argwhere(cells == GOAL))


def _choose_docks(lattice: Lattice, docks: Points, goals: Points, number: int) -> Points:
    """This many docks; chosen where the map marks fewer.

    Docks are some forty steps from the goal and as far from each other as possible.
    """
    if not goals:
        raise SimulatorError("goal: None, and the map marks none; give a point (x, y)")
    docks = list(docks[:number])
    places = [lattice.locate("start", dock) for dock in docks]
    taken = [*(lattice.locate("goal", goal) for goal in goals), *places]
    steps = _steps(lattice, taken[: len(goals)])
    steps[tuple(np.transpose(taken))] = -1
    suitable = (steps >= DOCK_STEPS[0]) & (steps <= DOCK_STEPS[1])
    pool = np.argwhere(suitable if suitable.sum() >= 3 * number else steps >= 0)
    if len(pool) < number - len(docks):
        raise SimulatorError(f"starts: {number}, but only {len(pool)} more docks are free")
    for turn in range(number - len(docks)):
        apart = [np.abs(pool - place).sum(axis=1) for place in taken]
        taken.append(pool[np.min(apart, axis=0).argmax()])
        heading = HEADINGS[(HEADINGS.index("E") + turn) % len(HEADINGS)]
        docks.append((*lattice.points[tuple(taken[-1])].tolist(), heading))
    return docks


def _steps(lattice: Lattice, places: Sequence[Place]) -> NDArray[np.int64]:
    """Moves without turns from each free cell to the nearest of these, else −1, [rows, columns]."""
    walk = Grid(lattice.cells, "compass", lattice.passages)
    steps = np.full(lattice.cells.shape, -1)
    for number, level in enumerate(walk.levels(walk.poses(np.array(places), 0))):
        steps[tuple(walk.places(level).T)] = number
    return np.where(lattice.cells == FREE, steps, -1)


def _close_doors(
    lattice: Lattice, grid: Grid, sim: AbstractSimulator, build: Any, doors: Points
) -> tuple[Lattice, AbstractSimulator]:
    """Lattice and map with a door leaf at each point; moves through one do not move."""
    assert sim.layout is not None
    assert sim.layout.headings is not None
    if np.ndim(doors) != 2:
        raise SimulatorError(f"closed_doors: {doors!r} is no list of points (x, y)")
    pixels = lattice.picture.pixels.copy()
    for point in doors:
        pixels[_door_leaf(lattice.picture, point)] = WALL
    closed = build(replace(lattice.picture, pixels=pixels))
    # Cells that a leaf fills keep their point.
    points = np.where(np.isnan(closed.points), lattice.points, closed.points)
    poses = grid.poses(sim.layout.positions, sim.layout.headings)
    after = replace(grid, passages=lattice.passages & closed.passages).successors(poses)
    blocked, stay = after != grid.successors(poses), ACTIONS["drive"].index("stay")
    return replace(closed, points=points), sim.replace(
        successor=np.where(blocked, sim.successor[:, [stay]], sim.successor),
        reward=np.where(blocked, sim.reward[:, [stay]], sim.reward),
    )


def _door_leaf(picture: OccupancyMap, point: Sequence[Any]) -> tuple[slice, slice]:
    """Pixels of a leaf from wall to wall, the shorter way."""
    row, column = picture.place("closed_doors", point)
    if picture.pixels[row, column] != FREE:
        raise SimulatorError(f"closed_doors: {tuple(point)} is not free; give a door's middle")
    runs = []
    for line, at in ((picture.pixels[row], column), (picture.pixels[:, column], row)):
        solid = np.concatenate([[-1], np.flatnonzero(line != FREE), [line.size]])
        after = int(np.searchsorted(solid, at))
        runs.append(slice(int(solid[after - 1]) + 1, int(solid[after])))
    across, along = (run.stop - run.start for run in runs)
    rows, columns = (slice(max(middle - 1, 0), middle + 2) for middle in (row, column))
    return (rows, runs[0]) if across <= along else (runs[1], columns)
