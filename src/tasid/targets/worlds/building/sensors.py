"""The sensors of a building, and the map they see: the true one, doors closed and all."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tasid.maps import AbstractSimulator
from tasid.maps.layout import FREE, HAZARD, GridLayout
from tasid.maps.sources.floor import Floor
from tasid.targets.worlds.building.both import BothEmission
from tasid.targets.worlds.building.camera import CameraEmission
from tasid.targets.worlds.building.lidar import LidarEmission
from tasid.targets.worlds.building.places import Places, layout_of
from tasid.targets.worlds.building.pose import Whereabouts, headings, room_at
from tasid.targets.worlds.building.rays import ray_map

SENSORS = ("lidar", "camera", "both")


def emission_of(
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
    emissions: dict[str, Any] = {
        "lidar": lidar,
        "camera": camera,
        "both": BothEmission(camera, lidar),
    }
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
    rows = places.cells.shape[0]
    zones: list[tuple[int, int, int, int]] = []
    for row, line in enumerate(places.cells == HAZARD):
        low = rows - 1 - row
        edges = np.flatnonzero(np.diff(np.concatenate([[0], line.astype(int), [0]])))
        for west, east in edges.reshape(-1, 2).tolist():
            above = [zone for zone in zones if zone[:3] == (west, low + 1, east)]
            for zone in above:
                zones.remove(zone)
            zones.append((west, low, east, above[0][3] if above else low + 1))
    return np.array(zones, dtype=np.float64).reshape(-1, 4) * places.floor.lattice.size
