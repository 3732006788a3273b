"""Worlds with right maps in which nobody should be alarmed, and where one really is in them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

import tasid
from tasid.maps import AbstractSimulator

ROOM = "#####\n#S..#\n#.#.#\n#..G#\n#####"


@dataclass(frozen=True, eq=False)
class World:
    """A target, its map, and how to look behind the scenes of one environment."""

    target: Any
    simulator: AbstractSimulator
    eta: float
    episodes: int
    make: Callable[[], gymnasium.Env] | None = None
    """One environment, made as the target makes its own; None for environments of ours."""
    place: Callable[[gymnasium.Env], Any] | None = None
    """The label of the state that it is in."""


class Rover(gymnasium.Env):
    """A rover in a small room that shows six noisy numbers."""

    action_space = gymnasium.spaces.Discrete(4)
    observation_space = gymnasium.spaces.Box(-5, 5, (6,), np.float32)
    cells = np.array([list(row) for row in ROOM.split("\n")])
    camera = np.random.default_rng(7).normal(size=(25, 6))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.place = np.array([1, 1])
        return self._look(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        if self.np_random.random() < 0.1:
            action = self.np_random.integers(4)
        ahead = self.place + ((-1, 0), (0, 1), (1, 0), (0, -1))[int(action)]
        if self.cells[tuple(ahead)] != "#":
            self.place = ahead
        arrived = bool(self.cells[tuple(self.place)] == "G")
        return self._look(), 1.0 if arrived else -0.01, arrived, False, {}

    def _look(self) -> np.ndarray:
        shown = self.camera[5 * self.place[0] + self.place[1]]
        return (shown + self.np_random.normal(0, 0.1, 6)).astype(np.float32)


class Turning(gymnasium.Wrapper):
    """Minigrid's partial view as one row of numbers, and the five moves of maps that turn."""

    _SEQUENCES = ((2,), (0,), (1,), (0, 2), (1, 2))

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self.action_space = gymnasium.spaces.Discrete(len(self._SEQUENCES))
        self.observation_space = gymnasium.spaces.Box(0, 255, (147,), np.float32)

    def reset(self, **given: Any) -> tuple[Any, dict]:
        observation, info = self.env.reset(**given)
        return _row(observation), info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        total = 0.0
        for one in self._SEQUENCES[int(action)]:
            observation, reward, ended, stopped, info = self.env.step(one)
            total += float(reward)
        return _row(observation), total, ended, stopped, info


def _row(observation: Any) -> np.ndarray:
    seen: np.ndarray = observation["image"].astype(np.float32).ravel()
    return seen


def ours(name: str, episodes: int, **options: Any) -> Callable[[int], World]:
    """An environment of ours."""

    def build(seed: int) -> World:
        env = tasid.make(name, seed=seed, **options)
        return World(env, env.simulator, 0.1, episodes)

    return build


def lake(observe: str, *, horizon: int, episodes: int, **options: Any) -> Callable[[int], World]:
    """FrozenLake by the numbers of its states, or by its pictures."""

    def make() -> gymnasium.Env:
        mode = "rgb_array" if observe == "render" else None
        return gymnasium.make("FrozenLake-v1", render_mode=mode, **options)

    def build(seed: int) -> World:
        del seed
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sim = AbstractSimulator.from_toy_text(
                make(), horizon=horizon, deterministic="most-likely"
            )
            target = tasid.wrap("FrozenLake-v1", num_envs=32, observe=observe, **options)
        eta = 1 - options["success_rate"]
        return World(target, sim, eta, episodes, make, lambda env: int(env.unwrapped.s))

    return build


def room(seed: int) -> World:
    """The room of docs/your-environment.md."""
    del seed
    sim = AbstractSimulator.from_text_map(ROOM, horizon=10)

    def place(env: gymnasium.Env) -> Any:
        row, column = env.unwrapped.place
        return (int(column), int(row))

    return World(tasid.wrap(Rover, num_envs=16), sim, 0.1, 96, Rover, place)


def minigrid(seed: int) -> World:
    """MiniGrid-Empty-5x5 as an agent sees it: 7 × 7 cells in front of it."""
    del seed
    import minigrid as _  # registers the ids  # noqa: F401

    sim = AbstractSimulator.from_text_map(
        "#####\n#S..#\n#...#\n#..G#\n#####", moves="turn", horizon=12, step_reward=0.0
    )

    def make() -> gymnasium.Env:
        return Turning(gymnasium.make("MiniGrid-Empty-5x5-v0"))

    def place(env: gymnasium.Env) -> Any:
        column, row = env.unwrapped.agent_pos
        return (int(column), int(row), "ESWN"[env.unwrapped.agent_dir])

    return World(tasid.wrap(make, num_envs=16), sim, 0.1, 96, make, place)


WORLDS: dict[str, Callable[[int], World]] = {
    "lock": ours("combination-lock", 96, horizon=20),
    "lava": ours("lava-crossing", 250),
    "lake-4x4-numbers": lake("observation", horizon=20, episodes=200, success_rate=0.8),
    "lake-4x4-pictures": lake("render", horizon=20, episodes=200, success_rate=0.8),
    "lake-8x8-numbers": lake(
        "observation", horizon=40, episodes=200, success_rate=0.9, map_name="8x8"
    ),
    "lake-8x8-pictures": lake("render", horizon=40, episodes=200, success_rate=0.9, map_name="8x8"),
    "room": room,
    "minigrid-empty-5x5": minigrid,
}
