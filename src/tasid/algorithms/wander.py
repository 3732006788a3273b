"""Episodes of uniformly random actions: what start states are told apart by."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tasid.algorithms.decoder import WIDTH
from tasid.algorithms.tasid import EXPLORATION
from tasid.envs.rollout import Moment, advance, begin
from tasid.envs.target import EVALUATION, Target, episode_keys, seed_key, stream
from tasid.envs.waves import in_waves

WANDERING = EVALUATION + 4
"""The phase of these episodes."""


class Wandered(NamedTuple):
    """Whole episodes, of whose observations the first two are kept; all arrays are [n, …]."""

    x: NDArray[Any]
    x_next: NDArray[Any]
    actions: NDArray[np.int32]
    """What was commanded, [n, H]."""
    rewards: NDArray[np.float32]
    """What was paid, [n, H]."""

    def then(self, more: Wandered) -> Wandered:
        """These episodes and more."""
        return Wandered(*(np.concatenate(pair) for pair in zip(self, more, strict=True)))


def wander(target: Target, *, seed: int, first: int, episodes: int) -> Wandered:
    """Episodes first … first + episodes − 1 of the seed's wandering."""
    key, parts = seed_key(seed), []
    for chunk in range(first // WIDTH, -(-(first + episodes) // WIDTH)):
        slots = [n - chunk * WIDTH for n in range(first, first + episodes)]
        slots = [slot for slot in slots if 0 <= slot < WIDTH]
        if target.traceable:
            whole = _chunk_compiled(target, key=key, first=chunk * WIDTH)
            parts.append(Wandered(*(np.asarray(table)[slots] for table in whole)))
        else:
            run = partial(_chunk, key=key, first=chunk * WIDTH)
            parts.append(in_waves(target, run, rows=slots, width=WIDTH))
    return Wandered(*(np.concatenate(tables) for tables in zip(*parts, strict=True)))


def _chunk(target: Any, *, key: jax.Array, first: Any) -> Wandered:
    keys = episode_keys(key, WANDERING, first + jnp.arange(WIDTH))
    walker = _Walker(keys, jnp.int32(target.num_actions))
    start = begin(target, walker, keys)
    second, action = advance(target, walker, start, jnp.int32(0), keys)

    def step(moment: Moment, h: jax.Array) -> tuple[Moment, tuple[jax.Array, jax.Array]]:
        after, actions = advance(target, walker, moment, h, keys)
        return after, (actions, after.returns - moment.returns)

    later = jnp.arange(1, target.horizon)
    if target.traceable:
        _, (actions, rewards) = jax.lax.scan(step, second, later)
        rest = [actions.T, rewards.T]
    else:
        moment, rows = second, []
        for h in later:
            moment, row = step(moment, h)
            rows.append(row)
        rest = [jnp.stack(column, axis=1) for column in zip(*rows, strict=True)]
    actions, rewards = rest if rest else (jnp.zeros((WIDTH, 0), jnp.int32), jnp.zeros((WIDTH, 0)))
    return Wandered(
        start.observations,  # type: ignore[arg-type]
        second.observations,  # type: ignore[arg-type]
        jnp.concatenate([action[:, None], actions], axis=1),  # type: ignore[arg-type]
        jnp.concatenate([second.returns[:, None], rewards], axis=1),  # type: ignore[arg-type]
    )


_chunk_compiled = jax.jit(_chunk)


class _Walker(NamedTuple):
    """Acts uniformly at random."""

    keys: jax.Array
    num_actions: jax.Array

    def start(self, observations: jax.Array) -> jax.Array:
        return jnp.zeros(observations.shape[0])

    def act(
        self, carry: jax.Array, observations: jax.Array, h: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        drawn = jax.vmap(jax.random.uniform)(stream(stream(self.keys, EXPLORATION), h))
        actions = (drawn * self.num_actions).astype(jnp.int32)
        return carry, jnp.minimum(actions, self.num_actions - 1)
