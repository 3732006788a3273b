"""Knowing when one is wrong: η too small, a wrong map, a lost agent, honest confidence."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tasid
from tasid.learning.monitor import Calibration, calibrate, estimate_eta
from tasid.learning.surprise import EtaEstimate, count_surprises
from tasid.targets.rollout import trace
from tasid.targets.streams import DIAGNOSIS
from tasid.targets.target import episode_keys, seed_key


@pytest.fixture(scope="module")
def lock20():
    return tasid.make("combination-lock", horizon=20, seed=7)


@pytest.fixture(scope="module")
def policy(lock20):
    return tasid.learn(lock20, eta=0.1, episodes=96, seed=7).policy


def counts(slips, of, planned=0.1):
    """`of` visits to one place with two outcomes, `slips` of them surprising; then an end."""
    sim = tasid.AbstractSimulator([[0, 1], [1, 1]], np.zeros((2, 2)), horizon=2)
    became = np.where(np.arange(of) < slips, 1, 0)
    path = np.stack([np.zeros(of, int), became], axis=1).astype(np.int32)
    return count_surprises(tasid.robust_dp(sim, eta=planned), path)


def test_interval_and_test_are_exact_binomial():
    estimate = EtaEstimate.of(3, 50, planned=0.1)
    assert (estimate.rate, estimate.transitions) == (0.06, 50)
    assert estimate.low == pytest.approx(0.012548, abs=1e-5)  # Clopper–Pearson tables
    assert estimate.high == pytest.approx(0.165482, abs=1e-5)
    exact = [
        float(np.prod([(50 - j) / (j + 1) for j in range(k)])) * 0.1**k * 0.9 ** (50 - k)
        for k in range(3, 51)
    ]
    assert estimate.p_value == pytest.approx(sum(exact))
    assert not estimate.exceeded
    assert EtaEstimate.of(30, 100, planned=0.1).exceeded
    assert EtaEstimate.of(0, 40, planned=0.1).low == 0.0
    assert EtaEstimate.of(40, 40, planned=0.1).high == 1.0
    assert EtaEstimate.of(0, 0, planned=0.1).high == 1.0


def test_surprises_are_counted_where_there_is_a_choice():
    assert counts(3, 50) == (3, 50)
    sim = tasid.AbstractSimulator([[0, 1], [1, 1]], np.zeros((2, 2)), horizon=4)
    path = np.array([[0, 0, 1, 1], [0, 1, 1, 1]], np.int32)
    # Two steps from 0 and one slip in the first row, one step and one slip in the second.
    assert count_surprises(tasid.robust_dp(sim, eta=0.1), path) == (2, 3)


@pytest.mark.parametrize(("pays", "noticed"), [((0.0, 0.0), 0), ((0.0, 1.0), 40)])
def test_ends_that_pay_the_same_are_one_outcome(pays, noticed):
    """Two pits: which of them it was makes no difference, and both may look like nothing at all."""
    successor = [[1, 2], [1, 1], [2, 2]]
    reward = [[0.0, 0.0], [pays[0]] * 2, [pays[1]] * 2]
    sim = tasid.AbstractSimulator(successor, reward, horizon=2)
    plan = tasid.robust_dp(sim, eta=0.1)
    intended = sim.successor[0, plan.action(0, 0)]
    path = np.tile(np.array([[0, 3 - intended]], np.int32), (40, 1))
    assert count_surprises(plan, path) == (noticed, 40)


def test_eta_exceeded_has_power_and_few_false_alarms(lock20, policy):
    """Twenty episodes each: planned 0.1, true 0.1 and 0.2."""
    worse = tasid.make("combination-lock", horizon=20, seed=7, eta=0.2)
    false = [estimate_eta(policy, lock20, seed=s).exceeded for s in range(30)]
    true = [estimate_eta(policy, worse, seed=s).exceeded for s in range(30)]
    assert sum(false) == 0
    assert sum(true) >= 28


@pytest.mark.parametrize("step", [4, 9])
def test_a_wrong_map_is_noticed(lock20, step):
    """On the route, the good action really leads where the others lead; the map says otherwise."""
    here, successor = place(lock20.simulator, step)
    others = [int(t) for t in successor[here[0]] if t != successor[here]]
    successor[here] = others[0]
    found = learned_on(lock20, successor)
    assert here in {(lock20.simulator.states.index(e.state), e.action) for e in found.map_errors}
    assert any("the map" in warning for warning in found.warnings)
    slip = next(
        s for s in found.slips if here == (lock20.simulator.states.index(s.state), s.action)
    )
    assert slip.astray.successor == lock20.simulator.states[others[0]]
    assert slip.evidence > 5
    assert slip.probabilities[slip.astray.successor] > 0.5


def test_no_place_is_blamed_on_a_right_map(lock20):
    found = learned_on(lock20, np.array(lock20.simulator.successor))
    assert found.map_errors == ()
    assert found.warnings == ()


def place(sim, step):
    """Where the plan's route is at a step, as an index of the successors; and a copy of these."""
    here = tasid.robust_dp(sim, eta=0.1).route()[step]
    return (sim.states.index(here.state), here.action), np.array(sim.successor)


def learned_on(lock, successor):
    """What is noticed where commands lead there, while the map is the lock's."""
    real = replace(lock.target, successor=jnp.asarray(successor, jnp.int32))
    return tasid.learn(real, lock.simulator, eta=0.1, episodes=96, seed=7).diagnostics


def test_planning_with_too_small_an_eta_warns():
    env = tasid.make("combination-lock", horizon=12, eta=0.3, seed=4)
    result = tasid.learn(env, eta=0.1, episodes=128, seed=4)
    assert result.diagnostics.eta.exceeded
    assert "plan with a larger eta" in result.diagnostics.warnings[0]


def test_confidence_is_honest(lock20, policy):
    found = calibrate(policy, lock20, episodes=512, seed=3)
    assert found.confidence.size > 1_000
    assert found.expected_error <= 0.05


def test_the_papers_policy_is_watched_as_well(lock, learned):
    """Slips by which nothing changes do not count, so that the estimate is a lower bound."""
    found = estimate_eta(learned.policy, lock, episodes=200)
    assert 0.03 < found.rate < 0.12
    assert found.transitions > 400
    worse = tasid.make("combination-lock", horizon=5, num_actions=4, seed=7, eta=0.3)
    assert estimate_eta(learned.policy, worse, episodes=200).exceeded
    assert estimate_eta(learned.policy, lock, episodes=0).transitions == 0
    calibration = calibrate(learned.policy, lock, episodes=1_024, seed=3)
    assert calibration.expected_error <= 0.08


def test_expected_calibration_error_by_hand():
    made = Calibration(np.array([0.95, 0.95, 0.55, 0.55]), np.array([True, True, True, False]))
    assert made.expected_error == pytest.approx((2 * 0.05 + 2 * 0.05) / 4)


def test_an_agent_knows_when_it_is_lost_and_finds_back(lock20, policy):
    """In its right place it is not lost; moved elsewhere, it notices or tracks its way back."""
    keys = episode_keys(seed_key(9), DIAGNOSIS, jnp.arange(128))

    @jax.jit
    def run(target, actor):
        return trace(target, actor, keys, record=lambda b, a, c, h: (b.observations, b.state))[1]

    observations, states = (np.asarray(x) for x in run(lock20.target, policy.actor))
    alarms = settled = 0
    for slot in range(0, 128, 4):
        agent = policy.agent()
        for h in range(20):
            agent.act(observations[h, slot])
            alarms += agent.state == states[h, slot] and agent.lost
    assert alarms <= 2
    for slot in range(0, 128, 4):
        agent = policy.agent()
        for h in range(5):
            agent.act(observations[h, slot])
        # Swap in the observations of an episode that has fallen to type 3 for good.
        emission, key = lock20.target.emission, seed_key(slot)
        for h in range(5, 10):
            state = lock20.simulator.states.index((h, 3))
            agent.act(np.asarray(emission(jax.random.fold_in(key, h), jnp.int32(state))))
            if agent.lost or agent.state == state:
                settled += 1
                break
    assert settled >= 28, "in seven of eight cases, within five steps"


@pytest.mark.parametrize(("kind", "lost"), [(3, False), (1, True)])
def test_a_state_with_one_outcome_is_no_witness(lock, learned, kind, lost):
    """By the paper's method: type 3 leads to type 3 whatever one does; elsewhere slips add up."""
    sim, agent = lock.simulator, learned.policy.agent()
    for h in range(4):
        agent._step, agent._state, agent._action = h + 1, sim.states.index((h, kind)), 0
        leads = sim.successor[agent._state]
        agent._suspect(int(next((t for t in leads if t != leads[0]), leads[0])))
    assert agent.lost == lost
