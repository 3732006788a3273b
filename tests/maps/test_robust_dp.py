"""Algorithm 1 against everything it promises: max–min by enumeration, and its symmetries."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from mdps import (
    ETAS,
    Exact,
    etas,
    per_step_tables,
    quick,
    random_world,
    reachable,
    rebuilt,
    seeds,
    worlds,
)
from tasid.maps import AbstractSimulator, robust_dp, worst_case_value


def random_cases(states, actions, horizon, count):
    rng = np.random.default_rng([states, actions, horizon])
    for _ in range(count):
        sim = random_world(rng, states=states, actions=actions, horizon=horizon)
        yield sim, ETAS[rng.integers(9)]


# ---------------------------------------------------------------- the max–min theorem


@pytest.mark.parametrize(
    ("states", "actions", "horizon", "count"),
    [
        (1, 2, 1, 20),
        (2, 2, 1, 20),
        (3, 2, 1, 20),
        (1, 3, 1, 20),
        (2, 3, 1, 6),
        (1, 2, 2, 20),
        (1, 2, 3, 20),
        (1, 3, 2, 6),
        (2, 2, 2, 14),
    ],
)
def test_start_value_is_max_min_over_all_policies_and_all_extreme_perturbations(
    states, actions, horizon, count
):
    for sim, eta in random_cases(states, actions, horizon, count):
        world, exact_eta = Exact.of(sim), Fraction(eta)
        plan = robust_dp(sim, eta=eta)
        natures = list(world.natures())
        worst = {
            str(policy): min(world.value(policy, nature, exact_eta) for nature in natures)
            for policy in map(_lists, world.policies())
        }
        assert plan.start_value == max(worst.values())
        assert worst[str(plan.actions.tolist())] == plan.start_value


@pytest.mark.parametrize(
    ("states", "actions", "horizon", "count"),
    [(3, 3, 1, 30), (3, 3, 2, 15), (2, 3, 3, 15), (3, 2, 3, 15), (2, 2, 4, 20), (2, 4, 2, 20)],
)
def test_start_value_is_max_min_over_all_policies_on_larger_worlds(states, actions, horizon, count):
    for sim, eta in random_cases(states, actions, horizon, count):
        world, exact_eta = Exact.of(sim), Fraction(eta)
        plan = robust_dp(sim, eta=eta)
        best = max(world.least_value(policy, exact_eta) for policy in world.policies())
        assert plan.start_value == best
        assert world.least_value(plan.actions.tolist(), exact_eta) == best


def test_nature_choosing_state_by_state_is_nature_choosing_at_once():
    """The reference for the larger worlds, checked against enumeration itself."""
    for sim, eta in random_cases(2, 2, 2, 3):
        world, exact_eta = Exact.of(sim), Fraction(eta)
        natures = list(world.natures())
        for policy in world.policies():
            at_once = min(world.value(policy, nature, exact_eta) for nature in natures)
            assert world.least_value(policy, exact_eta) == at_once


@quick
@given(worlds(), etas)
def test_every_value_and_action_is_the_exact_one_with_ties_to_the_lowest_index(sim, eta):
    world = Exact.of(sim)
    plan = robust_dp(sim, eta=eta, keep_values=True)
    values = world.max_min_values(Fraction(eta))
    assert plan.values.tolist() == values
    assert plan.actions.tolist() == world.first_best(values)
    assert plan.eta == eta
    assert plan.simulator is sim


@pytest.mark.parametrize("seed", range(5))
def test_linear_programming_finds_the_same_worst_xi(seed):
    """V_h(s) = max_a min_ξ Σ ξ(b) Q(b), the inner minimum left to an LP solver."""
    rng = np.random.default_rng(seed)
    sim = random_world(rng, states=4, actions=4, horizon=3)
    eta = float(rng.uniform(0.05, 0.95))
    value = np.zeros(4)
    for h in reversed(range(3)):
        q = sim.reward_at(h) + value[sim.successor_at(h)]
        value = np.array([max(_lp_minimum(row, a, eta) for a in range(4)) for row in q])
    expected = sim.start_probabilities @ value[sim.starts]
    assert robust_dp(sim, eta=eta).start_value == pytest.approx(expected, abs=1e-8)


def _lp_minimum(q, commanded, eta):
    bounds = [(1 - eta if b == commanded else 0, 1) for b in range(len(q))]
    answer = linprog(q, A_eq=np.ones((1, len(q))), b_eq=[1], bounds=bounds)
    assert answer.status == 0
    return answer.fun


def _lists(policy):
    return [list(step) for step in policy]


# ---------------------------------------------------------------- the ends of η


@quick
@given(worlds())
def test_without_perturbation_it_is_plain_dynamic_programming(sim):
    assert robust_dp(sim, eta=0.0).start_value == Exact.of(sim).best_plain()


@quick
@given(worlds())
def test_if_every_action_may_be_replaced_only_the_worst_remains(sim):
    worst = -Exact.of(rebuilt(sim, reward=-sim.reward)).best_plain()
    assert robust_dp(sim, eta=1.0).start_value == worst


@quick
@given(worlds(), etas, etas)
def test_values_never_rise_with_eta(sim, one, other):
    calm = robust_dp(sim, eta=min(one, other), keep_values=True)
    rough = robust_dp(sim, eta=max(one, other), keep_values=True)
    assert (calm.values >= rough.values).all()
    assert calm.start_value >= rough.start_value


@quick
@given(worlds(actions=1), etas)
def test_with_one_action_eta_means_nothing(sim, eta):
    assert robust_dp(sim, eta=eta).start_value == robust_dp(sim, eta=0).start_value


# ---------------------------------------------------------------- symmetries


@quick
@given(worlds(), etas, st.integers(-32, 32))
def test_adding_c_to_every_reward_adds_c_per_step(sim, eta, eighths):
    c = eighths / 8
    before = robust_dp(sim, eta=eta)
    after = robust_dp(rebuilt(sim, reward=sim.reward + c), eta=eta)
    assert after.start_value == before.start_value + sim.horizon * c
    assert (after.actions == before.actions).all()


@quick
@given(worlds(), etas, st.integers(1, 64))
def test_values_scale_with_rewards(sim, eta, quarters):
    scale = quarters / 4
    before = robust_dp(sim, eta=eta)
    after = robust_dp(rebuilt(sim, reward=scale * sim.reward), eta=eta)
    assert after.start_value == scale * before.start_value
    assert (after.actions == before.actions).all()


@quick
@given(worlds(states=6), etas, seeds)
def test_names_of_states_do_not_matter(sim, eta, seed):
    new_name = np.random.default_rng(seed).permutation(sim.num_states)
    old_name = np.argsort(new_name)
    renamed = rebuilt(
        sim,
        successor=new_name[sim.successor[..., old_name, :]],
        reward=sim.reward[..., old_name, :],
        starts=new_name[sim.starts],
    )
    before = robust_dp(sim, eta=eta, keep_values=True)
    after = robust_dp(renamed, eta=eta, keep_values=True)
    assert after.start_value == before.start_value
    assert (after.values[:, new_name] == before.values).all()
    assert (after.actions[:, new_name] == before.actions).all()


@quick
@given(worlds(), etas, seeds)
def test_order_of_actions_does_not_matter(sim, eta, seed):
    order = np.random.default_rng(seed).permutation(sim.num_actions)
    shuffled = rebuilt(sim, successor=sim.successor[..., order], reward=sim.reward[..., order])
    before = robust_dp(sim, eta=eta, keep_values=True)
    after = robust_dp(shuffled, eta=eta, keep_values=True)
    assert (after.values == before.values).all()
    assert worst_case_value(sim, order[after.actions], eta=eta) == before.start_value


@quick
@given(worlds(), etas, seeds)
def test_a_copy_of_an_action_changes_nothing(sim, eta, seed):
    copied = int(np.random.default_rng(seed).integers(sim.num_actions))
    columns = [*range(sim.num_actions), copied]
    doubled = rebuilt(sim, successor=sim.successor[..., columns], reward=sim.reward[..., columns])
    before = robust_dp(sim, eta=eta, keep_values=True)
    after = robust_dp(doubled, eta=eta, keep_values=True)
    assert (after.values == before.values).all()
    assert (after.actions == before.actions).all()


def test_exact_ties_go_to_the_lowest_action_at_every_step():
    sim = AbstractSimulator(np.zeros((2, 5), int), [[1, 3, 3, 0, 3]] * 2, horizon=3)
    assert (robust_dp(sim, eta=0.25).actions == 1).all()
    flat = AbstractSimulator(np.zeros((2, 5), int), np.zeros((2, 5)), horizon=3)
    assert (robust_dp(flat, eta=0.25).actions == 0).all()


@quick
@given(worlds(per_step=False), etas)
def test_a_table_per_step_says_the_same_as_one_table(sim, eta):
    successor, reward = per_step_tables(sim)
    one = robust_dp(sim, eta=eta, keep_values=True)
    for other in (
        rebuilt(sim, successor=successor),
        rebuilt(sim, reward=reward),
        rebuilt(sim, successor=successor, reward=reward),
    ):
        many = robust_dp(other, eta=eta, keep_values=True)
        assert many.start_value == one.start_value
        assert (many.values == one.values).all()
        assert (many.actions == one.actions).all()


# ---------------------------------------------------------------- reachable states only


@quick
@given(worlds(states=8), etas)
def test_the_reachable_sweep_agrees_wherever_it_looks(sim, eta):
    full = robust_dp(sim, eta=eta, keep_values=True, reachable_only=False)
    part = robust_dp(sim, eta=eta, keep_values=True, reachable_only=True)
    layers = reachable(sim)
    looked = np.array([[s in layer for s in range(sim.num_states)] for layer in layers])
    assert part.start_value == full.start_value
    assert (part.actions == np.where(looked, full.actions, 0)).all()
    assert (part.values[:-1][looked] == full.values[:-1][looked]).all()
    assert np.isnan(part.values[:-1][~looked]).all()
    assert (part.values[-1] == 0).all()
    assert part.states_swept == looked.sum()
    assert full.states_swept == looked.size


def test_on_a_wide_map_only_the_reachable_pairs_are_swept_by_default():
    side, horizon, start = 300, 20, 150 * 300 + 150
    row, column = np.divmod(np.arange(side * side), side)
    moves = [(-1, 0), (1, 0), (0, -1), (0, 1), (0, 0)]
    successor = np.stack(
        [
            np.clip(row + up, 0, side - 1) * side + np.clip(column + left, 0, side - 1)
            for up, left in moves
        ],
        axis=1,
    )
    reward = np.random.default_rng(0).integers(-8, 9, size=successor.shape) / 8
    sim = AbstractSimulator(successor, reward, horizon=horizon, start=start)
    plan = robust_dp(sim, eta=0.125)
    # After h steps of up, down, left, right or stay: the 2h² + 2h + 1 cells of a diamond.
    assert plan.states_swept == sum(2 * h * h + 2 * h + 1 for h in range(horizon))
    assert plan.states_swept == sum(map(len, reachable(sim)))
    full = robust_dp(sim, eta=0.125, reachable_only=False)
    assert full.states_swept == horizon * side * side
    assert plan.start_value == full.start_value
    for h, layer in enumerate(reachable(sim)):
        assert (plan.actions[h, list(layer)] == full.actions[h, list(layer)]).all()


def test_where_almost_everything_is_reachable_the_default_sweeps_it_all():
    rng = np.random.default_rng(1)
    successor = rng.integers(20_000, size=(20_000, 5))
    sim = AbstractSimulator(successor, np.zeros((20_000, 5)), horizon=30)
    assert robust_dp(sim, eta=0.1).states_swept == 30 * 20_000


# ---------------------------------------------------------------- the plan as a record


@pytest.fixture
def chain():
    """0 → 1 → 2 by action 1, standing still by action 0; arriving in 2 pays 1."""
    return AbstractSimulator(
        [[0, 1], [1, 2], [2, 2]],
        [[0, 0], [0, 1], [0, 0]],
        horizon=3,
        states=["door", (1, "hall"), "desk"],
    )


@pytest.mark.parametrize(
    ("actions", "dtype"),
    [(1, np.uint8), (3, np.uint8), (256, np.uint8), (257, np.uint16), (300, np.uint16)],
)
def test_actions_take_the_smallest_type_that_holds_them(actions, dtype):
    reward = np.arange(actions)[None] * np.ones((2, 1))
    sim = AbstractSimulator(np.zeros((2, actions), int), reward, horizon=2)
    plan = robust_dp(sim, eta=0.1)
    assert plan.actions.dtype == dtype
    assert (plan.actions == actions - 1).all()


def test_values_are_kept_only_if_asked_for(chain):
    assert robust_dp(chain, eta=0.1).values is None
    assert robust_dp(chain, eta=0.1, keep_values=True).values.shape == (4, 3)


def test_a_chain_worked_out_by_hand(chain):
    plan = robust_dp(chain, eta=0.25, keep_values=True)
    # Each command to move fails with 1/4, and two of three moves must succeed: of state 0,
    # P(at least two of three) = 27/64 + 27/64.
    assert plan.start_value == 54 / 64
    assert plan.values[1].tolist() == [9 / 16, 15 / 16, 0]
    assert plan.action(0, 0) == plan.action(1, 1) == 1
    assert type(plan.action(0, 0)) is int


def test_the_route_names_steps_labels_actions_and_rewards(chain):
    route = robust_dp(chain, eta=0.1).route()
    assert [(r.step, r.state, r.action, r.reward) for r in route] == [
        (0, "door", 1, 0.0),
        (1, (1, "hall"), 1, 1.0),
        (2, "desk", 0, 0.0),
    ]
    assert [r.state for r in robust_dp(chain, eta=0.1).route(start=1)][:2] == [(1, "hall"), "desk"]


@pytest.mark.parametrize(
    ("h", "s", "message"),
    [
        (3, 0, r"h: 3 is not a step; steps run 0 … 2"),
        (-1, 0, r"h: -1 is not a step"),
        (0.5, 0, r"h: 0.5 is not a step"),
        (0, None, r"s: None is not a state"),
        (0, 3, r"s: 3 is not a state; states run 0 … 2"),
        (0, -1, r"s: -1 is not a state"),
    ],
)
def test_asking_outside_the_plan_is_an_error(chain, h, s, message):
    with pytest.raises(ValueError, match=message):
        robust_dp(chain, eta=0.1).action(h, s)


@pytest.mark.parametrize(
    ("eta", "message"),
    [
        (-0.1, r"eta: -0\.1 is outside \[0, 1\]"),
        (1.5, r"eta: 1\.5 is outside \[0, 1\]"),
        (float("nan"), r"eta: nan is outside \[0, 1\]"),
        ("0.1", r"eta: '0\.1' is not a number"),
        (True, r"eta: True is not a number"),
        (None, r"eta: None is not a number"),
    ],
)
def test_an_eta_that_is_no_probability_is_an_error(chain, eta, message):
    with pytest.raises(ValueError, match=message):
        robust_dp(chain, eta=eta)
    with pytest.raises(ValueError, match=message):
        worst_case_value(chain, [0, 0, 0], eta=eta)


def test_eta_may_be_any_kind_of_real_number(chain):
    for eta in (np.float32(0.25), np.float64(0.25), 0.25):
        assert robust_dp(chain, eta=eta).start_value == 54 / 64
    assert robust_dp(chain, eta=1).eta == 1.0
    assert robust_dp(chain, eta=np.int64(0)).start_value == 1.0
