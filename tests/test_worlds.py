"""The lock and the lava crossing against the paper's description, known values and Minigrid."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import hadamard

import tasid
from tasid.keys import Phase, episode_keys
from tasid.layout import FREE
from tasid.planning import is_perturbation, policy_value, worst_case_value
from tasid.worlds import route_steps
from tasid.worlds.combination_lock import lock_simulator
from tasid.worlds.lava_crossing import (
    HIDDEN,
    NOISE,
    agent_views,
    compose,
    lava_map,
    lava_simulator,
    pixel_noise,
)

ROOM = "########\n#S.....#\n#.####.#\n#.L...G#\n########"
WORLDS = {
    "combination-lock": {"horizon": 5, "num_actions": 4, "eta": 0.3, "seed": 2},
    "lava-crossing": {"horizon": 9, "eta": 0.3, "seed": 2},
    "building": {"map": ROOM, "horizon": 9, "eta": 0.3, "seed": 2},
    "building with a camera": {"map": ROOM, "sensor": "camera", "horizon": 24, "seed": 1},
}
WIDTH = 2048
every_world = pytest.mark.parametrize("name", WORLDS)


@cache
def world(name):
    return tasid.make(name.split(" ")[0], **WORLDS[name])


def keys(first=0, n=WIDTH):
    return episode_keys(0, Phase.DIAGNOSIS, first, n)


def wander(env, steps, first=0):
    """Uniformly random actions: the last states [N] and observations, and the returns [N]."""
    rng, own = np.random.default_rng(first), keys(first)
    (state, observations), returns = env.reset(own), np.zeros(WIDTH)
    for h in range(steps):
        actions = rng.integers(env.num_actions, size=WIDTH, dtype=np.int32)
        state, observations, rewards, _ = env.step(state, actions, h, own)
        returns += rewards
    return env.latent.states(state), observations, returns


# All worlds


@pytest.mark.parametrize("name", list(WORLDS)[:3])
def test_slips_have_the_rates_of_the_latent_mdp(name):
    """Successors after 2 048 times the same command, from a few states, at the last step."""
    env = world(name)
    latent, h = env.latent.world, env.horizon - 1
    assert is_perturbation(latent, env.simulator, eta=WORLDS[name]["eta"] + 1e-9)
    assert latent.eta > 0.8 * WORLDS[name]["eta"]
    exact = np.zeros((env.simulator.num_states, env.num_actions, env.simulator.num_states))
    s, a = np.ogrid[: len(exact), : env.num_actions]
    for happened, xi in enumerate(np.moveaxis(latent.xi_at(h), -1, 0)):
        np.add.at(exact, (s, a, env.simulator.successor[:, [happened]]), xi)
    active = np.flatnonzero(exact.max(axis=2).min(axis=1) < 1)
    for number, s in enumerate(np.random.default_rng(0).permutation(active)[:2]):
        for a in range(env.num_actions):
            own = keys(number * WIDTH)
            state, _ = env.place(s, own)
            after, *_ = env.step(state, np.full(WIDTH, a, np.int32), h, own)
            rates = np.bincount(env.latent.states(after), minlength=exact.shape[2]) / WIDTH
            assert_allclose(rates, exact[s, a], atol=4.5 * 0.5 / WIDTH**0.5)
            assert_array_equal(rates > 0, rates * (exact[s, a] > 0) > 0)


@every_world
def test_returns_agree_with_the_exact_value(name):
    env = world(name)
    exact = policy_value(env.latent.world, np.full((1, 1, env.num_actions), 1 / env.num_actions))
    returns = np.concatenate([wander(env, env.horizon, n * WIDTH)[2] for n in range(2)])
    assert returns.mean() == pytest.approx(exact, abs=4.5 * returns.std() / returns.size**0.5)


@every_world
def test_an_episode_is_a_function_of_its_key(name):
    """The place in the batch and the other episodes change nothing; another key does."""
    env, order = world(name), np.random.default_rng(1).permutation(WIDTH)
    state, observations = env.reset(keys())
    again, shuffled = env.reset(keys()[order])
    for h in range(3):
        action = np.full(WIDTH, h, np.int32)
        assert_array_equal(np.asarray(state)[order], again)
        assert_array_equal(observations[order], shuffled)
        state, observations, rewards, _ = env.step(state, action, h, keys())
        again, shuffled, paid, _ = env.step(again, action, h, keys()[order])
        assert_array_equal(rewards[order], paid)
    assert len(np.unique(observations.reshape(WIDTH, -1), axis=0)) > WIDTH // 2
    other = env.step(env.reset(keys(WIDTH))[0], action, 0, keys(WIDTH))[1]
    assert not np.array_equal(other, observations)


@every_world
def test_name_and_options_build_the_same_instance(name):
    env, recorded = world(name), world(name).environment
    again = tasid.make(recorded["name"], **recorded["options"])
    assert again.simulator.same_tables(env.simulator)
    assert_array_equal(again.latent.world.xi, env.latent.world.xi)
    assert_array_equal(again.reset(keys())[1], env.reset(keys())[1])
    other = tasid.make(recorded["name"], **{**recorded["options"], "seed": 77})
    assert not np.array_equal(other.latent.world.xi, env.latent.world.xi)


# Combination lock


@pytest.mark.parametrize("horizon", [1, 5])
def test_the_lock_is_the_papers(horizon):
    sim = lock_simulator(horizon, 6, seed=4)
    assert sim.states[sim.start] == (0, 1)
    for (layer, kind), row, rewards in zip(sim.states, sim.successor, sim.reward, strict=True):
        if layer < horizon:
            to = [sim.states[t] for t in row]
            assert {t[0] for t in to} == {layer + 1}
            kinds = {1: [1, 2, 2, 2, 2, 2], 2: [1, 2, 3, 3, 3, 3], 3: [3] * 6}[kind]
            assert sorted(t[1] for t in to) == kinds
            for (_, arrived), reward in zip(to, rewards, strict=True):
                shaping = {(2, 3): 1.0, (1, 1): -1.0 / horizon}.get((kind, arrived), 0.0)
                terminal = {1: 9.5, 2: 10.0, 3: 0.0}[arrived]
                assert reward == (terminal if layer + 1 == horizon else shaping)


@pytest.mark.parametrize(
    ("horizon", "worst", "low", "high"),
    [(5, 8.95, 9.05, 9.25), (10, 8.51, 8.65, 8.95), (20, 7.78, 8.0, 8.4), (40, 6.56, 7.0, 7.5)],
)
def test_values_of_the_lock(horizon, worst, low, high):
    """Of other implementations' random instances: the worst case, and in a random target."""
    env = tasid.make("combination-lock", horizon=horizon, seed=11)
    plan, nominal = (tasid.robust_dp(env.simulator, eta=eta) for eta in (0.1, 0.0))
    assert plan.start_value == pytest.approx(worst, abs=0.01)
    assert low < env.latent.robust_value(plan) < high
    assert env.latent.robust_value(nominal) < env.latent.robust_value(plan)
    # Type 1 until the last decision, where 10 beats 9.5.
    assert [step.state[1] for step in plan.route()] == [1] * horizon


@pytest.mark.parametrize(
    ("option", "spared"),
    [("none", set()), ("last", {(5, 2)}), ("all", {(layer, 2) for layer in range(6)})],
)
def test_where_the_lock_is_not_perturbed(option, spared):
    env = tasid.make("combination-lock", horizon=6, unperturbed=option, seed=1)
    exact = np.isclose(np.einsum("saa->sa", env.latent.world.xi), 1.0).all(axis=1)
    assert {env.simulator.states[s] for s in np.flatnonzero(exact)} == spared


@pytest.mark.parametrize("bernoulli", [False, True])
def test_lock_observations_are_noisy_codes_in_a_hadamard_mixture(bernoulli):
    """Undone with a matrix that is made here: two ones per state, noise 0.1, fair bits."""
    horizon = 9
    env = tasid.make("combination-lock", horizon=horizon, bernoulli=bernoulli, seed=5)
    size, bits = env.observation_shape[0], (horizon + 4) * bernoulli
    assert size == (32 if bernoulli else 16)
    states, observations, _ = wander(env, 3)
    code, found = observations.astype(np.float64) @ hadamard(size) / size, set()
    assert (code.std(axis=0) > 1e-3).sum() == horizon + 4 + bits
    for s in np.unique(states):
        of_state = code[states == s]
        mean, spread = of_state.mean(axis=0), of_state.std(axis=0)
        ones = np.abs(mean - 1) < 0.1
        assert (ones.sum(), (np.abs(mean - 0.5) < 0.2).sum()) == (2, bits)
        assert_allclose(spread[ones], 0.1, rtol=0.3)
        found.add(tuple(np.flatnonzero(ones)))
    assert len(found) == 3


@pytest.mark.parametrize("layout", ["layer0", "copies"])
def test_locks_with_several_starts(layout):
    options = {"horizon": 4, "num_actions": 5, "starts": 3, "layout": layout, "seed": 3}
    env = tasid.make("combination-lock", **options, wrong_starts=0.5, noise=0.0)
    sim = env.simulator
    good = [int(np.flatnonzero([sim.states[t][:2] == (1, 1) for t in sim.successor[s]])[0])
            for s in sim.starts]  # fmt: skip
    assert len(good) == 3
    assert layout == "copies" or len(set(good)) == 3
    state, first = env.reset(keys())
    states = env.latent.states(state)
    assert np.isin(states, sim.starts).mean() == pytest.approx(0.5, abs=0.05)
    assert len(np.unique(first, axis=0)) == len(np.unique(states))  # states do not look alike


# Lava crossing


@pytest.mark.parametrize("height", [10, 11, 20, 100])
def test_routes_and_values_of_the_lava_crossing(height):
    """The nominal plan takes the top route, plans from η = 0.0125 on the bottom route."""
    sim = lava_simulator(lava_map(height=height))
    assert sim.horizon == 36
    top = tasid.robust_dp(sim, eta=0.0)
    assert (route_steps(top), top.start_value) == (8, pytest.approx(1 - 7 * 0.01))
    assert tasid.robust_dp(sim, eta=0.005).route() != top.route()
    for eta in (0.0125, 0.1):
        plan = tasid.robust_dp(sim, eta=eta)
        assert route_steps(plan) == 12
        rows = sim.layout.positions[plan.path(sim.starts)[:, 0], 0]
        assert (rows.min(), rows.max()) == (4, 8)
    worlds = [tasid.make("lava-crossing", height=height, seed=seed) for seed in range(5)]
    values = [env.latent.robust_value(plan) for env in worlds]
    assert np.mean(values) == pytest.approx(0.867, abs=0.005)


@pytest.mark.parametrize(
    ("eta", "robust", "nominal", "robust_mean", "nominal_mean"),
    [
        (0.1, 0.691, 0.110, 0.867, 0.615),
        (0.2, 0.198, -0.437, 0.803, 0.337),
        (0.3, -0.398, -0.775, 0.745, 0.090),
        (0.4, -0.816, -0.947, 0.556, -0.130),
    ],
)
def test_values_at_height_11(eta, robust, nominal, robust_mean, nominal_mean):
    """Worst cases, and means over five random targets, of another implementation."""
    envs = [tasid.make("lava-crossing", eta=eta, seed=seed) for seed in range(5)]
    sim = envs[0].simulator
    plan, top = (tasid.robust_dp(sim, eta=x) for x in (eta, 0.0))
    assert plan.start_value == pytest.approx(robust, abs=6e-4)
    assert worst_case_value(sim, top, eta=eta) == pytest.approx(nominal, abs=6e-4)
    for policy, expected in ((plan, robust_mean), (top, nominal_mean)):
        mean = np.mean([env.latent.robust_value(policy) for env in envs])
        assert mean == pytest.approx(expected, abs=0.06)


def minigrid(text):
    """The map in Minigrid, whose own wrapper draws what an agent observes."""
    from minigrid.core.grid import Grid
    from minigrid.core.world_object import Goal, Lava, Wall
    from minigrid.minigrid_env import MiniGridEnv, MissionSpace
    from minigrid.wrappers import RGBImgPartialObsWrapper

    rows = text.splitlines()

    class Crossing(MiniGridEnv):
        def _gen_grid(self, width, height):
            self.grid = Grid(width, height)
            for y, row in enumerate(rows):
                for x, symbol in enumerate(row):
                    kind = {"#": Wall, "L": Lava, "G": Goal}.get(symbol)
                    self.grid.set(x, y, kind and kind())
            self.agent_pos, self.agent_dir = (1, 4), 0

    env = Crossing(
        mission_space=MissionSpace(lambda: ""), width=len(rows[0]), height=len(rows),
        max_steps=9, agent_view_size=7,
    )  # fmt: skip
    wrapped = RGBImgPartialObsWrapper(env, tile_size=8)
    wrapped.reset()
    return env, wrapped


def test_pictures_are_minigrids():
    text = lava_map()
    env, wrapped = minigrid(text)
    layout = lava_simulator(text).layout
    poses = np.column_stack([layout.positions, layout.headings])[::7]
    views = agent_views(layout.cells, poses)
    for (row, column, heading), picture in zip(poses, compose(views), strict=True):
        env.agent_pos, env.agent_dir = (column, row), (heading - 1) % 4
        assert_array_equal(wrapped.observation(env.gen_obs())["image"], picture)


def test_noise_replaces_what_shows_nothing():
    noisy, clean = (tasid.make("lava-crossing", noise=noise) for noise in (True, False))
    pictures, reference = noisy.reset(keys())[1], clean.reset(keys())[1][0]
    layout = noisy.simulator.layout
    [view] = agent_views(layout.cells, np.array([[4, 1, 1]]))
    empty = np.kron((view == FREE) | (view == HIDDEN), np.ones((8, 8))) > 0
    empty[48:, 24:32] = (reference == compose(np.full((1, 7, 7), FREE))[0])[48:, 24:32].all(axis=-1)
    assert_array_equal((pictures == reference).all(axis=(0, 3)), ~empty)
    assert (pictures[:, empty].min(), pictures[:, empty].max()) == NOISE
    noise = np.concatenate([np.asarray(half) for half in noise_of(keys(n=512))], axis=1)
    count = np.bincount(noise.ravel(), minlength=NOISE[1] + 1)[NOISE[0] :]
    assert_allclose(count / noise.size, 1 / 101, rtol=0.02)
    correlation = np.corrcoef(noise[:, :40].T.astype(float))
    assert np.abs(correlation - np.eye(40)).max() < 5 / 512**0.5


def noise_of(data):
    import jax

    return jax.jit(lambda x: pixel_noise(jax.random.wrap_key_data(x, impl="threefry2x32")))(data)


@pytest.mark.parametrize(("height", "pairs"), [(11, 4), (30, 0)])
def test_which_poses_look_alike(height, pairs):
    """At most a few do, and then no transition leads to both."""
    env = tasid.make("lava-crossing", height=height)
    sim, shown = env.simulator, np.asarray(env.emission.picture_of)
    alike = [np.flatnonzero(shown == x) for x in np.unique(shown)]
    alike = [states for states in alike if len(states) > 1]
    assert len(alike) == pairs
    for states in alike:
        for row in sim.successor:
            assert len(set(row.tolist()) & set(states.tolist())) < 2


def test_refused_options():
    for name, options, match in (
        ("combination-lock", {"horizon": 0}, "horizon"),
        ("combination-lock", {"num_actions": 2}, "num_actions"),
        ("combination-lock", {"unperturbed": "some"}, "unperturbed"),
        ("combination-lock", {"eta": 1.5}, "eta"),
        ("lava-crossing", {"height": 9}, "height"),
        ("lava-crossing", {"landmarks": "none"}, "landmarks"),
        ("lava-crossing", {"text_map": "SLG"}, "hazard"),
        ("lava-crossing", {"starts": 7}, "starts"),
    ):
        with pytest.raises(ValueError, match=match):
            tasid.make(name, **options)
    with pytest.raises(TypeError, match="colour"):
        tasid.make("combination-lock", colour=1)
