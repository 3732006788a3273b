"""Stable-Baselines3's PPO on the lock, with our batch and updates: steps per second, as JSON.

python ppo_speed_peer.py HORIZON THREADS. The environment is a NumPy copy of the compiled one's
tables, one hundred episodes at a time, so that what is measured is the learner.
"""

from __future__ import annotations

import json
import sys
import time

import gymnasium
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecEnv

import tasid

EPISODES = 100


class Locks(VecEnv):
    """As many episodes of one lock as there are in a batch, side by side."""

    def __init__(self, horizon: int) -> None:
        env = tasid.make("combination-lock", horizon=horizon, seed=0)
        target, self._horizon = env.target, horizon
        self._clean, self._mixing = map(np.asarray, (target.emission.clean, target.emission.mixing))
        self._noise = float(target.emission.noise)
        self._successor = np.asarray(env.simulator.successor)
        self._reward = np.asarray(env.simulator.reward, np.float32)
        self._outcome = np.asarray(target.outcome)
        self._rng = np.random.default_rng(0)
        space = gymnasium.spaces.Box(-np.inf, np.inf, (self._clean.shape[1],), np.float32)
        super().__init__(EPISODES, space, gymnasium.spaces.Discrete(target.num_actions))

    def reset(self) -> np.ndarray:
        self._state, self._step = np.zeros(EPISODES, int), 0
        return self._seen()

    def _seen(self) -> np.ndarray:
        drawn = self._rng.standard_normal((EPISODES, self._mixing.shape[0]), np.float32)
        return self._clean[self._state] + (self._noise * drawn) @ self._mixing

    def step_async(self, actions: np.ndarray) -> None:
        self._actions = actions

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict]]:
        chances = self._outcome[self._state, self._actions]
        drawn = self._rng.random((EPISODES, 1))
        happened = np.minimum((drawn >= chances).sum(axis=1), chances.shape[1] - 1)
        rewards = self._reward[self._state, happened]
        self._state = self._successor[self._state, happened]
        self._step += 1
        over = self._step == self._horizon
        infos: list[dict] = [{} for _ in range(EPISODES)]
        seen = self._seen()
        if over:
            infos = [{"terminal_observation": row} for row in seen]
            seen = self.reset()
        return seen, rewards, np.full(EPISODES, over), infos

    def close(self) -> None: ...

    def get_attr(self, attr_name: str, indices: object = None) -> list:
        return [None] * EPISODES

    def set_attr(self, attr_name: str, value: object, indices: object = None) -> None: ...

    def env_method(self, method_name: str, *args: object, **kwargs: object) -> list:
        return [None] * EPISODES

    def env_is_wrapped(self, wrapper_class: type, indices: object = None) -> list[bool]:
        return [False] * EPISODES


def main() -> None:
    """Two batches to warm up, then the clock."""
    horizon, threads = int(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(threads)
    model = PPO(
        "MlpPolicy",
        Locks(horizon),
        n_steps=horizon,
        batch_size=32,
        n_epochs=4,
        learning_rate=3e-4,
        gamma=0.999,
        gae_lambda=0.8,
        clip_range=0.1,
        ent_coef=0.001,
        max_grad_norm=0.25,
        policy_kwargs={
            "net_arch": {"pi": [56, 56], "vf": [56, 56]},
            "activation_fn": torch.nn.ReLU,
        },
        device="cpu",
        seed=0,
    )
    model.learn(EPISODES * horizon)
    batches = max(2, 60 // horizon)
    started = time.perf_counter()
    model.learn(batches * EPISODES * horizon, reset_num_timesteps=True)
    steps = batches * EPISODES * horizon
    print(json.dumps({"steps_per_second": steps / (time.perf_counter() - started)}))


if __name__ == "__main__":
    main()
