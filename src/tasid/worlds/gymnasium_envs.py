"""Our worlds as Gymnasium environments, single or many in one compiled call.

`import tasid` registers tasid/CombinationLock-v0, tasid/LavaCrossing-v0 and tasid/Building-v0.
Options are those of `tasid.make`: their `seed` picks the instance, `reset(seed=…)` the episodes.
States that nothing can leave terminate an episode, the horizon truncates it. A row of a vector
environment goes through the same episodes as a single environment with the same seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from tasid.layout import FREE, GOAL, HAZARD, UNKNOWN, WALL, GridLayout
from tasid.simulator import AbstractSimulator
from tasid.targets.registry import make

METADATA: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 4}
CELL_PIXELS = 16
COLORS = {
    FREE: (250, 248, 242),
    WALL: (71, 76, 83),
    UNKNOWN: (221, 219, 212),
    GOAL: (140, 199, 160),
    HAZARD: (229, 154, 118),
}
"""Cells of maps in rendered pictures."""
AGENT, FRONT = (15, 110, 110), (200, 80, 30)
"""An agent on a map, and its front."""
TYPE_COLORS = np.array([[46, 160, 67], [31, 111, 235], [207, 34, 46]], np.uint8)
"""The three types of the combination lock."""


class _Step(NamedTuple):
    observations: NDArray[Any]
    rewards: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]


class _Episodes:
    """Episodes of a world, one per row, at steps of their own."""

    def __init__(self, name: str, options: dict[str, Any], rows: int) -> None:
        self._target = make(name, **options)
        self._latent = self._target.latent
        sim = self._latent.world.simulator
        stays = (sim.successor == np.arange(sim.num_states)[:, None]) & (sim.reward == 0)
        self._absorbing = stays.all(axis=-1).reshape(-1, sim.num_states).all(axis=0)
        self.simulator, self.horizon = self._target.simulator, self._target.horizon
        self.actions = spaces.Discrete(self._target.num_actions)
        low, high = self._target.observation_bounds
        dtype: Any = np.dtype(self._target.observation_dtype).type
        self.observations = spaces.Box(low, high, self._target.observation_shape, dtype)
        self.states = np.full(rows, -1, np.int32)
        self._keys, self._steps = np.zeros((rows, 2), np.uint32), np.zeros(rows, np.int32)

    def begin(
        self, generators: Sequence[np.random.Generator], rows: NDArray[np.bool_]
    ) -> NDArray[Any]:
        """Start an episode in some rows, seeded by the next number of the row's generator.

        Returns observations of all rows; those of the other rows mean nothing.
        """
        for row in np.flatnonzero(rows).tolist():
            self._keys[row] = 0, generators[row].integers(1 << 31)
        state, observations = self._target.reset(self._keys)
        self.states = np.where(rows, self._latent.states(state), self.states)
        self._steps = np.where(rows, 0, self._steps)
        return np.array(observations)

    def advance(self, actions: Any) -> _Step:
        """One step of every row."""
        if (self.states < 0).any():
            raise ValueError("step: no episode has started; call reset() first")
        steps: Any = self._steps  # rows are at different steps
        state, observations, rewards, _ = self._target.step(
            self.states, np.asarray(actions, np.int32), steps, self._keys
        )
        self.states, self._steps = self._latent.states(state), self._steps + 1
        terminated = self._absorbing[self.states]
        truncated = (self._steps >= self.horizon) & ~terminated
        return _Step(np.array(observations), rewards.astype(np.float64), terminated, truncated)


class BlockEnv(gymnasium.Env[NDArray[Any], np.int64]):
    """One of our worlds."""

    metadata: dict[str, Any] = METADATA

    def __init__(self, world: str, *, render_mode: str | None = None, **options: Any) -> None:
        if render_mode not in (None, "rgb_array"):
            raise ValueError(f"render_mode: {render_mode!r} is neither None nor 'rgb_array'")
        self._episodes = _Episodes(world, options, 1)
        self.simulator, self.horizon = self._episodes.simulator, self._episodes.horizon
        self.action_space = self._episodes.actions
        self.observation_space = self._episodes.observations
        self.render_mode = render_mode

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Start an episode."""
        super().reset(seed=seed)
        return self._episodes.begin([self.np_random], np.ones(1, bool))[0], {}

    def step(self, action: Any) -> tuple[NDArray[Any], float, bool, bool, dict[str, Any]]:
        """Take an action, or the one that comes out instead."""
        if np.asarray(action).dtype.kind not in "iu" or action not in self.action_space:
            raise ValueError(f"action: {action!r} is not in {self.action_space}")
        observations, rewards, terminated, truncated = self._episodes.advance([action])
        return observations[0], float(rewards[0]), bool(terminated[0]), bool(truncated[0]), {}

    def render(self) -> NDArray[np.uint8] | None:
        """A picture of the true state."""
        state = int(self._episodes.states[0])
        return None if self.render_mode is None or state < 0 else picture(self.simulator, state)


class BlockVectorEnv(VectorEnv[NDArray[Any], NDArray[Any], NDArray[Any]]):
    """Many episodes of one of our worlds.

    With `autoreset_mode` NEXT_STEP, Gymnasium's default, the step after the end of an episode
    ignores its action and starts the next episode. With SAME_STEP the step that ends an episode
    returns the first observation of the next one, and the last in `infos["final_obs"]`.
    """

    def __init__(
        self,
        num_envs: int = 1,
        *,
        world: str,
        render_mode: str | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        **options: Any,
    ) -> None:
        mode = AutoresetMode(autoreset_mode)
        if render_mode is not None or mode is AutoresetMode.DISABLED:
            raise ValueError(
                f"render_mode, autoreset_mode: {render_mode!r}, {mode} are not available here; use "
                "single environments"
            )
        self._episodes = _Episodes(world, options, num_envs)
        self.num_envs, self.simulator = num_envs, self._episodes.simulator
        self.horizon, self.metadata = self._episodes.horizon, METADATA | {"autoreset_mode": mode}
        self.single_action_space = self._episodes.actions
        self.single_observation_space = self._episodes.observations
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self._generators = [seeding.np_random()[0] for _ in range(num_envs)]
        self._ended = np.zeros(num_envs, bool)

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Start an episode in every row; a number seeds them seed, seed + 1, …"""
        if seed is None or isinstance(seed, int | np.integer):
            seed = [None if seed is None else int(seed) + row for row in range(self.num_envs)]
        if len(seed) != self.num_envs:
            raise ValueError(f"seed: {len(seed)} seeds for {self.num_envs} environments")
        for row, number in enumerate(seed):
            if number is not None:
                self._generators[row] = seeding.np_random(number)[0]
        self._ended[:] = False
        return self._episodes.begin(self._generators, ~self._ended), {}

    def step(
        self, actions: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Act in every row; rows whose episode is over start the next one."""
        if np.asarray(actions) not in self.action_space:
            raise ValueError(f"actions: {actions!r:.200} is not in {self.action_space}")
        observations, rewards, terminated, truncated = self._episodes.advance(actions)
        infos: dict[str, Any] = {}
        if self.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP:
            restart = self._ended
            rewards = np.where(restart, 0.0, rewards)
            terminated, truncated = terminated & ~restart, truncated & ~restart
            self._ended = terminated | truncated
        elif (restart := terminated | truncated).any():
            final = np.full(self.num_envs, None, object)
            for row in np.flatnonzero(restart):
                final[row] = observations[row].copy()
            infos = dict.fromkeys(("_final_obs", "_final_info"), restart)
            infos |= {"final_obs": final, "final_info": {}}
        if restart.any():
            observations[restart] = self._episodes.begin(self._generators, restart)[restart]
        return observations, rewards, terminated, truncated, infos


def picture(simulator: AbstractSimulator, state: int) -> NDArray[np.uint8]:
    """A state on its map, or in the layers and types of the lock; uint8 [rows, columns, 3]."""
    if simulator.layout is not None:
        return map_picture(simulator.layout, state)
    label: Any = simulator.states[state]
    layer, kind = label[:2]
    cells = np.tile(TYPE_COLORS[:, None] // 4, (1, simulator.horizon + 1, 1))
    cells[:, :layer] //= 2
    cells[kind - 1, layer] = TYPE_COLORS[kind - 1]
    image = cells.repeat(CELL_PIXELS, axis=0).repeat(CELL_PIXELS, axis=1)
    image[::CELL_PIXELS], image[:, ::CELL_PIXELS] = 0, 0
    return image


def map_picture(layout: GridLayout, state: int) -> NDArray[np.uint8]:
    """The map from above with an agent in one of its states."""
    backdrop = layout.backdrop
    pixels = CELL_PIXELS if backdrop is None else backdrop.shape[0] // layout.cells.shape[0]
    cells = layout.cells.repeat(pixels, axis=0).repeat(pixels, axis=1)
    marked = (cells == GOAL) | (cells == HAZARD)
    codes = cells if backdrop is None else np.where(marked, cells, backdrop)
    image = np.array([COLORS[kind] for kind in range(len(COLORS))], np.uint8)[codes]
    row, column = (layout.positions[state] + 0.5) * pixels
    y, x = np.indices(codes.shape) + 0.5 - np.array([row, column])[:, None, None]
    agent = np.hypot(y, x) <= max(0.4 * pixels, 2.5)
    image[agent] = AGENT
    if layout.angles is not None:
        angle = np.deg2rad(layout.angles[state])
        image[agent & (x * np.sin(angle) - y * np.cos(angle) > 0.15 * pixels)] = FRONT
    return image
