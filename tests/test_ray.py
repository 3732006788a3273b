"""Episodes played by Ray actors are those of this process, even if actors die."""

from __future__ import annotations

import os
import sys
from functools import partial
from importlib.util import find_spec

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import tasid
from tasid.keys import episode_keys
from tasid.policy import Policy
from tasid.targets.ray import RayError, connect
from tasid.targets.rollout import EpisodeError, rollout

KEYS = episode_keys(0, 0, 0, 9)
NAMES = ("observations", "actions", "rewards", "lengths", "explored")
needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")


class Drift(gymnasium.Env):
    """A random walk; it ends above 2. It dies once at the given step, or always raises."""

    action_space = spaces.Discrete(2)
    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)

    def __init__(self, marker="", raises=False):
        self.marker, self.raises = marker, raises

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.steps = np.zeros(1, np.float32), 0
        return self.x.copy(), {}

    def step(self, action):
        self.steps += 1
        if self.marker and self.steps == 3 and not os.path.exists(self.marker):
            open(self.marker, "w").close()
            os._exit(1)
        if self.raises:
            raise RuntimeError("broken wheel")
        self.x += np.float32(self.np_random.normal() + action)
        return self.x.copy(), float(self.x[0]), bool(self.x[0] > 2), False, {}


class Sign(Policy):
    """Action 1 below 0."""

    observation_shape, observation_dtype, horizon, num_actions, method = (1,), "float32", 5, 2, "-"

    def init(self, n):
        return None

    def act(self, memory, observations, h):
        return None, (observations[:, 0] < 0).astype(np.int32)

    def save(self, path):
        raise NotImplementedError


@pytest.mark.slow
@needs_ray
@pytest.mark.filterwarnings("ignore")  # of Ray's own code
def test_actors_play_the_same_episodes_even_if_one_dies(tmp_path):
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # actors do not find this file
    make = partial(Drift, str(tmp_path / "died"))
    try:
        with tasid.wrap(make, 4, horizon=5, workers="ray", envs_per_actor=2) as target:
            played = rollout(target.with_log(tmp_path / "log"), Sign(), KEYS)
        assert (tmp_path / "died").exists()
        alone = tasid.wrap(Drift, 2, horizon=5)
        expected = rollout(alone, Sign(), KEYS)
        assert all(np.array_equal(getattr(played, n), getattr(expected, n)) for n in NAMES)
        logged = rollout(alone.with_log(tmp_path / "log"), Sign(), KEYS)
        assert all(np.array_equal(getattr(logged, n), getattr(expected, n)) for n in NAMES)
        with (
            tasid.wrap(partial(Drift, raises=True), 2, horizon=5, workers="ray") as broken,
            pytest.raises(EpisodeError, match=r"3 times.*RuntimeError: broken wheel"),
        ):
            rollout(broken, Sign(), KEYS)
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
        connect().shutdown()


@pytest.mark.parametrize("address", ["nowhere", "localhost:port", "127.0.0.1:9"])
def test_an_address_without_a_cluster_is_named(address):
    with pytest.raises(RayError, match=f"cluster: .*{address}"):
        connect(address)
