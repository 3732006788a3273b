"""Exact values against dense tables and full enumeration, and saddle points by definition."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdps import (
    Exact,
    dense_value,
    etas,
    quick,
    random_actions,
    random_probabilities,
    rebuilt,
    seeds,
    worlds,
)
from tasid.maps import (
    AbstractSimulator,
    PerturbedMDP,
    best_case_value,
    blind_value,
    certify,
    is_perturbation,
    perturb,
    policy_value,
    return_range,
    robust_dp,
    worst_case,
    worst_case_value,
)


def one_hot(sim, actions):
    table = np.broadcast_to(actions, (sim.horizon, sim.num_states))
    return np.eye(sim.num_actions)[table]


# ---------------------------------------------------------------- the value of a policy


@quick
@given(worlds(), etas, seeds, st.booleans())
def test_policy_value_is_what_the_dense_tables_say(sim, eta, seed, per_step):
    rng = np.random.default_rng(seed)
    actions, probabilities = random_actions(sim, rng), random_probabilities(sim, rng)
    for mdp in (sim, perturb(sim, eta=eta, seed=seed, per_step=per_step)):
        expected = dense_value(mdp, one_hot(sim, actions))
        assert policy_value(mdp, actions) == pytest.approx(expected, abs=1e-12)
        expected = dense_value(mdp, probabilities)
        assert policy_value(mdp, probabilities) == pytest.approx(expected, abs=1e-12)


@quick
@given(worlds(states=3, actions=2, horizon=3), etas, seeds)
def test_a_stochastic_policy_averages_over_all_that_can_happen(sim, eta, seed):
    """Every sequence of commands and of what came out of them, weighed by its probability."""
    policy = random_probabilities(sim, np.random.default_rng(seed))
    world = perturb(sim, eta=eta, seed=seed, per_step=True)
    total = mass = 0.0
    pairs = list(product(range(sim.num_actions), repeat=2))
    for (start, mu), happening in product(
        zip(sim.starts, sim.start_probabilities, strict=True), product(pairs, repeat=sim.horizon)
    ):
        state, weight, paid = start, mu, 0.0
        for h, (command, came_out) in enumerate(happening):
            weight *= policy[h, state, command] * world.xi[h, state, command, came_out]
            paid += sim.reward_at(h)[state, came_out]
            state = sim.successor_at(h)[state, came_out]
        total += weight * paid
        mass += weight
    assert mass == pytest.approx(1.0)
    assert policy_value(world, policy) == pytest.approx(total, abs=1e-12)


@quick
@given(worlds(several_starts=True), etas, seeds)
def test_several_starts_weigh_by_their_probabilities(sim, eta, seed):
    policy = random_actions(sim, np.random.default_rng(seed))
    xi = perturb(sim, eta=eta, seed=seed).xi
    nominal = worst = inside = 0.0
    for start, mu in zip(sim.starts, sim.start_probabilities, strict=True):
        single = AbstractSimulator(sim.successor, sim.reward, horizon=sim.horizon, start=int(start))
        nominal += mu * policy_value(single, policy)
        worst += mu * worst_case_value(single, policy, eta=eta)
        inside += mu * policy_value(PerturbedMDP(single, xi), policy)
    assert policy_value(sim, policy) == nominal
    assert worst_case_value(sim, policy, eta=eta) == worst
    assert policy_value(PerturbedMDP(sim, xi), policy) == pytest.approx(inside, abs=1e-12)


@quick
@given(worlds(several_starts=False), etas)
def test_the_nominal_value_is_what_the_route_collects(sim, eta):
    plan = robust_dp(sim, eta=eta)
    route = plan.route()
    assert policy_value(sim, plan) == sum(step.reward for step in route)
    assert [step.state for step in route] == sim.replay([step.action for step in route])[:-1]


@quick
@given(worlds(), seeds)
def test_an_identity_xi_is_the_simulator_itself(sim, seed):
    policy = random_actions(sim, np.random.default_rng(seed))
    assert policy_value(perturb(sim, eta=0.0), policy) == policy_value(sim, policy)
    assert worst_case_value(sim, policy, eta=0.0) == policy_value(sim, policy)


@quick
@given(worlds(), seeds)
def test_short_ways_of_writing_a_policy_mean_their_broadcast(sim, seed):
    policy = random_actions(sim, np.random.default_rng(seed))
    world = perturb(sim, eta=0.25, seed=seed)
    full = (sim.horizon, sim.num_states)
    for short in (policy[0], policy[:, :1], policy[:1, :1], policy[0, 0]):
        assert policy_value(world, short) == policy_value(world, np.broadcast_to(short, full))
    assert policy_value(world, policy.tolist()) == policy_value(world, policy.astype(np.uint8))
    everywhere = np.full((1, 1, sim.num_actions), 1 / sim.num_actions)
    assert policy_value(world, everywhere) == pytest.approx(
        dense_value(world, np.broadcast_to(everywhere, (*full, sim.num_actions)))
    )


def test_values_on_reachable_states_only_are_the_same_values():
    """Large enough for the reachable sweep: a long corridor, most of it out of reach."""
    size, horizon = 60_000, 15
    rng = np.random.default_rng(3)
    place = np.arange(size)[:, None]
    successor = np.clip(place + np.array([-1, 0, 1]), 0, size - 1)
    reward = rng.integers(-8, 9, size=(size, 3)) / 8
    corridor = AbstractSimulator(successor, reward, horizon=horizon, start=[30_000, 10])
    plan = robust_dp(corridor, eta=0.125)
    assert plan.states_swept < horizon * size / 3
    near = np.r_[0:40, 29_980:30_021]
    small = AbstractSimulator(
        np.searchsorted(near, successor[near].clip(0, near[-1])).clip(0, len(near) - 1),
        reward[near],
        horizon=horizon,
        start=np.searchsorted(near, [30_000, 10]).tolist(),
    )
    policy = np.asarray(plan.actions)[:, near]
    xi = perturb(corridor, eta=0.125, seed=1).xi
    assert policy_value(corridor, plan) == policy_value(small, policy)
    assert worst_case_value(corridor, plan, eta=0.125) == plan.start_value
    assert worst_case_value(small, policy, eta=0.125) == plan.start_value
    best = best_case_value(corridor, plan, eta=0.125)
    assert best_case_value(small, policy, eta=0.125) == best > plan.start_value
    assert return_range(corridor) == return_range(small)
    inside = policy_value(PerturbedMDP(small, xi[near]), policy)
    assert policy_value(PerturbedMDP(corridor, xi), plan) == pytest.approx(inside, abs=1e-12)
    assert abs(certify(plan).gap) <= 1e-12


# ---------------------------------------------------------------- the worst case


@quick
@given(worlds(), etas, seeds)
def test_the_worst_case_is_exact_and_attained_by_a_member(sim, eta, seed):
    actions = random_actions(sim, np.random.default_rng(seed))
    least = Exact.of(sim).least_value(actions.tolist(), Fraction(eta))
    assert worst_case_value(sim, actions, eta=eta) == least
    member = worst_case(sim, actions, eta=eta)
    assert is_perturbation(member, sim, eta=eta, atol=0.0)
    assert policy_value(member, actions) == least


@quick
@given(worlds(states=2, actions=2, horizon=2), etas, seeds)
def test_the_worst_case_of_a_stochastic_policy_is_the_least_over_all_extremes(sim, eta, seed):
    probabilities = random_probabilities(sim, np.random.default_rng(seed))
    horizon, states, actions = probabilities.shape
    identity = np.eye(actions)
    least = worst_case_value(sim, probabilities, eta=eta)
    member = worst_case(sim, probabilities, eta=eta)
    assert is_perturbation(member, sim, eta=eta, atol=0.0)
    assert policy_value(member, probabilities) == pytest.approx(least, abs=1e-12)
    values = []
    for recipients in product(range(actions), repeat=horizon * states * actions):
        towards = identity[np.reshape(recipients, (horizon, states, actions))]
        extreme = PerturbedMDP(sim, (1 - eta) * identity + eta * towards)
        values.append(dense_value(extreme, probabilities))
    assert min(values) == pytest.approx(least, abs=1e-12)


@quick
@given(worlds(), etas, seeds, st.booleans())
def test_every_member_lies_between_the_worst_and_the_best_case(sim, eta, seed, stochastic):
    rng = np.random.default_rng(seed)
    policy = (random_probabilities if stochastic else random_actions)(sim, rng)
    worst = worst_case_value(sim, policy, eta=eta)
    best = best_case_value(sim, policy, eta=eta)
    assert best == -worst_case_value(rebuilt(sim, reward=-sim.reward), policy, eta=eta)
    for member in (
        perturb(sim, eta=eta, seed=seed),
        perturb(sim, eta=eta, seed=seed, per_step=True),
        sim,
    ):
        assert worst - 1e-12 <= policy_value(member, policy) <= best + 1e-12


# ---------------------------------------------------------------- the best case


@quick
@given(worlds(states=2, actions=2, horizon=2), etas, seeds)
def test_the_best_case_is_the_most_over_all_extreme_perturbations(sim, eta, seed):
    actions = random_actions(sim, np.random.default_rng(seed))
    exact = Exact.of(sim)
    most = max(exact.value(actions.tolist(), n, Fraction(eta)) for n in exact.natures())
    assert best_case_value(sim, actions, eta=eta) == most


@quick
@given(worlds(), seeds)
def test_the_best_case_at_both_ends_of_eta(sim, seed):
    """Nobody interferes, or a friend decides everything."""
    policy = random_actions(sim, np.random.default_rng(seed))
    assert best_case_value(sim, policy, eta=0.0) == policy_value(sim, policy)
    assert best_case_value(sim, policy, eta=1.0) == Exact.of(sim).best_plain()


# ---------------------------------------------------------------- the range of returns


@quick
@given(worlds(states=4, actions=3, horizon=4))
def test_the_range_of_returns_covers_all_action_sequences_tightly(sim):
    returns = list(Exact.of(sim).returns())
    assert return_range(sim) == (min(returns), max(returns))


def test_the_range_of_returns_counts_unlikely_starts_in_full():
    sim = AbstractSimulator(
        [[0], [1]], [[1.0], [-3.0]], horizon=2, start=[0, 1], start_probabilities=[0.999, 0.001]
    )
    assert return_range(sim) == (-6.0, 2.0)


# ---------------------------------------------------------------- plans


@quick
@given(worlds(), etas, seeds)
def test_no_policy_has_a_better_worst_case_than_the_plan(sim, eta, seed):
    rng = np.random.default_rng(seed)
    plan = robust_dp(sim, eta=eta)
    assert worst_case_value(sim, plan, eta=eta) == plan.start_value
    for policy in (random_actions(sim, rng), random_probabilities(sim, rng)):
        assert worst_case_value(sim, policy, eta=eta) <= plan.start_value + 1e-12


# ---------------------------------------------------------------- certificates


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("eta", [0.0, 0.1, 0.37, 1.0])
def test_the_certificate_closes_on_larger_random_worlds(seed, eta):
    rng = np.random.default_rng(seed)
    sim = AbstractSimulator(
        rng.integers(200, size=(30, 200, 6)),
        rng.normal(size=(30, 200, 6)),
        horizon=30,
        start=[3, 7, 11],
    )
    plan = robust_dp(sim, eta=eta)
    proof = certify(plan)
    assert abs(proof.gap) <= 1e-9
    assert proof.lower == pytest.approx(plan.start_value, abs=1e-9)


@quick
@given(worlds(), etas, seeds)
def test_the_certificate_holds_the_max_min_between_its_ends(sim, eta, seed):
    best = robust_dp(sim, eta=eta)
    other = replace(best, actions=random_actions(sim, np.random.default_rng(seed)))
    proof = certify(other)
    assert proof.lower <= best.start_value <= proof.upper
    assert proof.gap == proof.upper - proof.lower
    assert proof.lower == worst_case_value(sim, other, eta=eta)
    # upper is a best response: some deterministic policy earns it in that very perturbation.
    world = worst_case(sim, other, eta=eta)
    if sim.num_actions ** (sim.horizon * sim.num_states) <= 64:
        earned = (policy_value(world, policy) for policy in Exact.of(sim).policies())
        assert proof.upper == max(earned)


def test_a_bad_plan_gets_no_certificate():
    rng = np.random.default_rng(0)
    sim = AbstractSimulator(rng.integers(50, size=(50, 4)), rng.normal(size=(50, 4)), horizon=10)
    plan = robust_dp(sim, eta=0.1)
    worst = robust_dp(rebuilt(sim, reward=-sim.reward), eta=0.1)
    assert certify(replace(plan, actions=worst.actions)).gap > 1.0
    # A single wrong action, at the start, is enough.
    actions = plan.actions.copy()
    actions[0, 0] = worst.actions[0, 0]
    assert certify(replace(plan, actions=actions)).gap > 1e-3


# ---------------------------------------------------------------- the blind


@quick
@given(worlds(), etas, seeds)
def test_blind_is_the_best_constant_or_a_nominal_route_followed_with_eyes_shut(sim, eta, seed):
    world = perturb(sim, eta=eta, seed=seed, per_step=True)
    plan = robust_dp(sim, eta=0.0)
    blind = [one_hot(sim, a) for a in range(sim.num_actions)]
    for start in sim.starts:
        route = [step.action for step in plan.route(int(start))]
        blind.append(one_hot(sim, np.array(route)[:, None]))
    best = max(dense_value(world, policy) for policy in blind)
    assert blind_value(world) == pytest.approx(best, abs=1e-12)


def test_blind_following_beats_every_constant_where_the_route_turns():
    sim = AbstractSimulator([[0, 1], [1, 0]], [[0, 0], [1, 0]], horizon=3)
    assert blind_value(perturb(sim, eta=0.0)) == 2.0
    assert max(policy_value(sim, a) for a in range(2)) == 0.0


# ---------------------------------------------------------------- bad policies


def bad_policies():
    """Of a world with H, S, A = 3, 2, 2."""
    fair = np.full((3, 2, 2), 0.5)
    negative, heavy, missing = fair.copy(), fair.copy(), fair.copy()
    negative[1, 0] = [-0.5, 1.5]
    heavy[1, 1:] = 0.6
    heavy[2, :] = 0.7
    missing[2, 1, 0] = np.nan
    high = np.zeros((3, 2), int)
    high[1, 1], high[2, 0] = 2, 5
    return {
        "action too high": (high, "policy: 2 at (h, s) = (1, 1) should be in 0 … 1; 2 such"),
        "negative action": ([0, -1], "policy: -1 at (h, s) = (0, 1) should be in 0 … 1; 3 such"),
        "negative probability": (
            negative,
            "policy: [-0.5  1.5] at (h, s) = (1, 0) should be a distribution over actions; 1 such",
        ),
        "mass above 1": (heavy, "policy: [0.6 0.6] at (h, s) = (1, 1) should be a distribution"),
        "count of rows": (heavy, "over actions; 3 such entries in all"),
        "nan": (missing, "policy: [nan 0.5] at (h, s) = (2, 1) should be a distribution"),
        "steps": (
            np.zeros((4, 2), int),
            "policy: shape (4, 2) does not broadcast to [H, S] = (3, 2)",
        ),
        "states": (np.zeros((3, 3), int), "policy: shape (3, 3) does not broadcast to [H, S]"),
        "actions": (
            np.full((3, 2, 4), 0.25),
            "policy: shape (3, 2, 4) does not broadcast to [H, S, A] = (3, 2, 2)",
        ),
        "whole-number probabilities": (
            np.ones((3, 2, 2), int),
            "policy: shape (3, 2, 2) does not broadcast to [H, S]",
        ),
    }


@pytest.fixture
def world():
    return AbstractSimulator([[0, 1], [1, 0]], [[0, 1], [1, 0]], horizon=3)


@pytest.mark.parametrize("case", bad_policies())
def test_a_bad_policy_is_refused_with_its_place(world, case):
    policy, message = bad_policies()[case]
    for ask in (
        lambda: policy_value(world, policy),
        lambda: policy_value(perturb(world, eta=0.5), policy),
        lambda: worst_case_value(world, policy, eta=0.5),
        lambda: worst_case(world, policy, eta=0.5),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            ask()


@pytest.mark.parametrize(
    ("policy", "dtype"),
    [(np.zeros((3, 2)), "float64"), (np.zeros((3, 2), bool), "bool"), (["left"] * 2, "<U4")],
)
def test_a_policy_of_the_wrong_type_is_a_type_error(world, policy, dtype):
    message = f"policy: dtype {dtype} and shape {np.shape(policy)} are neither whole-number actions"
    with pytest.raises(TypeError, match=re.escape(message)):
        policy_value(world, policy)


def test_a_plan_for_another_world_is_refused(world):
    longer = AbstractSimulator(world.successor, world.reward, horizon=4)
    message = "policy: the plan is for [H, S] = (4, 2), the world has (3, 2)"
    with pytest.raises(ValueError, match=re.escape(message)):
        policy_value(world, robust_dp(longer, eta=0.1))
    more = AbstractSimulator(np.zeros((2, 3), int), [[0, 0, 1]] * 2, horizon=3)
    message = "policy: 2 at (h, s) = (0, 0) should be in 0 … 1; 6 such entries"
    with pytest.raises(ValueError, match=re.escape(message)):
        policy_value(world, robust_dp(more, eta=0.1))
