"""What learning says about slips, the map and itself: right maps are not blamed, wrong ones are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

import tasid
from tasid.learning import diagnostics
from tasid.learning.base import EtaEstimate, shortened
from tasid.learning.belief import BeliefConfig, Training
from tasid.learning.diagnostics import agreed_findings, learning_warnings, reward_warnings
from tasid.planning import perturb, robust_dp
from tasid.simulator import AbstractSimulator
from tasid.targets.block import BlockMDP

ETA = 0.1


def with_edge(sim, state, action, successor):
    """The map with one other transition."""
    table = sim.successor.copy()
    table[state, action] = successor
    return AbstractSimulator(
        table, sim.reward, horizon=sim.horizon, start=sim.start, states=sim.states
    )


def target_of(sim, env, *, simulator, eta=ETA, seed=0):
    """A block MDP that perturbs `sim`, emits as `env` does, and comes with another map."""
    world = perturb(sim, eta=eta, seed=seed)
    return BlockMDP(world, env.emission, name="wrong", options={}, simulator=simulator)


def edge_of_route(env, step):
    """A state, its planned action, and the type-2 state that other actions lead to."""
    plan = robust_dp(env.simulator, eta=ETA)
    state = int(plan.route()[step].state[0] * 3)
    action = int(plan.actions[step, state])
    right = int(env.simulator.successor[state, action])
    return state, action, right + 1


@pytest.fixture(scope="module")
def wrong_map_result(lock):
    """Learning where the planned action of layer 4, type 1 leads to type 2, not to type 1."""
    true = with_edge(lock.simulator, *edge_of_route(lock, 4))
    return tasid.learn(target_of(true, lock, simulator=lock.simulator), eta=ETA, episodes=162)


@pytest.fixture(scope="module")
def small():
    """A short run, its target's plan and its results as the diagnosis reads them."""
    env = tasid.make("combination-lock", horizon=5, seed=3)
    plan = robust_dp(env.simulator, eta=ETA, keep_values=True)
    training = Training(BeliefConfig(episodes=64), env, plan, seed=3)
    while training.num_episodes < 64:
        training.batch()
    return training.result("64 episodes were requested"), plan


def warnings_of(small, **changes):
    result, plan = small
    config = diagnostics.DiagnosisConfig()
    found = agreed_findings(result, plan.simulator, config)
    arguments = {"result": result, "plan": plan, "found": found, "config": config} | changes
    return learning_warnings(**arguments, continued=False)


def test_a_wrong_edge_is_named(lock, wrong_map_result):
    state, action, _ = edge_of_route(lock, 4)
    errors, label = wrong_map_result.diagnostics.map_errors, lock.simulator.states[state]
    assert [(error.state, error.action) for error in errors] == [(label, action)]
    assert errors[0].step == 4
    assert errors[0].misses > 0.5 * errors[0].visits
    assert any(str(label) in warning for warning in wrong_map_result.diagnostics.warnings)


@pytest.mark.parametrize("episodes", [24, 48, 96])
def test_a_right_map_is_not_blamed(episodes):
    for seed in (5, 6):
        env = tasid.make("combination-lock", horizon=10, seed=seed)
        result = tasid.learn(env, eta=ETA, episodes=episodes, seed=seed)
        assert result.diagnostics.map_errors == ()
        if episodes == 96:
            assert result.diagnostics.warnings == ()


def test_exchanged_appearances_are_not_blamed_on_the_map():
    env = tasid.make("combination-lock", horizon=8, seed=3)
    plan = robust_dp(env.simulator, eta=ETA, keep_values=True)
    training = Training(BeliefConfig(episodes=96), env, plan, seed=3)
    while training.num_episodes < 96:
        training.batch()
    fit, rows = training.fits[0], np.arange(training.fits[0].emission.num_classes)
    pair = training.model.classes.at(4)[:2]
    rows[pair] = pair[::-1]
    training.fits = [replace(fit, emission=fit.emission.select(rows))]
    config = diagnostics.DiagnosisConfig()
    assert agreed_findings(training.result(""), env.simulator, config).map_errors
    assert training.findings().map_errors == ()
    learned = training.fits[0].emission
    assert np.abs(learned.linear - fit.emission.linear).max() < 0.1 * np.ptp(fit.emission.linear)


def test_nothing_is_named_where_credible_fits_disagree(small, monkeypatch):
    """Of two fits, one blames everything, the other nothing, or the same."""
    result, plan = small
    config, tally = diagnostics.DiagnosisConfig(), diagnostics._tally
    fits = (result.fits[0], replace(result.fits[0]))
    both = replace(result, fits=fits, best=fits[0])

    def blaming(which):
        def blame(model, emission, sequences, config):
            counted = tally(model, emission, sequences, config)
            calls.append(emission)
            return counted._replace(blamed=np.full(counted.blamed.shape, len(calls) in which))

        monkeypatch.setattr(diagnostics, "_tally", blame)

    for which, named in (({1}, False), ({2}, False), ({1, 2}, True)):
        calls = []
        blaming(which)
        assert bool(agreed_findings(both, plan.simulator, config).map_errors) == named
        assert len(calls) == 2


def test_eta_is_estimated(wrong_map_result):
    env = tasid.make("combination-lock", horizon=10, seed=4, unperturbed="none")
    found, sim = tasid.learn(env, eta=ETA, episodes=128, seed=4).diagnostics, env.simulator
    plan, estimate = robust_dp(sim, eta=ETA), found.eta
    planned = plan.actions.max(axis=0)  # a state belongs to one step, at others the plan has 0
    states = np.arange(sim.num_states)
    hit = sim.successor == sim.successor[states, planned][:, None]
    xi, avoidable = env.latent.world.xi[states, planned], ~hit.all(axis=1)
    missed, visits = 1 - (xi * hit).sum(axis=1), np.zeros(sim.num_states)
    here = np.eye(sim.num_states)[sim.start]
    for _ in range(sim.horizon):
        visits += here
        here = np.bincount(sim.successor.ravel(), (here[:, None] * xi).ravel(), sim.num_states)
    expected = np.average(missed[avoidable], weights=visits[avoidable])
    assert estimate.low <= expected <= estimate.high
    assert estimate.high - estimate.low < 0.06
    assert estimate.p_value > 0.01
    # The wrong place does not count as slips.
    assert wrong_map_result.diagnostics.eta.rate < 0.13


def test_more_slips_than_planned_are_a_warning():
    env = tasid.make("combination-lock", horizon=5, seed=4, eta=0.16)
    found = tasid.learn(env, eta=0.02, episodes=160, seed=4).diagnostics
    assert found.eta.p_value < 1e-3
    assert any("eta" in warning for warning in found.warnings)


def test_an_untrusted_labelling_has_no_interval(lock):
    found = tasid.learn(lock, eta=ETA, episodes=16).diagnostics
    assert (found.eta.low, found.eta.high) == (None, None)
    assert found.warnings
    assert found.to_json()["eta_estimate"]["low"] is None


def test_an_estimate_is_a_binomial_one():
    estimate = EtaEstimate.from_counts(12, 100, planned=0.1)
    assert estimate.rate == 0.12
    assert estimate.p_value == pytest.approx(binom.sf(11, 100, 0.1))
    assert binom.sf(11, 100, estimate.low) == pytest.approx(0.025)
    assert binom.cdf(12, 100, estimate.high) == pytest.approx(0.025)
    assert EtaEstimate.from_counts(0, 0, planned=0.1).low is None


def test_misses_that_the_filter_assumes_do_not_refute_a_plan_without_slips():
    found = EtaEstimate.from_counts(3, 5_000, planned=0.0, assumed=0.02)
    assert found.planned == 0.0
    assert found.p_value > 0.99
    assert EtaEstimate.from_counts(200, 5_000, planned=0.0, assumed=0.02).p_value < 1e-6


def test_earning_less_than_the_promise_is_a_warning(small):
    result, plan = small
    assert warnings_of(small) == []
    promise = result.promise
    assert promise < plan.start_value  # exploration slips, too
    rng = np.random.default_rng(0)
    for mean, warned in ((promise, False), (0.85 * promise, True)):
        returns = mean + rng.choice([-1, 1], size=40) * 0.3
        assert bool(warnings_of(small, result=replace(result, returns=returns))) == warned


def test_the_limit_of_auto_is_a_warning(small):
    assert warnings_of(small, result=replace(small[0], at_limit=True))


def test_costs_above_the_range_are_not_printed(small):
    result, _ = small
    last = replace(result.history[-1], estimated_regret=1e6)
    (warning,) = warnings_of(small, result=replace(result, history=(*result.history, last)))
    assert "100%" in warning


def test_rewards_that_are_not_on_the_map_are_a_warning(lock):
    known = np.zeros((4, 10), np.float32)
    assert reward_warnings(known, lock.simulator) == []
    known[2, 3] = 7.0
    assert reward_warnings(known, lock.simulator)


def test_labels_are_shortened():
    assert shortened((1, 2)) == "(1, 2)"
    assert len(shortened("x" * 10_000)) < 60
