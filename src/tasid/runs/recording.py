"""Recording whole episodes: a policy with a share of random commands plays, a log comes out."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tasid.beliefs.classes import Classes
from tasid.learning.belief.episodes import play
from tasid.learning.belief.fits import actor_of, flat_fit, setting_for
from tasid.maps import AbstractSimulator, robust_dp
from tasid.policies.evaluate import Scorable, check_fit
from tasid.runs.episode_log import DTYPES, EpisodeLog, check_size
from tasid.targets import Target
from tasid.targets.rollout import Actor
from tasid.targets.streams import RECORDING
from tasid.targets.target import seed_key


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Idle:
    """An actor without a will of its own: what it does is all exploration."""

    def start(self, observations: jax.Array) -> None:
        """Nothing to remember."""

    def act(self, carry: None, observations: jax.Array, h: jax.Array) -> tuple[None, jax.Array]:
        """The first action."""
        return None, jnp.zeros(observations.shape[0], jnp.int32)


def eyes_shut(target: Target, sim: AbstractSimulator, *, eta: float) -> Actor:
    """The robust plan by dead reckoning: it knows the map and its commands, and does not look."""
    setting = setting_for(robust_dp(sim, eta=eta))
    classes = Classes.of(setting.chain, "place", sim)
    return actor_of(setting, flat_fit(setting, classes, target.observation_shape))


def record_episodes(
    target: Target,
    policy: Scorable | Actor | None,
    *,
    episodes: int,
    explore: float = 0.3,
    seed: int = 0,
) -> EpisodeLog:
    """Play so many episodes; without a policy, all commands are random.

    Episode i is the same for any number of episodes.
    """
    if episodes < 1:
        raise ValueError(f"episodes: {episodes} is below 1")
    if not 0 <= explore <= 1:
        raise ValueError(f"explore: {explore} is no share, 0 … 1")
    if target.horizon < 1:
        raise ValueError("horizon: this target does not say how long an episode is; give one")
    dtype = target.observation_dtype
    if dtype not in DTYPES:
        raise ValueError(f"observations: {dtype} is none of {', '.join(DTYPES)}")
    check_size(episodes, target.horizon, target.observation_shape, dtype)
    recorded = play(
        target,
        Idle() if policy is None else _actor(policy, target),
        seed_key(seed),
        first=0,
        episodes=episodes,
        explore=1.0 if policy is None else explore,
        phase=RECORDING,
    )
    recorded = recorded._replace(observations=np.asarray(recorded.observations, dtype))
    return EpisodeLog(recorded, target.num_actions, target.ends_early, target.environment)


def _actor(policy: Any, target: Target) -> Actor:
    if hasattr(policy, "actor"):
        check_fit(policy, target)
        return policy.actor
    return policy


def check_free(path: Path, *, overwrite: bool) -> None:
    """Refuse a place where something is, before episodes are played for nothing."""
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        there = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
        if not os.access(there, os.W_OK):
            raise PermissionError(f"{path}: {there} cannot be written to; choose another --out")
        return
    if not overwrite:
        raise FileExistsError(
            f"{path}: exists already; choose another place with --out, or pass --overwrite"
        )
    EpisodeLog.load(path)  # anything else than a log of ours is not overwritten
