"""Knowing when one is wrong: η too small, a wrong map, a lost agent, honest confidence."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tasid
from tasid.algorithms.monitor import Calibration, calibrate, estimate_eta
from tasid.algorithms.surprise import Surprises
from tasid.envs.rollout import trace
from tasid.envs.target import DIAGNOSIS, episode_keys, seed_key
from tasid.mdp.outcomes import outcomes


@pytest.fixture(scope="module")
def lock20():
    return tasid.make("combination-lock", horizon=20, seed=7)


@pytest.fixture(scope="module")
def policy(lock20):
    return tasid.learn(lock20, eta=0.1, episodes=2_000, seed=7).policy


def counts(slips, of, planned=0.1):
    """`of` visits to one place with two outcomes, `slips` of them surprising."""
    sim = tasid.AbstractSimulator([[0, 1], [1, 1]], np.zeros((2, 2)), horizon=2)
    plan = tasid.robust_dp(sim, eta=planned)
    seen = Surprises(plan, outcomes(sim).number)
    became = np.where(np.arange(of) < slips, 1, 0).astype(np.int32)
    seen.add(0, np.zeros(of, np.int32), np.zeros(of, np.int32), became)
    return seen


def test_interval_and_test_are_exact_binomial():
    estimate = counts(3, 50).eta()
    assert (estimate.rate, estimate.transitions) == (0.06, 50)
    assert estimate.low == pytest.approx(0.012548, abs=1e-5)  # Clopper–Pearson tables
    assert estimate.high == pytest.approx(0.165482, abs=1e-5)
    exact = [
        float(np.prod([(50 - j) / (j + 1) for j in range(k)])) * 0.1**k * 0.9 ** (50 - k)
        for k in range(3, 51)
    ]
    assert estimate.p_value == pytest.approx(sum(exact))
    assert not estimate.exceeded
    assert counts(30, 100).eta().exceeded
    assert counts(0, 40).eta().low == 0.0
    assert counts(40, 40).eta().high == 1.0


def test_places_without_a_choice_are_not_counted():
    seen = counts(1, 5)
    seen.add(1, np.ones(9, np.int32), np.zeros(9, np.int32), np.ones(9, np.int32))
    assert seen.eta().transitions == 5


def test_a_wrong_place_is_named_and_a_right_one_is_not():
    assert counts(5, 50).map_errors() == ()
    (error,) = counts(45, 60).map_errors()
    assert (error.step, error.state, error.action) == (0, 0, 0)
    assert (error.visits, error.surprises) == (60, 45)


@pytest.mark.parametrize(("pays", "noticed"), [((0.0, 0.0), False), ((0.0, 1.0), True)])
def test_ends_that_pay_the_same_are_one_outcome(pays, noticed):
    """Two pits: which of them it was makes no difference, and both may look like nothing at all."""
    successor = [[1, 2], [1, 1], [2, 2]]
    reward = [[0.0, 0.0], [pays[0]] * 2, [pays[1]] * 2]
    sim = tasid.AbstractSimulator(successor, reward, horizon=2)
    seen = Surprises(tasid.robust_dp(sim, eta=0.1), outcomes(sim).number)
    seen.add(0, np.zeros(40, np.int32), np.zeros(40, np.int32), np.full(40, 2, np.int32))
    assert bool(seen.map_errors()) == noticed
    assert seen.eta().rate == float(noticed)


def test_outcomes_that_the_map_does_not_have_are_named():
    """The model must decode them as something on the map, but does not believe it."""
    sim = tasid.AbstractSimulator([[0, 1], [1, 1]], np.zeros((2, 2)), horizon=2)
    seen = Surprises(tasid.robust_dp(sim, eta=0.1), outcomes(sim).number)
    zeros = np.zeros(40, np.int32)
    for action, explained in ((0, 0.9), (1, 0.01)):
        seen.add(0, zeros, zeros + action, zeros + action, np.full(40, explained))
    (error,) = seen.map_errors()
    assert (error.step, error.state, error.action, error.surprises) == (0, 0, 1, 40)
    assert seen.eta().rate == 0.0


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
    assert any(error.step in (step, step + 1) for error in found.map_errors)
    assert any("the map is wrong" in warning for warning in found.warnings)


@pytest.mark.parametrize("step", [8, 13])
def test_a_map_that_is_wrong_beyond_its_outcomes_is_noticed(lock20, step):
    """The good action really leads where no action leads, and a model fitted to it would agree."""
    sim = lock20.simulator
    here, successor = place(sim, step)
    dead = sim.states.index((step + 1, 3))
    assert dead not in successor[here[0]]
    successor[here] = dead
    first = learned_on(lock20, successor).map_errors[0]
    assert (first.step, sim.states.index(first.state), first.action) == (step, *here)


def test_no_place_is_blamed_on_a_right_map(lock20):
    assert learned_on(lock20, np.array(lock20.simulator.successor)).map_errors == ()


def place(sim, step):
    """Where the plan's route is at a step, as an index of the successors; and a copy of these."""
    here = tasid.robust_dp(sim, eta=0.1).route()[step]
    return (sim.states.index(here.state), here.action), np.array(sim.successor)


def learned_on(lock, successor):
    """What is noticed where commands lead there, while the map is the lock's."""
    real = replace(lock.target, successor=jnp.asarray(successor, jnp.int32))
    return tasid.learn(real, lock.simulator, eta=0.1, episodes=2_000, seed=7).diagnostics


def test_planning_with_too_small_an_eta_warns():
    env = tasid.make("combination-lock", horizon=12, eta=0.3, seed=4)
    result = tasid.learn(env, eta=0.1, episodes=1_500, seed=4)
    assert result.diagnostics.eta.exceeded
    assert "plan with a larger eta" in result.diagnostics.warnings[0]


def test_confidence_is_honest(lock20, policy):
    found = calibrate(policy, lock20, episodes=2_048, seed=3)
    assert found.confidence.size > 1_000
    assert found.expected_error <= 0.05


def test_expected_calibration_error_by_hand():
    made = Calibration(np.array([0.95, 0.95, 0.55, 0.55]), np.array([True, True, True, False]))
    assert made.expected_error == pytest.approx((2 * 0.05 + 2 * 0.05) / 4)


def test_an_agent_notices_that_it_is_lost(lock20, policy):
    """Told a wrong place, it notices within a few steps; in its right place it does not."""
    keys = episode_keys(seed_key(9), DIAGNOSIS, jnp.arange(128))

    @jax.jit
    def run(target, decoder):
        return trace(target, decoder, keys, record=lambda b, a, c, h: (b.observations, b.state))[1]

    observations, states = (np.asarray(x) for x in run(lock20.target, policy.decoder))
    alarms = 0
    for slot in range(0, 128, 4):
        agent = policy.agent(slot=slot)
        right = True
        for h in range(20):
            agent.act(observations[h, slot])
            right &= agent.state == states[h, slot]
            alarms += right and agent.lost
    assert alarms == 0
    fallen = tasid.make("combination-lock", horizon=20, seed=7).simulator
    noticed = recovered = 0
    for slot in range(0, 128, 4):
        agent = policy.agent(slot=slot)
        for h in range(5):
            agent.act(observations[h, slot])
        # Swap in the observations of an episode that has fallen to type 3 for good.
        emission, key = lock20.target.emission, seed_key(slot)
        for h in range(5, 10):
            state = fallen.states.index((h, 3))
            agent.act(np.asarray(emission(jax.random.fold_in(key, h), jnp.int32(state))))
            if agent.lost or agent.state == state:
                noticed += agent.lost
                recovered += not agent.lost
                break
    # Within five steps, in seven of eight cases, it notices or tracks its way back to the truth.
    assert noticed + recovered >= 28
    assert noticed >= 16


@pytest.mark.parametrize(("kind", "lost"), [(3, False), (1, True)])
def test_a_state_with_one_outcome_is_no_witness(lock20, policy, kind, lost):
    """How its only outcome looks was never learned: type 3 leads to type 3 whatever one does."""
    sim, agent = lock20.simulator, policy.agent()
    for h in range(4):
        agent._step, agent._state = h + 1, sim.states.index((h, kind))
        agent._suspect(sim.states.index((h + 1, kind)), explained=0.01)
    assert agent.lost == lost


def test_eta_is_estimated_while_learning(lock20):
    """Step by step from the roll-ins so far: the first has none, the last covers the truth."""
    seen = []
    tasid.learn(lock20, eta=0.1, episodes=1_500, seed=7, callbacks=[seen.append])
    assert seen[0].eta == (0.0, 0.0, 1.0)
    widths = [high - low for _, low, high in (step.eta for step in seen)]
    assert widths[-1] < widths[5] < widths[1] < 1.0
    rate, low, high = seen[-1].eta
    assert low <= rate <= high
    assert 0.06 < low < high < 0.14, "outcomes differ in a little less than 0.1"
