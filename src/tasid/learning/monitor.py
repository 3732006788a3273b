"""Watching a policy at work, without latent access: is η larger than planned, is it calibrated?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tasid.learning.belief.monitor import believed, found_at_work
from tasid.learning.paper.tasid import collect
from tasid.learning.surprise import EtaEstimate, count_surprises
from tasid.policies.belief_policy import BeliefPolicy
from tasid.policies.decoder import WIDTH, Decoder, Tracked
from tasid.policies.evaluate import check_fit
from tasid.policies.policy import Policy
from tasid.targets.batches import episode_tables
from tasid.targets.rollout import roll
from tasid.targets.streams import CALIBRATION, MONITORING
from tasid.targets.target import Target, episode_keys, for_horizon, seed_key

_BINS = 10


def estimate_eta(
    policy: BeliefPolicy | Policy, env: Target, *, episodes: int = 20, seed: int = 0
) -> EtaEstimate:
    """How often outcomes are not the intended ones, with the test against the planned η.

    Args:
        policy: One that was learned.
        env: The target in which it acts.
        episodes: How many are played for it.
        seed: Draws them.
    """
    target = for_horizon(env, policy.horizon)
    check_fit(policy, target)
    if isinstance(policy, BeliefPolicy):
        return found_at_work(policy, target, episodes=episodes, seed=seed).eta
    if episodes < 1:
        return EtaEstimate.of(0, 0, planned=policy.plan.eta)
    arguments = policy.decoder, seed_key(seed)
    paths = episode_tables(target, _paths, *arguments, episodes=episodes, width=WIDTH)
    return EtaEstimate.of(*count_surprises(policy.plan, paths), planned=policy.plan.eta)


@dataclass(frozen=True, eq=False)
class Calibration:
    """Stated confidence against what came true, on explored transitions never trained on."""

    confidence: NDArray[np.float64]
    correct: NDArray[np.bool_] | NDArray[np.float64]
    """Was the decoded outcome the commanded one? Slips count: the model predicts the command.

    Of a belief: the probability of the likeliest state in the light of the whole episode.
    """

    @property
    def bins(self) -> list[tuple[float, float, int]]:
        """Mean confidence, fraction correct and number, in bins of equal width."""
        which = np.minimum((self.confidence * _BINS).astype(int), _BINS - 1)
        return [
            (float(self.confidence[here].mean()), float(self.correct[here].mean()), int(here.sum()))
            for number in range(_BINS)
            if (here := which == number).any()
        ]

    @property
    def expected_error(self) -> float:
        """Expected calibration error: |confidence − fraction correct|, averaged over bins."""
        return sum(abs(said - was) * n for said, was, n in self.bins) / max(1, self.correct.size)


def calibrate(
    policy: BeliefPolicy | Policy, env: Target, *, episodes: int = 2_048, seed: int = 0
) -> Calibration:
    """Explore one step in fresh episodes, spread evenly over the steps, and compare.

    Beliefs are compared with what whole fresh episodes of the policy say in the end.

    Args:
        policy: One that was learned.
        env: The target in which it acts.
        episodes: How many are played for it.
        seed: Draws them.
    """
    target = for_horizon(env, policy.horizon)
    check_fit(policy, target)
    if isinstance(policy, BeliefPolicy):
        return Calibration(*believed(policy, target, episodes=min(episodes, 512), seed=seed))
    steps = policy.simulator.horizon - 1
    if steps == 0:
        return Calibration(np.zeros(0), np.zeros(0, bool))
    chosen = np.unique(np.linspace(0, steps - 1, min(steps, max(1, episodes // WIDTH))).astype(int))
    confidence, correct = [], []
    for h in chosen:
        said, was = _calibrate_step(policy, target, int(h), -(-episodes // chosen.size), seed)
        confidence.append(said)
        correct.append(was)
    return Calibration(np.concatenate(confidence), np.concatenate(correct))


def _calibrate_step(
    policy: Policy, target: Target, h: int, episodes: int, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    key = jax.random.fold_in(seed_key(seed), CALIBRATION)
    decoder = policy.decoder
    data = collect(target, decoder, key, h, episodes=episodes)
    memory = Tracked(data.states, data.x, jnp.zeros((episodes, 0), jnp.int32), data.cluster)
    decoded = decoder.decode(memory, data.x_next, jnp.int32(h))
    live, right = np.asarray(data.live), np.asarray(decoded.action == data.command)
    return np.asarray(decoded.confidence, np.float64)[live], right[live]


def _paths(target: Target, decoder: Decoder, key: jax.Array, first: Any) -> jax.Array:
    keys = episode_keys(key, MONITORING, first + jnp.arange(WIDTH))
    return roll(target, decoder, keys, steps=target.horizon).carry.path
