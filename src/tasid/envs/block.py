"""Block MDPs: a latent MDP and an emission, with whole batches of episodes inside one jit.

`BlockTarget` is the learner's view: a JAX pytree of tables, so that instances of one shape share
compiled code and stack under `vmap`. `BlockMDP` is the environment around it and holds the door to
the latent side, which is for evaluation only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from tasid.envs.target import State, stream
from tasid.mdp import AbstractSimulator, PerturbedMDP, RobustPlan, blind_value, policy_value


class Emission(Protocol):
    """q(x | s), written for one state and one key; a pytree."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one observation."""

    def __call__(self, key: jax.Array, state: jax.Array) -> jax.Array:
        """Draw x ~ q(· | state)."""


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["successor", "reward", "outcome", "starts", "start_outcome", "emission"],
    meta_fields=["horizon"],
)
@dataclass(frozen=True)
class BlockTarget:
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
    horizon: int

    @property
    def num_actions(self) -> int:
        """|A|."""
        return int(self.successor.shape[-1])

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """The shape of one observation."""
        return self.emission.shape

    @property
    def traceable(self) -> bool:
        """Always: everything here is JAX."""
        return True

    def reset(self, keys: jax.Array) -> tuple[State, jax.Array]:
        """s₁ ~ μ, x₁ ~ q(· | s₁)."""
        drawn = jax.vmap(jax.random.uniform)(stream(keys, 0))
        states = self.starts[_invert(self.start_outcome[None], drawn[:, None])]
        return states, jax.vmap(self.emission)(stream(keys, 1), states)

    def step(
        self, state: State, actions: jax.Array, h: jax.Array, keys: jax.Array
    ) -> tuple[State, jax.Array, jax.Array]:
        """a' ~ ξ(· | s, a), s' = T°(s, a'), r = R°(s, a'), x' ~ q(· | s')."""
        drawn = jax.vmap(jax.random.uniform)(stream(keys, 2 * h + 2))
        happened = _invert(_at(self.outcome, h, 3)[state, actions], drawn[:, None])
        rewards = _at(self.reward, h, 2)[state, happened]
        state = _at(self.successor, h, 2)[state, happened]
        return state, jax.vmap(self.emission)(stream(keys, 2 * h + 3), state), rewards


def _at(table: jax.Array, h: jax.Array, homogeneous_ndim: int) -> jax.Array:
    return table if table.ndim == homogeneous_ndim else table[h]


def _invert(cumulative: jax.Array, drawn: jax.Array) -> jax.Array:
    return jnp.minimum((drawn >= cumulative).sum(axis=-1), cumulative.shape[-1] - 1)


@dataclass(frozen=True)
class Latent:
    """The far side of the wall: for evaluation and diagnosis, never for a learner."""

    world: PerturbedMDP

    def robust_value(self, plan: RobustPlan) -> float:
        """What the plan earns here with latent access, exactly."""
        return policy_value(self.world, plan)

    def blind_value(self) -> float:
        """What the best constant action or the open-loop nominal plan earns here, exactly."""
        return blind_value(self.world)

    @staticmethod
    def states(state: State) -> jax.Array:
        """The latent states [W] inside a block target's opaque state."""
        return state


@dataclass(frozen=True, eq=False)
class BlockMDP:
    """An environment of ours: the map a user would have, the target, and its hidden side."""

    name: str
    options: Mapping[str, Any]
    """Everything `tasid.make` needs to build this very instance again, its seed included."""
    simulator: AbstractSimulator
    target: BlockTarget
    _world: PerturbedMDP

    @property
    def latent(self) -> Latent:
        """The door to the latent side, for evaluation only."""
        return Latent(self._world)


def block_mdp(
    name: str, options: Mapping[str, Any], world: PerturbedMDP, emission: Emission
) -> BlockMDP:
    """A block MDP from its latent world and its emission."""
    sim = world.simulator
    target = BlockTarget(
        successor=jnp.asarray(sim.successor, jnp.int32),
        reward=jnp.asarray(sim.reward, jnp.float32),
        outcome=jnp.asarray(np.cumsum(world.xi, axis=-1), jnp.float32),
        starts=jnp.asarray(sim.starts, jnp.int32),
        start_outcome=jnp.asarray(np.cumsum(sim.start_probabilities), jnp.float32),
        emission=emission,
        horizon=sim.horizon,
    )
    return BlockMDP(name, dict(options), sim, target, world)
