"""The building: its maps and tasks, safety of its plan, its sensors and doors."""

from __future__ import annotations

import math
from functools import partial

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose
from PIL import Image

import tasid
from tasid.keys import Phase, episode_keys
from tasid.layout import GOAL
from tasid.simulator import SimulatorError
from tasid.sources.occupancy import read_map
from tasid.targets.block import on_device
from tasid.worlds import random_bits, route_steps
from tasid.worlds.building import OFFICE
from tasid.worlds.building.rays import cast, square_table

ROOM = "########\n#S.....#\n#.####.#\n#.....G#\n########"
STAIRS = "#########\n#S......#\n#..LLL..#\n#..LLL..#\n#......G#\n#########"


def keys(n, first=0):
    return episode_keys(0, Phase.DIAGNOSIS, first, n)


def compiled(function, *inputs, n):
    """A function of inputs and of n keys of JAX's own type."""
    wrap = partial(jax.random.wrap_key_data, impl="threefry2x32")
    return jax.jit(lambda data, *inputs: function(*inputs, wrap(data)))(keys(n), *inputs)


@pytest.fixture(scope="module")
def office():
    return tasid.make("building", seed=3)


def places(sim, states):
    return {sim.states[s][:2] for s in np.ravel(states)}


# Maps, tasks and plans


def test_the_office(office):
    """93 m × 29 m with one connected area, a dock in the north and the goal in the south."""
    picture, sim = read_map(OFFICE), office.simulator
    assert picture.pixels.shape == (580, 1860)
    assert (sim.num_states, sim.horizon, sim.hazards.sum()) == (4324, 135, 48)
    assert_allclose(sim.states[sim.start][:2], (44.5, 23.5), atol=0.05)
    [goal] = places(sim, np.flatnonzero(sim.layout.kinds == GOAL))
    assert_allclose(goal, (54.5, 1.5), atol=0.05)


def test_the_plan_drives_forward_and_around_the_stairs(office):
    sim = office.simulator
    for eta, steps in ((0.0, 35), (0.1, 45)):
        plan = tasid.robust_dp(sim, eta=eta)
        assert route_steps(plan) == steps
        actions = [sim.action_names[step.action] for step in plan.route()[:steps]]
        assert "back" not in actions
        assert "stay" not in actions


@pytest.mark.parametrize("eta", [0.0, 0.1, 0.45])
def test_no_action_of_the_plan_enters_an_avoidable_hazard(office, eta):
    """From every pose at every step, also where a hazard would cost less than the way out."""
    maps = [office.simulator, tasid.make("building", map=STAIRS, starts="anywhere").simulator]
    for moves in ("compass", "turn", "drive"):
        maps.append(tasid.AbstractSimulator.from_text_map(STAIRS, moves=moves, step_reward=-0.4))
    for number, sim in enumerate(maps):
        assert entered(sim, sim.hazards, eta) == 0
        assert number < 2 or entered(sim.replace(hazards=None), sim.hazards, eta) > 0


def entered(sim, hazards, eta):
    """How many actions of the plan lead into a hazard although another would not."""
    intended = sim.intended(0)
    chosen = intended[np.arange(sim.num_states), tasid.robust_dp(sim, eta=eta).actions]
    return (hazards[chosen] & ~hazards & ~hazards[intended].all(axis=1)).sum()


def test_refusals_give_the_true_reason():
    closed = "#####\n#SLG#\n#####"
    lava = "." * 6 + "L" * 200
    risky = f"{lava}\nS{'.' * 204}G\n{lava}"
    for options, match in (
        ({"map": closed}, "every way leads through a hazard"),
        ({"map": closed.replace("L", "#")}, "walls"),
        ({"map": risky, "step_reward": 0.0}, "a slip into a hazard costs more"),
    ):
        with pytest.raises(SimulatorError, match=match):
            tasid.make("building", **options)
    assert tasid.make("building", map=risky, step_reward=0.0, horizon=40).horizon == 40


def test_text_maps_files_and_starts(tmp_path, office):
    file = tmp_path / "room.txt"
    file.write_text(ROOM)
    env = tasid.make("building", map=str(file))
    assert env.simulator.same_tables(tasid.make("building", map=ROOM).simulator)
    assert env.simulator.num_states == 14 * 4
    anywhere = tasid.make("building", map=ROOM, starts="anywhere").simulator
    assert len(anywhere.starts) == 13 * 4
    docks = tasid.make("building", starts=5).simulator
    assert len(places(docks, docks.starts)) == 5
    assert office.simulator.states[office.simulator.start] == docks.states[docks.starts[0]]
    near = tasid.make("building", start=(50.5, 8.5, "W"), goal=(48.5, 8.5)).simulator
    assert_allclose(near.states[near.start][:2], (50.5, 8.5), atol=0.05)
    assert near.states[near.start][2] == "W"
    assert near.horizon == 6


def test_docks_of_a_ros_map_are_far_from_its_goal(tmp_path):
    """Two rooms joined by a corridor; the goal is at one end."""
    walls = np.ones((40, 200), np.uint8)
    walls[5:35, 5:60] = walls[5:35, 140:195] = walls[15:25, 60:140] = 0
    Image.fromarray(np.array([254, 0], np.uint8)[walls]).save(tmp_path / "m.png")
    (tmp_path / "m.yaml").write_text(
        "image: m.png\nresolution: 0.1\norigin: [-10, 5, 0]\nnegate: 0\n"
        "occupied_thresh: 0.65\nfree_thresh: 0.196\n"
    )
    task = {"map": str(tmp_path / "m.yaml"), "starts": 2}
    with pytest.raises(SimulatorError, match="goal"):
        tasid.make("building", **task)
    sim = tasid.make("building", **task, goal=(-9.0, 7.0)).simulator
    [(goal, _)] = places(sim, np.flatnonzero(sim.layout.kinds == GOAL))
    assert goal == pytest.approx(-9.0, abs=0.6)
    assert all(x - goal > 5 for x, _ in places(sim, sim.starts))
    assert route_steps(tasid.robust_dp(sim, eta=0.1)) * 3 <= sim.horizon


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"sensor": "nose"}, "sensor"),
        ({"beams": 0}, "beams"),
        ({"starts": 0}, "starts"),
        ({"starts": 99}, "starts"),
        ({"goal": (0.5, 3.5)}, "goal"),
        ({"goal": "here"}, "goal"),
        ({"goal": (1.5, 3.5)}, "goal"),
        ({"start": (1.5, 3.5, "up")}, "heading"),
        ({"start": (3.5, 2.5)}, "start.*nearest"),
        ({"map": "none.txt"}, r"none\.txt"),
        ({"robot_radius": 2.0}, "robot_radius|start|fit"),
        ({"closed_doors": [(0.5, 0.5)]}, "closed_doors"),
        ({"closed_doors": 1}, "closed_doors"),
    ],
)
def test_wrong_options_are_named(options, match):
    with pytest.raises(ValueError, match=match):
        tasid.make("building", **({"map": ROOM} | options))


# Rays and the lidar


def slab_range(solid, x, y, angle, limit):
    """The nearest entry into any solid pixel, in float64."""
    rows, columns = np.nonzero(solid)
    enter, leave = np.full(rows.size, -math.inf), np.full(rows.size, math.inf)
    for at, low, step in ((x, columns, math.cos(angle)), (y, rows, math.sin(angle))):
        ends = (low - at) / step, (low + 1 - at) / step
        enter, leave = np.maximum(enter, np.minimum(*ends)), np.minimum(leave, np.maximum(*ends))
    return min(np.where((enter <= leave) & (leave > 0), enter, math.inf).min(), limit)


def test_rays_end_at_the_nearest_solid_pixel():
    rng, exact, total = np.random.default_rng(0), 0, 0
    program = jax.jit(cast)
    for density in (0.05, 0.2, 0.5) * 4:
        solid = np.pad(rng.random((14, 30)) < density, 1, constant_values=True)
        free = np.argwhere(~solid)
        y, x = (free[rng.integers(len(free), size=64)] + rng.uniform(0.01, 0.99, (64, 2))).T
        angle, limit = rng.uniform(-math.pi, math.pi, 64), float(rng.choice([3.0, 100.0]))
        rays = (np.float32(part) for part in (x, y, np.cos(angle), np.sin(angle)))
        found = program(on_device(square_table(solid)), *rays, limit)
        for px, py, turned, distance in zip(x, y, angle, found, strict=True):
            # Where a ray grazes a corner float32 may decide as one of its neighbours does.
            near = [slab_range(solid, px, py, turned + e, limit) for e in (0.0, -1e-4, 1e-4)]
            assert min(near) - 0.01 <= distance <= max(near) + 0.01
            exact, total = exact + (abs(near[0] - distance) < 1e-3), total + 1
    assert exact / total > 0.99


def test_a_scan_by_hand():
    """From the middle of a cell in a corridor: ahead, left, behind, right."""
    quiet = {"noise": 0.0, "dropout": 0.0, "jitter": 0.0, "turn_jitter": 0.0, "beams": 4}
    env = tasid.make("building", map=ROOM, **quiet, range_limit=3.0)
    states = {label: i for i, label in enumerate(env.simulator.states)}
    x, y = next(label[:2] for label in states if abs(label[0] - 3.5) < 0.1 and label[1] > 3)
    assert (x, y) == (pytest.approx(3.5, abs=0.05), pytest.approx(3.5, abs=0.05))
    ahead = {"E": 7 - x, "N": 4 - y, "W": x - 1, "S": y - 3}
    for heading, order in (("E", "ENWS"), ("N", "NWSE")):
        _, [scan] = env.place(states[x, y, heading], keys(1))
        assert_allclose(scan, [min(ahead[side], 3.0) for side in order], atol=2e-3)


def test_noise_dropouts_and_jitter():
    options = {"map": ROOM, "beams": 16, "dropout": 0.1, "noise": 0.05, "range_limit": 3.0}
    still = tasid.make("building", **options, jitter=0.0, turn_jitter=0.0)
    _, scans = still.place(still.simulator.start, keys(4096))
    assert ((scans == 0).mean(axis=0) == pytest.approx(0.1, abs=0.03)) is True
    far = np.median(scans, axis=0) == 3.0
    assert far.any()
    assert np.isin(scans[:, far], (0, 3)).all()
    deviation = np.nanstd(np.where(scans[:, ~far] > 0, scans[:, ~far], np.nan), axis=0)
    assert_allclose(deviation, 0.05, rtol=0.1)
    around = tasid.make("building", **options, jitter=0.25, turn_jitter=10.0).emission.surroundings
    pose = compiled(
        lambda around, at, keys: around.pose(random_bits(keys, 3), at),
        *(around, np.zeros(4096, np.int32)),
        n=4096,
    )
    still_pose = np.asarray(around.poses)[0]
    for at, exact in zip(pose[:2], still_pose[:2], strict=True):
        offset = (np.ravel(at) - exact) * around.pixel
        assert np.abs(offset).max() <= 0.25 + 1e-6
        assert offset.std() == pytest.approx(0.25 / 3**0.5, rel=0.05)
    turn = np.rad2deg(np.arctan2(*np.ravel([pose.ahead_y, pose.ahead_x]).reshape(2, -1)))
    assert (turn.min(), turn.max()) == (pytest.approx(-10, abs=0.1), pytest.approx(10, abs=0.1))


def test_which_poses_of_the_office_look_alike():
    """Two rooms are copies, as in real buildings; no action leads to two poses that look alike."""
    quiet = tasid.make("building", noise=0.0, dropout=0.0, jitter=0.0, turn_jitter=0.0)
    sim = quiet.simulator
    _, scans = quiet.place(np.arange(sim.num_states), keys(sim.num_states))
    _, shown, count = np.unique(scans.round(3), axis=0, return_inverse=True, return_counts=True)
    alike = count[shown.ravel()] > 1
    assert 0.01 < alike.mean() < 0.05
    for row in np.unique(sim.successor, axis=0):
        states = np.unique(row)
        assert len(np.unique(shown.ravel()[states])) == len(states)


# Camera and light


def test_walls_floor_and_light_in_pictures():
    """Facing a wall, between floor and ceiling; places and headings differ, light by episode."""
    env = tasid.make("building", map=STAIRS, sensor="camera", seed=1)
    at = {label: s for s, label in enumerate(env.simulator.states)}
    near, far, aside = (
        env.place(next(s for label, s in at.items() if seen(label)), keys(64))[1].astype(float)
        for seen in (
            lambda p: p[0] < 2 and p[1:] == (4.475, "W"),
            lambda p: p[0] < 2 and p[1:] == (4.475, "E"),
            lambda p: p[0] < 2 and p[1:] == (4.475, "N"),
        )
    )
    assert near.shape == (64, 64, 64, 3)
    brightness = near.mean(axis=(1, 2, 3))
    assert 0.5 < brightness.min() / brightness.max() < 0.75
    floor, ceiling = far[:, -1, 24:40], far[:, 0, 24:40]
    assert np.ptp(floor.mean(axis=0), axis=0).max() < 15  # one colour in every column
    assert (ceiling.mean(axis=(1, 2)) > floor.mean(axis=(1, 2)) * 1.2).all()
    wall = [view[:, 24:40, 24:40].mean(axis=(0, 1, 2)) for view in (near, far, aside)]
    assert min(np.abs(wall[i] - wall[j]).max() for i, j in ((0, 1), (0, 2), (1, 2))) > 15


# Doors


def test_a_closed_door_is_open_on_the_map(office):
    """Moves through it, to and fro, do not move; nothing else differs, and a detour is left."""
    env = tasid.make("building", closed_doors=[(57.5, 7.0)], seed=3)
    sim, true = env.simulator, env.latent.world.simulator
    assert sim.same_tables(office.simulator)
    plan, wrong = tasid.robust_dp(sim, eta=0.1), np.argwhere(sim.successor != true.successor)
    assert 2 <= len(wrong) <= 8
    for s, a in wrong:
        assert true.successor[s, a] == s
        assert sim.action_names[a] in ("forward", "back")
        assert true.reward[s, a] == true.reward[s, 4]
    route = plan.path(sim.starts)[:, 0]
    assert any(s in route and plan.actions[list(route).index(s), s] == a for s, a in wrong)
    assert env.latent.robust_value(plan) < 0 < env.latent.optimal_value()
    facing = np.flatnonzero((sim.successor != true.successor)[:, 0])
    open_scans, closed_scans = (
        e.place(facing[0], keys(256))[1][:, 0].mean() for e in (office, env)
    )
    assert closed_scans < open_scans - 0.5
    given = tasid.make("building", map=ROOM, closed_doors=[(6.5, 2.5)])
    changed = given.latent.world.simulator.successor != given.simulator.successor
    assert {given.simulator.states[s][2] for s in np.flatnonzero(changed.any(axis=1))} == {"N", "S"}
