"""What a building is read from: the floor that is drawn here, a ROS map or a text map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tasid.maps.layout import FREE, GOAL, HAZARD, WALL
from tasid.maps.sources.map_server import OccupancyMap, read_map
from tasid.maps.sources.text_map import parse
from tasid.maps.sources.trouble import MapError
from tasid.targets.worlds.building.floor import RESOLUTION, office_floor


@dataclass(frozen=True, eq=False)
class Site:
    """A map, and what is known about the task on it; all lengths in metres."""

    picture: OccupancyMap
    hazards: Sequence[Sequence[float]] = ()
    docks: Sequence[Sequence[float | str]] = ()
    goals: Sequence[Sequence[float]] = ()
    source: str = ""


def site_of(where: str | None, number: int | None, cell_size: float) -> Site:
    """The floor that comes with the package, one by number, a ROS map, or a text map.

    A text map is a file or the text itself; a character is a cell.
    """
    if where is None:
        floor = office_floor(number)
        name = "office floor" if number is None else f"office floor {number}"
        return Site(floor.picture, floor.hazards, [floor.dock], [floor.goal], name)
    if number is not None:
        raise MapError(f"floor: {number} with a map; floors by number are drawn, not read")
    if "\n" in where:
        return _written(where, cell_size, "text map")
    path = Path(where)
    if path.suffix.lower() in (".yaml", ".yml"):
        return Site(read_map(path), source=f"occupancy map {path.name}")
    if path.suffix.lower() != ".txt":
        raise MapError(f"map: {where!r} is neither a .yaml (ROS map) nor a .txt (drawn map)")
    if not path.is_file():
        raise MapError(f"map: {where}: no such file")
    return _written(path.read_text(encoding="utf-8"), cell_size, f"text map {path.name}")


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
