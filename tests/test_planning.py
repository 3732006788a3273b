"""Algorithm 1, perturbations, exact values and certificates against brute force."""

from __future__ import annotations

import itertools
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasid.planning import (
    PerturbationError,
    PerturbedMDP,
    best_case_value,
    blind_value,
    certify,
    check_eta,
    is_perturbation,
    optimal_value,
    perturb,
    policy_value,
    return_range,
    robust_dp,
    sweep,
    worst_case,
    worst_case_value,
)
from tasid.simulator import AbstractSimulator


def random_map(seed, *, states=3, actions=2, horizon=3, stochastic=False, by_step=False, **options):
    rng = np.random.default_rng(seed)
    shape = (horizon, states, actions) if by_step else (states, actions)
    if stochastic:
        table = rng.random((*shape, states)) * (rng.random((*shape, states)) > 0.4)
        table[..., 0] += 1e-3
        successor = table / table.sum(axis=-1, keepdims=True)
        reward = rng.normal(size=(*shape, states))
    else:
        successor, reward = rng.integers(states, size=shape), rng.normal(size=shape)
    return AbstractSimulator(successor, reward, horizon=horizon, **options)


def value_by_recursion(sim, actions, xi=None, h=0, state=None):
    """Expected return, following every branch of the tree of episodes."""
    if state is None:
        return sum(
            p * value_by_recursion(sim, actions, xi, 0, s)
            for s, p in zip(sim.starts, sim.start_probabilities, strict=True)
        )
    if h == sim.horizon:
        return 0.0
    command, total = actions[h, state], 0.0
    replaced = np.eye(sim.num_actions)[command] if xi is None else xi[h, state, command]
    successor, probabilities = sim.transitions_at(h)
    reward = sim.transition_reward_at(h).reshape(successor.shape)
    for a in np.flatnonzero(replaced):
        for b in np.flatnonzero(probabilities[state, a]):
            rest = value_by_recursion(sim, actions, xi, h + 1, successor[state, a, b])
            total += replaced[a] * probabilities[state, a, b] * (reward[state, a, b] + rest)
    return total


def all_policies(sim):
    shape = (sim.horizon, sim.num_states)
    for flat in itertools.product(range(sim.num_actions), repeat=shape[0] * shape[1]):
        yield np.array(flat).reshape(shape)


def dense_transitions(world, h):
    """T'_h(s' | s, a) [S, A, S] by the tables of `world.mdp`."""
    successor, probabilities = world.mdp.transitions_at(h)
    return (probabilities[..., None] * np.eye(world.mdp.num_states)[successor]).sum(axis=2)


def extreme_perturbations(sim, eta):
    """All ξ that send the mass η at (h, s) to one action, whatever the command."""
    identity = np.eye(sim.num_actions)
    for nature in all_policies(sim):
        yield (1 - eta) * identity + eta * identity[nature][:, :, None, :]


KINDS = list(itertools.product([False, True], [False, True]))


@pytest.mark.parametrize("eta", [0.0, 0.15, 0.45, 0.8, 1.0])
@pytest.mark.parametrize(("stochastic", "by_step"), KINDS)
def test_theorem_1_against_all_policies_and_extreme_perturbations(stochastic, by_step, eta):
    options = {"start": [0, 1], "start_probabilities": [0.3, 0.7]}
    sim = random_map(7, states=2, horizon=2, stochastic=stochastic, by_step=by_step, **options)
    table = np.array(
        [
            [value_by_recursion(sim, policy, xi) for xi in extreme_perturbations(sim, eta)]
            for policy in all_policies(sim)
        ]
    )
    plan = robust_dp(sim, eta=eta, keep_values=True)
    max_min, min_max = table.min(axis=1).max(), table.max(axis=0).min()
    assert plan.start_value == pytest.approx(max_min)
    assert max_min == pytest.approx(min_max)
    assert worst_case_value(sim, plan, eta=eta) == pytest.approx(max_min)
    assert policy_value(worst_case(sim, plan, eta=eta), plan) == pytest.approx(max_min)
    for row, policy in zip(table, all_policies(sim), strict=True):
        assert worst_case_value(sim, policy, eta=eta) == pytest.approx(row.min())
        assert best_case_value(sim, policy, eta=eta) == pytest.approx(row.max())
    greedy = [plan.q_values(h).argmax(axis=1) for h in range(sim.horizon)]
    np.testing.assert_array_equal(plan.actions, greedy)


@pytest.mark.parametrize(("stochastic", "by_step"), KINDS)
@pytest.mark.parametrize("per_step", [False, True])
def test_policy_and_optimal_values_by_enumeration(stochastic, by_step, per_step):
    sim = random_map(3, states=2, horizon=2, stochastic=stochastic, by_step=by_step, start=1)
    world = perturb(sim, eta=0.4, seed=5, per_step=per_step)
    xi = np.stack([world.xi_at(h) for h in range(sim.horizon)])
    values = [value_by_recursion(sim, policy, xi) for policy in all_policies(sim)]
    for policy, value in zip(all_policies(sim), values, strict=True):
        assert policy_value(world, policy) == pytest.approx(value)
        assert policy_value(sim, policy) == pytest.approx(value_by_recursion(sim, policy))
    assert optimal_value(world) == pytest.approx(max(values))
    nominal = max(value_by_recursion(sim, policy) for policy in all_policies(sim))
    assert optimal_value(sim) == pytest.approx(nominal)
    assert robust_dp(sim, eta=0.0).start_value == pytest.approx(nominal)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**20),
    eta=st.floats(0, 1),
    stochastic=st.booleans(),
    by_step=st.booleans(),
    hazards=st.booleans(),
)
def test_certificate_brackets_and_worst_case_bounds(seed, eta, stochastic, by_step, hazards):
    danger = np.random.default_rng(seed).random(5) < 0.3 if hazards else None
    sim = random_map(
        seed, states=5, actions=3, horizon=4, stochastic=stochastic, by_step=by_step, hazards=danger
    )
    plan = robust_dp(sim, eta=eta)
    certificate = certify(plan)
    assert certificate.lower == pytest.approx(plan.start_value)
    assert certificate.gap == pytest.approx(0.0, abs=1e-9)
    value = policy_value(perturb(sim, eta=eta, seed=seed), plan)
    assert plan.start_value - 1e-9 <= value <= best_case_value(sim, plan, eta=eta) + 1e-9
    low, high = return_range(sim)
    assert low - 1e-9 <= plan.start_value <= value + 1e-9 <= high + 2e-9


def test_certificate_of_plans_that_are_not_optimal():
    for seed in range(5):
        sim = random_map(seed, states=4, actions=3, horizon=4)
        wrong = robust_dp(sim, eta=0.2)
        wrong.actions[:] = (wrong.actions + 1) % 3
        assert certify(wrong).gap > 0.1
        best_response = optimal_value(worst_case(sim, wrong, eta=0.2))
        assert certify(wrong).upper == pytest.approx(best_response)


@pytest.mark.parametrize("compile_above", [0, 10**9])
def test_ties_go_to_the_lowest_action(monkeypatch, compile_above):
    monkeypatch.setattr(sweep, "COMPILE_ABOVE", compile_above)
    same = AbstractSimulator([[1, 1, 0], [1, 1, 1]], [[0.0, 0.0, 0.0]] * 2, horizon=2)
    plan = robust_dp(same, eta=0.1)
    assert (plan.actions == 0).all()
    assert (worst_case(same, plan, eta=0.1).xi[..., 0] >= 0.1).all()


def test_mixed_policies():
    sim = random_map(2, states=3, actions=2, horizon=2)
    first, second = np.zeros((2, 3), int), np.ones((2, 3), int)
    certain = np.broadcast_to([0.0, 1.0], (2, 3, 2))
    assert policy_value(sim, certain) == pytest.approx(policy_value(sim, second))
    assert worst_case_value(sim, certain, eta=0.3) == pytest.approx(
        worst_case_value(sim, second, eta=0.3)
    )
    one_step = sim.with_horizon(1)
    half = np.full((1, 3, 2), 0.5)
    mean = (policy_value(one_step, first[:1]) + policy_value(one_step, second[:1])) / 2
    assert policy_value(one_step, half) == pytest.approx(mean)


@pytest.mark.parametrize(("stochastic", "by_step"), KINDS)
@pytest.mark.parametrize("hazards", [False, True])
def test_numba_and_numpy_agree(monkeypatch, stochastic, by_step, hazards):
    danger = np.arange(40) % 5 == 0 if hazards else None
    sim = random_map(
        1, states=40, actions=3, horizon=4, stochastic=stochastic, by_step=by_step, hazards=danger
    )

    def everything():
        plan = robust_dp(sim, eta=0.2, keep_values=True)
        assert plan.values is not None
        scalars = plan.start_value, certify(plan).upper, policy_value(sim, plan), *return_range(sim)
        return plan.actions, plan.values, np.array(scalars), worst_case(sim, plan, eta=0.2).xi

    reference = everything()
    monkeypatch.setattr(sweep, "COMPILE_ABOVE", 0)
    for parallel_above in (10**9, 0):
        monkeypatch.setattr(sweep, "PARALLEL_ABOVE", parallel_above)
        for ours, theirs in zip(everything(), reference, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-12)


def test_small_maps_do_not_import_heavy_packages():
    code = (
        "import sys, tasid\n"
        "sim = tasid.AbstractSimulator([[1, 0], [1, 1]], [[0, 1], [0, 0]], horizon=3)\n"
        "tasid.certify(tasid.robust_dp(sim, eta=0.1))\n"
        "assert not {'numba', 'scipy', 'jax', 'gymnasium'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(("stochastic", "by_step"), KINDS)
def test_reachable_only_agrees_where_it_plans(stochastic, by_step):
    rng = np.random.default_rng(4)
    states, horizon = 30, 4
    shape = (horizon, states, 2) if by_step else (states, 2)
    half = states // 2 * (np.arange(states)[:, None] // (states // 2))  # two separate rings
    near = half + (np.arange(states)[:, None] + rng.integers(-2, 3, shape)) % (states // 2)
    options = {}
    successor = near
    if stochastic:
        successor = np.stack([near, half + (near + 1) % (states // 2)], axis=-1)
        options["probabilities"] = np.broadcast_to([0.75, 0.25], successor.shape)
    reward = rng.normal(size=shape)
    sim = AbstractSimulator(successor, reward, horizon=horizon, start=[11, 3], **options)
    complete = robust_dp(sim, eta=0.2, keep_values=True)
    partial = robust_dp(sim, eta=0.2, keep_values=True, reachable_only=True)
    assert partial.start_value == complete.start_value
    known = ~np.isnan(partial.values[0])
    assert not known[states // 2 :].any()
    np.testing.assert_array_equal(partial.values[:, known], complete.values[:, known])
    np.testing.assert_array_equal(partial.actions[:, known], complete.actions[:, known])
    assert (partial.actions[:, ~known] == 0).all()
    reached = set(sim.starts.tolist())
    for h in range(horizon):
        assert known[list(reached)].all()
        reached = {int(s) for s in np.unique(sim.successor_at(h)[list(reached)])}


def corridor(width=12, hazard_reward=-1.0, step_reward=-0.3):
    """Goal at the right end of a long corridor, hazard on the left, each step costs."""
    left = np.maximum(np.arange(width) - 1, 0)
    right = np.minimum(np.arange(width) + 1, width - 1)
    left[-1], right[0] = width - 1, 0  # both ends absorb
    reward = np.full((width, 2), step_reward)
    reward[1, 0], reward[-2, 1] = hazard_reward, 1.0
    reward[[0, -1]] = 0.0
    hazards = np.arange(width) == 0
    return AbstractSimulator(
        np.stack([left, right], 1), reward, horizon=15, start=1, hazards=hazards
    )


def test_plans_never_enter_hazards_on_purpose():
    sim = corridor()
    assert policy_value(sim, robust_dp(sim.replace(hazards=None), eta=0.1)) == pytest.approx(-1.0)
    for eta in (0.0, 0.1, 0.4):
        plan = robust_dp(sim, eta=eta)
        for h, s in np.ndindex(plan.actions.shape):
            if s != 0:
                assert sim.successor[s, plan.action(h, s)] != 0
        allowed = np.broadcast_to([[1] * 12], (15, 12))  # moving right is the only way at state 1
        assert plan.start_value >= worst_case_value(sim, allowed, eta=eta) - 1e-9
    route = robust_dp(sim, eta=0.1).route()
    assert [step.state for step in route[:11]] == list(range(1, 12))
    assert sum(step.reward for step in route) == pytest.approx(10 * -0.3 + 1.0 + 0.3)


def test_blind_value_is_the_best_open_loop_sequence_tried():
    sim = corridor(width=5, step_reward=0.0)
    world = perturb(sim, eta=0.3, seed=1)
    constants = [policy_value(world, np.array([[a]])) for a in range(2)]
    nominal = [step.action for step in robust_dp(sim, eta=0.0).route()]
    open_loop = policy_value(world, np.array(nominal)[:, None])
    assert blind_value(world) == pytest.approx(max(*constants, open_loop))
    assert blind_value(world) <= optimal_value(world) + 1e-12


@pytest.mark.parametrize(("stochastic", "by_step"), KINDS)
def test_return_range_over_all_episodes(stochastic, by_step):
    sim = random_map(9, states=3, horizon=3, stochastic=stochastic, by_step=by_step, start=[0, 2])
    totals = {int(s): [(s, 0.0)] for s in sim.starts}
    episodes = [pair for pairs in totals.values() for pair in pairs]
    for h in range(sim.horizon):
        successor, probabilities = sim.transitions_at(h)
        reward = sim.transition_reward_at(h).reshape(successor.shape)
        episodes = [
            (successor[s, a, b], total + reward[s, a, b])
            for s, total in episodes
            for a, b in np.ndindex(successor.shape[1:])
            if probabilities[s, a, b] > 0
        ]
    returns = [total for _, total in episodes]
    assert return_range(sim) == pytest.approx((min(returns), max(returns)))


def test_perturb_draws_the_documented_family():
    sim = random_map(0, states=4, actions=3)
    world = perturb(sim, eta=0.3, seed=11)
    rng = np.random.default_rng(np.random.SeedSequence([0x7E71, 11]))
    p = rng.random((4, 3, 3))
    p /= p.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(world.xi, 0.3 * p + 0.7 * np.eye(3))
    assert world.eta < 0.3
    np.testing.assert_array_equal(perturb(sim, eta=0.0).xi, np.broadcast_to(np.eye(3), (4, 3, 3)))
    dense = dense_transitions(world, 0)
    for s, a in np.ndindex(4, 3):
        row = np.zeros(4)
        for replaced in range(3):
            row[sim.successor[s, replaced]] += world.xi[s, a, replaced]
        np.testing.assert_allclose(dense[s, a], row)


class TestIsPerturbation:
    def test_identical_actions_may_be_swapped(self):
        sim = AbstractSimulator([[1, 1], [0, 0]], np.ones((2, 2)), horizon=2)
        swapped = PerturbedMDP(sim, np.broadcast_to(np.eye(2)[::-1], (2, 2, 2)))
        assert is_perturbation(swapped, sim, eta=0.0)
        rewarded = sim.replace(reward=[[0.0, 1.0], [0.0, 1.0]])
        swapped = PerturbedMDP(rewarded, swapped.xi)
        assert not is_perturbation(swapped, rewarded, eta=0.4)
        assert is_perturbation(swapped, rewarded, eta=1.0)

    @pytest.mark.parametrize(("stochastic", "by_step"), KINDS)
    def test_random_perturbations_have_the_smallest_eta_of_their_xi(self, stochastic, by_step):
        sim = random_map(6, states=5, actions=2, stochastic=stochastic, by_step=by_step)
        world = perturb(sim, eta=0.4, seed=3, per_step=by_step)
        assert is_perturbation(world, sim, eta=world.eta + 1e-9)
        assert is_perturbation(worst_case(sim, np.zeros((3, 5), int), eta=0.4), sim, eta=0.4)
        steps = range(sim.horizon)
        tables = (
            np.stack([dense_transitions(world, h) for h in steps]),
            np.stack([world.reward_at(h) for h in steps]),
        )
        assert is_perturbation(tables, sim, eta=0.4)
        refused = is_perturbation(tables, sim, eta=world.eta - 0.05)
        assert not refused
        h, s, a = refused.where
        assert world.xi_at(h)[s, a, a] < 1 - (world.eta - 0.05)

    def test_start_rewards_and_successors_count(self):
        sim = random_map(8, states=4, actions=2)
        world = perturb(sim, eta=0.2, seed=0)
        elsewhere = PerturbedMDP(sim.with_start(1), world.xi)
        assert "start" in is_perturbation(elsewhere, sim, eta=0.2).why
        transition, reward = dense_transitions(world, 0), world.reward_at(0)
        assert is_perturbation((transition, reward), sim, eta=0.2)
        assert is_perturbation((transition, reward + 0.5), sim, eta=0.2).where == (0, 0, 0)
        stray = next(s for s in range(4) if transition[2, 1, s] == 0)
        transition[2, 1] *= 0.9
        transition[2, 1, stray] = 0.1
        assert is_perturbation((transition, reward), sim, eta=1.0).where == (0, 2, 1)
        assert not is_perturbation(world, sim.with_horizon(2), eta=0.2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda sim: robust_dp(sim, eta=-0.1), r"eta: -0.1 .*\[0, 1\]"),
        (lambda sim: robust_dp(sim, eta=float("nan")), "eta: nan"),
        (lambda sim: check_eta(0.5, decodable=True), r"eta: 0.5 .*\[0, 0.5\)"),
        (lambda sim: check_eta(-0.1, decodable=True), r"eta: -0.1 .*\[0, 0.5\)"),
        (lambda sim: perturb(sim, eta=0.1, seed=-1), "seed: -1"),
        (lambda sim: policy_value(sim, np.full((3, 3), 2)), r"policy: 2 at index \(0, 0\)"),
        (lambda sim: policy_value(sim, np.zeros((2, 3), int)), "policy: shape"),
        (lambda sim: policy_value(sim, np.full((3, 3, 2), 0.7)), "policy: "),
        (lambda sim: robust_dp(sim, eta=0.1).action(3, 0), "h: 3"),
        (lambda sim: PerturbedMDP(sim, np.full((3, 2, 2), 0.6)), "xi: "),
    ],
)
def test_errors_name_the_argument(call, message):
    with pytest.raises(ValueError, match=message) as caught:
        call(random_map(0))
    assert isinstance(caught.value, PerturbationError) or not message.startswith(("eta", "xi"))
