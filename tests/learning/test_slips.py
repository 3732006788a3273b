"""The perturbation estimated from smoothed episodes, where the true one is known."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tasid
from tasid.beliefs.chain import Chain
from tasid.beliefs.classes import Classes
from tasid.beliefs.features import AsSeen
from tasid.learning.belief.episodes import as_chunks
from tasid.learning.belief.findings import Findings, findings
from tasid.learning.belief.fits import setting_for
from tasid.learning.belief.slips import Outcome, Slip, slips, with_doubts
from tasid.maps import PerturbedMDP
from tasid.runs.recording import record_episodes
from tasid.targets.block import block_mdp

ETA, NOISE = 0.4, 0.3


@partial(jax.tree_util.register_dataclass, data_fields=[], meta_fields=[])
@dataclass(frozen=True)
class Corners:
    """Four states at the corners of a square, as one sees them and as one expects them."""

    shape = (2,)
    at = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]], np.float32)

    def __call__(self, key: jax.Array, state: jax.Array) -> jax.Array:
        return jnp.asarray(self.at)[state] + NOISE * jax.random.normal(key, (2,))

    def scores(self, features: jax.Array, members: jax.Array) -> jax.Array:
        away = features[None] - jnp.asarray(self.at)[members][:, None]
        return -0.5 * (away**2).sum(axis=-1) / NOISE**2


@pytest.fixture(scope="module")
def world() -> PerturbedMDP:
    """Three commands with three outcomes each in every state."""
    ring = (np.arange(4)[:, None] + np.arange(1, 4)) % 4
    reward = np.zeros((4, 3))
    reward[2, 1] = 1.0
    return tasid.perturb(tasid.AbstractSimulator(ring, reward, horizon=10), eta=ETA, seed=1)


@pytest.fixture(scope="module")
def found(world: PerturbedMDP) -> Findings:
    """By 512 episodes of random commands, and by what states really look like."""
    env = block_mdp("corners", {}, world, Corners())
    setting = setting_for(tasid.robust_dp(env.simulator, eta=ETA))
    log = record_episodes(env, None, episodes=512, seed=3)
    return findings(
        setting,
        Classes.of(setting.chain, "place", env.simulator),
        Corners(),
        as_chunks(log.recorded, setting.chain, AsSeen((2,)), tells=False),
        env.simulator,
    )


def far(found: tuple[Slip, ...], xi: np.ndarray, sim: tasid.AbstractSimulator) -> float:
    """Root mean square of how many standard errors the estimates are off."""
    off = []
    for slip in found:
        row = np.zeros(4)
        np.add.at(row, sim.successor[slip.state], xi[slip.state, slip.action])
        for state, likely in slip.probabilities.items():
            error = np.sqrt(row[state] * (1 - row[state]) / slip.visits)
            off.append((likely - row[state]) / error)
    return float(np.sqrt(np.mean(np.square(off))))


def test_outcomes_have_their_true_probabilities(found: Findings, world: PerturbedMDP) -> None:
    assert {(slip.state, slip.action) for slip in found.slips} == {
        (s, a) for s in range(4) for a in range(3)
    }
    assert sum(slip.visits for slip in found.slips) == pytest.approx(5_120, abs=10)
    for slip in found.slips:
        assert slip.step == -1
        assert sum(slip.probabilities.values()) == pytest.approx(1, abs=1e-3)
        assert sum(one.count for one in slip.outcomes) == pytest.approx(slip.visits, abs=1)
    # Observations that overlap pull the estimates to the prior, so a little more than 1.
    assert far(found.slips, world.xi, world.simulator) < 1.5
    swapped = np.swapaxes(world.xi, 1, 2)
    assert far(found.slips, swapped, world.simulator) > 3, "not what led to which command"


def test_the_surest_differ_most_from_what_was_expected(found: Findings) -> None:
    evidence = [slip.evidence for slip in found.slips]
    assert evidence == sorted(evidence, reverse=True)
    assert evidence[0] > 5 > 0 > evidence[-1]
    first = found.slips[0]
    assert first.astray is not None
    assert first.astray.probability > first.astray.expected + 0.02
    assert first.sentence(["up", "down", "left"]) == (
        f"in state {first.state} “{['up', 'down', 'left'][first.action]}” came out as "
        f"“{['up', 'down', 'left'][first.astray.actions[0]]}” in "
        f"{round(first.astray.count)} of {first.visits}"
    )


def test_estimates_by_hand() -> None:
    """Two commands, 12 times the one that was not meant; η = 0.2 expects 8 of 80."""
    sim = tasid.AbstractSimulator([[0, 1], [1, 1]], np.zeros((2, 2)), horizon=50)
    chain = Chain.of(sim)
    assert not chain.layered
    outcomes = np.zeros((1, 2, 2, 2))
    outcomes[0, 0, 1] = [12.0, 68.0]
    outcomes[0, 1, :, 0] = 50.0  # nothing else can happen there
    (slip,) = slips(chain, outcomes, outcomes.sum(axis=-1), sim, eta=0.2)
    assert (slip.step, slip.state, slip.action, slip.visits) == (-1, 0, 1, 80)
    assert slip.probabilities == pytest.approx({1: (68 + 3.6) / 84, 0: (12 + 0.4) / 84})
    assert slip.sentence() == "in state 0 action 1 came out as action 0 in 12 of 80"
    assert slip.sentence(["stay", "go"]) == "in state 0 “go” came out as “stay” in 12 of 80"
    few = outcomes * 7 / 80
    assert slips(chain, few, few.sum(axis=-1), sim, eta=0.2) == ()


def test_what_one_fit_does_not_see_is_no_evidence() -> None:
    outcomes = (Outcome(1, (1,), 5.0, 0.6, 0.9), Outcome(0, (0,), 4.0, 0.4, 0.1))
    one = Slip(-1, 0, 1, 9, outcomes, 7.0)
    two = Slip(-1, 0, 0, 9, outcomes, 6.0)
    weaker = Slip(-1, 0, 1, 9, outcomes, 2.0)
    doubted = with_doubts((one, two), [(two, weaker)])
    assert [(slip.action, slip.evidence) for slip in doubted] == [(0, 6.0), (1, 2.0)]
    assert [slip.evidence for slip in with_doubts((one, two), [(weaker,)])] == [2.0, 0.0]
