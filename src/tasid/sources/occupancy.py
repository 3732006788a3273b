"""Simulators from ROS occupancy maps: a lattice of cells over the pixels.

A map_server map is a YAML file with a grey image. A pixel of value v is occupied with probability
p = (255 − v)/255, or v/255 with `negate`; it is a wall if p > occupied_thresh, free if
p < free_thresh, and otherwise unknown.

**Lattice.** A pixel is drivable if it is free and farther from all walls than the robot's radius. A
cell is kept if the robot fits anywhere in it. Its representative is the drivable pixel of largest
clearance; clearance beyond the larger of 2 · radius and cell_size / 4 counts no further, and among
equals the pixel nearest to the cell's centre is taken, so that representatives in open space are
the centres. A move between two neighbouring cells exists if the robot can drive from one
representative to the other without leaving the two cells; in particular if it can drive the
straight segment between them. Doors therefore stay open wherever cells begin and end; straight
segments alone, with cells of 1 m, cut off a tenth of a real office floor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasid.layout import FREE, GOAL, HAZARD, UNKNOWN, WALL
from tasid.simulator import AbstractSimulator, SimulatorError
from tasid.sources.grid import Grid, GridRewards

Place = tuple[int, int]
BACKDROP_PIXELS = 8
"""Largest number of backdrop pixels along the side of a cell."""
_EDGE = 1e-6  # lengths in metres are rounded: nearer to an edge than this is on the edge


@dataclass(frozen=True, eq=False)
class OccupancyMap:
    """Pixels of a map and their place in metres."""

    pixels: NDArray[np.uint8]
    """FREE, WALL or UNKNOWN, row 0 on top."""
    resolution: float
    """Side of a pixel."""
    corner: tuple[float, float]
    """x and y of the lower left corner."""

    def place(self, name: str, point: Sequence[Any], size: float | None = None) -> Place:
        """Row and column of the pixel, or the cell of this size, around a point (x, y, …).

        A point on an edge belongs to the cell above or right of it. `name` is the argument in
        errors.
        """
        size = self.resolution if size is None else size
        rows, columns = (math.ceil(n * self.resolution / size - _EDGE) for n in self.pixels.shape)
        left, lower = self.corner
        try:
            x, y = float(point[0]), float(point[1])
            column, up = (math.floor(z / size + _EDGE) for z in (x - left, y - lower))
        except (LookupError, TypeError, ValueError, OverflowError):
            raise SimulatorError(f"{name}: {point!r:.80} is no point x, y in metres") from None
        if not (0 <= up < rows and 0 <= column < columns):
            right, upper = left + columns * size, lower + rows * size
            bounds = f"x {left:g} … {right:g}, y {lower:g} … {upper:g}"
            raise SimulatorError(f"{name}: {(x, y)} is outside the map: {bounds}")
        return rows - 1 - up, column


def read_map(path: str | Path) -> OccupancyMap:
    """Read a map's YAML and the image that it names."""
    import yaml

    file = Path(path)
    try:
        fields = yaml.safe_load(file.read_bytes())
        image = file.parent / str(fields["image"])
        numbers = [fields[name] for name in ("resolution", "occupied_thresh", "free_thresh")]
        resolution, occupied, free = map(float, numbers)  # YAML reads 5e-2 as text
        x, y, yaw = (float(number) for number in [*fields["origin"], 0.0][:3])
        negate = {0: False, 1: True}[fields.get("negate", 0)]
        right = 0 < resolution < math.inf and 0 <= free <= occupied <= 1 and not yaw
        if not (right and math.isfinite(x) and math.isfinite(y)):
            raise ValueError("yaw must be 0, and 0 ≤ free_thresh ≤ occupied_thresh ≤ 1")
    except (OSError, LookupError, TypeError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise SimulatorError(
            f"{file}: not a map_server file with image, resolution > 0, origin, occupied_thresh, "
            f"free_thresh and negate ({type(error).__name__}: {error!s:.200})"
        ) from None
    value, opaque = _read_image(image)
    p = value / 255.0 if negate else (255.0 - value) / 255.0
    kinds = np.select([~opaque, p > occupied, p < free], [UNKNOWN, WALL, FREE], UNKNOWN)
    return OccupancyMap(kinds.astype(np.uint8), resolution, (x, y))


def _read_image(path: Path) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Grey values 0 … 255 of a PGM or PNG file, and which pixels are opaque."""
    from PIL import Image

    try:
        with Image.open(path, formats=("PPM", "PNG")) as image:
            if image.mode.startswith("I"):  # 16 bits
                value = np.asarray(image, np.float64) / 257.0
                return value, np.ones(value.shape, bool)
            colours = np.asarray(image.convert("RGBA"), np.float64)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise SimulatorError(f"{path}: not a PGM or PNG image of usual size ({error})") from None
    return colours[..., :3].mean(axis=-1), colours[..., 3] > 0


@dataclass(frozen=True, eq=False)
class Lattice:
    """Cells of a robot's map, row 0 on top; lengths in metres."""

    picture: OccupancyMap
    cells: NDArray[np.uint8]
    """Kinds of cells [rows, columns]: FREE if the robot fits, HAZARD, WALL or UNKNOWN."""
    points: NDArray[np.float64]
    """x and y of the representatives [rows, columns, 2]; NaN where the robot does not fit."""
    passages: NDArray[np.bool_]
    """Whether the robot can drive to the neighbour in the north, east, south and west, [rows,
    columns, 4]."""
    cell_size: float
    robot_radius: float

    @classmethod
    def build(
        cls,
        picture: OccupancyMap,
        *,
        cell_size: float | None = None,
        robot_radius: float = 0.0,
        unknown: str = "wall",
        hazards: Sequence[Sequence[float]] = (),
    ) -> Lattice:
        """The lattice for a robot.

        Parameters
        ----------
        cell_size
            Side of a cell, by default a pixel.
        robot_radius
            The robot's centre keeps more than this from walls; unknown area is no wall here.
        unknown
            "wall" or "free": how unknown pixels count.
        hazards
            Circles (x, y, radius) and rectangles (x, y, x, y). Cells from which the robot could
            touch one are absorbing.
        """
        from scipy import ndimage

        resolution = picture.resolution
        size = resolution if cell_size is None else float(cell_size)
        for name, value, right in (
            ("cell_size", size, resolution * (1 - _EDGE) <= size < math.inf),
            ("robot_radius", robot_radius, 0 <= robot_radius < math.inf),
            ("unknown", unknown, unknown in ("wall", "free")),
            ("hazards", hazards, all(len(z) in (3, 4) and np.isfinite(z).all() for z in hazards)),
        ):
            if not right:
                raise SimulatorError(f"{name}: {value!r} on a map with pixels of {resolution:g} m")
        if unknown == "free":
            freed = np.where(picture.pixels == UNKNOWN, np.uint8(FREE), picture.pixels)
            picture = replace(picture, pixels=freed)
        pixels = picture.pixels[::-1]  # rows from the bottom, as y is
        solid = pixels == WALL
        clearance = np.full(pixels.shape, np.inf)
        if solid.any():
            clearance = ndimage.distance_transform_edt(~solid, sampling=resolution)
        drivable = (pixels == FREE) & (clearance > robot_radius + _EDGE * resolution)
        comfort = max(2 * robot_radius, size / 4)
        per_cell = size / resolution
        pixel = _representatives(drivable, np.minimum(clearance, comfort), per_cell)
        fits = pixel[..., 0] >= 0
        known = np.zeros(fits.shape, bool)
        known[tuple(((np.argwhere(pixels != UNKNOWN) + 0.5) // per_cell).astype(int).T)] = True
        cells = np.select([fits, known], [FREE, WALL], UNKNOWN).astype(np.uint8)
        points = np.array(picture.corner) + resolution * (pixel[..., ::-1] + 0.5).astype(np.float64)
        points[~fits] = np.nan
        passages = _passages(drivable, pixel, per_cell)[::-1]
        lattice = cls(picture, cells[::-1], points[::-1], passages, size, float(robot_radius))
        for zone in hazards:
            lattice._mark_hazard(zone)
        return lattice

    def _mark_hazard(self, zone: Sequence[float]) -> None:
        """Mark the cells from which the robot could touch a circle or rectangle."""
        ends = np.array([*zone[:2], *zone[:2]] if len(zone) == 3 else zone, float).reshape(2, 2)
        reach = self.robot_radius + (zone[2] if len(zone) == 3 else 0.0)
        free = np.argwhere(self.cells == FREE)
        left, lower = self.picture.corner
        column, up = free[:, 1] + 0.5, self.cells.shape[0] - free[:, 0] - 0.5
        centre = np.stack([left + column * self.cell_size, lower + up * self.cell_size], axis=1)
        # Gaps between the square cell and the zone along each axis; negative where they overlap.
        gap = np.maximum(ends.min(0) - centre, centre - ends.max(0)) - self.cell_size / 2
        near = np.hypot(*np.maximum(gap, 0.0).T) < reach - 1e-9
        self.cells[tuple(free[near | (gap.max(axis=1) < -1e-9)].T)] = HAZARD

    def locate(self, name: str, point: Sequence[Any]) -> Place:
        """Row and column of the free cell around a point; `name` is the argument in errors."""
        place = self.picture.place(name, point, self.cell_size)
        kind, free = self.cells[place], self.points[self.cells == FREE]
        if kind != FREE:
            x, y = float(point[0]), float(point[1])
            distance = np.hypot(*(free - (x, y)).T)
            nearest = free[distance.argmin()].round(6).tolist() if len(free) else "not there"
            where = "in a hazard" if kind == HAZARD else "where the robot does not fit"
            raise SimulatorError(f"{name}: {(x, y)} is {where}; nearest free place: {nearest}")
        return place

    def grid(self, goals: Sequence[Sequence[Any]], moves: str) -> Grid:
        """Moves over the lattice with goals at these points."""
        cells = self.cells.copy()
        for goal in goals:
            cells[self.locate("goal", goal)] = GOAL
        return Grid(cells, moves, self.passages)

    def start(self, grid: Grid, start: Sequence[Any], goals: Sequence[Sequence[Any]]) -> int:
        """Pose at (x, y) or (x, y, heading), E by default, from which a goal can be reached."""
        place = self.locate("start", start)
        here, there = (tuple(map(float, point[:2])) for point in (start, goals[0]))
        if grid.cells[place] == GOAL:
            raise SimulatorError(f"goal: it is in the cell of the start {here}")
        pose = grid.pose(*place, str(start[2]) if len(start) > 2 else "E")
        if grid.steps_to_goal(pose) is None:
            reason = grid.hazard_in_the_way(pose) or (
                f"walls, unknown area (unknown='free' allows it), the radius {self.robot_radius:g} "
                f"or cells of {self.cell_size:g} m close the way"
            )
            raise SimulatorError(f"goal: {there} cannot be reached from the start {here}: {reason}")
        return pose

    @cached_property
    def layout(self) -> dict[str, Any]:
        """Arguments of `Grid.simulator` that place the cells and draw the map below them."""
        return {
            "points": self.points,
            "cell_size": self.cell_size,
            "corner": self.picture.corner,
            "backdrop": self._backdrop(),
        }

    def _backdrop(self) -> NDArray[np.uint8] | None:
        """The map with a few pixels per cell; walls of any width remain, then free pixels."""
        per_cell = self.cell_size / self.picture.resolution
        fine = min(BACKDROP_PIXELS, math.ceil(per_cell - _EDGE))
        if fine == 1:
            return None
        samples = fine * math.ceil(per_cell / fine - _EDGE)  # per cell, at least one in each pixel
        strength = np.array([1, 2, 0, 0, 0])[self.picture.pixels[::-1]]  # FREE, WALL, …, UNKNOWN
        index = [
            np.minimum((np.arange(n * samples) + 0.5) * per_cell / samples, m).astype(int)
            for n, m in zip(self.cells.shape, strength.shape, strict=True)
        ]
        sampled = np.pad(strength, ((0, 1), (0, 1)))[np.ix_(*index)]
        width = samples // fine
        rows, columns = (fine * n for n in self.cells.shape)
        strongest = sampled.reshape(rows, width, columns, width).max(axis=(1, 3))
        return np.array([UNKNOWN, FREE, WALL], np.uint8)[strongest[::-1]]


def from_occupancy_map(
    path: str | Path,
    *,
    start: Sequence[float | str],
    goal: Sequence[Any],
    horizon: int | None = None,
    moves: str = "compass",
    **options: Any,
) -> AbstractSimulator:
    """Simulator of a map_server map (.yaml with .pgm or .png); lengths in metres.

    Parameters
    ----------
    start
        (x, y) or (x, y, heading); the heading is one of N, E, S, W, default E.
    goal
        A point (x, y) or several.
    horizon, moves
        As in `from_text_map`.
    options
        Arguments of `Lattice.build`: cell_size, robot_radius, unknown, hazards;
        and fields of `GridRewards`: goal_reward, hazard_reward, step_reward.

    Returns
    -------
    AbstractSimulator
        States are (x, y) or (x, y, heading) of the cells' representatives.
    """
    names = [field.name for field in fields(GridRewards) if field.name in options]
    rewards = GridRewards(**{name: options.pop(name) for name in names})
    lattice = Lattice.build(read_map(path), **options)
    goals = [goal] if np.ndim(goal[0]) == 0 else list(goal)
    grid = lattice.grid(goals, moves)
    pose = lattice.start(grid, start, goals)
    return grid.simulator(
        [pose],
        horizon=grid.default_horizon([pose]) if horizon is None else horizon,
        rewards=rewards,
        source=f"occupancy map {Path(path).name}",
        **lattice.layout,
    )


def _representatives(
    drivable: NDArray[np.bool_], clearance: NDArray[np.float64], per_cell: float
) -> NDArray[np.int64]:
    """Row and column of the representative pixel of each cell, [rows, columns, 2]; −1 if none."""
    rows, columns = (math.ceil(n / per_cell - _EDGE) for n in drivable.shape)
    pixels = np.argwhere(drivable)
    place = ((pixels + 0.5) // per_cell).astype(np.int64)
    cell = place @ [columns, 1]
    off_centre = np.abs((pixels + 0.5) / per_cell - place - 0.5).max(axis=1)
    order = np.lexsort((off_centre.round(6), -clearance[drivable].round(6), cell))
    kept, first = np.unique(cell[order], return_index=True)
    chosen = np.full((rows * columns, 2), -1)
    chosen[kept] = pixels[order[first]]
    return chosen.reshape(rows, columns, 2)


def _passages(
    drivable: NDArray[np.bool_], pixel: NDArray[np.int64], per_cell: float
) -> NDArray[np.bool_]:
    """Whether the robot can drive between the representatives `pixel` of neighbouring cells.

    Rows are counted from the bottom, directions clockwise from north.
    """
    from scipy import ndimage

    row, column = (((np.arange(n) + 0.5) // per_cell).astype(int) for n in drivable.shape)
    borders = [np.flatnonzero(np.diff(cell)) + 1 for cell in (row, column)]
    # Connected areas within each cell: an empty row or column between cells keeps them apart.
    apart = np.zeros((len(row) + row[-1], len(column) + column[-1]), bool)
    place = np.ix_(np.arange(len(row)) + row, np.arange(len(column)) + column)
    apart[place] = drivable
    areas = ndimage.label(apart)[0][place]
    of_cell = np.where(pixel[..., 0] >= 0, areas[pixel[..., 0], pixel[..., 1]], -1)
    reached = areas == of_cell[row[:, None], column]  # from the representative, within the cell
    passages = np.zeros((*of_cell.shape, 4), bool)
    y, x = borders[0] - 1, np.arange(len(column))
    i, j = np.nonzero(reached[y] & reached[y + 1])
    passages[row[y[i]], column[x[j]], 0] = passages[row[y[i]] + 1, column[x[j]], 2] = True
    y, x = np.arange(len(row)), borders[1] - 1
    i, j = np.nonzero(reached[:, x] & reached[:, x + 1])
    passages[row[y[i]], column[x[j]], 1] = True
    passages[row[y[i]], column[x[j]] + 1, 3] = True
    return passages
