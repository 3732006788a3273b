"""How far one can see on a map, from every pose and into every direction."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tasid.maps.layout import UNKNOWN, WALL, GridLayout

RAYS = 32
FARTHEST = 12.0
"""Beyond this, in metres or in cells of maps without metres, everything is equally far."""
_CREEP = 0.25
"""Pixels that a ray goes on beside a wall, where distances do not tell how far it may go."""

Floats = NDArray[np.float64]


def views(layout: GridLayout) -> Floats | None:
    """Free distance along so many rays, from straight ahead and on to the left [S, RAYS].

    From the middle of the cell, on what the cells were made from where that is known. None on maps
    whose states look nowhere.
    """
    if layout.angles is None:
        return None
    picture = layout.cells if layout.backdrop is None else layout.backdrop
    per_cell = picture.shape[0] // layout.cells.shape[0]
    pixel = layout.cell_size / per_cell if layout.corner is not None else 1 / per_cell
    solid = np.pad((picture == WALL) | (picture == UNKNOWN), 1, constant_values=True)
    poses = np.column_stack([layout.positions, layout.angles])
    each, which = np.unique(poses, axis=0, return_inverse=True)
    angles = np.deg2rad(each[:, 2:] - 360 / RAYS * np.arange(RAYS))
    middle = (each[:, :2] + 0.5) * per_cell + 1
    return _cast(solid, middle, angles, FARTHEST / pixel)[which.ravel()] * pixel


def _cast(solid: NDArray[np.bool_], middle: Floats, angles: Floats, most: float) -> Floats:
    """Pixels to the first solid one, by steps as long as surely nothing is in the way."""
    from scipy import ndimage  # acting needs no SciPy

    clear = ndimage.distance_transform_edt(~solid)
    down, right = -np.cos(angles), np.sin(angles)
    gone = np.zeros_like(angles)
    last = np.array(solid.shape) - 1
    moving = np.ones(angles.shape, bool)
    while moving.any():
        row = np.clip(np.floor(middle[:, :1] + gone * down), 0, last[0]).astype(np.intp)
        column = np.clip(np.floor(middle[:, 1:] + gone * right), 0, last[1]).astype(np.intp)
        free = clear[row, column]
        # Between two pixels of which one is solid, their distance may be up to √2 longer than what
        # is left of the way.
        gone = np.minimum(gone + np.where(free > 0, np.maximum(free - np.sqrt(2), _CREEP), 0), most)
        moving = (free > 0) & (gone < most)
    return gone
