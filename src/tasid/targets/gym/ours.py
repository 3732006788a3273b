"""Our environments behind Gymnasium's interface, one at a time or many in one compiled call.

Importing `tasid` registers them as tasid/CombinationLock-v0, tasid/LavaCrossing-v0 and
tasid/Building-v0. Options are those of `tasid.make`; their `seed` fixes the instance,
`reset(seed=…)` the episodes. A row of the vector version lives through the same episodes as a
single environment reset with the same seed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from tasid.targets.block import BlockMDP
from tasid.targets.registry import make
from tasid.targets.target import seed_key
from tasid.targets.worlds import combination_lock, lava_crossing
from tasid.targets.worlds.building import world as building
from tasid.targets.worlds.building.picture import floor_picture
from tasid.targets.worlds.grid_view import poses_of
from tasid.targets.worlds.route import layout_of

_RENDERING: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 4}
_DEVIATIONS = 6.0
"""JAX's float32 normal numbers stay below this."""
_CELL = 16
_TYPE_COLOURS = np.array([[46, 160, 67], [31, 111, 235], [207, 34, 46]])


class _Rows(NamedTuple):
    """Episodes under way, one per row."""

    keys: jax.Array
    states: jax.Array
    steps: NDArray[np.int32]


class _Block:
    """A block MDP as Gymnasium sees it: spaces, starts, steps and ends, for rows of episodes."""

    def __init__(self, block: BlockMDP) -> None:
        sim, target = block.simulator, block.target
        self.horizon, self._target = sim.horizon, target
        own = np.arange(sim.num_states)[:, None]
        idle = (sim.successor == own) & (sim.reward == 0)
        self._absorbing = idle.all(axis=-1).reshape(-1, sim.num_states).all(axis=0)
        self.actions = spaces.Discrete(sim.num_actions)
        self.observations = _observation_space(block)

    def begin(
        self,
        generators: Sequence[np.random.Generator],
        rows: _Rows | None = None,
        which: NDArray[np.bool_] | None = None,
    ) -> tuple[_Rows, NDArray[Any]]:
        """A new episode per generator: the next number it draws is the episode's.

        Or only in some rows of those under way; the observations of the others mean nothing.
        """
        some = np.ones(len(generators), bool) if which is None else which
        drawn = [g.integers(1 << 31) if new else 0 for g, new in zip(generators, some, strict=True)]
        keys, states, seen = _begin(self._target, np.array(drawn, np.uint32))
        new = _Rows(keys, states, np.zeros(len(drawn), np.int32))
        if rows is not None:
            keys, states = jnp.where(some, keys, rows.keys), jnp.where(some, states, rows.states)
            new = _Rows(keys, states, np.where(some, 0, rows.steps))
        return new, np.array(seen)

    def advance(
        self, rows: _Rows, actions: NDArray[Any]
    ) -> tuple[_Rows, NDArray[Any], NDArray[Any], NDArray[np.bool_], NDArray[np.bool_]]:
        """One step of every row: observations, rewards, terminations, truncations."""
        acted = np.asarray(actions, np.int32)
        states, seen, paid = _advance(self._target, rows.keys, rows.states, acted, rows.steps)
        after = _Rows(rows.keys, states, rows.steps + 1)
        ended = self._absorbing[np.asarray(states)]
        late = (after.steps >= self.horizon) & ~ended
        return after, np.array(seen), np.asarray(paid, np.float64), ended, late


class BlockEnv(gymnasium.Env[NDArray[Any], np.int64]):
    """One of our environments; it terminates where nothing can happen any more.

    The horizon truncates episodes that have not terminated by then.
    """

    metadata: dict[str, Any] = _RENDERING
    name: ClassVar[str]

    def __init__(self, *, render_mode: str | None = None, **options: Any) -> None:
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(f"render_mode: {render_mode!r} is neither None nor 'rgb_array'")
        block = make(self.name, **options)
        self.simulator = block.simulator
        self.options = block.options
        self._block = _Block(block)
        self.action_space, self.observation_space = self._block.actions, self._block.observations
        self.render_mode = render_mode
        self._rows: _Rows | None = None

    @property
    def horizon(self) -> int:
        """How many actions an episode takes at most."""
        return self._block.horizon

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Start an episode."""
        super().reset(seed=seed)
        self._rows, seen = self._block.begin([self.np_random])
        return seen[0], {}

    def step(self, action: Any) -> tuple[NDArray[Any], float, bool, bool, dict[str, Any]]:
        """Take an action, or what the perturbation makes of it."""
        if self._rows is None:
            raise ValueError("step: no episode has started; call reset() first")
        whole = np.asarray(action).dtype.kind in "iu"
        if not whole or not self.action_space.contains(np.int64(action)):
            raise ValueError(f"action: {action!r} is not in {self.action_space}")
        self._rows, seen, paid, ended, late = self._block.advance(self._rows, np.array([action]))
        return seen[0], float(paid[0]), bool(ended[0]), bool(late[0]), {}

    def render(self) -> NDArray[np.uint8] | None:
        """A picture for people: where the episode really is."""
        if self.render_mode is None or self._rows is None:
            return None
        return self._picture(int(self._rows.states[0]))

    @abstractmethod
    def _picture(self, state: int) -> NDArray[np.uint8]:
        """Draw a latent state."""


class CombinationLockEnv(BlockEnv):
    """The combination lock; its picture has a column per layer and a row per type."""

    name = combination_lock.NAME

    def _picture(self, state: int) -> NDArray[np.uint8]:
        label: Any = self.simulator.states[state]
        layer, kind = label[:2]
        cells = np.tile(_TYPE_COLOURS[:, None] // 4, (1, self.horizon + 1, 1))
        cells[:, :layer] //= 2
        cells[kind - 1, layer] = _TYPE_COLOURS[kind - 1]
        picture = cells.repeat(_CELL, axis=0).repeat(_CELL, axis=1).astype(np.uint8)
        picture[::_CELL], picture[:, ::_CELL] = 0, 0
        return picture


class LavaCrossingEnv(BlockEnv):
    """The lava crossing; its picture is Minigrid's, of the whole map."""

    name = lava_crossing.NAME

    def _picture(self, state: int) -> NDArray[np.uint8]:
        if not hasattr(self, "_painter"):
            from tasid.targets.gym.lava import MinigridLavaEnv

            self._painter = MinigridLavaEnv(render_mode="rgb_array", **self.options)
            self._painter.reset(seed=0)
            self._poses = poses_of(layout_of(self.simulator))
        self._painter.pose = self._poses[state]
        return self._painter.get_frame(highlight=False, tile_size=32)


class BuildingEnv(BlockEnv):
    """The building; its picture is the floor plan with the robot on it."""

    name = building.NAME

    def _picture(self, state: int) -> NDArray[np.uint8]:
        return floor_picture(layout_of(self.simulator), state)


class BlockVectorEnv(VectorEnv[NDArray[Any], NDArray[Any], NDArray[Any]]):
    """Many episodes of one instance in one compiled call; an ended one starts anew a step later."""

    def __init__(
        self,
        kind: type[BlockEnv],
        num_envs: int = 1,
        *,
        render_mode: str | None = None,
        **options: Any,
    ) -> None:
        if render_mode is not None:
            raise ValueError(f"render_mode: {render_mode!r}, but only a single environment renders")
        block = make(kind.name, **options)
        self._block = _Block(block)
        self.num_envs, self.simulator = num_envs, block.simulator
        self.horizon = block.simulator.horizon
        self.metadata = {**_RENDERING, "autoreset_mode": AutoresetMode.NEXT_STEP}
        self.single_action_space = self._block.actions
        self.single_observation_space = self._block.observations
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self._generators = [seeding.np_random()[0] for _ in range(num_envs)]
        self._rows: _Rows | None = None
        self._ended = np.zeros(num_envs, bool)

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Start an episode in every row; a number seeds them seed, seed + 1, …"""
        each: Sequence[int | None]
        if seed is None or isinstance(seed, int | np.integer):
            each = [None if seed is None else int(seed) + i for i in range(self.num_envs)]
        else:
            each = seed
        if len(each) != self.num_envs:
            raise ValueError(f"seed: {len(each)} seeds for {self.num_envs} environments")
        for i, number in enumerate(each):
            if number is not None:
                self._generators[i] = seeding.np_random(number)[0]
        self._ended = np.zeros(self.num_envs, bool)
        self._rows, seen = self._block.begin(self._generators)
        return seen, {}

    def step(
        self, actions: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Act in every row; rows that ended the step before start their next episode instead."""
        if self._rows is None:
            raise ValueError("step: no episode has started; call reset() first")
        if not self.action_space.contains(np.asarray(actions)):
            raise ValueError(f"actions: {actions!r} is not in {self.action_space}")
        rows, seen, paid, ended, late = self._block.advance(self._rows, actions)
        if self._ended.any():
            rows, first = self._block.begin(self._generators, rows, self._ended)
            seen[self._ended] = first[self._ended]
            paid = np.where(self._ended, 0.0, paid)
            ended, late = ended & ~self._ended, late & ~self._ended
        self._rows, self._ended = rows, ended | late
        return seen, paid, ended, late, {}


lock_vector = partial(BlockVectorEnv, CombinationLockEnv)
lava_vector = partial(BlockVectorEnv, LavaCrossingEnv)
building_vector = partial(BlockVectorEnv, BuildingEnv)
"""Many episodes of each at a time."""


def _observation_space(block: BlockMDP) -> spaces.Box:
    shape, emission = block.target.observation_shape, block.target.emission
    if len(shape) == 3:
        return spaces.Box(0, 255, shape, np.uint8)
    if hasattr(emission, "bounds"):
        low, high = emission.bounds
        return spaces.Box(low, high, shape, np.float32)
    if emission.rotations.shape[0]:
        return spaces.Box(-1.0, 1.0, shape, np.float32)
    entries = emission.mixing.shape[0]
    clean = float(np.abs(emission.clean).max())
    bound = clean + emission.random_bits + _DEVIATIONS * float(emission.noise) * entries
    return spaces.Box(-bound, bound, shape, np.float32)


@jax.jit
def _begin(target: Any, numbers: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    def one(number: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        key = seed_key(number)
        states, observations = target.reset(key[None])
        return key, states[0], observations[0]

    return jax.vmap(one)(numbers)


@jax.jit
def _advance(
    target: Any, keys: jax.Array, states: jax.Array, actions: jax.Array, steps: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    def one(
        key: jax.Array, state: jax.Array, action: jax.Array, h: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        after, seen, paid = target.step(state[None], action[None], h, key[None])
        return after[0], seen[0], paid[0]

    return jax.vmap(one)(keys, states, actions, steps)
