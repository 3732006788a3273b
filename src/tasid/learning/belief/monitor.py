"""Watching beliefs at work, without latent access: do they come true, and what slipped?"""

from __future__ import annotations

import jax
import numpy as np
from numpy.typing import NDArray

from tasid.beliefs.episodes import Episodes
from tasid.beliefs.filter import LEAP
from tasid.beliefs.smoother import Weights, smoothed
from tasid.learning.belief.episodes import as_chunks, play
from tasid.learning.belief.findings import Findings, findings
from tasid.learning.belief.fits import setting_for
from tasid.policies.belief_policy import BeliefPolicy
from tasid.targets.streams import CALIBRATION, MONITORING
from tasid.targets.target import Target, seed_key


def found_at_work(policy: BeliefPolicy, target: Target, *, episodes: int, seed: int) -> Findings:
    """Slips and map errors in fresh episodes of the policy."""
    chunks = _played(policy, target, MONITORING, episodes, seed)
    setting, classes = setting_for(policy.plan), policy.actor.filter.classes
    return findings(setting, classes, policy.emission, chunks, policy.simulator)


def believed(
    policy: BeliefPolicy, target: Target, *, episodes: int, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The confidence of every decision, and what whole episodes say of it in the end.

    Only decisions before an episode's end count.
    """
    actor = policy.actor
    said, was = [], []
    for chunk in _played(policy, target, CALIBRATION, episodes, seed):
        parts = actor.chain, actor.filter.classes, policy.emission, chunk
        weights, listening = (
            Weights(eta=policy.eta, told=told, leap=LEAP).arrays() for told in (0.0, 1.0)
        )
        before = np.asarray(smoothed(*parts, weights).before, np.float64)[:-1]
        after = np.asarray(smoothed(*parts, listening).after, np.float64)[:-1]
        state = before.argmax(axis=1)[:, None]
        live = jax.device_get(chunk).live[:-1] > 0
        said.append(np.take_along_axis(before, state, axis=1)[:, 0][live])
        was.append(np.minimum(np.take_along_axis(after, state, axis=1)[:, 0][live], 1.0))
    return np.concatenate(said), np.concatenate(was)


def _played(
    policy: BeliefPolicy, target: Target, phase: int, episodes: int, seed: int
) -> list[Episodes]:
    recorded = play(
        target,
        policy.actor,
        seed_key(seed),
        first=0,
        episodes=episodes,
        explore=0.0,
        phase=phase,
    )
    tells = target.ends_early
    return as_chunks(recorded, policy.actor.chain, policy.feature_map, tells=tells)
