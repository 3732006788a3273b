"""Domain randomisation (Tobin et al., 2017) and EPOpt (Rajeswaran et al., 2017) around PPO.

The policy is first trained on targets drawn anew every so many episodes, then in the target itself.
EPOpt trains, in the first stage, only on the worst ε of every batch's episodes; ε = 1 takes all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from tasid.baselines.ppo import PPOConfig, PPOState, start
from tasid.baselines.training import stage_key
from tasid.targets.target import Target

FINE_TUNING, PRE_TRAINING = 0, 1
"""Stages of `ppo`: each draws episodes of its own."""


@dataclass(frozen=True)
class EPOpt:
    """Keeps the episodes of a batch whose return is at or below its ε-quantile.

    The quantile of B returns is the ⌈εB⌉-th smallest; episodes that tie with it are kept too.
    """

    epsilon: float = 1.0

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
