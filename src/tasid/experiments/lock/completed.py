"""Returns of training episodes of the paper's method, completed to the horizon.

A training episode of step h ends after its exploring action: nothing later is learned from. To draw
a reward curve it needs a whole return, and from there on it takes uniformly random actions.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tasid.learning.paper.tasid import random_actions
from tasid.policies.decoder import WIDTH, Decoder, Tracked
from tasid.targets import Target
from tasid.targets.batches import episode_tables
from tasid.targets.rollout import roll
from tasid.targets.streams import ACTING, COMPLETION
from tasid.targets.target import episode_keys, seed_key, stream


class _Completing(NamedTuple):
    """π up to step h, the exploring action there, random actions after that."""

    decoder: Decoder
    keys: jax.Array
    h: jax.Array

    def start(self, observations: jax.Array) -> Tracked:
        return self.decoder.start(observations)

    def act(
        self, memory: Tracked, observations: jax.Array, step: jax.Array
    ) -> tuple[Tracked, jax.Array]:
        memory, planned = self.decoder.act(memory, observations, step)
        number = self.decoder.num_actions
        exploring = random_actions(stream(self.keys, ACTING), number)
        random = random_actions(stream(self.keys, COMPLETION + step), number)
        later = jnp.where(step == self.h, exploring, random)
        return memory, jnp.where(step < self.h, planned, later)


def completed_return(
    target: Target, decoder: Decoder, *, seed: int, h: int, episodes: int
) -> float:
    """The mean return of the training episodes of step h.

    The models of earlier steps are those of the finished decoder: they collected the episodes.
    """
    arguments = decoder, seed_key(seed), h
    returns = episode_tables(target, _returns, *arguments, episodes=episodes, width=WIDTH)
    return float(np.asarray(returns, np.float64).mean())


def _returns(
    target: Any, decoder: Decoder, key: jax.Array, h: jax.Array, first: jax.Array
) -> jax.Array:
    keys = episode_keys(key, h, first + jnp.arange(WIDTH))
    actor = _Completing(decoder, keys, h)
    return roll(target, actor, keys, steps=target.horizon).returns
