"""Our environments behind Gymnasium's interface: clean, faithful, and registered without a cost."""

from __future__ import annotations

import subprocess
import sys

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import tasid
from tasid.targets.gym.ours import CombinationLockEnv
from tasid.targets.target import seed_key

LOCK, LAVA = "tasid/CombinationLock-v0", "tasid/LavaCrossing-v0"
ROOMS = "tasid/Building-v0"
OPTIONS = {
    LOCK: {"horizon": 5, "num_actions": 4, "seed": 7},
    LAVA: {"horizon": 8, "seed": 2},
    ROOMS: {
        "map": "######\n#S...#\n#...G#\n#...L#\n######",
        "obstacles": 0.5,
        "horizon": 9,
        "seed": 1,
    },
}
NATIVE = {LOCK: "combination-lock", LAVA: "lava-crossing", ROOMS: "building"}
BOTH = pytest.mark.parametrize("name", [LOCK, LAVA, ROOMS])


def made(name, **more):
    return gymnasium.make(name, **OPTIONS[name], **more)


@BOTH
def test_gymnasiums_own_checker_finds_nothing(name):
    check_env(made(name, render_mode="rgb_array").unwrapped)
    check_env(gymnasium.make(name).unwrapped, skip_render_check=True)


@BOTH
def test_an_episode_is_the_native_one(name):
    """The number that a seed's generator draws first is the seed of the episode's key."""
    env, target = made(name), tasid.make(NATIVE[name], **OPTIONS[name]).target
    reset, step = jax.jit(target.reset), jax.jit(target.step)
    for seed in range(4):
        x, _ = env.reset(seed=seed)
        number = int(np.random.Generator(np.random.PCG64(seed)).integers(1 << 31))
        keys = seed_key(number)[None]
        state, y = reset(keys)
        assert np.allclose(x, y[0], atol=1e-5)
        actions = np.random.default_rng(seed).integers(env.action_space.n, size=target.horizon)
        paid = []
        for h, action in enumerate(actions):
            x, reward, terminated, truncated, _ = env.step(action)
            state, y, expected = step(state, jnp.array([action]), h, keys)
            assert np.allclose(x, y[0], atol=1e-5)
            assert reward == pytest.approx(float(expected[0]))
            paid.append(reward)
            if terminated:
                break
        assert terminated or truncated
        assert name != LOCK or (terminated and len(paid) == target.horizon)


@BOTH
def test_rows_of_the_vector_version_are_single_environments(name):
    vector = gymnasium.make_vec(name, num_envs=3, **OPTIONS[name])
    singles = gymnasium.make_vec(name, num_envs=3, vectorization_mode="sync", **OPTIONS[name])
    assert type(vector.unwrapped).__name__ == "BlockVectorEnv"
    assert vector.observation_space == singles.observation_space
    assert vector.action_space == singles.action_space
    assert np.array_equal(vector.reset(seed=5)[0], singles.reset(seed=5)[0])
    rng, ends = np.random.default_rng(0), 0
    for _ in range(60):
        actions = rng.integers(vector.single_action_space.n, size=3)
        one, other = vector.step(actions)[:4], singles.step(actions)[:4]
        for a, b in zip(one, other, strict=True):
            assert a.dtype == b.dtype
            assert np.array_equal(a, b)
        ends += (one[2] | one[3]).sum()
    assert ends > 5
    seeds = [3, None, 9]
    first = vector.reset(seed=seeds)[0]
    assert np.array_equal(first[0], made(name).reset(seed=3)[0])
    assert np.array_equal(first[2], made(name).reset(seed=9)[0])


@BOTH
def test_pictures_show_where_the_episode_is(name):
    env = made(name, render_mode="rgb_array")
    env.reset(seed=0)
    first = env.render()
    assert first.dtype == np.uint8
    assert first.ndim == 3
    env.step(2)
    assert env.render().shape == first.shape
    assert not np.array_equal(env.render(), first)
    assert made(name).unwrapped.render() is None


def test_observations_stay_inside_their_space():
    for options in ({"noise": 3.0}, {"bernoulli": True}, {"depth": 1}):
        env = gymnasium.make_vec(LOCK, num_envs=200, **OPTIONS[LOCK], **options)
        x, _ = env.reset(seed=0)
        assert env.observation_space.contains(x), options
        assert np.isfinite(env.single_observation_space.high).all()
    for sensor in ("lidar", "camera", "both"):
        env = gymnasium.make_vec(ROOMS, num_envs=50, **OPTIONS[ROOMS], sensor=sensor, noise=1.0)
        assert env.observation_space.contains(env.reset(seed=0)[0]), sensor


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: made(LOCK).unwrapped.step(0), "reset"),
        (lambda: gymnasium.make(LOCK, colour=1), "colour"),
        (lambda: CombinationLockEnv(render_mode="ansi"), "render_mode: 'ansi'"),
        (lambda: gymnasium.make_vec(LOCK, render_mode="rgb_array"), "only a single"),
        (lambda: gymnasium.make_vec(LOCK, num_envs=2).reset(seed=[1]), "1 seeds for 2"),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


def test_actions_are_checked():
    env = made(LOCK).unwrapped
    env.reset(seed=0)
    with pytest.raises(ValueError, match="action: 4 is not in"):
        env.step(4)
    with pytest.raises(ValueError, match=r"action: 0\.5 is not in"):
        env.step(0.5)
    vector = gymnasium.make_vec(LOCK, num_envs=2, **OPTIONS[LOCK])
    vector.reset(seed=0)
    with pytest.raises(ValueError, match="actions"):
        vector.step(np.array([0, 4]))


@pytest.mark.parametrize(
    "code",
    [
        "import tasid, gymnasium",
        "import gymnasium, tasid",
        "import tasid\nfrom gymnasium.envs.registration import registry\nimport gymnasium",
        "import tasid.cli, gymnasium.vector, tasid\nimport gymnasium",
    ],
)
def test_importing_registers_whatever_comes_first(code):
    check = (
        "import sys\n"
        f"assert {{'{LOCK}', '{LAVA}', '{ROOMS}'}} <= set(gymnasium.registry), gymnasium.registry\n"
        "assert 'jax' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"{code}\n{check}"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_importing_tasid_does_not_import_gymnasium():
    code = "import sys, tasid, tasid.cli; assert 'gymnasium' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
