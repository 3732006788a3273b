"""What the robot of a building sees: exact without noise, and noise of the size that is said."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from test_building_rays import walked_range

import tasid
from tasid.targets.target import episode_keys, seed_key, stream
from tasid.targets.worlds.building.camera import NOISE_WORDS
from tasid.targets.worlds.building.episode import CHAIR, HEIGHT, PERSON, RADIUS
from tasid.targets.worlds.counter_hash import random_bits

ROOM = """\
##############
#S...........#
#....#.......#
#.......LL...#
#...........G#
##############"""
STILL = {"jitter": 0.0, "turn_jitter": 0.0}


def room(**options):
    return tasid.make("building", map=ROOM, **options)


def seen(env, states, seed=0, episodes=None, steps=None):
    """One observation per state, each in an episode of its own unless told."""
    states = jnp.asarray(states)
    numbers = jnp.arange(states.size) if episodes is None else jnp.asarray(episodes)
    keys = episode_keys(seed_key(seed), 3, numbers)
    target = env.target
    days = jax.vmap(target.circumstances.draw)(keys)
    moment = stream(keys, 1) if steps is None else jax.vmap(jax.random.fold_in)(keys, steps)
    return np.asarray(emitted(target.emission, moment, states, days)), days


@jax.jit
def emitted(emission, keys, states, days):
    return jax.vmap(emission)(keys, states, days)


def pose(env, x, y, heading):
    return env.simulator.states.index((x, y, heading))


def solid_of(rows, every=20):
    """The text map as pixels of 5 cm, row 0 at the bottom."""
    cells = np.array([[x == "#" for x in row] for row in rows.split("\n")])[::-1]
    return cells.repeat(every, axis=0).repeat(every, axis=1)


# ---------------------------------------------------------------- lidar


def test_a_clean_scan_is_what_rays_say():
    env = room(noise=0.0, dropout=0.0, beams=90, range_limit=6.0, **STILL)
    for x, y, heading, ahead in ((3.5, 2.5, "E", 0), (10.5, 3.5, "N", 90), (2.5, 1.5, "S", -90)):
        scan = seen(env, [pose(env, x, y, heading)])[0][0]
        angle = [math.radians(ahead + 4 * beam) for beam in range(90)]
        # A little aside, since rays from the middle of a cell meet corners of others exactly.
        near = [
            [0.05 * walked_range(solid_of(ROOM), 20 * x, 20 * y, a + e, 120.0) for a in angle]
            for e in (-1e-4, 1e-4)
        ]
        low, high = np.min(near, axis=0) - 2e-3, np.max(near, axis=0) + 2e-3
        assert ((scan >= low) & (scan <= high)).all()
        assert (scan <= 6.0).all()
        assert scan.dtype == np.float32


def test_beams_go_to_the_left():
    """Looking east from the west wall: wall behind, the far wall ahead, north on the left."""
    env = room(noise=0.0, dropout=0.0, beams=4, range_limit=100.0, **STILL)
    scan = seen(env, [pose(env, 1.5, 4.5, "E")])[0][0]
    np.testing.assert_allclose(scan, [11.5, 0.5, 0.5, 3.5], atol=1e-3)
    scan = seen(env, [pose(env, 1.5, 4.5, "S")])[0][0]
    np.testing.assert_allclose(scan, [3.5, 11.5, 0.5, 0.5], atol=1e-3)


def test_noise_dropouts_and_the_limit():
    env = room(noise=0.03, dropout=0.03, range_limit=4.0, **STILL)
    clean = room(noise=0.0, dropout=0.0, range_limit=4.0, **STILL)
    state = pose(env, 3.5, 2.5, "E")
    scans, exact = seen(env, [state] * 4000)[0], seen(clean, [state])[0][0]
    lost = scans == 0.0
    assert lost.mean() == pytest.approx(0.03, abs=4.5 * math.sqrt(0.03 * 0.97 / lost.size))
    for beam in range(0, 64, 7):  # drop-outs are as likely everywhere
        assert lost[:, beam].mean() == pytest.approx(0.03, abs=0.013)
    far = exact == 4.0
    assert 3 < far.sum() < 60
    assert (scans[:, far][~lost[:, far]] == 4.0).all()
    sure = exact < 3.85
    error = (scans - exact)[:, sure][~lost[:, sure]]
    assert error.mean() == pytest.approx(0.0, abs=4.5 * 0.03 / math.sqrt(error.size))
    assert error.std() == pytest.approx(0.03, rel=0.01)
    assert np.abs(error).max() <= 0.03 * 2 * math.sqrt(3) + 1e-5
    assert stats.kurtosis(error) == pytest.approx(-0.3, abs=0.05)
    neighbours = (scans - exact)[:, [5, 6]][~lost[:, [5, 6]].any(axis=1)]
    assert abs(np.corrcoef(neighbours.T)[0, 1]) < 0.08
    assert env.target.emission.bounds == (0.0, 4.0)
    assert ((scans >= 0) & (scans <= 4.0)).all()


# ---------------------------------------------------------------- where it stands


def test_the_robot_stands_around_the_middle_of_its_cell():
    env = room(jitter=0.2, turn_jitter=3.0)
    whereabouts = env.target.emission.whereabouts
    state = pose(env, 3.5, 2.5, "N")
    keys = episode_keys(seed_key(0), 1, jnp.arange(4000))
    stands = jax.vmap(lambda key: whereabouts.stand(random_bits(key, 3), state))(keys)
    middle = np.asarray(whereabouts.poses[state, :2])
    turned = np.degrees(np.arctan2(-np.asarray(stands.ahead_x), np.asarray(stands.ahead_y)))
    moved = (np.stack([stands.x, stands.y], axis=1) - middle) * whereabouts.pixel
    for sample, most in ((moved[:, 0], 0.2), (moved[:, 1], 0.2), (turned, 3.0)):
        assert np.abs(sample).max() <= most + 1e-4
        assert stats.kstest(sample, "uniform", (-most, 2 * most)).pvalue > 1e-3
    length = np.hypot(stands.ahead_x, stands.ahead_y)
    np.testing.assert_allclose(length, 1.0, atol=1e-5)


def test_nobody_stands_in_a_wall():
    """In the narrow rooms of the shipped floor the robot keeps away from what is near."""
    env = tasid.make("building")
    whereabouts = env.target.emission.whereabouts
    solid = np.asarray(whereabouts.rays.table[..., 0]) == 0
    room = np.asarray(whereabouts.room)
    assert (room >= 0.1 / 0.05 - 1e-6).all()
    assert (room <= 0.2 / 0.05 + 1e-6).all()
    assert (room < 4).any()
    x, y = np.asarray(whereabouts.poses[:, :2]).T
    for east in np.linspace(-1, 1, 9):
        for north in np.linspace(-1, 1, 9):
            at = np.floor(y + north * room * 0.999), np.floor(x + east * room * 0.999)
            assert not solid[at[0].astype(int), at[1].astype(int)].any()


@pytest.mark.parametrize("sensor", ["lidar", "camera"])
def test_no_observation_comes_back(sensor):
    env = room(sensor=sensor)
    some = seen(env, [pose(env, 3.5, 2.5, "E")] * 50, episodes=[0] * 50, steps=jnp.arange(50))[0]
    assert len({x.tobytes() for x in some}) == 50


# ---------------------------------------------------------------- camera


@pytest.mark.parametrize(("heading", "ahead"), [("E", 0.0), ("N", math.pi / 2)])
def test_walls_stand_where_rays_end(heading, ahead):
    """Every column: ceiling above the wall's upper edge, by the distance that a slow ray walks."""
    env = tasid.make("building", map=ROOM.replace("L", "."), sensor="camera", **STILL)
    x, y = 4.5, 2.5
    emission = env.target.emission
    days = jax.vmap(env.target.circumstances.draw)(episode_keys(seed_key(1), 0, jnp.arange(1)))
    day = jax.tree.map(lambda leaf: leaf[0], days)._replace(light=jnp.ones(3))
    stand = emission.whereabouts.stand(jnp.full(3, 1 << 31, jnp.uint32), pose(env, x, y, heading))
    no_grain = jnp.full(NOISE_WORDS, 0x80808080, jnp.uint32)
    picture = np.asarray(emission.picture(stand, no_grain, day)) + 0.5  # was rounded down
    slopes = (np.arange(64) - 31.5) / 32
    for column, right in enumerate(slopes):
        turned = -math.atan(right) + 1e-5
        distance = 0.05 * walked_range(solid_of(ROOM), 20 * x, 20 * y, ahead + turned, 800.0)
        depth = distance * math.cos(turned)
        for row, down in enumerate(slopes):
            height = 1.0 - down * depth
            if min(abs(height), abs(height - 2.6)) < 0.02:
                continue
            above = 1.6 / max(-down, 1e-9)
            ceiling = np.array([206, 208, 204]) / (1 + 0.12 * above)
            is_ceiling = np.allclose(picture[row, column], ceiling, atol=0.55)
            assert is_ceiling == (height > 2.6), (row, column)
            below = 1.0 / max(down, 1e-9)
            tiles = [np.array([112, 104, 92]) * tone / (1 + 0.12 * below) for tone in (0.86, 1.14)]
            is_floor = any(np.allclose(picture[row, column], tile, atol=0.55) for tile in tiles)
            assert is_floor == (height < 0), (row, column)


def test_walls_differ_along_them_and_stay_what_they_are():
    """The same wall twice is the same up to grain; two walls a few metres apart are not."""
    env = room(sensor="camera", **STILL)
    states = [pose(env, x, 4.5, "N") for x in (2.5, 5.5, 8.5, 11.5)]
    first, _ = seen(env, states, seed=1, episodes=[0] * 4, steps=jnp.arange(4))
    again, _ = seen(env, states, seed=1, episodes=[0] * 4, steps=jnp.arange(4, 8))
    one, two = first.astype(float), again.astype(float)
    same = np.abs(one - two).mean(axis=(1, 2, 3))
    assert (same < 8).all()
    for i in range(4):
        for j in range(i):
            assert np.abs(one[i] - one[j]).mean() > 2 * same.max()


def test_grain_and_light():
    env = room(sensor="camera", **STILL)
    state = pose(env, 8.5, 4.5, "S")
    within, _ = seen(env, [state] * 400, episodes=[7] * 400, steps=jnp.arange(400))
    assert within.dtype == np.uint8
    assert within.shape[1:] == env.target.observation_shape == (64, 64, 3)
    inner = within[:, (within.min(axis=0) > 0) & (within.max(axis=0) < 255)].astype(float)
    spread = inner.std(axis=0)
    assert spread.mean() == pytest.approx(20 / math.sqrt(12), rel=0.05)
    assert abs(np.corrcoef(inner[:, 100], inner[:, 101])[0, 1]) < 0.25
    across, days = seen(env, [state] * 400)
    gain = np.asarray(days.light).mean(axis=1)
    assert 0.68 < gain.min() < 0.75 < 1.12 < gain.max() < 1.25
    bright = across.reshape(400, -1).mean(axis=1)
    assert np.corrcoef(bright, gain)[0, 1] > 0.99
    tint = np.asarray(days.light) / gain[:, None]
    assert tint.std() > 0.02


def test_stairs_are_seen_on_the_floor():
    plain = tasid.make("building", map=ROOM.replace("L", "."), sensor="camera", **STILL)
    lava = room(sensor="camera", **STILL)
    at = (5.5, 2.5, "E")
    one, _ = seen(plain, [plain.simulator.states.index(at)])
    other, _ = seen(lava, [lava.simulator.states.index(at)])
    differs = (np.abs(one[0].astype(int) - other[0].astype(int)) > 25).any(axis=-1)
    assert differs[:32].sum() == 0
    assert 30 < differs[32:].sum() < 1500


# ---------------------------------------------------------------- somebody in the way


def test_people_are_seen_by_both_sensors():
    """An open hall: straight ahead at its distance less its radius, and as tall as it is."""
    open_row = "#" + 18 * "." + "#"
    rows = [open_row, open_row, "#S" + 17 * "." + "#", open_row, "#" + 17 * "." + "G#"]
    hall = "\n".join(["#" * 20, *rows, "#" * 20])
    still = {**STILL, "noise": 0.0, "dropout": 0.0, "range_limit": 30.0, "map": hall}
    lidar = tasid.make("building", obstacles=1.0, **still)
    camera = tasid.make("building", obstacles=1.0, sensor="camera", **still)
    empty = tasid.make("building", sensor="camera", **still)
    days = lidar.target.circumstances
    poses = np.asarray(lidar.target.emission.whereabouts.poses[:, :2])
    kinds = {PERSON: 0, CHAIR: 0}
    _, drawn = seen(lidar, [0] * 40)
    assert (np.asarray(drawn.spot) >= 0).all()
    for episode, spot in enumerate(np.asarray(drawn.spot).tolist()):
        kind = int(days.kinds[spot])
        there = np.abs(poses - np.asarray(days.spots[spot])).sum(axis=1).argmin()
        x, y, _ = lidar.simulator.states[there]
        place = (x - 2.0, y, "E")
        if place not in lidar.simulator.states or kinds[kind] > 2:
            continue
        kinds[kind] += 1
        state = lidar.simulator.states.index(place)
        scan = seen(lidar, [state], episodes=[episode])[0][0]
        assert scan[0] == pytest.approx(2.0 - RADIUS[kind], abs=1e-3)
        picture = seen(camera, [state], episodes=[episode])[0][0].astype(int)
        without = seen(empty, [state], episodes=[episode])[0][0].astype(int)
        changed = (np.abs(picture - without) > 0).any(axis=-1)
        depth = 2.0 - RADIUS[kind]
        rows = np.flatnonzero(changed[:, 31:33].all(axis=1))
        slopes = (np.arange(64) - 31.5) / 32
        inside = np.flatnonzero((1 - slopes * depth > 0) & (1 - slopes * depth < HEIGHT[kind]))
        assert set(rows) <= set(range(inside[0] - 1, inside[-1] + 2))
        assert len(rows) > 0.6 * len(inside)
        assert not changed[:, :8].any()
    assert min(kinds.values()) > 0


# ---------------------------------------------------------------- both


@pytest.mark.parametrize("beams", [64, 90])
def test_both_are_the_one_and_the_other(beams):
    quiet = {**STILL, "noise": 0.0, "dropout": 0.0, "beams": beams}
    states = [3, 50, 77]
    both = room(sensor="both", **quiet)
    observed = seen(both, states)[0]
    assert observed.shape[1:] == both.target.observation_shape == (64 + -(-beams // 64), 64, 3)
    np.testing.assert_array_equal(observed[:, :64], seen(room(sensor="camera", **quiet), states)[0])
    ranges = seen(room(**quiet), states)[0]
    grey = observed[:, 64:].reshape(3, -1, 3)
    np.testing.assert_array_equal(grey[..., 0], grey[..., 2])
    np.testing.assert_array_equal(grey[:, :beams, 1], np.round(ranges * 25.5))
    assert (grey[:, beams:] == 0).all()
