"""The settings of the tables: environments of others first, then ours.

Each has a map, a target, and the true dynamics on the states of the map, so that the exact value of
the robust plan for an oracle that sees the true state is known.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium
import numpy as np

import tasid

STEP_REWARD = -0.005
"""Of MiniGrid rooms here: their own reward depends on the time, which no map of poses knows."""
LEFT, RIGHT, FORWARD, PICK_UP, TOGGLE = 0, 1, 2, 3, 5
"""Numbers of MiniGrid's actions."""
LONGEST = 300
"""Longest horizon of a MiniGrid room."""


@dataclass(frozen=True)
class World:
    """A target and its map."""

    target: Any
    simulator: tasid.AbstractSimulator
    truth: Any
    """The true dynamics, as `tasid.policy_value` takes them."""


@dataclass(frozen=True)
class Setting:
    """A world for every seed, the η of the plan, and the number of episodes."""

    make: Callable[[int], World]
    eta: float
    episodes: int


def own_world(name: str, seed: int, **options: Any) -> World:
    """An environment of ours."""
    env = tasid.make(name, seed=seed, **options)
    return World(env, env.simulator, env.latent.world)


def toy_text(
    name: str, seed: int, *, horizon: int, observe: str = "observation", **options: Any
) -> World:
    """A toy-text environment as Gymnasium ships it; its table P is the map and the truth."""
    sim = tasid.AbstractSimulator.from_toy_text(name, horizon=horizon, **options)
    target = tasid.wrap(name, num_envs=32, horizon=horizon, observe=observe, **options)
    return World(target, sim, sim)


class SlipperyRoom(gymnasium.Wrapper):
    """A MiniGrid room with one layout, in which actions slip and the goal pays 1.

    Observations are MiniGrid's own, 7 × 7 × 3 numbers of the cells in front of the agent, in a row.
    """

    def __init__(self, name: str, layout: int, actions: tuple[int, ...], eta: float) -> None:
        super().__init__(gymnasium.make(f"minigrid:MiniGrid-{name}-v0", max_steps=LONGEST))
        self.layout, self.actions, self.eta = layout, actions, eta
        self.action_space = gymnasium.spaces.Discrete(len(actions))
        self.observation_space = gymnasium.spaces.Box(0, 255, (147,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        observation, info = self.env.reset(seed=self.layout)
        return observation["image"].astype(np.float32).ravel(), info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        if self.rng.random() < self.eta:
            action = self.rng.integers(len(self.actions))
        observation, paid, ended, cut, info = self.env.step(self.actions[int(action)])
        row = observation["image"].astype(np.float32).ravel()
        return row, 1.0 if paid > 0 else STEP_REWARD, ended, cut, info


def minigrid_map(room: SlipperyRoom, horizon: int) -> tasid.AbstractSimulator:
    """The map that MiniGrid's manual and a view of the layout from above give."""
    room.reset(seed=0)
    base: Any = room.unwrapped
    layout = base.grid.copy()

    def step(state: Any, action: int) -> tuple[Any, float, bool]:
        x, y, heading, has_key, door = state
        ahead = (x + (1, 0, -1, 0)[heading], y + (0, 1, 0, -1)[heading])
        kind = getattr(layout.get(*ahead), "type", None)
        if action in (LEFT, RIGHT):
            heading = (heading + (1 if action == RIGHT else -1)) % 4
        elif action == PICK_UP:
            has_key = has_key or kind == "key"
        elif action == TOGGLE and kind == "door":
            if has_key or door != "locked":
                door = "closed" if door == "open" else "open"
        elif action == FORWARD:
            free = {None: True, "goal": True, "key": has_key, "door": door == "open"}
            x, y = ahead if free.get(kind, False) else (x, y)
        arrived = action == FORWARD and (x, y) == ahead and kind == "goal"
        return (x, y, heading, has_key, door), 1.0 if arrived else STEP_REWARD, arrived

    start = (*(int(i) for i in base.agent_pos), int(base.agent_dir), False, "locked")
    return tasid.AbstractSimulator.from_function(step, start, room.actions, horizon=horizon)


def minigrid(name: str, seed: int, *, eta: float = 0.1) -> World:
    """A MiniGrid room whose layout is drawn from the seed; H is three times the robust route."""
    actions = (LEFT, RIGHT, FORWARD, *((PICK_UP, TOGGLE) if "Door" in name else ()))
    make = partial(SlipperyRoom, name, seed, actions, eta)
    sim = minigrid_map(make(), LONGEST)
    rewards = [step.reward for step in tasid.robust_dp(sim, eta=eta).route()]
    sim = minigrid_map(make(), min(LONGEST, max(12, 3 * (rewards.index(1.0) + 1))))
    slips = (1 - eta) * np.eye(len(actions)) + eta / len(actions)
    truth = tasid.PerturbedMDP(sim, np.tile(slips, (sim.num_states, 1, 1)))
    return World(tasid.wrap(make, num_envs=32, horizon=sim.horizon), sim, truth)


def settings() -> dict[str, Setting]:
    """Settings by name, in the order of the tables."""
    toy, room = partial(partial, toy_text), partial(partial, minigrid)
    ours = partial(partial, own_world)
    return {
        "lake-4x4-numbers": Setting(toy("FrozenLake-v1", horizon=100), 0.05, 200),
        "lake-4x4-pictures": Setting(
            toy("FrozenLake-v1", horizon=100, observe="render"), 0.05, 200
        ),
        "lake-8x8-numbers": Setting(toy("FrozenLake8x8-v1", horizon=200), 0.05, 200),
        "lake-as-shipped-numbers": Setting(toy("FrozenLake-v1", horizon=40), 0.0, 500),
        "lake-as-shipped-pictures": Setting(
            toy("FrozenLake-v1", horizon=40, observe="render"), 0.0, 500
        ),
        "taxi": Setting(toy("Taxi-v4", horizon=30), 0.05, 400),
        "doorkey-5x5": Setting(room("DoorKey-5x5"), 0.1, 200),
        "doorkey-6x6": Setting(room("DoorKey-6x6"), 0.1, 200),
        "fourrooms": Setting(room("FourRooms"), 0.1, 300),
        "simplecrossing-9x9": Setting(room("SimpleCrossingS9N1"), 0.1, 200),
        "empty-8x8": Setting(room("Empty-8x8"), 0.1, 200),
        "lock-H20": Setting(ours("combination-lock", horizon=20), 0.1, 96),
        "lock-H40": Setting(ours("combination-lock", horizon=40), 0.1, 128),
        "lock-H100": Setting(ours("combination-lock", horizon=100), 0.1, 400),
        "lava": Setting(ours("lava-crossing"), 0.1, 250),
        "building": Setting(ours("building"), 0.1, 200),
        "lock-4-starts": Setting(ours("combination-lock", horizon=10, starts=4), 0.1, 256),
        "lava-4-docks": Setting(ours("lava-crossing", starts=4), 0.1, 400),
        "building-5-docks": Setting(ours("building", starts=5), 0.1, 300),
    }


def robust_value(world: World, eta: float) -> float:
    """Exact value of the robust plan for an oracle that sees the true state."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tasid.policy_value(world.truth, tasid.robust_dp(world.simulator, eta=eta))
