"""Returns of training episodes of the paper's method, completed to the horizon.

A training episode of step h ends after its exploring action: nothing later is learned from. To draw
a reward curve it needs a whole return, and from there on it takes uniformly random actions.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tasid.algorithms.decoder import WIDTH, Decoder, Tracked
from tasid.algorithms.tasid import EXPLORATION, random_actions
from tasid.envs import Target
from tasid.envs.rollout import roll
from tasid.envs.target import episode_keys, seed_key, stream

_COMPLETION = EXPLORATION + 3
"""The stream of the random actions of step 0; those of later steps follow it."""


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
        exploring = random_actions(stream(self.keys, EXPLORATION), number)
        random = random_actions(stream(self.keys, _COMPLETION + step), number)
        later = jnp.where(step == self.h, exploring, random)
        return memory, jnp.where(step < self.h, planned, later)


def completed_return(
    target: Target, decoder: Decoder, *, seed: int, h: int, episodes: int
) -> float:
    """The mean return of the training episodes of step h.

    The models of earlier steps are those of the finished decoder: they collected the episodes.
    """
    key = seed_key(seed)
    parts = [_chunk(target, decoder, key, h, first) for first in range(0, episodes, WIDTH)]
    returns = np.concatenate([np.asarray(part, np.float64) for part in parts])[:episodes]
    return float(returns.mean())


@partial(jax.jit)
def _chunk(
    target: Any, decoder: Decoder, key: jax.Array, h: jax.Array, first: jax.Array
) -> jax.Array:
    keys = episode_keys(key, h, first + jnp.arange(WIDTH))
    actor = _Completing(decoder, keys, h)
    return roll(target, actor, keys, steps=target.horizon).returns
