"""Stable-Baselines3's PPO and RecurrentPPO until a policy earns enough; runs in .venv-learners.

python sb3.py TABLES KIND SEED SECONDS: a line of JSON with what it took, and the best it earned.
Evaluations, greedy, are not timed. Episodes end where nothing more can happen, and all episodes of
a batch step at once, so that the time is the learner's.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import gymnasium
import numpy as np
import torch
from sb3_contrib import RecurrentPPO
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv
from world import World

ENOUGH = 0.95
"""The part of the robust value at which a world counts as solved."""
ENVS, EVALUATED, LOOKS = 64, 500, 20
KINDS = {"ppo": (PPO, ""), "recurrent": (RecurrentPPO, "Lstm")}


class Worlds(VecEnv):
    """Episodes of one world side by side, each begun anew when it ends."""

    def __init__(self, world: World, number: int = ENVS) -> None:
        self._world = world
        low, high, kind = (0, 255, np.uint8) if world.pictures else (-np.inf, np.inf, np.float32)
        space = gymnasium.spaces.Box(low, high, world.shape, kind)
        super().__init__(number, space, gymnasium.spaces.Discrete(world.num_actions))

    def reset(self) -> np.ndarray:
        """All episodes at the start."""
        self._states = np.full(self.num_envs, self._world.start)
        self._step = np.zeros(self.num_envs, int)
        return self._world.observe(self._states)

    def step_async(self, actions: np.ndarray) -> None:
        """Remember what to do."""
        self._actions = actions

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """Do it."""
        states, rewards = self._world.step(self._states, self._actions, self._step)
        self._step += 1
        over = self._world.final[states] | (self._step == self._world.horizon)
        seen = self._world.observe(states)
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for i in np.flatnonzero(over):
            infos[i] = {"terminal_observation": seen[i]}
        self._states = np.where(over, self._world.start, states)
        self._step[over] = 0
        if over.any():
            seen[over] = self._world.observe(self._states[over])
        return seen, rewards, over, infos

    def close(self) -> None:
        """Nothing is open."""

    def get_attr(self, attr_name: str, indices: object = None) -> list[Any]:
        """Of environments that have none."""
        return [None] * self.num_envs

    def set_attr(self, attr_name: str, value: object, indices: object = None) -> None:
        """Of environments that have none."""

    def env_method(self, method_name: str, *args: object, **kwargs: object) -> list[Any]:
        """Of environments that have none."""
        return [None] * self.num_envs

    def env_is_wrapped(self, wrapper_class: type, indices: object = None) -> list[bool]:
        """They are not."""
        return [False] * self.num_envs


def earned(model: Any, world: World) -> float:
    """The mean return of greedy episodes, beside the robust value."""
    states = np.full(EVALUATED, world.start)
    memory, begun, returns = None, np.ones(EVALUATED, bool), np.zeros(EVALUATED)
    for h in range(world.horizon):
        seen = world.observe(states)
        actions, memory = model.predict(seen, memory, begun, deterministic=True)
        states, rewards = world.step(states, actions, np.full(EVALUATED, h))
        returns, begun = returns + rewards, np.zeros(EVALUATED, bool)
    return float(returns.mean() / world.robust_value)


class Until(BaseCallback):
    """Stops when a policy earns enough or the time is up; looks a number of times."""

    def __init__(self, world: World, seconds: float) -> None:
        super().__init__()
        self._world, self._seconds = world, seconds
        self.best = -np.inf
        self.processor = self.wall = 0.0

    def _on_rollout_start(self) -> None:
        now = time.process_time() - self._started
        if now >= (self._looked + 1) * self._seconds / LOOKS:
            self._looked += 1
            wall = time.perf_counter()
            self.best = max(self.best, earned(self.model, self._world))
            self._started = time.process_time() - now
            self._began += time.perf_counter() - wall
        self.processor, self.wall = now, time.perf_counter() - self._began

    def _on_training_start(self) -> None:
        self._looked, self._started, self._began = 0, time.process_time(), time.perf_counter()

    def _on_step(self) -> bool:
        return self.best < ENOUGH and self.processor < self._seconds


def main() -> None:
    """Train until the end."""
    tables, kind, seed, seconds = sys.argv[1:]
    torch.set_num_threads(1)
    world = World(tables, int(seed))
    algorithm, memory = KINDS[kind]
    policy = f"{'Cnn' if world.pictures else 'Mlp'}{memory}Policy"
    model = algorithm(
        policy,
        Worlds(world),
        n_steps=world.horizon,
        batch_size=256,
        n_epochs=4,
        gamma=0.999,
        ent_coef=0.01,
        device="cpu",
        seed=int(seed),
    )
    until = Until(world, float(seconds))
    model.learn(10**9, callback=until)
    print(
        json.dumps(
            {
                "processor": until.processor,
                "wall": until.wall,
                "steps": model.num_timesteps,
                "ratio": until.best,
            }
        )
    )


if __name__ == "__main__":
    main()
