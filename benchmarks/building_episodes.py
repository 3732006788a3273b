"""Episodes in the building from its latent side: where one was, where one held oneself."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tasid.beliefs.actor import BeliefActor
from tasid.beliefs.chain import at
from tasid.envs import BlockMDP
from tasid.envs.target import EVALUATION, episode_keys, seed_key
from tasid.mdp.layout import FREE

WIDTH = 32
_CARRIED = 1 << 26
"""Streams of an episode's key for where somebody carries the robot, and what it sees there."""


@dataclass(frozen=True, eq=False)
class Followed:
    """What N episodes came to."""

    returns: NDArray[np.float64]
    truth: NDArray[np.int64]
    """The state at each step, [H, N]."""
    held: NDArray[np.int64]
    """The likeliest state by the belief of that step, [H, N]."""
    env: BlockMDP

    @property
    def arrived(self) -> NDArray[np.bool_]:
        """Which reached the goal: it pays more than all steps cost."""
        return self.returns > 0

    @property
    def going(self) -> NDArray[np.bool_]:
        """Which were still on their way, [H, N]."""
        layout = self.env.simulator.layout
        assert layout is not None
        return layout.cells[tuple(layout.positions.T)][self.truth] == FREE

    @property
    def distance(self) -> NDArray[np.float64]:
        """Metres from where one was to where one held oneself, [H, N]."""
        layout = self.env.simulator.layout
        assert layout is not None
        centres = layout.centres(np.arange(self.env.simulator.num_states))
        return np.hypot(*np.moveaxis(centres[self.truth] - centres[self.held], -1, 0))


def follow(
    env: BlockMDP,
    actor: Any,
    *,
    episodes: int,
    seed: int,
    carried: tuple[int, NDArray[np.int64]] | None = None,
) -> Followed:
    """The episodes that an evaluation by this seed would count.

    With `carried`, after so many steps somebody carries the robot to one of these states.
    """
    after, places = (-1, np.zeros(1, np.int64)) if carried is None else carried
    parts = []
    for first in range(0, episodes, WIDTH):
        keys = episode_keys(seed_key(seed), EVALUATION, first + jnp.arange(WIDTH))
        parts.append(_follow(env.target, actor, keys, jnp.int32(after), jnp.asarray(places)))
    returns, truth, held = (np.concatenate(x, axis=-1) for x in zip(*parts, strict=True))
    kept = slice(0, episodes)
    return Followed(returns[kept].astype(np.float64), truth[:, kept], held[:, kept], env)


@jax.jit
def _follow(
    target: Any, actor: Any, keys: jax.Array, after: jax.Array, places: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    def step(carry: Any, h: jax.Array) -> tuple[Any, Any]:
        state, seen, memory, total = carry
        memory, actions = actor.act(memory, seen, h)
        later, looks, rewards = target.step(state, actions, h, keys)
        drawn = jax.vmap(partial(jax.random.randint, shape=(), minval=0, maxval=places.size))(
            jax.vmap(partial(jax.random.fold_in, data=_CARRIED))(keys)
        )
        away = places[drawn].astype(later.dtype)
        moved = h + 1 == after
        later = jnp.where(moved, away, later)
        there = target._seen(away, keys, _CARRIED + 1, target._episodes(keys))
        looks = jnp.where(moved, there, looks)
        return (later, looks, memory, total + rewards), (state, likeliest(actor, memory, h))

    state, seen = target.reset(keys)
    first = state, seen, actor.start(seen), jnp.zeros(keys.shape[0])
    (_, _, _, total), (truth, held) = jax.lax.scan(step, first, jnp.arange(target.horizon))
    return total, truth, held


def likeliest(actor: Any, memory: Any, h: jax.Array) -> jax.Array:
    """The state of the largest weight, [N]."""
    if isinstance(actor, BeliefActor):
        return at(actor.chain.states, h)[memory.belief[:, :WIDTH].argmax(axis=0)]
    return actor.likeliest(memory)
