"""Block MDPs: a latent MDP and an emission, with whole batches of episodes inside one jit.

`BlockTarget` is the learner's view: a JAX pytree of tables, so that instances of one shape share
compiled code and stack under `vmap`. `BlockMDP` is the environment around it and holds the door to
the latent side, which is for evaluation only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args, get_type_hints

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from tasid.maps import AbstractSimulator, PerturbedMDP, RobustPlan, blind_value, policy_value
from tasid.targets.device import on_device
from tasid.targets.streams import CIRCUMSTANCES, ELSEWHERE, HAPPENING, HINDRANCE, SIGHT, START
from tasid.targets.target import State, Target, stream

Worlds = tuple[tuple[float, PerturbedMDP], ...]
"""Latent MDPs and how likely an episode is in each of them."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class BlockTarget(Target):
    """The oracle: latent tables and an emission, reachable only by acting."""

    successor: jax.Array
    """T° as int32 [S, A] or [H, S, A]."""
    reward: jax.Array
    """R° likewise: what is paid is the reward of the action that happened (same mean as R*)."""
    outcome: jax.Array
    """ξ summed up along a', [S, A, A] or [H, S, A, A]: inverted by one uniform number."""
    starts: jax.Array
    start_outcome: jax.Array
    """Possible start states [N], and their probabilities summed up."""
    emission: Any
    """q(x | s), a pytree with the `shape` of an observation: draws x from a key, a state and, in a
    target with circumstances, those of the episode."""
    horizon: int = field(metadata={"static": True})
    circumstances: Any = None
    """What stays the same throughout an episode and differs between episodes, a pytree: `draw(key)`
    gives those of one episode, `hinder(them, key, state, action)` what happens in them instead."""

    traceable = True

    @property
    def num_actions(self) -> int:
        return int(self.successor.shape[-1])

    @property
    def observation_shape(self) -> tuple[int, ...]:
        return self.emission.shape

    def reset(self, keys: jax.Array) -> tuple[State, jax.Array]:
        """s₁ ~ μ, x₁ ~ q(· | s₁)."""
        drawn = jax.vmap(jax.random.uniform)(stream(keys, START))
        states = self.starts[_invert(self.start_outcome[None], drawn[:, None])]
        return states, self._seen(states, keys, SIGHT, self._episodes(keys))

    def step(
        self, state: State, actions: jax.Array, h: jax.Array, keys: jax.Array
    ) -> tuple[State, jax.Array, jax.Array]:
        """a' ~ ξ(· | s, a), s' = T°(s, a'), r = R°(s, a'), x' ~ q(· | s')."""
        drawn = jax.vmap(jax.random.uniform)(stream(keys, HAPPENING + 2 * h))
        happened = _invert(_at(self.outcome, h, 3)[state, actions], drawn[:, None])
        episodes = self._episodes(keys)
        if episodes is not None:
            hinder = jax.vmap(self.circumstances.hinder)
            happened = hinder(episodes, stream(keys, HINDRANCE + h), state, happened)
        rewards = _at(self.reward, h, 2)[state, happened]
        state = _at(self.successor, h, 2)[state, happened]
        return state, self._seen(state, keys, SIGHT + 2 * (h + 1), episodes), rewards

    def put(self, state: int, keys: jax.Array) -> tuple[State, jax.Array]:
        """Episodes that somebody has carried to a state, and what is seen there."""
        states = jnp.full(keys.shape[0], state, jnp.int32)
        return states, self._seen(states, keys, ELSEWHERE, self._episodes(keys))

    def _episodes(self, keys: jax.Array) -> Any:
        """Drawn anew from the same key at every step: nothing has to be carried."""
        if self.circumstances is None:
            return None
        return jax.vmap(self.circumstances.draw)(stream(keys, CIRCUMSTANCES))

    def _seen(self, states: jax.Array, keys: jax.Array, number: Any, episodes: Any) -> jax.Array:
        if episodes is None:
            return jax.vmap(self.emission)(stream(keys, number), states)
        return jax.vmap(self.emission)(stream(keys, number), states, episodes)


def _at(table: jax.Array, h: jax.Array, homogeneous_ndim: int) -> jax.Array:
    return table if table.ndim == homogeneous_ndim else table[h]


def _invert(cumulative: jax.Array, drawn: jax.Array) -> jax.Array:
    return jnp.minimum((drawn >= cumulative).sum(axis=-1), cumulative.shape[-1] - 1)


@dataclass(frozen=True)
class Latent:
    """The far side of the wall: for evaluation and diagnosis, never for a learner."""

    world: PerturbedMDP
    """The only one, or that of an episode whose circumstances hinder nobody."""
    _worlds: Callable[[], Worlds] | None = None

    @property
    def worlds(self) -> Worlds:
        """All of them, by the circumstances of an episode."""
        return ((1.0, self.world),) if self._worlds is None else self._worlds()

    def robust_value(self, plan: RobustPlan) -> float:
        """What the plan earns here with latent access, exactly."""
        return sum(chance * policy_value(world, plan) for chance, world in self.worlds)

    def blind_value(self) -> float:
        """What the best constant action or the open-loop nominal plan earns here, exactly."""
        return blind_value(self.worlds)

    @staticmethod
    def states(state: State) -> jax.Array:
        """The latent states [W] inside a block target's opaque state."""
        return state


@dataclass(frozen=True, eq=False)
class BlockMDP(Target):
    """An environment of ours: the map a user would have, the oracle, and its hidden side.

    It is a target, too. Compiled code sees nothing of it but the oracle.
    """

    name: str
    options: Mapping[str, Any]
    """Everything `tasid.make` needs to build this very instance again, its seed included."""
    simulator: AbstractSimulator = field()  # Target's default is not its
    target: BlockTarget
    _world: PerturbedMDP
    _worlds: Callable[[], Worlds] | None = None

    traceable = True

    @property
    def num_actions(self) -> int:
        return self.target.num_actions

    @property
    def horizon(self) -> int:
        return self.target.horizon

    @property
    def observation_shape(self) -> tuple[int, ...]:
        return self.target.observation_shape

    @property
    def environment(self) -> Mapping[str, Any]:
        return {"name": self.name, "options": dict(self.options)}

    def reset(self, keys: jax.Array) -> tuple[State, jax.Array]:
        return self.target.reset(keys)

    def step(
        self, state: State, actions: jax.Array, h: jax.Array, keys: jax.Array
    ) -> tuple[State, jax.Array, jax.Array]:
        return self.target.step(state, actions, h, keys)

    @property
    def latent(self) -> Latent:
        """The door to the latent side, for evaluation only."""
        return Latent(self._world, self._worlds)

    def latent_on(self, sim: AbstractSimulator) -> Latent:
        """The same: whatever map somebody plans on, this is where the plan is carried out."""
        return self.latent

    def brings(self, sim: AbstractSimulator) -> bool:
        """Is this the map that the environment brings?"""
        its = self.simulator
        return its is sim or (
            np.array_equal(its.successor, sim.successor) and np.array_equal(its.reward, sim.reward)
        )


jax.tree_util.register_pytree_node(
    BlockMDP, lambda env: ((env.target,), None), lambda _, children: children[0]
)


def block_mdp(
    name: str,
    options: Mapping[str, Any],
    world: PerturbedMDP,
    emission: Any,
    *,
    map_given: AbstractSimulator | None = None,
    circumstances: Any = None,
    worlds: Callable[[], Worlds] | None = None,
) -> BlockMDP:
    """A block MDP from its latent world and its emission.

    `map_given` is the map that a user has, if it is not the true one. With circumstances, `worlds`
    gives the latent MDP for each that matters and how likely it is.
    """
    sim = world.simulator
    target = BlockTarget(
        successor=on_device(sim.successor, np.int32),
        reward=on_device(sim.reward, np.float32),
        outcome=on_device(np.cumsum(world.xi, axis=-1), np.float32),
        starts=on_device(sim.starts, np.int32),
        start_outcome=on_device(np.cumsum(sim.start_probabilities), np.float32),
        emission=emission,
        horizon=sim.horizon,
        circumstances=circumstances,
    )
    known = sim if map_given is None else map_given
    return BlockMDP(name, dict(options), known, target, world, worlds)


def plain_options(builder: Callable[..., BlockMDP], given: Mapping[str, Any]) -> dict[str, Any]:
    """What the builder of an environment was given, as JSON has it, by the types that it names."""
    hints = get_type_hints(builder)
    return {name: _plain(value, hints[name]) for name, value in given.items()}


def _plain(value: Any, hint: Any = None) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Sequence | np.ndarray) and not isinstance(value, str):
        return [_plain(one) for one in value]
    for kind in (bool, float):
        if kind in (hint, *get_args(hint)) and isinstance(value, int | float):
            return kind(value)
    return value


def looks_of(observations: Iterable[ArrayLike]) -> NDArray[np.int32]:
    """Numbers 0, 1, … of what each state looks like, [S], from its noiseless observation.

    States with exactly equal observations get the same number; numbers follow first appearance.
    """
    first: dict[tuple[tuple[int, ...], bytes], int] = {}
    looks = []
    for observation in observations:
        array = np.ascontiguousarray(observation)
        looks.append(first.setdefault((array.shape, array.tobytes()), len(first)))
    return np.array(looks, dtype=np.int32)
