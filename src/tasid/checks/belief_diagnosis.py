"""How well beliefs track the truth, through the latent door of our own environments."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tasid.beliefs.actor import BeliefActor
from tasid.beliefs.chain import at
from tasid.policies import BeliefPolicy
from tasid.policies.decoder import WIDTH
from tasid.targets import BlockMDP, Latent
from tasid.targets.batches import episode_tables
from tasid.targets.rollout import Moment, trace
from tasid.targets.streams import DIAGNOSIS
from tasid.targets.target import episode_keys, seed_key


def beliefs_right(
    policy: BeliefPolicy, env: BlockMDP, *, episodes: int, seed: int
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Was the likeliest state the true one, and how sure was the belief? [H, episodes] each"""
    arguments = policy.actor, seed_key(seed)
    right, sure = episode_tables(env.target, _right, *arguments, episodes=episodes, width=WIDTH)
    return right.T, sure.T.astype(np.float64)


def _right(target: Any, actor: BeliefActor, key: jax.Array, first: Any) -> Any:
    """Of every episode and step, [W, H]."""
    keys = episode_keys(key, DIAGNOSIS, first + jnp.arange(WIDTH))
    right, sure = trace(target, actor, keys, record=partial(_hits, actor))[1]
    return right.T, sure.T


def _hits(
    actor: BeliefActor, before: Moment, actions: jax.Array, after: Moment, h: jax.Array
) -> tuple[jax.Array, jax.Array]:
    belief = after.carry.belief[:, : actions.shape[0]]
    state = at(actor.chain.states, h)[belief.argmax(axis=0)]
    return state == Latent.states(before.state), belief.max(axis=0)
