"""η-perturbations: membership against a linear-programming solver, and how one is drawn."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from mdps import etas, per_step_tables, quick, random_world, rebuilt, seeds, worlds
from tasid.maps import AbstractSimulator, PerturbedMDP, is_perturbation, perturb
from tasid.maps.planning.perturbation import PerturbationError, tremble


def as_mdp(world):
    """(T', R') of a perturbed world, as dense tables."""
    steps = range(world.simulator.horizon)
    return (
        np.stack([world.transition_at(h) for h in steps]),
        np.stack([world.reward_at(h) for h in steps]),
    )


def random_xi(sim, eta, rng):
    """Any ξ with ξ(a|s,a) ≥ 1−η, some rows at the very edge; in 64ths of η."""
    shape = (sim.horizon, sim.num_states, sim.num_actions)
    cuts = np.sort(rng.integers(65, size=(*shape, sim.num_actions - 1)))
    spread = np.diff(cuts, axis=-1, prepend=0, append=64) / 64
    return (1 - eta) * np.eye(sim.num_actions) + eta * spread


# ---------------------------------------------------------------- membership of ξ


@quick
@given(worlds(), st.floats(0, 1), seeds, st.booleans())
def test_whatever_perturb_draws_is_a_member_at_eta_as_xi_and_as_an_mdp(sim, eta, seed, per_step):
    world = perturb(sim, eta=eta, seed=seed, per_step=per_step)
    assert is_perturbation(world, sim, eta=eta)
    assert is_perturbation(as_mdp(world), sim, eta=eta)
    assert world.eta <= eta + 1e-15


@quick
@given(worlds(states=5, actions=5), st.floats(0.05, 1), seeds)
def test_a_drawn_xi_is_no_member_below_its_own_eta(sim, eta, seed):
    world = perturb(sim, eta=eta, seed=seed, per_step=True)
    if world.eta < 1e-4:
        return
    answer = is_perturbation(world, sim, eta=world.eta - 1e-5)
    assert not answer
    assert is_perturbation(world, sim, eta=world.eta)
    kept = np.einsum("...aa->...a", world.xi)
    first = next(i for i, p in np.ndenumerate(kept) if p < 1 - (world.eta - 1e-5) - 1e-9)
    assert answer.where == first
    assert answer.why.startswith(f"ξ keeps the action with probability {kept[first]:.6g} < 1 − η")


@pytest.mark.parametrize(
    ("seed", "error", "message"),
    [("a", TypeError, "seed: 'a' is not a whole"), (-1, ValueError, "seed: -1 is not in 0")],
)
def test_what_is_no_seed_is_named(seed, error, message):
    with pytest.raises(error, match=message):
        perturb(AbstractSimulator([[0]], [[0.0]], horizon=1), eta=0.1, seed=seed)


def test_a_xi_without_steps_reports_step_0():
    sim = AbstractSimulator([[0, 1], [1, 0]], [[0, 1], [1, 0]], horizon=3)
    xi = np.broadcast_to(np.eye(2), (2, 2, 2)).copy()
    xi[1, 0] = [0.75, 0.25]
    answer = is_perturbation(PerturbedMDP(sim, xi), sim, eta=0.125)
    assert answer.where == (0, 1, 0)
    assert answer.why == "ξ keeps the action with probability 0.75 < 1 − η = 0.875"
    assert PerturbedMDP(sim, xi).eta == 0.25


# ---------------------------------------------------------------- membership of (T', R')


def lp_member(transition, reward, pays, leads, commanded, eta):
    """Does any ξ(·|s,a) make this row of (T', R')? Asked of a solver."""
    actions, states = len(pays), len(transition)
    reaches = (np.asarray(leads) == np.arange(states)[:, None]).astype(float)
    answer = linprog(
        np.zeros(actions),
        A_eq=np.vstack([reaches, pays]),
        b_eq=[*transition, reward],
        bounds=[(1 - eta if b == commanded else 0, None) for b in range(actions)],
    )
    assert answer.status in (0, 2)
    return answer.status == 0


def lp_first_problem(transition, reward, sim, eta):
    for h, s, a in np.ndindex(reward.shape):
        row = transition[h, s, a], reward[h, s, a]
        if not lp_member(*row, sim.reward_at(h)[s], sim.successor_at(h)[s], a, eta):
            return h, s, a
    return None


def pushed_member(seed):
    """A member's tables, one row of them pushed by ±1e-4 across or along what ξ allows."""
    rng = np.random.default_rng(seed)
    sim = random_world(rng, states=3, actions=4, horizon=2)  # 4 actions, 3 states: shared outcomes
    eta = float(rng.choice([0.125, 0.25, 0.5, 1.0]))
    transition, reward = as_mdp(PerturbedMDP(sim, random_xi(sim, eta, rng)))
    place = h, s, a = tuple(int(rng.integers(n)) for n in reward.shape)
    pays, leads = sim.reward_at(h)[s], sim.successor_at(h)[s]
    sign = rng.choice([-1, 1])
    push = rng.integers(4)
    if push == 0:  # R' to the edge of what this T' lets ξ pay, then over it or just not
        edge = _edge_reward(transition[place], pays, leads, a, eta, sign)
        reward[place] = edge + rng.choice([-1e-4, 1e-4])
    elif push == 1:  # the intended outcome at its least mass, the rest on one other action's
        other = rng.integers(4)
        transition[place] = 0
        transition[place][leads[a]] = 1 - eta + sign * 1e-4
        transition[place][leads[other]] += eta - sign * 1e-4
        reward[place] = transition[place][leads[a]] * (pays[a] - pays[other]) + pays[other]
    elif push == 2:  # mass to any state, met by an action or not
        move = min(1e-4, transition[place][leads[a]])
        transition[place][leads[a]] -= move
        transition[place][rng.integers(3)] += move
    else:
        reward[place] += sign * 1e-4
    return transition, reward, sim, eta


@pytest.mark.parametrize("seed", range(120))
def test_membership_agrees_with_linear_programming_near_the_boundary(seed):
    transition, reward, sim, eta = pushed_member(seed)
    answer = is_perturbation((transition, reward), sim, eta=eta, atol=1e-7)
    problem = lp_first_problem(transition, reward, sim, eta)
    assert answer.where == problem, answer
    assert answer.ok == (problem is None)
    assert bool(answer.why) == (not answer.ok)


def test_the_pushes_make_members_and_others_of_every_kind():
    reasons = []
    for seed in range(120):
        transition, reward, sim, eta = pushed_member(seed)
        answer = is_perturbation((transition, reward), sim, eta=eta, atol=1e-7)
        reasons.append(" ".join(answer.why.split()[:2]))
    counts = {reason: reasons.count(reason) for reason in reasons}
    for reason in ("", "R' =", "the intended", "T' reaches"):
        assert counts[reason] >= 5, counts


def _edge_reward(transition, pays, leads, commanded, eta, sign):
    reaches = (np.asarray(leads) == np.arange(len(transition))[:, None]).astype(float)
    bounds = [(1 - eta if b == commanded else 0, None) for b in range(len(pays))]
    answer = linprog(-sign * pays, A_eq=reaches, b_eq=transition, bounds=bounds)
    assert answer.status == 0
    return -sign * answer.fun


@quick
@given(worlds(), etas, seeds)
def test_every_xi_makes_a_member_mdp(sim, eta, seed):
    world = PerturbedMDP(sim, random_xi(sim, eta, np.random.default_rng(seed)))
    assert is_perturbation(world, sim, eta=eta)
    assert is_perturbation(as_mdp(world), sim, eta=eta)


@quick
@given(worlds(), seeds)
def test_large_rewards_leave_room_for_rounding(sim, seed):
    large = rebuilt(sim, reward=sim.reward * 1e9)
    assert is_perturbation(as_mdp(perturb(large, eta=0.3, seed=seed)), large, eta=0.3)


@pytest.fixture
def fork():
    """At state 0, actions 0 and 1 lead to 1 and pay 0 and 2, action 2 leads to 2 and pays 8."""
    return AbstractSimulator(
        [[1, 1, 2], [1, 1, 1], [2, 2, 2], [3, 3, 3]],
        [[0, 2, 8], [0, 0, 0], [0, 0, 0], [0, 0, 0]],
        horizon=2,
    )


def test_problems_of_an_mdp_are_told_apart_and_placed(fork):
    def ask(place, row=None, pay=None):
        transition, reward = as_mdp(perturb(fork, eta=0.0))
        if row is not None:
            transition[place] = row
        if pay is not None:
            reward[place] = pay
        return is_perturbation((transition, reward), fork, eta=0.25)

    assert ask((0, 0, 0), [0, 1, 0, 0], 0.0).ok
    assert ask((0, 0, 0), [0, 1, 0, 0], 0.5).ok  # a quarter of action 1, same outcome
    assert ask((0, 0, 0), [0, 0.75, 0.25, 0], 2.0).ok  # a quarter of action 2
    for place, row, pay, why in [
        ((0, 0, 0), [0, 1, 0, 0], 0.6, "R' = 0.6 is outside [0, 0.5], what ξ can pay"),
        ((1, 0, 1), [0, 1, 0, 0], 1.4, "R' = 1.4 is outside [1.5, 2], what ξ can pay"),
        ((0, 0, 0), [0, 0.75, 0.25, 0], 2.1, "R' = 2.1 is outside [2, 2], what ξ can pay"),
        ((0, 0, 0), None, np.nan, "R' = nan is outside [0, 0.5], what ξ can pay"),
        ((0, 0, 0), None, np.inf, "R' = inf is outside [0, 0.5], what ξ can pay"),
        (
            (1, 0, 2),
            [0, 0.5, 0.5, 0],
            4.0,
            "the intended outcome has probability 0.5 < 1 − η = 0.75",
        ),
        (
            (0, 0, 1),
            [0, 0.75, 0, 0.25],
            1.5,
            "T' reaches a state that no action of the simulator reaches",
        ),
        ((0, 2, 1), [0, 0, 0.9, 0], None, "T' is not a probability distribution"),
        ((0, 2, 1), [0, 0, 1.5, -0.5], None, "T' is not a probability distribution"),
        ((0, 2, 1), [np.nan, 0, 1, 0], None, "T' is not a probability distribution"),
    ]:
        answer = ask(place, row, pay)
        assert (answer.ok, answer.where, answer.why) == (False, place, why)


def test_tables_for_all_steps_alike_will_do(fork):
    transition, reward = as_mdp(perturb(fork, eta=0.2, seed=4))
    assert is_perturbation((transition[0], reward[0]), fork, eta=0.2)
    assert not is_perturbation((transition[0], reward[0]), fork, eta=0.05)


def test_tables_of_another_shape_are_an_error(fork):
    transition, reward = as_mdp(perturb(fork, eta=0.2))
    for tables, message in [
        ((transition[:, :3], reward), "world: T' has shape (2, 3, 3, 4); the simulator's is (2, 4"),
        ((transition, reward[:, :, 0]), "world: R' has shape (2, 4); the simulator's is (2, 4, 3)"),
        ((transition, 0.0), "world: R' has shape (); the simulator's is (2, 4, 3), or (4, 3)"),
    ]:
        with pytest.raises(PerturbationError, match=re.escape(message)):
            is_perturbation(tables, fork, eta=0.2)


def test_a_xi_of_another_simulator_is_judged_as_the_mdp_it_makes(fork):
    calm = perturb(fork, eta=0.0)
    assert is_perturbation(calm, rebuilt(fork), eta=0.0)
    assert is_perturbation(calm, rebuilt(fork, successor=per_step_tables(fork)[0]), eta=0.0)
    richer = rebuilt(fork, reward=fork.reward + 1)
    answer = is_perturbation(calm, richer, eta=0.25)
    assert (answer.ok, answer.where) == (False, (0, 0, 0))
    longer = AbstractSimulator(fork.successor, fork.reward, horizon=3)
    with pytest.raises(PerturbationError, match=re.escape("T' has shape (2, 4, 3, 4)")):
        is_perturbation(calm, longer, eta=0.25)


# ---------------------------------------------------------------- the tables of a perturbed MDP


@quick
@given(worlds(), seeds)
def test_dense_tables_follow_definition_1_entry_by_entry(sim, seed):
    world = perturb(sim, eta=0.5, seed=seed, per_step=True)
    transition, reward = as_mdp(world)
    assert transition.sum(axis=-1) == pytest.approx(1.0)
    for h, s, a in np.ndindex(reward.shape):
        xi, leads = world.xi[h, s, a], sim.successor_at(h)[s]
        pays = sim.reward_at(h)[s]
        assert reward[h, s, a] == pytest.approx(sum(p * r for p, r in zip(xi, pays, strict=True)))
        for state in range(sim.num_states):
            mass = sum(p for p, lead in zip(xi, leads, strict=True) if lead == state)
            assert transition[h, s, a, state] == pytest.approx(mass)


@quick
@given(worlds(), etas, seeds)
def test_trembling_sends_eta_of_every_command_to_one_action(sim, eta, seed):
    rng = np.random.default_rng(seed)
    towards = rng.integers(sim.num_actions, size=(sim.horizon, sim.num_states))
    world = tremble(sim, eta=eta, towards=towards)
    for h, s, a, b in np.ndindex(world.xi.shape):
        assert world.xi[h, s, a, b] == (1 - eta) * (a == b) + eta * (b == towards[h, s])


# ---------------------------------------------------------------- drawing one


@quick
@given(worlds(), st.floats(0, 1), seeds, st.booleans())
def test_rows_are_distributions_of_the_stated_form(sim, eta, seed, per_step):
    xi = perturb(sim, eta=eta, seed=seed, per_step=per_step).xi
    size, actions = sim.num_states, sim.num_actions
    steps = (sim.horizon,) if per_step else ()
    assert xi.shape == (*steps, size, actions, actions)
    assert xi.sum(axis=-1) == pytest.approx(1.0, abs=1e-12)
    rest = xi - (1 - eta) * np.eye(actions)
    assert (rest >= -1e-12).all()
    assert rest.sum(axis=-1) == pytest.approx(eta, abs=1e-12)


@quick
@given(worlds(), seeds)
def test_eta_0_is_the_identity(sim, seed):
    xi = perturb(sim, eta=0.0, seed=seed).xi
    assert (xi == np.eye(sim.num_actions)).all()


def test_the_seed_and_nothing_else_decides():
    sim = random_world(np.random.default_rng(0), states=3, actions=3, horizon=3)
    first = perturb(sim, eta=0.3, seed=5)
    np.random.default_rng(5).random(100)
    assert (perturb(sim, eta=0.3, seed=5).xi == first.xi).all()
    assert (perturb(sim, eta=0.3, seed=6).xi != first.xi).all()
    # η only scales: the same p is behind every η.
    p = (first.xi - 0.7 * np.eye(3)) / 0.3
    assert (perturb(sim, eta=0.6, seed=5).xi - 0.4 * np.eye(3)) / 0.6 == pytest.approx(p)
    steps = perturb(sim, eta=0.3, seed=5, per_step=True).xi
    assert (steps[0] != steps[1]).all()


@pytest.mark.parametrize("per_step", [False, True])
def test_p_is_uniform_numbers_normalised(per_step):
    """Of two uniforms, P(U/(U+V) ≤ t) = t / (2(1−t)) up to one half, and mirrored above."""
    size, horizon = (100, 50) if per_step else (5000, 1)
    sim = AbstractSimulator(np.zeros((size, 2), int), np.zeros((size, 2)), horizon=horizon)
    xi = perturb(sim, eta=0.5, seed=11, per_step=per_step).xi.reshape(-1, 2, 2)
    share = (xi[:, :, 0] - 0.5 * np.eye(2)[:, 0]) / 0.5
    drawn = np.sort(share.ravel())
    law = np.where(drawn <= 0.5, drawn / (2 * (1 - drawn)), 1 - (1 - drawn) / (2 * drawn))
    # Kolmogorov–Smirnov: 1.95/√n is passed once in a thousand; a flat law misses by 0.08.
    assert np.abs(law - np.linspace(0, 1, drawn.size)).max() < 1.95 / np.sqrt(drawn.size)
    # Rows are drawn independently of one another.
    assert abs(np.corrcoef(share.T)[0, 1]) < 4 / np.sqrt(len(share))
    assert abs(np.corrcoef(share[:-1, 0], share[1:, 0])[0, 1]) < 4 / np.sqrt(len(share))


# ---------------------------------------------------------------- bad ξ


def bad_xi():
    """For a world with H, S, A = 2, 3, 2."""
    good = np.broadcast_to(np.eye(2), (2, 3, 2, 2))
    cases = {}
    for name, row, shown in [
        ("negative", [-0.5, 1.5], "[-0.5  1.5]"),
        ("nan", [np.nan, 1.0], "[nan  1.]"),
        ("infinite", [np.inf, -np.inf], "[ inf -inf]"),
        ("light", [0.5, 0.25], "[0.5  0.25]"),
    ]:
        xi = good.copy()
        xi[1, 2, 0] = xi[1, 2, 1] = row
        place = "should be a probability distribution; 2 such entries in all"
        cases[name] = (xi, f"xi: {shown} at (h, s, a) = (1, 2, 0) {place}")
        cases[f"{name}, no steps"] = (xi[1], f"xi: {shown} at (s, a) = (2, 0) {place}")
    shapes = "is neither [S, A, A] = (3, 2, 2) nor [H, S, A, A] with H = 2"
    cases["one matrix"] = (np.eye(2), f"xi: shape (2, 2) {shapes}")
    cases["steps"] = (good[[0, 1, 1]], f"xi: shape (3, 3, 2, 2) {shapes}")
    cases["states"] = (good[:, :2], f"xi: shape (2, 2, 2, 2) {shapes}")
    cases["words"] = ([["left"]], "xi: not an array of numbers (could not convert string")
    cases["ragged"] = ([[1.0], [0.5, 0.5]], "xi: not an array of numbers (")
    return cases


@pytest.mark.parametrize("case", bad_xi())
def test_a_bad_xi_is_refused_with_its_place(case):
    sim = AbstractSimulator(np.zeros((3, 2), int), np.zeros((3, 2)), horizon=2)
    xi, message = bad_xi()[case]
    with pytest.raises(PerturbationError, match=re.escape(message)):
        PerturbedMDP(sim, xi)


@pytest.mark.parametrize("eta", [-1e-9, 1.0001, float("nan"), "much", True])
def test_a_bad_eta_is_refused(eta):
    sim = AbstractSimulator([[0, 0]], [[0, 0]], horizon=1)
    message = re.escape(f"eta: {eta!r} is ")
    with pytest.raises(PerturbationError, match=message):
        perturb(sim, eta=eta)
    with pytest.raises(PerturbationError, match=message):
        is_perturbation(perturb(sim, eta=0.1), sim, eta=eta)
    with pytest.raises(PerturbationError, match=message):
        tremble(sim, eta=eta, towards=np.zeros((1, 1), int))


def test_later_writes_to_the_callers_xi_do_not_reach_the_world():
    sim = AbstractSimulator([[0, 0]], [[0, 1]], horizon=1)
    xi = np.eye(2)[None].copy()
    world = PerturbedMDP(sim, xi)
    xi[0, 0] = [0.0, 1.0]
    assert world.eta == 0.0
    with pytest.raises(ValueError, match="read-only"):
        world.xi[0, 0, 0] = 0.5
    with pytest.raises(AttributeError):
        world.xi = xi
