"""Scoring any policy in a target by Monte Carlo, compiled where the target allows it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tasid.algorithms.decoder import WIDTH
from tasid.envs import BlockMDP
from tasid.envs.rollout import Actor, roll
from tasid.envs.target import EVALUATION, Target, episode_keys, for_horizon, seed_key
from tasid.envs.waves import in_waves


class Scorable(Protocol):
    """What a policy of any kind has to have."""

    @property
    def actor(self) -> Actor:
        """Acts on batches; a pytree."""

    @property
    def num_actions(self) -> int:
        """|A|."""

    @property
    def horizon(self) -> int:
        """H."""

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """The shape of one observation."""


@dataclass(frozen=True, eq=False)
class Score:
    """Returns of whole episodes."""

    returns: NDArray[np.float64]
    """One number per episode."""

    @property
    def mean(self) -> float:
        """The mean return."""
        return float(self.returns.mean())

    @property
    def ci95(self) -> tuple[float, float]:
        """A 95 % interval of the mean (normal approximation)."""
        if self.returns.size < 2:
            return (-math.inf, math.inf)
        half = 1.96 * float(self.returns.std(ddof=1)) / math.sqrt(self.returns.size)
        return (self.mean - half, self.mean + half)


def evaluate(
    policy: Scorable, env: BlockMDP | Target, *, episodes: int = 10_000, seed: int = 0
) -> Score:
    """Follow the policy for whole episodes; episode i is the same for any number of episodes."""
    if episodes < 1:
        raise ValueError(f"episodes: {episodes} is below 1")
    target = oracle(env, policy.horizon)
    check_fit(policy, target)
    key, actor = seed_key(seed), policy.actor
    parts = []
    for first in range(0, episodes, WIDTH):
        if target.traceable:
            parts.append(_chunk_compiled(target, actor, key, first))
        else:
            run = partial(_chunk, actor=actor, key=key, first=first)
            rows = range(min(WIDTH, episodes - first))
            parts.append(in_waves(target, run, rows=rows, width=WIDTH))
    returns = np.concatenate([np.asarray(part, np.float64) for part in parts])[:episodes]
    return Score(returns)


def oracle(env: BlockMDP | Target, horizon: int) -> Target:
    """The target of an environment, with the policy's horizon where it leaves that open."""
    return env.target if isinstance(env, BlockMDP) else for_horizon(env, horizon)


def check_fit(policy: Scorable, target: Target) -> None:
    """Refuse a target that this policy cannot act in, saying what differs."""
    for what, of_policy, of_target in (
        ("actions", policy.num_actions, target.num_actions),
        ("horizon", policy.horizon, target.horizon),
        ("observation shape", policy.observation_shape, target.observation_shape),
    ):
        if of_policy != of_target:
            raise ValueError(
                f"env: its {what} is {of_target}, but the policy was learned with {of_policy}"
            )


def _chunk(target: Any, actor: Any, key: jax.Array, first: Any) -> jax.Array:
    keys = episode_keys(key, EVALUATION, first + jnp.arange(WIDTH))
    return roll(target, actor, keys, steps=target.horizon).returns


_chunk_compiled = jax.jit(_chunk)
