"""Filter and smoother beside dynamax on small dense cases: an engine that is not ours."""

from __future__ import annotations

import warnings

import jax.numpy as jnp
import numpy as np
import pytest

from paths import a_world
from tasid.beliefs import filter_beliefs, smooth_beliefs
from tasid.maps import AbstractSimulator


@pytest.fixture(scope="module")
def dynamax():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it imports with deprecated names of JAX
        from dynamax.hidden_markov_model import hmm_filter, hmm_smoother
    return hmm_filter, hmm_smoother


def matrices(sim: AbstractSimulator, commands: np.ndarray, eta: float) -> np.ndarray:
    """P(s' | s) of every step under its command, [H, S, S]."""
    slips = np.eye(sim.num_actions) * (1 - eta) + eta / sim.num_actions
    return np.stack(
        [
            np.einsum("a,sat->st", slips[command], np.eye(sim.num_states)[sim.successor_at(h)])
            for h, command in enumerate(commands)
        ]
    )


def maps() -> dict[str, AbstractSimulator]:
    rng = np.random.default_rng(11)
    leads = rng.integers(12, size=(12, 4))
    spread = {"start": [0, 5, 7], "start_probabilities": [0.5, 0.2, 0.3]}
    return {
        "one table": AbstractSimulator(leads, np.zeros(leads.shape), horizon=15, start=2),
        "several starts": AbstractSimulator(leads, np.zeros(leads.shape), horizon=15, **spread),
        "a table for every step": AbstractSimulator(
            rng.integers(12, size=(15, 12, 4)), np.zeros(leads.shape), horizon=15, **spread
        ),
        "three steps": a_world(rng, several_starts=True),
    }


@pytest.mark.parametrize("name", maps())
def test_beliefs_are_dynamaxs(name, dynamax):
    sim = maps()[name]
    hmm_filter, hmm_smoother = dynamax
    rng = np.random.default_rng(12)
    commands = rng.integers(sim.num_actions, size=(3, sim.horizon))
    logs = 2 * rng.normal(size=(3, sim.horizon + 1, sim.num_states))
    start = np.zeros(sim.num_states)
    start[sim.starts] = sim.start_probabilities
    filtered = filter_beliefs(sim, commands, logs, eta=0.3)
    smoothed = smooth_beliefs(sim, commands, logs, eta=0.3)
    for n in range(3):
        parts = start, matrices(sim, commands[n], 0.3), logs[n]
        theirs = [jnp.asarray(part, jnp.float32) for part in parts]
        forward, both = hmm_filter(*theirs), hmm_smoother(*theirs)
        np.testing.assert_allclose(filtered.dense[n], forward.filtered_probs, atol=1e-5)
        np.testing.assert_allclose(smoothed.dense[n], both.smoothed_probs, atol=1e-5)
        assert filtered.log_evidence[n] == pytest.approx(float(both.marginal_loglik), abs=1e-3)
