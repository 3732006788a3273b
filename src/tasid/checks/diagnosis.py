"""How well a policy decodes, measured through the latent door of our own environments.

No learner imports this: it looks at latent states.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tasid.policies import BeliefPolicy, Policy
from tasid.policies.decoder import WIDTH, Decoder
from tasid.policies.evaluate import Followed, follow_beliefs
from tasid.targets import BlockMDP, Latent
from tasid.targets.batches import episode_tables
from tasid.targets.rollout import Moment, trace
from tasid.targets.streams import DIAGNOSIS
from tasid.targets.target import episode_keys, keys_of_phase, seed_key


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """Accuracies under the policy's own visits."""

    decoder_accuracy: NDArray[np.float64]
    """Per step [H−1]: α_h leads from the true s_h to the true s_{h+1} on the map.

    A belief decodes states: there it is how often the likeliest state after the step is the true
    one.
    """
    tracking_accuracy: NDArray[np.float64]
    """Per step [H]: ŝ_h = s_h."""


def diagnose(
    policy: BeliefPolicy | Policy, env: BlockMDP, *, episodes: int = 2_048, seed: int = 0
) -> Diagnosis:
    """Run the policy and compare what it decoded with what was."""
    phase = jax.random.fold_in(seed_key(seed), DIAGNOSIS)
    play = partial(episode_tables, env, episodes=episodes, width=WIDTH)
    if isinstance(policy, BeliefPolicy):
        found: Followed = play(follow_beliefs, policy.actor, phase)
        right = np.asarray(found.believed) == np.asarray(Latent.states(found.states))
        tracked = right.mean(axis=0)
        return Diagnosis(tracked[1:], tracked)
    decoded, tracked = (table.mean(axis=0) for table in play(_hits, policy.decoder, phase))
    return Diagnosis(decoded[:-1], tracked)


def start_purity(policy: BeliefPolicy | Policy, env: BlockMDP, *, seed: int = 0) -> float | None:
    """How often a first observation's cluster is mostly of its start; None with one start."""
    if isinstance(policy, BeliefPolicy):
        return None
    clusterer = policy.decoder.clusterer
    if clusterer is None:
        return None
    number = policy.simulator.starts.size
    keys = episode_keys(seed_key(seed), DIAGNOSIS, jnp.arange(8 * WIDTH))
    state, observations = env.target.reset(keys)
    which = np.searchsorted(policy.simulator.starts, np.asarray(Latent.states(state)))
    shared = np.zeros((number, number), np.int64)
    np.add.at(shared, (np.asarray(clusterer(observations)), which), 1)
    return float(shared.max(axis=1).sum() / shared.sum())


def _hits(
    target: Any, decoder: Decoder, phase_key: jax.Array, first: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Of every episode and step, [W, H]: was the transition decoded rightly, and the state?"""
    keys = keys_of_phase(phase_key, first + jnp.arange(WIDTH))
    decoded, tracked = trace(target, decoder, keys, record=partial(_decoded, decoder))[1]
    return decoded.T, tracked.T


def _decoded(
    decoder: Decoder, before: Moment, actions: jax.Array, after: Moment, h: jax.Array
) -> tuple[jax.Array, jax.Array]:
    was, became = Latent.states(before.state), Latent.states(after.state)
    tracked = after.carry.states == was
    if decoder.num_models == 0:
        return tracked, tracked
    step = jnp.minimum(h, decoder.num_models - 1)
    action = decoder.decode(after.carry, after.observations, step).action
    return decoder.leads(was, action, step) == became, tracked
