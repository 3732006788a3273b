"""Exact ray casting on a map of pixels, for whole batches inside jit.

A ray goes from one free rectangle of pixels to the next. For every pixel and each of 16 directions
a table holds the size of a free rectangle that has the pixel in the corner behind the ray; the ray
leaves it across an edge of pixels, at a point that is computed from the ray's origin, and either
meets a solid pixel there or goes on. With rectangles of one pixel this is the usual walk along the
grid; with large ones most rays in a building arrive after three to five steps, and all of a batch
within twenty. What is met, and where, is the same: up to float32, about 10⁻⁴ pixels.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from numpy.typing import NDArray

from tasid.targets.device import on_device

_SLOPES = np.deg2rad([11.25, 33.75, 56.25, 78.75])
"""Of the four directions in a quadrant: rectangles are chosen to carry such rays farthest."""
_SECTORS = 16
_HEIGHTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192)
"""Of rectangles, in pixels; widths are exact up to 255."""
_STEPS = 4
"""At a time, before asking whether all rays have arrived."""
_PARALLEL = 1e-9


class Hits(NamedTuple):
    """Where rays end, each an array like the directions given."""

    distance: jax.Array
    """In pixels; the limit if nothing is nearer."""
    across: jax.Array
    """Did it meet a pixel's side that is parallel to y?"""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class RayMap:
    """A map to cast rays on. Points are in pixels, x to the right and y up from its corner."""

    table: jax.Array
    """Width + 256 · height of a free rectangle, uint16 [rows, columns, 16]; 0 where it is solid."""

    def cast(self, x: jax.Array, y: jax.Array, dx: jax.Array, dy: jax.Array, limit: Any) -> Hits:
        """Rays from points in free pixels along unit vectors; all arrays of one shape."""
        far = jnp.broadcast_to(jnp.asarray(limit, jnp.float32), dx.shape)
        return Hits(*_cast(self.table, x, y, dx, dy, far))


def ray_map(solid: NDArray[np.bool_]) -> RayMap:
    """The map of these pixels, row 0 at the bottom; the outermost become solid."""
    walled = np.pad(solid[1:-1, 1:-1], 1, constant_values=True)
    return RayMap(on_device(_rectangles(walled)))


def _rectangles(solid: NDArray[np.bool_]) -> NDArray[np.uint16]:
    table = np.zeros((*solid.shape, _SECTORS), dtype=np.uint16)
    for quadrant, (up, right) in enumerate(((1, 1), (1, -1), (-1, 1), (-1, -1))):
        turned = solid[::up, ::right]
        for slope, chosen in enumerate(_longest(turned)):
            table[..., 4 * quadrant + slope] = chosen[::up, ::right]
    return table


def _longest(solid: NDArray[np.bool_]) -> list[NDArray[np.uint16]]:
    """For rays to the upper right: the rectangle that each slope gets farthest in."""
    runs = _runs(solid)
    widths = {1: runs}
    free = runs > 0
    chosen = [np.where(free, runs + np.uint16(256), np.uint16(0)) for _ in _SLOPES]
    reach = [np.minimum(runs / np.cos(a), free / np.sin(a)).astype(np.float32) for a in _SLOPES]
    for below, height in pairwise(_HEIGHTS):
        width = np.zeros_like(runs)
        width[:-below] = np.minimum(widths[below][:-below], widths[height - below][below:])
        widths[height] = width
        for slope, angle in enumerate(_SLOPES):
            far = np.minimum(
                width * np.float32(1 / np.cos(angle)),
                (width > 0) * np.float32(height / np.sin(angle)),
            )
            better = far > reach[slope]
            reach[slope][better] = far[better]
            chosen[slope][better] = width[better] + np.uint16(256 * height)
    return chosen


def _runs(solid: NDArray[np.bool_]) -> NDArray[np.uint16]:
    """How many free pixels there are in a row to the right, the pixel itself included."""
    columns = np.arange(solid.shape[1])
    stops = np.where(solid, columns, solid.shape[1])
    first = np.minimum.accumulate(stops[:, ::-1], axis=1)[:, ::-1]
    return np.minimum(first - columns, 255).astype(np.uint16)


_Rays = tuple[jax.Array, jax.Array, jax.Array, jax.Array, jax.Array]
"""Column, row, distance, whether a side across was met, and whether it goes on."""


@custom_vmap
def _cast(
    table: jax.Array,
    x: jax.Array,
    y: jax.Array,
    dx: jax.Array,
    dy: jax.Array,
    limit: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    columns = table.shape[1]
    flat = table.reshape(-1)
    right, up = dx >= 0, dy >= 0
    sector = _sector(dx, dy)
    slow_x, slow_y = (
        1 / jnp.where(jnp.abs(d) < _PARALLEL, jnp.where(ahead, _PARALLEL, -_PARALLEL), d)
        for d, ahead in ((dx, right), (dy, up))
    )

    def step(ray: _Rays) -> _Rays:
        column, row, distance, across, live = ray
        at = (row * columns + column) * _SECTORS + sector
        size = flat.at[at].get(mode="promise_in_bounds").astype(jnp.int32)
        wide, high = size & 255, size >> 8
        live = live & (size > 0) & (distance < limit)
        edge_x = jnp.where(right, column + wide, column - wide + 1)
        edge_y = jnp.where(up, row + high, row - high + 1)
        to_x, to_y = (edge_x - x) * slow_x, (edge_y - y) * slow_y
        sideways = to_x < to_y
        far = jnp.minimum(to_x, to_y)
        # Along the edge it leaves by, the ray is still inside; rounding must not say otherwise.
        inner_row = jnp.floor(y + far * dy).astype(jnp.int32)
        inner_row = jnp.clip(inner_row, jnp.minimum(row, edge_y), jnp.maximum(row, edge_y - 1))
        inner = jnp.floor(x + far * dx).astype(jnp.int32)
        inner = jnp.clip(inner, jnp.minimum(column, edge_x), jnp.maximum(column, edge_x - 1))
        next_column = jnp.where(sideways, jnp.where(right, edge_x, edge_x - 1), inner)
        next_row = jnp.where(sideways, inner_row, jnp.where(up, edge_y, edge_y - 1))
        return (
            jnp.where(live, next_column, column),
            jnp.where(live, next_row, row),
            jnp.where(live, far, distance),
            jnp.where(live, sideways, across),
            live,
        )

    def steps(ray: _Rays) -> _Rays:
        for _ in range(_STEPS):
            ray = step(ray)
        return ray

    first = (
        jnp.broadcast_to(jnp.floor(x).astype(jnp.int32), dx.shape),
        jnp.broadcast_to(jnp.floor(y).astype(jnp.int32), dx.shape),
        jnp.zeros_like(dx),
        jnp.zeros(dx.shape, bool),
        jnp.ones(dx.shape, bool),
    )
    _, _, distance, across, _ = jax.lax.while_loop(lambda ray: ray[-1].any(), steps, first)
    return jnp.minimum(distance, limit), across


def _sector(dx: jax.Array, dy: jax.Array) -> jax.Array:
    quadrant = jnp.where(dy >= 0, 0, 2) + jnp.where(dx >= 0, 0, 1)
    flat, steep = jnp.abs(dx), jnp.abs(dy)
    eighth = np.float32(np.tan(np.pi / 8))
    slope = jnp.where(
        steep < flat, jnp.where(steep < flat * eighth, 0, 1), jnp.where(flat < steep * eighth, 3, 2)
    )
    return quadrant * 4 + slope


@_cast.def_vmap
def _cast_together(
    size: int, batched: list[bool], table: jax.Array, *rays: jax.Array
) -> tuple[tuple[jax.Array, jax.Array], tuple[bool, bool]]:
    """Rays do not depend on each other: a batch is one larger cast, with one loop."""
    if batched[0]:  # maps that differ, one for each
        whole = [
            array if has else jnp.broadcast_to(array, (size, *array.shape))
            for array, has in zip((table, *rays), batched, strict=True)
        ]
        ends = [_cast(*(array[i] for array in whole)) for i in range(size)]
        return tuple(jnp.stack(part) for part in zip(*ends, strict=True)), (True, True)  # type: ignore[return-value]
    led = [array if has else array[None] for array, has in zip(rays, batched[1:], strict=True)]
    shape = jnp.broadcast_shapes(*(array.shape[1:] for array in led))
    whole = []
    for array in led:
        lead, *own = array.shape
        spread = array.reshape(lead, *(1,) * (len(shape) - len(own)), *own)
        whole.append(jnp.broadcast_to(spread, (size, *shape)))
    return _cast(table, *whole), (True, True)
