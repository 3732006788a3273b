"""Any Gymnasium environment as a target: the same episodes however they are run, and no others."""

from __future__ import annotations

from typing import ClassVar

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import tasid
from tasid.baselines.ppo import PPOConfig
from tasid.baselines.training import ppo
from tasid.learning.paper.tasid import collect
from tasid.maps.sources.toy_text import from_toy_text
from tasid.models import MLP
from tasid.policies.decoder import WIDTH, Decoder
from tasid.runs.recording import record_episodes
from tasid.targets.target import EpisodeFailed, episode_keys, seed_key

LENGTH = 6


class Line(gymnasium.Env):
    """A walk on a line with slips: left or right; the right end terminates and pays 1.

    Everything it does is counted in `Line.log`, by the seed of the episode.
    """

    log: ClassVar[dict] = {}
    metadata: ClassVar[dict] = {"render_modes": ["rgb_array"]}

    def __init__(
        self, *, slip=0.2, start=0, break_at=None, times=0, observe=None, render_mode=None
    ):
        self.action_space = spaces.Discrete(2, start=start)
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self.slip, self.break_at, self.times, self.observe = slip, break_at, times, observe
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.step_count, self.episode = 0, 0, seed
        self.done = False
        Line.log.setdefault(seed, []).append([])
        return self._look(), {}

    def _look(self):
        noise = self.np_random.normal(0, 0.01)
        seen = np.array([self.place + noise, noise])
        return seen if self.observe is None else self.observe(self, seen)

    def step(self, action):
        assert not self.done, "an ended episode was stepped"
        assert self.action_space.contains(action)
        tries = Line.log[self.episode]
        if self.break_at == self.step_count and len(tries) <= self.times:
            raise RuntimeError("the wheel came off")
        tries[-1].append(int(action))
        self.step_count += 1
        move = 1 if int(action) - int(self.action_space.start) else -1
        if self.np_random.random() < self.slip:
            move = -move
        self.place = max(0, self.place + move)
        self.done = self.place >= 3
        return self._look(), float(self.done), self.done, False, {}

    def render(self):
        picture = np.zeros((32, 32, 3), np.uint8)
        picture[:, 8 * self.place : 8 * self.place + 8] = 255
        return picture


@pytest.fixture(autouse=True)
def log():
    Line.log.clear()
    return Line.log


def line_map(horizon=LENGTH):
    def step(place, action):
        after = max(0, place + (1 if action else -1))
        return after, float(after == 3), after == 3

    return tasid.AbstractSimulator.from_function(step, 0, 2, horizon=horizon)


def blank(horizon=LENGTH, inputs=2):
    """A policy with random models: which one it is does not matter here."""
    plan = tasid.robust_dp(line_map(horizon), eta=0.2)
    network = MLP(inputs, 2, (8,))
    decoder = Decoder.blank(plan, network)
    models = jax.vmap(network.init)(jax.random.split(seed_key(5), horizon - 1))
    return decoder.with_models(models)


def explored(target, *, h=4, episodes=20, inputs=2):
    return collect(target, blank(target.horizon, inputs), seed_key(3), h, episodes=episodes)


def same(one, other):
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


# ---------------------------------------------------------------- the same episodes


@pytest.mark.parametrize("num_envs", [1, 3, 20, 64])
def test_data_do_not_depend_on_how_many_run_at_a_time(num_envs):
    few = explored(tasid.wrap(Line, num_envs=7, horizon=LENGTH))
    more = explored(tasid.wrap(Line, num_envs=num_envs, horizon=LENGTH))
    assert same(few, more)
    assert few.x.shape == (20, 2)


def test_a_single_environment_gives_the_same_data_too():
    assert same(
        explored(tasid.wrap(Line(), horizon=LENGTH)), explored(tasid.wrap(Line, horizon=LENGTH))
    )


def test_worker_processes_give_the_same_data():
    with tasid.wrap(
        "FrozenLake-v1", horizon=8, num_envs=2, workers=True, success_rate=0.8
    ) as apart:
        far = explored_lake(apart)
    near = explored_lake(tasid.wrap("FrozenLake-v1", horizon=8, num_envs=5, success_rate=0.8))
    assert same(far, near)


def explored_lake(target):
    toy = lake(8)
    plan = tasid.robust_dp(toy.simulator, eta=0.2)
    network = MLP(16, 4, (8,))
    decoder = Decoder.blank(plan, network)
    models = jax.vmap(network.init)(jax.random.split(seed_key(5), 7))
    return collect(target, decoder.with_models(models), seed_key(3), 5, episodes=6)


def lake(horizon):
    env = gymnasium.make("FrozenLake-v1", success_rate=0.8)
    return from_toy_text(env, horizon=horizon, deterministic="most-likely")


def test_few_episodes_are_the_first_of_many():
    target = tasid.wrap(Line, horizon=LENGTH)
    everything = explored(target, episodes=WIDTH + 9)
    for number in (5, WIDTH - 2, WIDTH, WIDTH + 3):
        whole = jax.tree.map(lambda table: table[:number], everything)  # noqa: B023
        assert same(explored(target, episodes=number), whole), number


def test_none_but_the_wanted_episodes_run(log):
    explored(tasid.wrap(Line, num_envs=8, horizon=LENGTH), h=3, episodes=21)
    assert len(log) == 21
    assert all(len(tries) == 1 for tries in log.values())
    # Each took h steps to roll in and one to explore, unless it ended before.
    assert max(len(tries[0]) for tries in log.values()) == 4


def test_scores_count_every_episode_once_and_are_prefixes_of_each_other(log):
    policy = learned_policy()
    log.clear()
    target = tasid.wrap(Line, num_envs=5)
    few = tasid.evaluate(policy, target, episodes=9, seed=1)
    assert len(log) == 9
    many = tasid.evaluate(policy, target, episodes=WIDTH + 3, seed=1)
    assert np.array_equal(many.returns[:9], few.returns)
    tasid.estimate_eta(policy, target, episodes=11, seed=1)


def learned_policy():
    target = tasid.wrap(Line, num_envs=32)
    return tasid.learn(target, line_map(), eta=0.2, episodes=32, seed=0).policy


# ---------------------------------------------------------------- what an episode is


def test_termination_is_absorbing():
    target = tasid.wrap(lambda: Line(slip=0.0), num_envs=2, horizon=LENGTH)
    keys = episode_keys(seed_key(0), 0, jnp.arange(2))
    state, first = target.reset(keys)
    rewards, seen, over = [], [first], []
    for h in range(LENGTH):
        over.append(target.finished(state).tolist())
        state, x, reward = target.step(state, jnp.array([1, 0]), h, keys)
        rewards.append(reward.tolist())
        seen.append(x)
    assert [row[0] for row in rewards] == [0, 0, 1, 0, 0, 0]
    assert [row[1] for row in rewards] == [0] * 6
    assert [row[0] for row in over] == [False, False, False, True, True, True]
    assert not any(row[1] for row in over)
    assert all(np.array_equal(x[0], seen[3][0]) for x in seen[3:])
    assert not np.array_equal(seen[3][1], seen[4][1])


def test_samples_after_the_end_are_marked_and_do_not_train():
    target = tasid.wrap(lambda: Line(slip=0.0), num_envs=16, horizon=LENGTH)
    data = explored(target, h=4, episodes=60)
    plan = tasid.robust_dp(line_map(), eta=0.2)
    assert plan.route()[3].reward == 0
    ended = ~np.asarray(data.live)
    assert ended.any()
    # Without slips, an episode is over before step 4 iff it stands at the end.
    assert np.array_equal(ended, data.x[:, 0] > 2.5)
    assert np.array_equal(data.x[ended], data.x_next[ended])


def test_survivors_are_not_taken_for_everyone():
    """Who steps from place 2 to the end is gone; counted among those left, all slipped there."""
    with tasid.wrap(lambda: Line(slip=0.25), horizon=LENGTH) as target:
        noticed = tasid.learn(target, line_map(), eta=0.25, episodes=128, seed=0).diagnostics
    assert not [error for error in noticed.map_errors if (error.state, error.action) == (2, 1)]
    assert noticed.eta.low < 0.25 < noticed.eta.high


def test_every_sample_of_a_target_that_never_ends_is_live(lock):
    plan = tasid.robust_dp(lock.simulator, eta=0.1)
    network = MLP(lock.target.observation_shape[0], 4, (8,))
    decoder = Decoder.blank(plan, network)
    data = collect(lock.target, decoder, seed_key(3), 2, episodes=5)
    assert np.asarray(data.live).all()


def test_actions_start_where_the_space_starts(log):
    explored(tasid.wrap(lambda: Line(start=3), horizon=LENGTH))
    taken = {action for tries in log.values() for action in tries[0]}
    assert taken == {3, 4}


def test_the_horizon_is_the_maps_unless_it_is_given():
    target = tasid.wrap(Line)
    assert target.horizon == 0
    result = tasid.learn(target, line_map(4), eta=0.2, episodes=200, method="paper")
    assert result.policy.horizon == 4
    assert tasid.evaluate(result.policy, target, episodes=3).returns.size == 3
    with pytest.raises(ValueError, match="truncates episodes after 100 steps"):
        tasid.wrap("FrozenLake-v1", horizon=101)
    assert tasid.wrap("FrozenLake-v1", horizon=101, max_episode_steps=101).horizon == 101


def test_pictures_by_rendering_and_by_preprocessing():
    target = tasid.wrap(lambda: Line(render_mode="rgb_array"), observe="render", resize=24)
    assert target.observation_shape == (24, 24, 3)
    assert target.observation_dtype == "uint8"
    _, x = target.reset(episode_keys(seed_key(0), 0, jnp.arange(2)))
    assert x.dtype == np.uint8
    assert (x[:, :, :6] == 255).all()
    assert (x[:, :, 6:] == 0).all()
    lake = tasid.wrap("FrozenLake-v1", observe="render", resize=(32, 48))
    assert lake.observation_shape == (32, 48, 3)
    assert lake.environment == {
        "name": "gym:FrozenLake-v1",
        "options": {"observe": "render", "resize": [32, 48]},
    }
    assert tasid.wrap("FrozenLake-v1", observe="render").observation_shape == (64, 64, 3)
    wide = tasid.wrap("CliffWalking-v1", observe="render", num_envs=1)
    assert wide.observation_shape == (21, 64, 3), "a third as high as it is wide"
    assert tasid.wrap("FrozenLake-v1", observe="render", resize=99).observation_shape[0] == 99
    halved = tasid.wrap(Line, preprocess=lambda seen: seen[:1] / 2)
    assert halved.observation_shape == (1,)
    assert halved.observe(np.array([3.0, 0.0])).tolist() == [1.5]
    assert halved.environment is None


# ---------------------------------------------------------------- what goes wrong


def test_an_environment_that_raises_is_run_again_from_the_start(log):
    target = tasid.wrap(lambda: Line(break_at=2, times=1), num_envs=4, horizon=LENGTH)
    broken = explored(target, h=4, episodes=12)
    # The broken episodes ran twice, with the same seed; none of the first tries is in the data.
    assert {len(tries) for tries in log.values()} == {2}
    assert len(log) == 12
    assert same(broken, explored(tasid.wrap(Line, horizon=LENGTH), h=4, episodes=12))


@pytest.mark.parametrize("retries", [0, 3])
def test_raising_again_and_again_is_an_error_that_says_where(retries):
    target = tasid.wrap(lambda: Line(break_at=2, times=99), horizon=LENGTH, retries=retries)
    said = rf"failed {retries + 1} times, last after 3 steps .* RuntimeError: the wheel came off"
    said += r" \(test_gym_target.py, line \d+\)"
    with pytest.raises(EpisodeFailed, match=said):
        explored(target, h=4)


def test_a_dying_worker_is_replaced(tmp_path):
    died = tmp_path / "died"

    def fragile():
        class Fragile(Line):
            def step(self, action):
                if self.step_count == 2 and not died.exists():
                    died.touch()
                    import os

                    os._exit(1)
                return super().step(action)

        return Fragile()

    with tasid.wrap(fragile, num_envs=2, workers=True, horizon=LENGTH) as target:
        data = explored(target, h=3, episodes=4)
    assert died.exists()
    assert same(data, explored(tasid.wrap(Line, horizon=LENGTH), h=3, episodes=4))


def stuck_lake(where, hung):
    """A factory of lakes that hang once, or for ever; its workers need not import this module."""

    def make():
        import time

        from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv

        class Stuck(FrozenLakeEnv):
            def step(self, action):
                return self.sometimes("step", super().step, action)

            def reset(self, **given):
                return self.sometimes("reset", super().reset, **given)

            def sometimes(self, doing, usual, *given, **named):
                if doing == where and (hung is None or not hung.exists()):
                    if hung is not None:
                        hung.touch()
                    time.sleep(600)
                return usual(*given, **named)

        return Stuck()

    return make


@pytest.mark.parametrize("where", ["step", "reset"])
def test_a_hanging_worker_is_ended_and_its_episode_run_again(tmp_path, where):
    """A neighbour that did nothing wrong is run again, too, and the data are those of no fault."""
    hung = tmp_path / "hung"
    times = {"step_timeout": 2.0, "reset_timeout": 30.0 if where == "step" else 4.0}
    options = {"num_envs": 2, "horizon": LENGTH}
    with tasid.wrap(stuck_lake(where, hung), workers=True, retries=1, **times, **options) as target:
        data = record_episodes(target, None, episodes=4).recorded
    assert hung.exists()
    well = tasid.wrap(stuck_lake("nowhere", hung), **options)
    assert same(data, record_episodes(well, None, episodes=4).recorded)


def test_hanging_for_ever_is_an_error_that_says_where():
    said = "failed 1 times, last after 1 steps of the episode with seed .*step: no answer within 1"
    options = {"num_envs": 1, "workers": True, "horizon": LENGTH, "retries": 0}
    with (
        tasid.wrap(stuck_lake("step", None), step_timeout=1, **options) as target,
        pytest.raises(EpisodeFailed, match=said),
    ):
        record_episodes(target, None, episodes=1)


def test_only_a_process_can_be_ended():
    with pytest.raises(ValueError, match=r"step_timeout: 1 without workers=True"):
        tasid.wrap(Line, step_timeout=1)
    with pytest.raises(ValueError, match="reset_timeout: -1 is no number of seconds"):
        tasid.wrap(Line, reset_timeout=-1, workers=True)
    with pytest.raises(ValueError, match="on_bad_observation: 'ignore' is none of raise, retry"):
        tasid.wrap(Line, on_bad_observation="ignore")


def test_a_bad_observation_can_be_a_reason_to_try_again():
    """Every first try goes wrong; none of it is in the data, and for ever is an error."""

    def flicker(env, seen):
        first = len(Line.log[env.episode]) == 1
        return seen * np.nan if first and env.step_count == 2 else seen

    Line.log.clear()
    options = {"num_envs": 4, "horizon": LENGTH, "on_bad_observation": "retry"}
    broken = explored(tasid.wrap(lambda: Line(observe=flicker), **options), h=4, episodes=8)
    assert {len(tries) for tries in Line.log.values()} == {2}
    assert same(broken, explored(tasid.wrap(Line, horizon=LENGTH), h=4, episodes=8))
    with pytest.raises(
        EpisodeFailed, match=r"failed 3 times, last after 2 steps .* nan at place 0"
    ):
        explored(tasid.wrap(spoil(2, lambda x: x * np.nan), **options), h=4)


def spoil(step, what):
    def observe(env, seen):
        return what(seen) if env.step_count == step else seen

    return lambda: Line(observe=observe)


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (spoil(2, lambda x: x * np.nan), "after 2 steps of the episode with seed .*nan at place 0"),
        (spoil(0, lambda x: x * np.inf), "after 0 steps.*inf at place 0"),
        (spoil(3, lambda x: x[:1]), r"after 3 steps.*shape \(1,\).*\(2,\)"),
        (spoil(1, lambda x: x.astype(str)), "after 1 steps.*dtype <U"),
        (spoil(1, lambda x: x.astype(complex)), "after 1 steps.*dtype complex"),
    ],
)
def test_an_observation_gone_wrong_says_when_and_how(factory, message):
    with pytest.raises(ValueError, match=message):
        explored(tasid.wrap(factory, horizon=LENGTH))


def test_a_reward_must_be_a_number():
    class Odd(Line):
        def step(self, action):
            x, _, *rest = super().step(action)
            return x, np.nan, *rest

    with pytest.raises(ValueError, match=r"after 1 steps.*reward: nan"):
        explored(tasid.wrap(Odd, horizon=LENGTH))


def test_truncation_before_the_horizon_is_an_error_that_says_so():
    def short():
        return gymnasium.wrappers.TimeLimit(Line(slip=1.0), 3)

    target = tasid.wrap(short, horizon=LENGTH)
    with pytest.raises(ValueError, match=r"truncated before the horizon: after 3 steps.*=6"):
        explored(target, h=4)
    assert explored(tasid.wrap(short, horizon=3), h=2).x.shape == (20, 2)


class Continuous(Line):
    def __init__(self, space):
        super().__init__()
        self.action_space = space


ONE = Line()


@pytest.mark.parametrize(
    ("env", "options", "kind", "message"),
    [
        (lambda: Continuous(spaces.Box(-1, 1, (2,))), {}, ValueError, "continuous actions"),
        (lambda: Continuous(spaces.MultiDiscrete([2, 2])), {}, ValueError, "several actions"),
        ("Pendulum-v1", {}, ValueError, "continuous actions"),
        ("NoSuchLake-v1", {}, ValueError, "makes no 'NoSuchLake-v1'"),
        ("FrozenLake-v1", {"colour": 3}, ValueError, "colour"),
        (Line, {"colour": 3}, TypeError, "colour: only an id takes options"),
        (Line, {"observe": "render"}, ValueError, "render_mode=None"),
        (Line, {"observe": "smell"}, ValueError, "observe: 'smell'"),
        (Line, {"resize": 64}, ValueError, "no pictures"),
        (Line, {"num_envs": 0}, ValueError, "num_envs: 0"),
        (Line, {"horizon": 0}, ValueError, "horizon: 0"),
        (Line, {"retries": -1}, ValueError, "retries: -1"),
        (lambda: 3, {}, TypeError, "gave int"),
        (3, {}, TypeError, "int is neither"),
        (Line(), {"num_envs": 2}, ValueError, "a single environment"),
        (lambda: ONE, {}, ValueError, "the same environment twice"),
        (Line(), {"workers": True}, ValueError, "worker processes"),
    ],
)
def test_bad_input_is_refused_at_once(env, options, kind, message):
    with pytest.raises(kind, match=message):
        tasid.wrap(env, **options)


def test_more_episodes_than_environments_are_refused():
    with pytest.raises(ValueError, match="reset: 3 episodes at a time in 2 environments"):
        tasid.wrap(Line, num_envs=2).reset(episode_keys(seed_key(0), 0, jnp.arange(3)))


def test_the_map_must_have_the_same_actions():
    sim = tasid.AbstractSimulator([[0, 0, 0]], [[0.0, 0.0, 0.0]], horizon=3)
    with pytest.raises(ValueError, match="3 actions on the map, 2 in the target"):
        tasid.learn(tasid.wrap(Line), sim, eta=0.1, episodes=100)


def test_ppo_learns_in_a_wrapped_environment_as_well():
    target = tasid.wrap(Line, num_envs=20, horizon=LENGTH)
    config = PPOConfig(batch=20)
    seen = []
    given = {"evaluation_episodes": 15, "config": config, "callbacks": [seen.append]}
    ppo(target, seed=0, episodes=200, every=100, **given)
    assert [here.returns.size for here in seen] == [100, 100]
    assert [here.evaluation.returns.size for here in seen] == [15, 15]
    broken = tasid.wrap(lambda: Line(break_at=2, times=9), num_envs=20, horizon=LENGTH)
    with pytest.raises(EpisodeFailed, match="the wheel came off"):
        ppo(broken, seed=0, episodes=20, every=20, evaluation_episodes=0, config=config)


@pytest.mark.parametrize("what", ["env", "id", "factory"])
def test_environments_that_nobody_wrapped_are_told_how(what, learned):
    env = gymnasium.make("FrozenLake-v1", is_slippery=False)
    given = {"env": env, "id": "FrozenLake-v1", "factory": lambda: env}[what]
    sim = tasid.AbstractSimulator.from_toy_text(env, horizon=4)
    for use in (
        lambda: tasid.learn(given, sim, eta=0.1, episodes=100),
        lambda: tasid.learn(given, eta=0.1, episodes=100),
        lambda: tasid.check_target(given, sim),
        lambda: tasid.evaluate(learned.policy, given, episodes=3),
    ):
        with pytest.raises(TypeError, match=r"target: .* wrap it with tasid.wrap\(…\)"):
            use()
    with pytest.raises(TypeError, match="target: list is no target"):
        tasid.check_target([], sim)


# ---------------------------------------------------------------- where episodes begin


class Begun(Line):
    """A line on which `reset` can be told where to begin; it spoils what it is told."""

    told: ClassVar[list] = []

    def reset(self, *, seed=None, options=None):
        Begun.told.append(options and dict(options))
        super().reset(seed=seed)
        self.place = 0 if options is None else options.pop("place")
        return self._look(), {}


@pytest.mark.parametrize("preprocess", [None, np.asarray])
def test_every_reset_is_given_its_options(preprocess):
    Begun.told.clear()
    target = tasid.wrap(
        Begun, num_envs=2, horizon=2, preprocess=preprocess, reset_options={"place": 3}
    )
    log = record_episodes(target, None, episodes=3, explore=1.0, seed=0)
    assert log.recorded.observations[:, 0, 0] == pytest.approx(3, abs=0.1)
    assert Begun.told == [{"place": 3}] * (3 + (preprocess is not None))


def test_without_options_reset_is_not_given_any():
    target = tasid.wrap(Begun, num_envs=1, horizon=2)
    Begun.told.clear()
    record_episodes(target, None, episodes=1, explore=1.0, seed=0)
    assert Begun.told == [None]
    with pytest.raises(TypeError, match=r"reset_options: 3 is not a mapping of names to values"):
        tasid.wrap(Begun, reset_options=3)


def test_reset_options_are_on_record_and_make_the_tables_starts_unknown():
    usual = tasid.wrap("FrozenLake-v1", success_rate=0.8)
    told = tasid.wrap("FrozenLake-v1", success_rate=0.8, reset_options={"place": 3})
    assert told.environment["options"]["reset_options"] == {"place": 3}
    sim = from_toy_text(usual.make_env(), horizon=4, deterministic="most-likely").simulator
    assert usual.latent_on(sim) is not None
    assert told.latent_on(sim) is None


class Gym021(Line):
    """As environments were before Gymnasium."""

    def step(self, action):
        return super().step(action)[:4]


class Gym021Reset(Line):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0]


@pytest.mark.parametrize(
    ("old", "words"),
    [
        (Gym021, r"step: gave 4 values; Gymnasium's gives \(observation, reward, terminated"),
        (Gym021Reset, r"reset: gave ndarray; Gymnasium's gives \(observation, info\)"),
    ],
)
def test_environments_of_an_older_interface_are_told_what_is_expected(old, words):
    with (
        tasid.wrap(old, horizon=LENGTH, num_envs=2) as target,
        pytest.raises(ValueError, match=words),
    ):
        record_episodes(target, None, episodes=4)
