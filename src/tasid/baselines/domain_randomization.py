"""Domain randomisation (Tobin et al., 2017) and EPOpt (Rajeswaran et al., 2017) around PPO.

The policy is first trained on targets drawn anew every so many episodes, then in the target itself.
EPOpt trains, in the first stage, only on the worst ε of every batch's episodes; ε = 1 takes all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from tasid.baselines.families import Family
from tasid.baselines.ppo import PPOConfig, PPOState, start
from tasid.baselines.training import Callback, ppo, stage_key
from tasid.targets.streams import DOMAINS
from tasid.targets.target import Target

FINE_TUNING, PRE_TRAINING = 0, 1
"""Stages of `ppo`: each draws episodes of its own."""
_EVERY = 10_000
"""Episodes between two checkpoints of pre-training, which is not evaluated."""


@partial(jax.tree_util.register_dataclass, data_fields=["family"], meta_fields=["every"])
@dataclass(frozen=True)
class Randomized:
    """A source that gives a new member of a family every so many episodes."""

    family: Any
    every: int = 100

    @property
    def traceable(self) -> bool:
        """As the family is."""
        return bool(self.family.traceable)

    def target(self, key: jax.Array, episode: jax.Array) -> Target:
        """The member in whose turn the episode falls."""
        turn = jax.random.fold_in(jax.random.fold_in(key, DOMAINS), episode // self.every)
        return self.family.draw(turn)


@dataclass(frozen=True)
class EPOpt:
    """Keeps the episodes of a batch whose return is at or below its ε-quantile.

    The quantile of B returns is the ⌈εB⌉-th smallest; episodes that tie with it are kept too.
    """

    epsilon: float = 1.0

    def __post_init__(self) -> None:
        if not 0.0 < self.epsilon <= 1.0:
            raise ValueError(f"epsilon: {self.epsilon} is outside (0, 1]")

    def __call__(self, returns: jax.Array) -> jax.Array:
        """bool [B] from returns [B]."""
        number = returns.shape[0]
        # A little less than εB, so that 0.55 · 100 = 55.00000000000001 means 55.
        rank = max(1, math.ceil(self.epsilon * number - 1e-9))
        return returns <= jnp.sort(returns)[rank - 1]


def restart(config: PPOConfig, trained: PPOState, target: Target, seed: int) -> PPOState:
    """Where fine-tuning starts: the networks are kept; optimisers, bonus and counter are new."""
    fresh = start(config, target, stage_key(seed, FINE_TUNING))
    return fresh._replace(
        policy=config.descent.start(trained.policy.parameters),
        critic=config.descent.start(trained.critic.parameters),
    )


def pre_train(
    config: PPOConfig,
    family: Family,
    *,
    seed: int,
    episodes: int,
    epsilon: float,
    state: PPOState | None,
    callbacks: Sequence[Callback],
) -> PPOState:
    """Train on a family, with EPOpt's ε, from the start or from where earlier pre-training was."""
    (trained,) = ppo(
        [Randomized(family)],
        seeds=[seed],
        episodes=episodes,
        config=config if epsilon == 1.0 else replace(config, keep=EPOpt(epsilon)),
        states=None if state is None else [state],
        stage=PRE_TRAINING,
        every=min(_EVERY, episodes),
        callbacks=callbacks,
    )
    return trained.state
