"""Probe environments: targets so small that what must be learned in them is known."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from tasid.targets.target import Target, stream


@partial(jax.tree_util.register_dataclass, data_fields=["pay", "turn"], meta_fields=["traceable"])
@dataclass(frozen=True)
class Probe(Target):
    """Every episode has a fair coin, heads (1) or tails (0); one sees (±1 for it, the step).

    Rewards and what becomes of the coin are tables [coin, action, step]; data, so that all probes
    of one shape share compiled code.
    """

    pay: jax.Array
    turn: jax.Array
    traceable: bool = True

    @property
    def num_actions(self):
        return self.pay.shape[1]

    @property
    def horizon(self):
        return self.pay.shape[2]

    @property
    def observation_shape(self):
        return (2,)

    def reset(self, keys):
        coin = jax.vmap(jax.random.bernoulli)(stream(keys, 0)).astype(jnp.int32)
        return coin, self._look(coin, 0)

    def step(self, state, actions, h, keys):
        after = self.turn[state, actions, h]
        return after, self._look(after, h + 1), self.pay[state, actions, h]

    def _look(self, coin, h):
        seen = jnp.stack([2.0 * coin - 1.0, jnp.full(coin.shape, h, jnp.float32)], axis=-1)
        return seen if self.traceable else np.asarray(seen)


def probe(pay, turn=lambda coin, action, h: coin, *, actions=4, horizon=2, traceable=True):
    """A probe that pays pay(coin, action, step) and then has the coin turn(coin, action, step)."""
    places = np.indices((2, actions, horizon))
    return Probe(
        jnp.asarray(np.broadcast_to(pay(*places), places[0].shape), jnp.float32),
        jnp.asarray(np.broadcast_to(turn(*places), places[0].shape), jnp.int32),
        traceable,
    )


@partial(jax.tree_util.register_dataclass, data_fields=[], meta_fields=["horizon", "traceable"])
@dataclass(frozen=True)
class Cliff(Target):
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


@partial(jax.tree_util.register_dataclass, data_fields=[], meta_fields=["traceable"])
@dataclass(frozen=True)
class Bars(Target):
    """A picture of a bar somewhere, upright (1) or lying (0); saying which pays 1."""

    traceable: bool = True

    num_actions, horizon = 2, 1
    observation_shape = (24, 24, 1)

    def reset(self, keys):
        upright = jax.vmap(jax.random.bernoulli)(stream(keys, 0)).astype(jnp.int32)
        corner = jax.vmap(lambda key: jax.random.randint(key, (2,), 0, 15))(stream(keys, 1))
        length = jnp.array([[2, 9], [9, 2]])[upright]
        place = jnp.stack(jnp.indices((24, 24)), axis=-1)[None] - corner[:, None, None]
        inside = ((place >= 0) & (place < length[:, None, None])).all(axis=-1)
        return upright, jnp.where(inside, 255, 0).astype(jnp.uint8)[..., None]

    def step(self, state, actions, h, keys):
        blank = jnp.zeros((state.shape[0], 24, 24, 1), jnp.uint8)
        return state, blank, (actions == state).astype(jnp.float32)


@partial(jax.tree_util.register_dataclass, data_fields=["codes"], meta_fields=["noise"])
@dataclass(frozen=True)
class OneHot:
    """An emission: every state has a number of its own that is 1, with noise."""

    codes: jax.Array
    noise: float

    @property
    def shape(self):
        return self.codes.shape[1:]

    def __call__(self, key, state):
        return self.codes[state] + self.noise * jax.random.normal(key, self.shape)


def one_hot(states, noise=0.0):
    return OneHot(jnp.eye(states), noise)


class OnHost(Target):
    """A target that JAX is not allowed to trace, with room for few episodes at a time."""

    traceable, num_envs = False, 7

    def __init__(self, target):
        self.num_actions, self.horizon = target.num_actions, target.horizon
        self.observation_shape = target.observation_shape
        self.reset, self.step = target.reset, target.step
