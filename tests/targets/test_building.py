"""The building: its floors, its task, its slips, people in the way, closed doors, bad input."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image
from scipy import ndimage

import tasid
from compiling import AS_USERS
from tasid.maps import policy_value, worst_case_value
from tasid.maps.layout import FREE, GOAL, HAZARD, UNKNOWN, WALL
from tasid.maps.sources.occupancy_map import Floor
from tasid.targets.rollout import trace
from tasid.targets.streams import DIAGNOSIS
from tasid.targets.target import episode_keys, seed_key
from tasid.targets.worlds.building.floor import DEPTH, LENGTH, office_floor
from tasid.targets.worlds.route import layout_of, route_steps

SMALL = """\
##########
#S.......#
#.#####..#
#.......G#
#........#
##########"""


@pytest.fixture(scope="module")
def env():
    return tasid.make("building")


def places_met(plan, start=None):
    layout = layout_of(plan.simulator)
    where = {label: index for index, label in enumerate(plan.simulator.states)}
    return np.array([layout.positions[where[step.state]] for step in plan.route(start)])


def nearest_hazard(plan):
    """Moves between the route and the nearest hazard cell."""
    lava = np.argwhere(layout_of(plan.simulator).cells == HAZARD)
    met = places_met(plan)
    return int(np.abs(met[:, None] - lava[None]).sum(axis=-1).min())


# ---------------------------------------------------------------- floors


@pytest.mark.parametrize("number", [None, 0, 1, 2, 3, 4])
def test_floors_are_whole_and_have_a_task(number):
    """All that is free is one piece; on it a delivery beside stairs, which η = 0.1 avoids."""
    drawn = office_floor(number)
    pixels = drawn.picture.pixels
    assert pixels.shape == (DEPTH * 20, LENGTH * 20)
    assert set(np.unique(pixels)) == {FREE, WALL, UNKNOWN}
    free = ndimage.label(pixels == FREE)[0]
    assert (free == np.bincount(free[free > 0]).argmax())[free > 0].mean() > 0.98
    assert not ((pixels[:-1] == FREE) & (pixels[1:] == UNKNOWN)).any(), "walls are closed"
    for size in (1.0, 0.5):
        floor = Floor.of(drawn.picture, cell_size=size, robot_radius=0.2)
        areas = floor.lattice.areas()
        assert np.bincount(areas[areas > 0]).max() > 0.97 * (areas > 0).sum()
    made = tasid.make("building", floor=number)
    nominal, robust = (tasid.robust_dp(made.simulator, eta=eta) for eta in (0.0, 0.1))
    assert 30 <= route_steps(nominal) < route_steps(robust) <= 60
    assert nearest_hazard(nominal) == 1
    assert nearest_hazard(robust) >= 2
    assert 600 <= made.simulator.num_states / 4 <= 1200


def test_floors_differ_and_repeat():
    one, same, other = (office_floor(number).picture.pixels for number in (5, 5, 6))
    np.testing.assert_array_equal(one, same)
    assert (one != other).mean() > 0.02
    assert (office_floor().picture.pixels != one).mean() > 0.02


def test_the_task_on_the_floor_we_ship(env):
    sim = env.simulator
    assert sim.states[sim.start] == (44.5, 23.5, "S")
    assert sim.origin.actions == ("forward", "back", "left", "right", "stay")
    nominal, robust = (tasid.robust_dp(sim, eta=eta) for eta in (0.0, 0.1))
    assert (route_steps(nominal), route_steps(robust)) == (35, 45)
    assert sim.horizon == 3 * 45
    assert nominal.start_value == pytest.approx(1 - 0.005 * 34)
    assert worst_case_value(sim, robust, eta=0.1) > worst_case_value(sim, nominal, eta=0.1) + 0.03
    assert env.latent.robust_value(robust) > 0.7
    assert env.latent.blind_value() < 0
    hall = layout_of(sim).cells
    assert (hall == GOAL).sum() == 1
    rows, columns = np.nonzero(hall == HAZARD)
    assert (np.ptp(rows) + 1, np.ptp(columns) + 1) == (7, 5)


# ---------------------------------------------------------------- any map


def test_a_ros_map_without_a_task_gets_one(tmp_path):
    pixels = np.asarray(
        [[254, 0, 205][("FREE", "WALL", "UNKNOWN").index(kind)] for kind in ("FREE", "WALL")],
        np.uint8,
    )
    picture = pixels[(office_floor().picture.pixels != FREE).astype(int)]
    Image.fromarray(picture).save(tmp_path / "floor.png")
    (tmp_path / "floor.yaml").write_text(
        "image: floor.png\nresolution: 0.05\norigin: [-10, 3, 0]\nnegate: 0\n"
        "occupied_thresh: 0.65\nfree_thresh: 0.196\n"
    )
    made = tasid.make("building", map=str(tmp_path / "floor.yaml"), starts=3)
    sim = made.simulator
    assert sim.starts.size == 3
    assert not (layout_of(sim).cells == HAZARD).any()
    assert 30 <= route_steps(tasid.robust_dp(sim, eta=0.1)) <= 60
    own = tasid.make(
        "building", map=str(tmp_path / "floor.yaml"), start=(34.5, 26.5, "W"), goal=(44.5, 4.5)
    )
    assert own.simulator.states[own.simulator.start] == (34.5, 26.5, "W")


def test_a_text_map_is_a_building(tmp_path):
    made = tasid.make("building", map=SMALL)
    sim = made.simulator
    assert sim.states[sim.start] == (1.5, 4.5, "E")
    assert route_steps(tasid.robust_dp(sim, eta=0.0)) == 10
    assert sim.horizon == 3 * route_steps(tasid.robust_dp(sim, eta=0.1))
    (tmp_path / "small.txt").write_text(SMALL)
    read = tasid.make("building", map=str(tmp_path / "small.txt"), cell_size=0.5, jitter=0.1)
    assert read.simulator.states[read.simulator.start] == (0.75, 2.25, "E")
    np.testing.assert_array_equal(read.simulator.successor, sim.successor)


def test_smaller_cells_and_eight_headings():
    half = tasid.make("building", cell_size=0.5)
    assert layout_of(half.simulator).cell_size == 0.5
    assert 60 <= route_steps(tasid.robust_dp(half.simulator, eta=0.1)) <= 120
    eight = tasid.make("building", map=SMALL, headings=8)
    sim = eight.simulator
    at = sim.states.index((7.5, 3.5, "SE"))
    assert sim.states[sim.successor[at, 0]] == (8.5, 2.5, "SE")
    assert sim.states[sim.successor[at, 3]] == (7.5, 3.5, "S")
    angles = np.asarray(eight.target.emission.whereabouts.poses[at, 2:])
    np.testing.assert_allclose(angles, [0.5**0.5, -(0.5**0.5)], atol=1e-6)


# ---------------------------------------------------------------- starts and slips


def test_starts(env):
    five = tasid.make("building", starts=5).simulator
    assert five.starts.size == 5
    assert five.starts[0] == env.simulator.start
    met = {five.states[s][:2] for s in five.starts}
    assert len(met) == 5
    apart = [abs(a[0] - b[0]) + abs(a[1] - b[1]) for a in met for b in met if a != b]
    assert min(apart) > 10
    many = tasid.make("building", starts=200).simulator
    assert len({many.states[s][:2] for s in many.starts}) == 200
    anywhere = tasid.make("building", map=SMALL, starts="anywhere").simulator
    cells = SMALL.count(".") + SMALL.count("S")
    assert anywhere.starts.size == 4 * cells
    assert route_steps(tasid.robust_dp(anywhere, eta=0.0)) is not None


def test_slips(env):
    assert tasid.is_perturbation(env.latent.world, env.simulator, eta=0.1)
    assert env.latent.world.eta > 0.05
    assert env.latent.world.xi.ndim == 3
    assert env.latent.worlds[0][0] == 1.0
    options = {"map": SMALL, "eta": 0.3}
    one, same, other = (tasid.make("building", **options, seed=seed).latent.world.xi
                        for seed in (1, 1, 2))  # fmt: skip
    assert (one == same).all()
    assert (one != other).any()
    stepwise = tasid.make("building", **options, per_step=True)
    assert stepwise.latent.world.xi.shape[0] == stepwise.simulator.horizon


def test_options_make_the_same_instance_again():
    made = tasid.make("building", map=SMALL, obstacles=0.5, seed=3, starts=1, sensor="both")
    again = tasid.make(made.name, **made.options)
    assert (again.latent.world.xi == made.latent.world.xi).all()
    keys = episode_keys(seed_key(0), 0, jnp.arange(3))
    reset = jax.jit(type(made.target).reset)
    np.testing.assert_array_equal(reset(made.target, keys)[1], reset(again.target, keys)[1])


# ---------------------------------------------------------------- episodes


class Uniform:
    """Uniformly random actions."""

    def start(self, observations):
        return jnp.zeros(observations.shape[0])

    def act(self, carry, observations, h):
        key = jax.random.fold_in(seed_key(99), h)
        return carry, jax.random.randint(key, (observations.shape[0],), 0, 5)


@pytest.mark.parametrize("sensor", ["lidar", "camera", "both"])
def test_episodes_do_not_depend_on_their_batch(sensor):
    made = tasid.make("building", map=SMALL, sensor=sensor, obstacles=0.5)
    keys = episode_keys(seed_key(5), DIAGNOSIS, jnp.arange(24))

    def record(before, actions, after, h):
        return actions, after.state, after.observations

    compiled = partial(jax.jit, compiler_options=AS_USERS)
    whole = compiled(lambda target, keys: trace(target, Uniform(), keys, record=record)[1])
    actions, states, observations = whole(made.target, keys)
    step = compiled(type(made.target).step)
    state, seen = compiled(type(made.target).reset)(made.target, keys[7:9])
    for h in range(made.target.horizon):
        state, seen, _ = step(made.target, state, actions[h, 7:9], jnp.int32(h), keys[7:9])
        np.testing.assert_array_equal(state, states[h, 7:9])
        np.testing.assert_array_equal(seen, observations[h, 7:9])


def returns_of(env, plan, episodes, seed=0):
    """What a plan earns that is shown the true pose."""
    target, actions = env.target, jnp.asarray(plan.actions, jnp.int32)
    keys = episode_keys(seed_key(seed), DIAGNOSIS, jnp.arange(episodes))

    @jax.jit
    def run(target, keys):
        def body(h, now):
            state, total = now
            state, _, rewards = target.step(state, actions[h][state], h, keys)
            return state, total + rewards

        start = target.reset(keys)[0], jnp.zeros(episodes)
        return jax.lax.fori_loop(0, target.horizon, body, start)

    state, total = run(target, keys)
    return np.asarray(state), np.asarray(total)


@pytest.mark.parametrize("obstacles", [0.0, 0.8])
def test_returns_agree_with_exact_values(obstacles):
    """Episodes with somebody in the way are another world each; their mean is the value."""
    made = tasid.make("building", map=SMALL, eta=0.2, obstacles=obstacles, beams=1)
    plan = tasid.robust_dp(made.simulator, eta=0.2)
    chances = [chance for chance, _ in made.latent.worlds]
    assert sum(chances) == pytest.approx(1.0)
    assert len(chances) == (1 if obstacles == 0 else 1 + made.target.circumstances.spots.shape[0])
    _, total = returns_of(made, plan, 6000)
    exact = made.latent.robust_value(plan)
    assert total.mean() == pytest.approx(exact, abs=4.5 * float(total.std()) / 6000**0.5)
    if obstacles:
        free = tasid.make("building", map=SMALL, eta=0.2, beams=1).latent.robust_value(plan)
        assert exact < free - 0.05
    uniform = np.full((made.simulator.horizon, made.simulator.num_states, 5), 0.2)
    mixed = sum(chance * policy_value(world, uniform) for chance, world in made.latent.worlds)
    keys = episode_keys(seed_key(6), DIAGNOSIS, jnp.arange(4000))
    moment, _ = jax.jit(
        lambda target, keys: trace(target, Uniform(), keys, record=lambda *_: None)
    )(made.target, keys)
    random = np.asarray(moment.returns)
    assert random.mean() == pytest.approx(mixed, abs=4.5 * float(random.std()) / 4000**0.5)


def test_nobody_is_driven_over_and_people_make_way():
    made = tasid.make("building", map=SMALL, eta=0.0, obstacles=1.0, beams=1)
    target, days = made.target, made.target.circumstances
    step = jax.jit(type(target).step)
    layout, sim = layout_of(made.simulator), made.simulator
    enters = np.asarray(days.enters)
    keys = episode_keys(seed_key(1), 0, jnp.arange(900))
    episodes = jax.vmap(days.draw)(jax.vmap(lambda k: jax.random.fold_in(k, 1 << 27))(keys))
    spot = np.asarray(episodes.spot)
    assert set(spot) == set(range(len(days.spots)))
    for number in range(len(days.spots)):
        state, action = (int(i) for i in np.argwhere(enters == number)[0])
        after, _, _ = step(target, jnp.full(900, state), jnp.full(900, action), jnp.int32(0), keys)
        stayed = np.asarray(after) == state
        assert not stayed[spot != number].any()
        share = stayed[spot == number].mean()
        expected = 0.5 if int(days.kinds[number]) == 0 else 1.0
        assert share == pytest.approx(expected, abs=0.15 * (expected == 0.5))
        place = layout.positions[sim.successor[state, action]]
        assert layout.cells[tuple(place)] == FREE


# ---------------------------------------------------------------- closed doors


def test_a_closed_door_is_open_on_the_plan():
    made = tasid.make("building", map=SMALL, closed_doors=[(1.5, 3.5)], noise=0.0, dropout=0.0,
                      jitter=0.0, turn_jitter=0.0)  # fmt: skip
    sim, truth = made.simulator, made.latent.world.simulator
    changed = np.argwhere(sim.successor != truth.successor)
    assert {sim.states[s][:2] for s, _ in changed} == {(1.5, 4.5), (1.5, 3.5), (1.5, 2.5)}
    for state, action in changed:
        assert truth.successor[state, action] == state
        assert truth.reward[state, action] == -0.005
    assert (made.target.successor == truth.successor).all()
    keys = episode_keys(seed_key(0), 0, jnp.arange(1))
    days = jax.vmap(made.target.circumstances.draw)(keys)
    state = jnp.asarray([sim.states.index((1.5, 4.5, "S"))])
    ahead = float(jax.vmap(made.target.emission)(keys, state, days)[0, 0])
    assert ahead == pytest.approx(1.0 - 0.1, abs=0.06)  # the leaf at y = 3.5, not the wall at 1


def test_a_door_on_the_route_is_closed_and_another_way_is_left(env):
    made = tasid.make("building", closed_doors=1)
    assert (made.simulator.successor == env.simulator.successor).all()
    truth = made.latent.world.simulator
    plan = tasid.robust_dp(made.simulator, eta=0.1)
    assert route_steps(plan) == 45
    assert made.latent.robust_value(plan) < 0
    assert route_steps(tasid.robust_dp(truth, eta=0.1)) > 45
    assert (truth.successor != made.simulator.successor).sum() < 100
    solid = [np.asarray(e.target.emission.whereabouts.rays.table[..., 0]) == 0 for e in (env, made)]
    assert 20 < (solid[0] != solid[1]).sum() < 300


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sensor": "radar"}, "sensor: 'radar' is none of lidar, camera, both"),
        ({"start": (10.0, 15.0, "E")}, "start: .* in unknown territory; the nearest free cell is"),
        (
            {"map": SMALL, "start": (2.5, 3.5)},
            "start: .* in a wall or within .*; the nearest free cell is at",
        ),
        ({"start": (47.5, 14.5)}, "start: .* lies in a hazard; the nearest free cell is at"),
        ({"goal": (200.0, 3.0)}, "goal: .* lies outside the map, whose x runs 0 … 93"),
        ({"start": "here"}, "start: .* is not .x, y. or .x, y, heading., in metres"),
        ({"goal": (1.0,)}, "goal: .* is not .x, y., in metres"),
        ({"start": (44.5, 23.5, "up")}, "heading: 'up' is none of N, E, S, W"),
        ({"goal": (44.5, 23.5)}, "start: .* lies in the cell of the goal"),
        ({"cell_size": 3.0}, "goal: it cannot be reached .*a door .* opens with cell_size="),
        ({"robot_radius": 0.6}, "goal: it cannot be reached .* opens with .*robot_radius="),
        ({"robot_radius": 9.0}, "cell_size: .* radius 9 m no cell is free; try"),
        ({"cell_size": 0.01}, "cell_size: 0.01 m is less than a pixel"),
        ({"map": "nowhere.yaml"}, "nowhere.yaml: no such file"),
        ({"map": "nowhere.txt"}, "map: nowhere.txt: no such file"),
        ({"map": "plan.jpg"}, "map: 'plan.jpg' is neither a .yaml .* nor a .txt"),
        ({"map": "###\n###"}, "text: the map has no start"),
        ({"map": "#####\n#S#G#\n#####"}, "goal: it cannot be reached.* however small the robot"),
        ({"map": "#####\n#SLG#\n#####"}, "goal: .* every way there leads over a hazard"),
        ({"map": SMALL, "floor": 2}, "floor: 2 with a map"),
        ({"starts": 0}, "starts: 0 is neither a number of docks nor 'anywhere'"),
        ({"starts": "here"}, "starts: 'here' is neither"),
        ({"map": SMALL, "starts": 500}, "starts: 500, but the goal can be reached from 26 places"),
        ({"headings": 6}, "headings: 6 is neither 4 nor 8"),
        ({"beams": 0}, "beams: 0 is outside"),
        ({"jitter": 0.7}, "jitter: 0.7 is outside 0 … 0.5"),
        ({"dropout": 1.5}, "dropout: 1.5 is outside"),
        ({"obstacles": -0.1}, "obstacles: -0.1 is outside"),
        ({"map": "####\n#SG#\n####", "obstacles": 0.5}, "obstacles: every place on the route is"),
        ({"map": SMALL, "closed_doors": [(0.5, 0.5)]}, "closed_doors: .* is not free"),
        ({"map": SMALL, "closed_doors": [(99, 0.5)]}, "closed_doors: .* lies outside the map"),
        ({"map": "####\n#SG#\n####", "closed_doors": 1}, "closed_doors: 1, but only 0 doors"),
        ({"eta": 1.5}, "eta: 1.5"),
        ({"map": SMALL, "horizon": 0}, "horizon: 0"),
    ],
)
def test_bad_options_are_named_with_what_would_help(options, message):
    with pytest.raises(ValueError, match=message):
        tasid.make("building", **options)


def test_narrow_cells_need_no_word_about_jitter():
    for size, jitter in ((1.0, 0.2), (0.4, 0.2), (0.25, 0.125)):
        env = tasid.make("building", map=SMALL, cell_size=size, robot_radius=0.05)
        assert env.options["jitter"] == jitter


def ros_map(folder, pixels):
    Image.fromarray(np.asarray(pixels, np.uint8)).save(folder / "m.png")
    (folder / "m.yaml").write_text(
        "image: m.png\nresolution: 0.05\norigin: [0, 0, 0]\nnegate: 0\n"
        "occupied_thresh: 0.65\nfree_thresh: 0.196\n"
    )
    return str(folder / "m.yaml")


def test_maps_that_cannot_be_driven(tmp_path):
    with pytest.raises(ValueError, match="map: it has no free pixel at all"):
        tasid.make("building", map=ros_map(tmp_path, np.zeros((80, 80))))
    corridors = np.zeros((400, 400))
    corridors[-44:-20] = corridors[-160:-20, 120:144] = corridors[-160:-100, 100:160] = 254
    path = ros_map(tmp_path, corridors)
    assert tasid.make("building", map=path).simulator.num_states > 100
    with pytest.raises(ValueError, match=r"falls apart in cells of 4 m .* try"):
        tasid.make("building", map=path, cell_size=4.0)
