"""Ray casting beside a slow reference that looks at every pixel, and on the floor we ship."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdps import quick
from tasid.maps.layout import FREE
from tasid.targets.worlds.building.floor import office_floor
from tasid.targets.worlds.building.rays import ray_map


def entries(solid, x, y, angle):
    """Where a ray enters each solid pixel: slabs, float64; ∞ where it does not."""
    rows, columns = np.nonzero(solid)
    enter, leave = np.full(rows.size, -math.inf), np.full(rows.size, math.inf)
    for at, low, step in ((x, columns, math.cos(angle)), (y, rows, math.sin(angle))):
        one, other = (low - at) / step, (low + 1 - at) / step
        enter, leave = (
            np.maximum(enter, np.minimum(one, other)),
            np.minimum(leave, np.maximum(one, other)),
        )
    return np.where((enter <= leave) & (leave > 0), enter, math.inf)


def slow_range(solid, x, y, angle, limit):
    """The nearest of all solid pixels."""
    return min(float(entries(solid, x, y, angle).min(initial=math.inf)), limit)


def walked_range(solid, x, y, angle, limit):
    """From pixel to pixel, float64: where looking at all of them would take too long."""
    column, row, dx, dy = int(x), int(y), math.cos(angle), math.sin(angle)
    far = 0.0
    while not solid[row, column] and far < limit:
        to_x = ((column + (dx > 0)) - x) / dx
        to_y = ((row + (dy > 0)) - y) / dy
        far = min(to_x, to_y)
        if to_x < to_y:
            column += 1 if dx > 0 else -1
        else:
            row += 1 if dy > 0 else -1
    return min(far, limit)


def cast(rays, x, y, angle, limit):
    x, y, angle = (np.asarray(a, np.float64) for a in (x, y, angle))
    directions = jnp.asarray(np.cos(angle), jnp.float32), jnp.asarray(np.sin(angle), jnp.float32)
    return _cast(rays, jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32), *directions, limit)


@jax.jit
def _cast(rays, x, y, dx, dy, limit):
    return rays.cast(x, y, dx, dy, limit)


def agrees(found, reference, solid, x, y, angle, limit):
    """Within a thousandth of a pixel; where a ray grazes a corner, of one of its neighbours."""
    if abs(found - reference(solid, x, y, angle, limit)) < 1e-3:
        return True
    near = [reference(solid, x, y, angle + turn, limit) for turn in (-1e-4, 1e-4)]
    return min(near) - 1e-3 * (1 + found) <= found <= max(near) + 1e-3 * (1 + found)


@quick
@given(st.integers(3, 14), st.integers(3, 14), st.integers(0, 2**32 - 1))
def test_rays_end_at_the_nearest_solid_pixel(rows, columns, seed):
    rng = np.random.default_rng(seed)
    solid = np.ones((16, 16), bool)  # of one size, so that everything is compiled once
    solid[1:rows, 1:columns] = rng.random((rows - 1, columns - 1)) < rng.choice([0.05, 0.2, 0.5])
    free = np.argwhere(~solid)
    if not len(free):
        return
    rays = ray_map(solid)
    start = free[rng.integers(len(free), size=64)] + rng.uniform(0.01, 0.99, (64, 2))
    angle = rng.uniform(-math.pi, math.pi, 64)
    limit = float(rng.choice([3.0, 100.0]))
    found = np.asarray(cast(rays, start[:, 1], start[:, 0], angle, limit).distance)
    for (y, x), turned, distance in zip(start, angle, found, strict=True):
        assert agrees(distance, slow_range, solid, x, y, turned, limit)


def test_along_the_axes():
    solid = np.zeros((9, 12), bool)
    solid[4, 9] = True
    angle = np.array([0.0, math.pi / 2, math.pi, -math.pi / 2])
    hits = cast(ray_map(solid), [3.25] * 4, [4.5] * 4, angle, 50.0)
    # The pixel to the east, and the map's edge, whose outermost pixels are solid.
    np.testing.assert_allclose(hits.distance, [5.75, 3.5, 2.25, 3.5], atol=1e-4)
    assert hits.across.tolist() == [True, False, True, False]


@pytest.fixture(scope="module")
def floor():
    solid = office_floor().picture.pixels[::-1] != FREE
    solid[[0, -1]] = solid[:, [0, -1]] = True
    return solid, ray_map(solid)


def points(solid, number, seed=0):
    rng = np.random.default_rng(seed)
    free = np.argwhere(~solid)
    y, x = (free[rng.integers(len(free), size=number)] + rng.uniform(0.01, 0.99, (number, 2))).T
    return x, y, rng.uniform(-math.pi, math.pi, number)


def test_the_floor_we_ship(floor):
    solid, rays = floor
    x, y, angle = points(solid, 1000)
    found = np.asarray(cast(rays, x, y, angle, 400.0).distance)
    exact = [walked_range(solid, *ray, 400.0) for ray in zip(x, y, angle, strict=True)]
    assert (np.abs(found - exact) < 1e-3).mean() > 0.995
    for ray, distance in zip(zip(x, y, angle, strict=True), found, strict=True):
        assert agrees(distance, walked_range, solid, *ray, 400.0)
    assert 0 < (found == 400.0).sum() < 100


def test_a_batch_changes_nothing(floor):
    """Rays alone, in rows, under vmap and under vmap of vmap: the same bits."""
    solid, rays = floor
    x, y, angle = (jnp.asarray(a, jnp.float32) for a in points(solid, 96, seed=1))
    dx, dy = jnp.cos(angle), jnp.sin(angle)

    @jax.jit
    def alone(rays, x, y, dx, dy):
        return rays.cast(x, y, dx, dy, 300.0).distance

    whole = np.asarray(alone(rays, x, y, dx, dy))
    some = np.asarray(alone(rays, x[7:20], y[7:20], dx[7:20], dy[7:20]))
    np.testing.assert_array_equal(some, whole[7:20])
    rows = [a.reshape(12, 8) for a in (x, y, dx, dy)]
    np.testing.assert_array_equal(jax.vmap(alone, (None, 0, 0, 0, 0))(rays, *rows).ravel(), whole)
    twice = jax.vmap(jax.vmap(alone, (None, 0, 0, 0, 0)), (None, 0, 0, 0, 0))
    np.testing.assert_array_equal(twice(rays, *rows).ravel(), whole)


def test_one_origin_for_many_rays_and_maps_that_differ():
    one, other = np.zeros((6, 9), bool), np.zeros((6, 9), bool)
    other[:, 6] = True
    maps = [ray_map(one), ray_map(other)]
    dx, dy = jnp.asarray([1.0, -1.0]), jnp.zeros(2)

    def scan(rays, x):
        return rays.cast(x, jnp.float32(2.5), dx, dy, 50.0).distance

    x = jnp.asarray([2.5, 4.5])
    np.testing.assert_allclose(
        jax.vmap(scan, (None, 0))(maps[0], x), [[5.5, 1.5], [3.5, 3.5]], atol=1e-4
    )
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *maps)
    np.testing.assert_allclose(jax.vmap(scan)(stacked, x), [[5.5, 1.5], [1.5, 3.5]], atol=1e-4)
