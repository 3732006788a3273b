"""Episodes from their latent side: where one was, where one held oneself, being carried away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tasid.beliefs.actor import BeliefActor
from tasid.beliefs.chain import Chain, at
from tasid.maps import AbstractSimulator
from tasid.targets import BlockMDP
from tasid.targets.streams import EVALUATION
from tasid.targets.target import episode_keys, seed_key

WIDTH = 32
_THERE = 1 << 26
"""Streams of an episode's key for what is seen where somebody has put the robot, by step."""

Indices = NDArray[np.int64]
Carried = tuple[Indices, Indices]
"""Before which step each episode's robot is carried away, and to which state, [N] each."""


@dataclass(frozen=True, eq=False)
class Followed:
    """What N episodes came to."""

    returns: NDArray[np.float64]
    truth: Indices
    """The state at each step, [H, N]."""
    held: Indices
    """The likeliest state by the belief of that step, [H, N]."""
    doubt: NDArray[np.float64]
    """Surprises summed up, [H, N]; 0 of those who do not count them."""
    going: NDArray[np.bool_]
    """Which were still on their way, [H, N]."""
    env: BlockMDP

    @property
    def arrived(self) -> NDArray[np.bool_]:
        """Which reached the goal of a building: it pays more than all steps cost."""
        return self.returns > 0

    @property
    def right(self) -> NDArray[np.bool_]:
        """Is the likeliest state the true one? After an end nobody asks, [H, N]."""
        return (self.truth == self.held) | ~self.going

    @property
    def distance(self) -> NDArray[np.float64]:
        """Metres from where one was to where one held oneself, [H, N]."""
        layout = self.env.simulator.layout
        assert layout is not None
        centres = layout.centres(np.arange(self.env.simulator.num_states))
        return np.hypot(*np.moveaxis(centres[self.truth] - centres[self.held], -1, 0))


def final_states(sim: AbstractSimulator) -> NDArray[np.bool_]:
    """Where nothing more happens, [S]."""
    chain = Chain.of(sim)
    over = np.zeros(sim.num_states, bool)
    for slots, final in zip(np.asarray(chain.states), np.asarray(chain.final), strict=True):
        over[slots[final & (slots >= 0)]] = True
    return over


def follow(
    env: BlockMDP, actor: Any, *, episodes: int, seed: int, carried: Carried | None = None
) -> Followed:
    """The episodes that an evaluation by this seed would count; who has arrived is not carried."""
    nobody = np.full(episodes, -1), np.zeros(episodes, np.int64)
    when, where = (_padded(x, episodes) for x in (nobody if carried is None else carried))
    final = jnp.asarray(final_states(env.simulator))
    parts = []
    for first in range(0, episodes, WIDTH):
        keys = episode_keys(seed_key(seed), EVALUATION, first + jnp.arange(WIDTH))
        those = slice(first, first + WIDTH)
        parts.append(_follow(env.target, actor, final, keys, when[those], where[those]))
    returns, *tables = (np.concatenate(x, axis=-1) for x in zip(*parts, strict=True))
    truth, held, doubt, going = (table[:, :episodes] for table in tables)
    return Followed(returns[:episodes].astype(np.float64), truth, held, doubt, going, env)


def _padded(row: Indices, episodes: int) -> jax.Array:
    return jnp.asarray(np.pad(row, (0, -episodes % WIDTH)))


@jax.jit
def _follow(
    target: Any, actor: Any, final: jax.Array, keys: jax.Array, when: jax.Array, where: jax.Array
) -> tuple[jax.Array, ...]:
    def step(carry: Any, h: jax.Array) -> tuple[Any, Any]:
        return jax.lax.cond(final[carry[0]].all(), over, on_the_way, carry, h)

    def over(carry: Any, h: jax.Array) -> tuple[Any, Any]:
        state = carry[0]
        told = state, state.astype(jnp.int32), jnp.zeros(state.size), jnp.zeros(state.size, bool)
        return carry, told

    def on_the_way(carry: Any, h: jax.Array) -> tuple[Any, Any]:
        state, seen, memory, total = carry
        moved = (h == when) & ~final[state]
        there = target._seen(where, keys, _THERE + h, target._episodes(keys))
        seen = jnp.where(moved.reshape(-1, *[1] * (seen.ndim - 1)), there, seen)
        state = jnp.where(moved, where, state).astype(state.dtype)
        memory, actions = actor.act(memory, seen, h)
        later, looks, rewards = target.step(state, actions, h, keys)
        held = _likeliest(actor, memory, h).astype(jnp.int32)
        told = state, held, _doubt(actor, memory), ~final[state]
        return (later, looks, memory, total + rewards), told

    state, seen = target.reset(keys)
    first = state, seen, actor.start(seen), jnp.zeros(keys.shape[0])
    (_, _, _, total), told = jax.lax.scan(step, first, jnp.arange(target.horizon))
    return total, *told


def _likeliest(actor: Any, memory: Any, h: jax.Array) -> jax.Array:
    """The state of the largest weight, [N]."""
    if isinstance(actor, BeliefActor):
        return at(actor.chain.states, h)[memory.belief[:, :WIDTH].argmax(axis=0)]
    return actor.likeliest(memory)


def _doubt(actor: Any, memory: Any) -> jax.Array:
    return memory.doubt[:WIDTH] if isinstance(actor, BeliefActor) else jnp.zeros(WIDTH)
