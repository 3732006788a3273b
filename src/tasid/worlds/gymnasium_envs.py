"""Our worlds as Gymnasium environments.

`import tasid` registers tasid/CombinationLock-v0, tasid/LavaCrossing-v0 and tasid/Building-v0.
Options are those of `tasid.make`: their `seed` picks the instance, `reset(seed=…)` the episodes.
States that nothing can leave terminate an episode, the horizon truncates it.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from tasid.targets.registry import make


class BlockEnv(gymnasium.Env[NDArray[Any], np.int64]):
    """One of our worlds."""

    def __init__(self, world: str, **options: Any) -> None:
        self._target = make(world, **options)
        self._latent = self._target.latent
        sim = self._latent.world.simulator
        by_step = [sim.absorbing(h) for h in range(sim.horizon if sim.time_varying else 1)]
        self._absorbing = np.all(by_step, axis=0)
        self.simulator, self.horizon = self._target.simulator, self._target.horizon
        self.action_space = spaces.Discrete(self._target.num_actions)
        low, high = self._target.observation_bounds
        dtype: Any = np.dtype(self._target.observation_dtype).type
        self.observation_space = spaces.Box(low, high, self._target.observation_shape, dtype)
        self._state: Any = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Start an episode, whose key is the next number of the environment's generator."""
        super().reset(seed=seed)
        self._key, self._step = np.array([[0, self.np_random.integers(1 << 31)]], np.uint32), 0
        self._state, observations = self._target.reset(self._key)
        return np.array(observations[0]), {}

    def step(self, action: Any) -> tuple[NDArray[Any], float, bool, bool, dict[str, Any]]:
        """Take an action, or the one that comes out instead."""
        if np.asarray(action).dtype.kind not in "iu" or action not in self.action_space:
            raise ValueError(f"action: {action!r} is not in {self.action_space}")
        if self._state is None:
            raise ValueError("step: no episode has started; call reset() first")
        actions = np.array([action], np.int32)
        self._state, observations, rewards, _ = self._target.step(
            self._state, actions, self._step, self._key
        )
        self._step += 1
        terminated = bool(self._absorbing[self._latent.states(self._state)[0]])
        truncated = self._step >= self.horizon and not terminated
        return np.array(observations[0]), float(rewards[0]), terminated, truncated, {}
