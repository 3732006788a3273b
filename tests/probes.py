"""Probe environments: targets so small that what must be learned in them is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from tasid.envs.target import stream


@partial(
    jax.tree_util.register_dataclass,
    data_fields=[],
    meta_fields=["pay", "turn", "horizon", "num_actions", "traceable"],
)
@dataclass(frozen=True)
class Probe:
    """Every episode has a fair coin ±1; one sees (coin, step).

    An action pays pay(coin, action, step) and leaves the coin as turn(coin, action, step).
    """

    pay: Callable[[jax.Array, jax.Array, jax.Array], jax.Array]
    turn: Callable[[jax.Array, jax.Array, jax.Array], jax.Array] = lambda coin, action, h: coin
    horizon: int = 1
    num_actions: int = 1
    traceable: bool = True

    @property
    def observation_shape(self):
        return (2,)

    def reset(self, keys):
        coin = jax.vmap(jax.random.rademacher)(stream(keys, 0)).astype(jnp.float32)
        return coin, self._look(coin, 0)

    def step(self, state, actions, h, keys):
        after = self.turn(state, actions, h)
        return after, self._look(after, h + 1), self.pay(state, actions, h)

    def _look(self, coin, h):
        seen = jnp.stack([coin, jnp.broadcast_to(jnp.float32(h), coin.shape)], axis=-1)
        return seen if self.traceable else np.asarray(seen)


@partial(jax.tree_util.register_dataclass, data_fields=[], meta_fields=["horizon", "traceable"])
@dataclass(frozen=True)
class Cliff:
    """Action 0 ends the episode, action 1 earns 1 and goes on; it sees the step it is at.

    After the end the last observation repeats, as in wrapped environments.
    """

    horizon: int = 4
    traceable: bool = True

    num_actions = 2
    observation_shape = (1,)

    def reset(self, keys):
        ended = jnp.zeros(keys.shape[0], bool)
        place = jnp.zeros(keys.shape[0])
        return (ended, place), place[:, None]

    def step(self, state, actions, h, keys):
        ended, place = state
        on = ~ended & (actions == 1)
        place = jnp.where(on, place + 1, place)
        return (~on, place), place[:, None], on.astype(jnp.float32)

    def finished(self, state):
        return state[0]
