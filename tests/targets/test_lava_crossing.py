"""Lava crossing: its map's checked properties, its noise, and Minigrid beside it."""

from __future__ import annotations

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from scipy import stats

import tasid
from tasid.maps import policy_value, worst_case_value
from tasid.targets.gym.lava import MinigridLavaEnv
from tasid.targets.rollout import trace
from tasid.targets.streams import DIAGNOSIS
from tasid.targets.target import episode_keys, seed_key, stream
from tasid.targets.worlds.lava_crossing import (
    lava_crossing,
    lava_map,
    lava_simulator,
    pixel_noise,
)
from tasid.targets.worlds.route import route_steps

HEIGHTS = (10, 11, 20, 100)
ELEVEN = """\
#######
##LLL##
#.....#
#.LLL.#
#S.L.G#
#..L..#
#..L..#
#.....#
#.....#
##...##
#######"""


def plan_for(sim, eta):
    return tasid.robust_dp(sim, eta=eta)


# ---------------------------------------------------------------- the map


def test_maps():
    assert lava_map() == ELEVEN
    for height in HEIGHTS:
        rows = lava_map(height=height).split("\n")
        assert len(rows) == height
        assert rows[:9] == ELEVEN.split("\n")[:9]
        assert rows[-1] == "#######"
        assert rows[9:-1] == (["##...##"] if height > 10 else []) + [
            {0: "#.....#", 1: "##....#", 2: "#....##"}[y % 3] for y in range(10, height - 1)
        ]
    wide = lava_map(width=9).split("\n")
    assert wide[4] == "#S.LLL.G#"
    assert wide[2] == "#.......#"


@pytest.mark.parametrize("height", HEIGHTS)
def test_routes_and_horizon(height):
    """The nominal plan goes over the top beside the lava, the robust one around the bottom."""
    sim = lava_simulator(lava_map(height=height))
    assert sim.horizon == 36
    top, bottom = plan_for(sim, 0.0), plan_for(sim, 0.1)
    assert route_steps(top) == 8
    assert route_steps(bottom) == 12
    rows = {plan.eta: [step.state[1] for step in plan.route()[:13]] for plan in (top, bottom)}
    assert min(rows[0.0]) == 2
    assert max(rows[0.0]) <= 4
    assert max(rows[0.1]) == 8
    assert min(rows[0.1]) >= 4
    assert plan_for(sim, 0.0).start_value == pytest.approx(1 - 7 * 0.01)
    assert plan_for(sim, 0.005).route() != top.route()
    for eta in (0.0125, 0.05):
        assert route_steps(plan_for(sim, eta)) == 12
    assert sim.states[sim.start] == (1, 4, "E")


@pytest.mark.parametrize(
    ("eta", "robust", "nominal"),
    [(0.1, 0.691, 0.110), (0.2, 0.198, -0.437), (0.3, -0.398, -0.775), (0.4, -0.816, -0.947)],
)
def test_worst_case_values(eta, robust, nominal):
    """Computed by others on the same map."""
    sim = lava_simulator(lava_map())
    assert plan_for(sim, eta).start_value == pytest.approx(robust, abs=6e-4)
    assert worst_case_value(sim, plan_for(sim, 0.0), eta=eta) == pytest.approx(nominal, abs=6e-4)


@pytest.mark.parametrize(
    ("eta", "robust", "nominal"),
    [
        (0.1, 0.867, 0.615),
        (0.2, 0.803, 0.337),
        (0.3, 0.745, 0.090),
        (0.4, 0.556, -0.130),
        (0.5, 0.151, -0.330),
    ],
)
def test_values_in_random_targets(eta, robust, nominal):
    """Means of others' five random targets; ours are other draws."""
    envs = [lava_crossing(eta=eta, seed=seed) for seed in range(5)]
    sim = envs[0].simulator
    worlds = [env.latent.world for env in envs]
    mine = np.mean([policy_value(world, plan_for(sim, eta)) for world in worlds])
    short = np.mean([policy_value(world, plan_for(sim, 0.0)) for world in worlds])
    assert mine == pytest.approx(robust, abs=0.06)
    assert short == pytest.approx(nominal, abs=0.06)
    uniform = np.full((36, sim.num_states, 5), 0.2)
    assert policy_value(worlds[0], uniform) == pytest.approx(-1.004, abs=0.02)


@pytest.mark.parametrize("height", HEIGHTS)
def test_height_changes_little(height):
    values = []
    for seed in range(5):
        env = lava_crossing(height=height, seed=seed)
        values.append(env.latent.robust_value(plan_for(env.simulator, 0.1)))
    assert np.mean(values) == pytest.approx(0.867, abs=0.005)


def test_the_map_knows_all_poses():
    """Also those too far to be reached: the paper's claim is about their number."""
    free = lava_map(height=100)
    cells = sum(free.count(symbol) for symbol in ".S")
    ends = {(x, y) for x, y, _ in lava_simulator(free).states} - {
        (x, y)
        for y, row in enumerate(free.split("\n"))
        for x, symbol in enumerate(row)
        if symbol in ".S"
    }
    states = lava_simulator(free).states
    assert sum((x, y) not in ends for x, y, _ in states) == 4 * cells
    assert len(states) > 1600


def test_perturbation_is_per_step_unless_told():
    env = lava_crossing()
    assert env.latent.world.xi.shape == (36, env.simulator.num_states, 5, 5)
    assert tasid.is_perturbation(env.latent.world, env.simulator, eta=0.1)
    same = lava_crossing(per_step=False)
    assert same.latent.world.xi.ndim == 3
    other = lava_crossing(seed=1)
    assert (other.latent.world.xi != env.latent.world.xi).any()


def test_own_maps():
    env = tasid.make("lava-crossing", text_map="#####\n#S.G#\n#####", eta=0.2)
    assert env.simulator.horizon == 6
    assert env.options["text_map"] == "#####\n#S.G#\n#####"
    again = tasid.make(env.name, **env.options)
    assert (again.latent.world.xi == env.latent.world.xi).all()
    assert tasid.make("lava-crossing", horizon=9).target.horizon == 9


@pytest.mark.filterwarnings("ignore:the goal cannot be reached")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"height": 9}, "height: 9 is not a whole number of 10"),
        ({"height": 11.5}, "height: 11.5"),
        ({"width": 6}, "width: 6"),
        ({"eta": 1.5}, "eta: 1.5"),
        ({"text_map": "####\n#.G#\n####"}, "no start"),
        ({"text_map": "#####\n#S#G#\n#####"}, "horizon: none given"),
        ({"horizon": 0}, "horizon: 0"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        tasid.make("lava-crossing", **options)


# ---------------------------------------------------------------- what is seen


def noise_of(keys):
    return np.asarray(jax.vmap(pixel_noise)(keys))


def test_noise_is_uniform():
    """Every value of 50 … 150 equally often: in all, in each corner, and over episodes."""
    drawn = noise_of(stream(episode_keys(seed_key(1), 0, jnp.arange(100)), 3))
    assert drawn.dtype == np.uint8
    assert drawn.shape == (100, 56, 56, 3)
    assert drawn.min() == 50
    assert drawn.max() == 150
    few = noise_of(episode_keys(seed_key(2), 1, jnp.arange(4000)))[:, [0, 55], [0, 30], [0, 2]]
    samples = [drawn, drawn[:, :28], drawn[:, 28:], drawn[..., 0], drawn[:50, ::2, ::2]]
    for sample in [*samples, few[:, 0], few[:, 1]]:
        counts = np.bincount(sample.reshape(-1) - 50, minlength=101)
        assert stats.chisquare(counts).pvalue > 1e-3


def correlations(drawn):
    """Between pixels, channels, halves, steps and episodes; each should be N(0, 1/n)."""
    scaled = (drawn.astype(np.float64) - 100) / drawn.std()
    pairs = {
        "right": (scaled[..., 1:, :], scaled[..., :-1, :]),
        "below": (scaled[..., 1:, :, :], scaled[..., :-1, :, :]),
        "channel": (scaled[..., 1:], scaled[..., :-1]),
        "half": (scaled[..., :28, :, :], scaled[..., 28:, :, :]),
        "step": (scaled[1:], scaled[:-1]),
        "episode": (scaled[:, 1:], scaled[:, :-1]),
        "seed and phase": (scaled[0], scaled[-1]),
    }
    for name, (one, other) in pairs.items():
        for power in (1, 2):  # also whether large deviations come together
            a, b = one**power - (power == 2), other**power - (power == 2)
            spread = (a.std() * b.std()) / np.sqrt(a.size)
            yield f"{name}, power {power}", float((a * b).mean() / spread)


def test_noise_is_uncorrelated():
    episodes = episode_keys(seed_key(3), 0, jnp.arange(12))
    drawn = np.stack([noise_of(stream(episodes, 2 * h + 3)) for h in range(8)])
    drawn = np.concatenate([drawn, noise_of(episode_keys(seed_key(4), 7, jnp.arange(12)))[None]])
    found = dict(correlations(drawn))
    assert max(abs(z) for z in found.values()) < 4.5, found


def test_noise_sees_every_bit_of_the_key():
    """A single bit of either word changes nearly all pixels: 1/101 are equal by chance."""
    base = np.array([0x12345678, 0x9ABCDEF0], np.uint32)
    flipped = np.stack([base ^ (np.uint32(1) << b) * np.eye(2, dtype=np.uint32)[w]
                        for b in range(32) for w in range(2)])  # fmt: skip
    keys = jax.random.wrap_key_data(jnp.asarray(np.vstack([base[None], flipped])))
    drawn = noise_of(keys)
    equal = (drawn[1:] == drawn[:1]).reshape(64, -1).mean(axis=1)
    np.testing.assert_allclose(equal, 1 / 101, atol=6 * 0.001)


def test_noise_is_where_nothing_is():
    """Two pictures of a state differ there and nowhere else; what is seen is Minigrid's."""
    noisy, clean = lava_crossing(), lava_crossing(noise=False)
    states = jnp.arange(noisy.simulator.num_states)
    keys = episode_keys(seed_key(0), 5, states)
    emit = jax.vmap(noisy.target.emission)
    one, other = np.asarray(emit(keys, states)), np.asarray(emit(stream(keys, 1), states))
    same = np.asarray(jax.vmap(clean.target.emission)(keys, states))
    drawn = np.asarray(noisy.target.emission.pictures[noisy.target.emission.look] == 0)
    assert one.dtype == same.dtype == np.uint8
    np.testing.assert_array_equal(one[~drawn], same[~drawn])
    np.testing.assert_array_equal(other[~drawn], same[~drawn])
    assert ((one[drawn] >= 50) & (one[drawn] <= 150)).all()
    assert (one[drawn] != other[drawn]).mean() == pytest.approx(100 / 101, abs=0.002)
    assert 0.2 < drawn.mean() < 0.9
    assert (same[drawn] <= 114).all(), "black and grid lines only"


def test_few_states_look_alike():
    """At height 11 four pairs do, as others counted; taller maps repeat their landmarks."""
    looks = np.asarray(lava_crossing().target.emission.look)
    _, often = np.unique(looks, return_counts=True)
    assert sorted(often[often > 1].tolist()) == [2, 2, 2, 2]
    tall = lava_crossing(height=100).target.emission
    assert len(tall.pictures) < 300 < len(tall.look)


class Uniform:
    """Uniformly random actions."""

    def start(self, observations):
        return jnp.zeros(observations.shape[0])

    def act(self, carry, observations, h):
        key = jax.random.fold_in(seed_key(99), h)
        return carry, jax.random.randint(key, (observations.shape[0],), 0, 5)


def test_episodes_stay_bytes_and_do_not_depend_on_their_batch():
    env = lava_crossing(height=10)
    keys = episode_keys(seed_key(5), DIAGNOSIS, jnp.arange(24))

    def record(before, actions, after, h):
        return actions, after.state, after.observations

    moment, (actions, states, pictures) = trace(env.target, Uniform(), keys, record=record)
    assert pictures.dtype == jnp.uint8
    state, seen = env.target.reset(keys[7:9])
    for h in range(36):
        state, seen, _ = env.target.step(state, actions[h, 7:9], jnp.int32(h), keys[7:9])
        np.testing.assert_array_equal(state, states[h, 7:9])
        np.testing.assert_array_equal(seen, pictures[h, 7:9])
    assert (np.asarray(moment.returns) <= 1).all()


def test_returns_agree_with_exact_value():
    env = lava_crossing(eta=0.3, noise=False)  # what is seen does not matter here, and takes long
    keys = episode_keys(seed_key(6), DIAGNOSIS, jnp.arange(1000))
    moment, _ = trace(env.target, Uniform(), keys, record=lambda *_: None)
    exact = policy_value(env.latent.world, np.full((36, env.simulator.num_states, 5), 0.2))
    returns = np.asarray(moment.returns)
    assert returns.mean() == pytest.approx(exact, abs=4.5 * float(returns.std()) / 1000**0.5)


# ---------------------------------------------------------------- Minigrid beside it

HARD = "########\n#S..L..#\n#.##.#G#\n#......#\n########"


@pytest.mark.parametrize("see_through_walls", [False, True])
@pytest.mark.parametrize("text", [lava_map(height=10), ELEVEN, HARD], ids=["10", "11", "own"])
def test_native_and_gymnasium_agree(text, see_through_walls):
    """From every pose every action leads to the same pose, pay, end and picture."""
    options = {"text_map": text, "noise": False, "see_through_walls": see_through_walls}
    native = tasid.make("lava-crossing", **options)
    sim, emission = native.simulator, native.target.emission
    env = MinigridLavaEnv(**options)
    env.reset(seed=0)
    poses = {s: (y, x, "NESW".index(heading)) for s, (x, y, heading) in enumerate(sim.states)}
    pictures = np.asarray(emission.pictures[emission.look])
    assert env.horizon == sim.horizon
    rows = text.split("\n")
    for state, action in product(range(sim.num_states), range(5)):
        x, y, _ = sim.states[state]
        if rows[y][x] in "GL":  # over: Gymnasium takes no more actions there
            assert (sim.successor[state] == state).all()
            assert (sim.reward[state] == 0).all()
            continue
        env.pose, env.step_count = poses[state], 0
        seen, reward, terminated, _, _ = env.execute(action)
        after = int(sim.successor[state, action])
        assert env.pose == poses[after]
        assert reward == sim.reward[state, action]
        x, y, _ = sim.states[after]
        assert terminated == (rows[y][x] in "GL")
        np.testing.assert_array_equal(seen, pictures[after])


def test_gymnasium_noise_is_the_natives():
    """The same pixels are noise, uniform in [50, 150]; the others are equal."""
    native, env = lava_crossing(), MinigridLavaEnv()
    env.reset(seed=3)
    emission = native.target.emission
    values = []
    for state in range(0, native.simulator.num_states, 3):
        x, y, heading = native.simulator.states[state]
        env.pose = (y, x, "NESW".index(heading))
        seen, picture = env.gen_obs(), np.asarray(emission.pictures[emission.look[state]])
        assert seen.dtype == np.uint8
        np.testing.assert_array_equal(seen[picture > 0], picture[picture > 0])
        values.append(seen[picture == 0])
    counts = np.bincount(np.concatenate(values), minlength=151)
    assert counts[:50].sum() == 0
    assert stats.chisquare(counts[50:]).pvalue > 1e-3


def test_gymnasium_environment_is_perturbed_as_the_native_one():
    options = {"eta": 0.4, "noise": False, "per_step": False}
    native, env = lava_crossing(**options), MinigridLavaEnv(**options)
    sim, exact = native.simulator, native.latent.world.transition_at(0)
    where = {(y, x, "NESW".index(heading)): s for s, (x, y, heading) in enumerate(sim.states)}
    env.reset(seed=0)
    start = env.pose
    for action in (0, 3):
        met = np.zeros(sim.num_states)
        for _ in range(1500):
            env.pose, env.step_count = start, 0
            env.step(action)
            met[where[env.pose]] += 1 / 1500
        np.testing.assert_allclose(met, exact[where[start], action], atol=4.5 * 0.5 / 1500**0.5)


@pytest.mark.filterwarnings("ignore:.*not having a spec.*")
def test_gymnasium_checks_it():
    env = MinigridLavaEnv(render_mode="rgb_array", height=10)
    check_env(env)
    first, _ = env.reset(seed=4)
    again, _ = env.reset(seed=4)
    np.testing.assert_array_equal(first, again)
    assert env.render().shape == (10 * 32, 7 * 32, 3)


def test_gymnasium_episodes_end():
    """By the horizon with truncation, in the lava with −1, at the goal with +1."""
    env = MinigridLavaEnv(eta=0.0)
    env.reset(seed=0)
    ends = [env.step(1)[2:4] for _ in range(36)]
    assert ends == [(False, False)] * 35 + [(False, True)]
    plan = plan_for(lava_simulator(ELEVEN), 0.1)
    env.reset()
    total, steps = 0.0, 0
    for step in plan.route():
        _, reward, terminated, truncated, _ = env.step(step.action)
        total, steps = total + reward, steps + 1
        if terminated:
            break
    assert (steps, truncated) == (12, False)
    assert total == pytest.approx(1 - 11 * 0.01)
    env.reset()
    env.step(0)
    _, reward, terminated, _, _ = env.step(0)
    assert (reward, terminated) == (-1.0, True)
