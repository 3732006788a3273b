"""Training by PPO: iterations by the thousand, with checkpoints between them.

A training is a pure function of the seed and what it is given: the same in one go or continued
from a checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tasid.baselines.families import Randomized
from tasid.baselines.ppo import PPOConfig, PPOState, iterate, start
from tasid.policies.evaluate import Score, played
from tasid.policies.ppo_policy import Greedy, PPOPolicy
from tasid.targets.streams import EVALUATION, SCORING, STAGES
from tasid.targets.target import Target, seed_key


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A training between two iterations: an event, and all that is needed to go on from here."""

    stage: int
    episodes: int
    """Training episodes of this stage so far."""
    returns: NDArray[np.float32]
    """Returns of the training episodes since the last checkpoint, which the drawing policy made."""
    evaluation: Score | None
    """Of the greedy policy."""
    state: PPOState
    seconds: float
    """How long it took since the last checkpoint."""


Callback = Callable[[Checkpoint], None]
"""Progress bars, records and loggers are functions of checkpoints."""


@dataclass(frozen=True, eq=False)
class Trained:
    """What training gave."""

    policy: PPOPolicy
    episodes: int
    """Training episodes in all, those before the state it continued from included."""
    state: PPOState
    stopped: bool
    """Did `stop` end it?"""


def ppo(
    source: Target | Randomized,
    *,
    seed: int,
    episodes: int,
    config: PPOConfig | None = None,
    state: PPOState | None = None,
    stage: int = 0,
    every: int = 1000,
    evaluation_episodes: int = 512,
    stop: Callable[[Checkpoint], bool] | None = None,
    callbacks: Sequence[Callback] = (),
) -> Trained:
    """Train a policy in a target, or on the members of a family, for so many episodes in all.

    `state` continues earlier training; stages of one seed draw different episodes. Every so many
    episodes there is a checkpoint, with an evaluation in the target unless
    `evaluation_episodes` is 0, and `stop` may end the training there.
    """
    config = config or PPOConfig()
    _check(config.batch, episodes, every, evaluation_episodes)
    key = stage_key(seed, stage)
    first = source.target(key, jnp.int32(0)) if isinstance(source, Randomized) else source
    state = start(config, first, key) if state is None else state
    advance = _iterate if source.traceable else iterate
    network, done = config.networks(first)[0], int(state.batches) * config.batch
    while True:
        started = time.perf_counter()
        chunk = max(min(every - done % every, episodes - done), 0)
        returns: list[Any] = [np.empty(0, np.float32)]
        for _ in range(chunk // config.batch):
            state, earned = advance(config, source, state, key)
            returns.append(earned)
        done += chunk
        actor, score = Greedy(state.policy.parameters, network), None
        if source is first and evaluation_episodes:
            scoring = jax.random.fold_in(jax.random.fold_in(key, SCORING), done)
            phase = jax.random.fold_in(scoring, EVALUATION)
            score = played(first, actor, phase, evaluation_episodes)
        earned, seconds = np.concatenate(returns), time.perf_counter() - started
        here = Checkpoint(stage, done, earned, score, state, seconds)
        for callback in callbacks:
            callback(here)
        stopped = stop is not None and stop(here)
        if stopped or done >= episodes:
            policy = PPOPolicy(actor, first.horizon, first.observation_shape)
            return Trained(policy, done, state, stopped)


_iterate = jax.jit(iterate, static_argnums=0)


def stage_key(seed: int, stage: int) -> jax.Array:
    """The key of all that one stage of a seed's training draws."""
    return jax.random.fold_in(jax.random.fold_in(seed_key(seed), STAGES), stage)


def _check(batch: int, episodes: int, every: int, evaluation_episodes: int) -> None:
    for name, number in (("episodes", episodes), ("every", every)):
        if number < batch or number % batch:
            raise ValueError(f"{name}: {number} is no multiple of the {batch} episodes in a batch")
    if evaluation_episodes < 0:
        raise ValueError(f"evaluation_episodes: {evaluation_episodes} is below 0")
