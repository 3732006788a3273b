"""Gymnasium both ways: wrapped environments with hand-computed episodes, and our own ids."""

from __future__ import annotations

import subprocess
import sys
from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

import tasid
from tasid.keys import episode_keys
from tasid.policy import Policy
from tasid.targets.gymnasium_target import episode_seeds
from tasid.targets.rollout import EpisodeError, exploration, rollout
from tasid.targets.spaces import ObservationError, encoder

KEYS = episode_keys(3, 0, 0, 10)
SEEDS = episode_seeds(KEYS).tolist()


class Corridor(gymnasium.Env):
    """Cells 0 … 3; action 1 goes right, 0 left. Cell 3 terminates with reward 1.

    Observations are (cell, seed mod 100). `resets` counts resets of each seed.
    """

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    resets: dict[int, int] = {}  # noqa: RUF012
    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(self, first_action=0, fault=None, render_mode=None):
        self.action_space = spaces.Discrete(2, start=first_action)
        self.fault, self.render_mode = fault, render_mode

    def reset(self, *, seed=None, options=None):
        self.cell, self.steps, self.seed = 0, 0, seed
        Corridor.resets[seed] = Corridor.resets.get(seed, 0) + 1
        return self._observation(), {}

    def step(self, action):
        assert self.cell < 3, "an ended episode was stepped"
        assert self.action_space.contains(action)
        self.steps += 1
        if self.fault is not None:
            self.fault(self)
        self.cell = max(0, self.cell + (1 if action > self.action_space.start else -1))
        return self._observation(), float(self.cell == 3), self.cell == 3, False, {}

    def _observation(self):
        return np.array([self.cell, self.seed % 100], float)

    def render(self):
        picture = np.zeros((128, 128, 3), np.uint8)
        picture[:, 32 * self.cell : 32 * self.cell + 32] = 200
        return picture


class Listed(Policy):
    """Executes a list of actions in even lanes, action 0 in odd ones."""

    observation_shape, observation_dtype, horizon, num_actions, method = (2,), "float32", 6, 2, "-"

    def __init__(self, actions=(1, 0, 1, 1, 1, 1)):
        self.actions = actions

    def init(self, n):
        return np.arange(n)

    def act(self, memory, observations, h):
        return memory, np.where(memory % 2 == 0, self.actions[h], 0).astype(np.int32)

    def save(self, path):
        raise NotImplementedError


class Sighted(Listed):
    """Goes right in cells with an even sum of observations: its actions depend on observations."""

    def act(self, memory, observations, h):
        return memory, (observations.sum(axis=1) % 2 == 0).astype(np.int32)


@pytest.fixture(autouse=True)
def resets():
    Corridor.resets.clear()
    return Corridor.resets


def corridor(fault=None, **options):
    return tasid.wrap(partial(Corridor, fault=fault), horizon=6, **options)


def equal(one, other):
    names = ("observations", "actions", "rewards", "lengths", "explored")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)


def fails(times, error, step=2):
    """The first `times` attempts at every second episode fail."""

    def fault(env):
        odd = SEEDS.index(env.seed) % 2
        if odd and env.steps == step and Corridor.resets[env.seed] <= times:
            raise error

    return fault


def test_episodes_are_those_of_a_hand_simulation(resets):
    episodes = rollout(corridor(num_envs=4), Listed(), KEYS[:3])
    cells = [[0, 1, 0, 1, 2, 3, 3], [0] * 7, [0, 1, 0, 1, 2, 3, 3]]
    assert episodes.observations.dtype == np.float32
    assert episodes.observations[..., 0].tolist() == cells
    assert (episodes.observations[..., 1] == np.array(SEEDS[:3])[:, None] % 100).all()
    assert episodes.rewards.tolist() == [[0, 0, 0, 0, 1, 0], [0] * 6, [0, 0, 0, 0, 1, 0]]
    assert episodes.lengths.tolist() == [5, 6, 5]
    assert episodes.actions[0].tolist() == [1, 0, 1, 1, 1, 0]  # no action after the end
    assert resets == dict.fromkeys(SEEDS[:3], 1)


def test_actions_start_where_the_space_starts_and_overrides_are_executed():
    target = tasid.wrap(partial(Corridor, 5), num_envs=3, horizon=6)
    overrides = np.full((3, 6), -1, np.int32)
    overrides[1] = 1
    episodes = rollout(target, Listed(), KEYS[:3], overrides=overrides, keep_from=3)
    assert episodes.returns.tolist() == [1, 1, 1]
    assert episodes.lengths.tolist() == [5, 3, 5]
    assert episodes.explored[1].tolist() == [True] * 3 + [False] * 3
    assert episodes.observations[..., 0].tolist() == [[1, 2, 3, 3], [3, 3, 3, 3], [1, 2, 3, 3]]
    assert rollout(target, Listed(), KEYS[:3], keep_from=9).observations is None


@pytest.mark.parametrize("env", [Corridor, Corridor()])
def test_all_numbers_of_environments_play_the_same_episodes(env):
    expected = rollout(corridor(num_envs=10), Sighted(), KEYS)
    options = {} if isinstance(env, Corridor) else {"num_envs": 3}
    assert equal(rollout(tasid.wrap(env, horizon=6, **options), Sighted(), KEYS), expected)


@pytest.mark.parametrize("error", [RuntimeError("broken wheel"), SystemExit(3)])
def test_failed_episodes_are_played_again_then_refused(error, resets):
    expected = rollout(corridor(num_envs=4), Sighted(), KEYS)
    resets.clear()
    played = rollout(corridor(fails(2, error), num_envs=4, retries=2), Sighted(), KEYS)
    assert equal(played, expected)
    assert [resets[seed] for seed in SEEDS] == [1, 3] * 5
    resets.clear()
    with pytest.raises(EpisodeError, match=rf"3 times.*after 2 steps.*{type(error).__name__}: "):
        rollout(corridor(fails(3, error), num_envs=4, retries=2), Sighted(), KEYS)


def interrupt(env):
    if env.seed == SEEDS[5] and env.steps == 5 and Corridor.resets[env.seed] == 1:
        raise KeyboardInterrupt


def test_a_resumed_run_asks_for_nothing_twice(tmp_path, resets):
    """Ctrl-C in the second of three batches, after the ends of some episodes of the batch."""
    overrides = exploration(KEYS, 0.3, 2, 6)
    overrides[[4, 6], :3] = 1
    overrides[5, :3] = 0
    ask = partial(rollout, policy=Sighted(), keys=KEYS, overrides=overrides)
    expected = ask(corridor(num_envs=4))
    ended = [i for i in range(4, 8) if expected.lengths[i] < 5]
    assert {4, 6} <= set(ended) < {4, 6, 7}
    resets.clear()
    target = corridor(interrupt, num_envs=4)
    target = target.with_log(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        ask(target)
    target = target.with_log(tmp_path)
    assert len(target.log) == 4 + len(ended)
    assert equal(ask(target), expected)
    again = [i for i in range(4, 8) if i not in ended]
    assert [resets[seed] for seed in SEEDS] == [1 + (i in again) for i in range(10)]
    before = dict(resets)
    assert equal(ask(target), expected)
    assert resets == before
    with pytest.raises(ValueError, match="other settings"):
        ask(target, overrides=1 - np.abs(overrides))


def test_failures_and_logs_together(tmp_path, resets):
    """What was played before an environment broke for good is not lost."""
    target = corridor(fails(9, RuntimeError()), num_envs=4, retries=0)
    target = target.with_log(tmp_path)
    with pytest.raises(EpisodeError):
        rollout(target, Sighted(), KEYS)
    assert len(target.log) == 2
    target.lanes = corridor(num_envs=4).lanes
    assert equal(rollout(target, Sighted(), KEYS), rollout(corridor(num_envs=4), Sighted(), KEYS))


def spoil(step, **attributes):
    def fault(env):
        if env.steps == step:
            env.__dict__.update(attributes)

    return fault


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (spoil(2, _observation=lambda: np.array([np.nan, 0])), "after 2 steps.*nan at place 0"),
        (spoil(3, _observation=lambda: np.zeros(1)), r"after 3 steps.*shape \(1,\).*\(2,\)"),
        (spoil(1, _observation=lambda: np.array(["a", "b"])), "after 1 steps.*<U1"),
        (spoil(2, _observation=lambda: {"x": 1}), "after 2 steps.*shape"),
    ],
)
def test_bad_observations_are_refused_by_name(fault, message):
    with pytest.raises(ValueError, match=message):
        rollout(corridor(fault), Listed(), KEYS)


def test_truncation_before_the_horizon_is_an_error():
    def short():
        return gymnasium.wrappers.TimeLimit(Corridor(), 3)

    with pytest.raises(ValueError, match="truncated before the horizon: after 3 steps"):
        rollout(tasid.wrap(short, horizon=6), Listed(), KEYS)
    assert rollout(tasid.wrap(short, horizon=3), Listed(), KEYS).lengths.tolist() == [3] * 10


ONE = Corridor()


@pytest.mark.parametrize(
    ("env", "options", "message"),
    [
        ("Pendulum-v1", {}, "action space"),
        ("NoSuchLake-v1", {}, "NoSuchLake-v1"),
        ("FrozenLake-v1", {"colour": 3}, "colour"),
        ("FrozenLake-v1", {"horizon": 101}, "truncates episodes after 100"),
        (Corridor, {"colour": 3}, "colour"),
        (Corridor, {"observe": "render"}, "render_mode"),
        (Corridor, {"observe": "smell"}, "observe: 'smell'"),
        (Corridor, {"resize": 64}, "resize: 64"),
        (Corridor, {"num_envs": 0}, "num_envs: 0"),
        (Corridor, {"horizon": -1}, "horizon: -1"),
        (Corridor, {"retries": -1}, "retries: -1"),
        (Corridor, {"workers": "threads"}, "workers: 'threads'"),
        (lambda: 3, {}, "returned int"),
        (lambda: sys.exit(4), {}, "SystemExit: 4"),
        (3, {}, "env: int is neither"),
        (ONE, {"num_envs": 2}, "a single environment"),
        (lambda: ONE, {}, "the same environment twice"),
        (lambda: gymnasium.Wrapper(ONE), {}, "the same environment twice"),
    ],
)
def test_wrap_names_what_it_refuses(env, options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        tasid.wrap(env, **options)


def test_pictures_and_preprocessing(resets):
    target = tasid.wrap(partial(Corridor, render_mode="rgb_array"), observe="render", horizon=6)
    assert (target.observation_shape, target.observation_dtype) == ((64, 64, 3), "uint8")
    shown = rollout(target, Listed(), KEYS[:1]).observations[0]
    assert shown[:, 0, :, 0].argmax(axis=1).tolist() == [0, 16, 0, 16, 32, 48, 48]
    halved = tasid.wrap(Corridor, preprocess=lambda x: x[:1] / 2, horizon=6)
    assert halved.observe(np.array([3.0, 0.0])).tolist() == [1.5]
    assert rollout(halved, Listed(), KEYS[:1]).observations[0, :, 0].max() == 1.5


def test_an_id_is_recorded_and_its_horizon_chosen():
    target = tasid.wrap("FrozenLake-v1", observe="render", resize=(32, 48), success_rate=0.8)
    assert target.environment == {
        "name": "gym:FrozenLake-v1",
        "options": {"observe": "render", "resize": [32, 48], "success_rate": 0.8},
    }
    assert target.observation_shape == (32, 48, 3)
    assert (target.horizon, target.with_horizon(7).horizon) == (100, 7)
    assert tasid.wrap(Corridor).horizon == 0
    assert tasid.wrap(Corridor).environment is None


def box(*shape, low=-np.inf, high=np.inf, dtype=np.float32):
    return spaces.Box(low, high, shape, dtype)


PICTURE = np.random.default_rng(0).integers(0, 256, (24, 32, 3), np.uint8)
BYTES = box(24, 32, 3, low=0, high=255, dtype=np.uint8)


@pytest.mark.parametrize(
    ("space", "raw", "expected"),
    [
        (box(2, 2), [[1, 2], [3, 4]], [1, 2, 3, 4]),
        (box(7, 1, low=0, high=10, dtype=np.uint8), np.full((7, 1), 4, np.uint8), [4] * 7),
        (spaces.Discrete(3, start=5), np.int64(7), [0, 0, 1]),
        (spaces.MultiDiscrete([2, 3]), np.array([1, 0]), [0, 1, 1, 0, 0]),
        (spaces.Tuple([spaces.Discrete(2), box(1)]), (1, np.array([0.5])), [0, 1, 0.5]),
        (spaces.Dict(b=box(1), a=spaces.MultiBinary(2)), {"b": [3.0], "a": [1, 0]}, [3, 1, 0]),
        (BYTES, PICTURE, PICTURE),
        (box(3, 24, 32, low=0, high=1), np.moveaxis(PICTURE, -1, 0) / np.float32(255), PICTURE),
        (box(24, 32, low=0, high=255, dtype=np.uint8), PICTURE[..., 0], PICTURE[..., :1]),
    ],
)
def test_spaces_become_arrays(space, raw, expected):
    encode = encoder(space)
    result = encode(raw)
    assert np.array_equal(result, expected)
    assert (result.shape, result.dtype) == (encode.shape, encode.dtype)


@pytest.mark.parametrize(
    ("space", "raw", "message"),
    [
        (box(2, dtype=np.float64), [1.0, 1e300], "inf at place 1"),
        (box(24, 24, low=0, high=1), np.full((24, 24), np.nan), "not finite"),
        (spaces.Discrete(3), 3, "not in Discrete"),
        (spaces.Dict(a=box(1)), {"b": [1.0]}, "no part 'a'"),
        (spaces.Dict(a=box(1)), {"a": [1.0, 2.0]}, r"shape \(2,\)"),
        (spaces.Tuple([box(1)]), (), "no part 0"),
    ],
)
def test_observations_outside_their_space_are_named(space, raw, message):
    with pytest.raises(ObservationError, match=message):
        encoder(space)(raw)


def test_observations_without_a_fixed_size_are_refused():
    with pytest.raises(ValueError, match="preprocess"):
        encoder(spaces.Dict(a=spaces.Sequence(spaces.Discrete(2))))


@pytest.mark.parametrize("slippery", [True, False])
def test_the_true_dynamics_of_a_toy_text_table(slippery):
    """Values on the table P, computed here by backward induction."""
    target = tasid.wrap("FrozenLake-v1", is_slippery=slippery)
    sim = tasid.AbstractSimulator.from_toy_text(target.make_env(), horizon=9)
    table = target.make_env().unwrapped.P
    best = np.zeros(16)
    for _ in range(9):
        best = np.array(
            [
                max(
                    sum(p * (r + (0 if end else best[s2])) for p, s2, r, end in table[s][a])
                    for a in range(4)
                )
                for s in range(16)
            ]
        )
    latent = target.latent_on(sim)
    assert latent.optimal_value() == pytest.approx(best[0])
    assert latent.robust_value(tasid.robust_dp(sim, eta=0.0)) == pytest.approx(best[0])
    most_likely = tasid.AbstractSimulator.from_toy_text(
        target.make_env(), horizon=9, deterministic="most-likely"
    )
    assert target.latent_on(most_likely).optimal_value() == pytest.approx(best[0])
    assert target.latent_on(sim.replace(reward=2 * sim.reward)) is None
    assert tasid.wrap(Corridor).latent_on(sim) is None


LOCK, LAVA, BUILDING = "tasid/CombinationLock-v0", "tasid/LavaCrossing-v0", "tasid/Building-v0"
ROOM = "######\n#S...#\n#...G#\n#...L#\n######"
WORLDS = {
    LOCK: ("combination-lock", {"horizon": 5, "num_actions": 4, "seed": 7}),
    LAVA: ("lava-crossing", {"horizon": 8, "seed": 2}),
    BUILDING: ("building", {"map": ROOM, "sensor": "camera", "horizon": 9, "seed": 1}),
}
every_world = pytest.mark.parametrize("name", WORLDS)


@every_world
@pytest.mark.filterwarnings("error")
def test_our_environments_pass_the_checker(name):
    check_env(gymnasium.make(name, **WORLDS[name][1]).unwrapped)


@every_world
def test_an_episode_is_the_native_one(name):
    """The first number of the seed's generator makes the episode's key."""
    world, options = WORLDS[name]
    env, target = gymnasium.make(name, **options), tasid.make(world, **options)
    for seed in range(3):
        observation, _ = env.reset(seed=seed)
        number = np.random.Generator(np.random.PCG64(seed)).integers(1 << 31)
        keys = np.array([[0, number]], np.uint32)
        state, expected = target.reset(keys)
        assert np.allclose(observation, expected[0], atol=1e-5)
        for h, action in enumerate(np.random.default_rng(seed).integers(4, size=target.horizon)):
            observation, reward, terminated, truncated, _ = env.step(action)
            state, expected, rewards, _ = target.step(state, np.array([action]), h, keys)
            assert np.allclose(observation, expected[0], atol=1e-5)
            assert reward == pytest.approx(rewards[0])
            if terminated:
                break
        assert terminated or truncated


def test_environments_check_their_input():
    env = gymnasium.make(LOCK, **WORLDS[LOCK][1]).unwrapped
    with pytest.raises(ValueError, match="reset"):
        env.step(0)
    env.reset(seed=0)
    for action in (4, 0.5):
        with pytest.raises(ValueError, match=f"action: {action} "):
            env.step(action)
    with pytest.raises(TypeError, match="colour"):
        gymnasium.make(LOCK, colour=1)


def test_a_world_of_ours_can_be_wrapped():
    target = tasid.wrap(LOCK, horizon=4, num_actions=4, num_envs=2)
    assert (target.horizon, target.num_actions) == (4, 4)
    assert target.environment["options"] == {"num_actions": 4}


@pytest.mark.parametrize("code", ["import tasid, gymnasium", "import gymnasium, tasid"])
def test_importing_registers_our_ids_whichever_comes_first(code):
    check = f"assert {set(WORLDS)} <= set(gymnasium.registry)\nimport sys\n"
    check += "assert 'jax' not in sys.modules"
    subprocess.run(
        [sys.executable, "-W", "error", "-c", f"{code}\n{check}"], check=True, timeout=60
    )
