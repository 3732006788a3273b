"""Outcome classes: the gap, the change of measure and the counts, by hand and by brute force."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasid import theory
from tasid.theory import Exploration, Setting

# |F| = 1000, δ = 1/8, H = 5: L = ln 40 000, from a table.
BY_HAND = Setting(horizon=5, actions=10, eta=0.25, log_class_size=math.log(1000), delta=0.125)
LN_40000 = Fraction("10.5966347330961")

settings_ = st.builds(
    Setting,
    horizon=st.integers(2, 60),
    actions=st.integers(2, 12),
    eta=st.floats(0.0, 0.45),
    log_class_size=st.floats(0.0, 200.0),
    delta=st.floats(0.001, 0.9),
    return_range=st.none() | st.floats(0.5, 100.0),
)


def random_state(rng: np.random.Generator, k: int, actions: int, eta: float, extreme: bool) -> Any:
    """One state's k outcomes over the actions, representatives, and T*(s' | a) as [A, k]."""
    outcome = np.concatenate([np.arange(k), rng.integers(k, size=actions - k)])
    rng.shuffle(outcome)
    representative = np.array([rng.choice(np.flatnonzero(outcome == o)) for o in range(k)])
    noise = rng.dirichlet(np.full(actions, 0.2), size=actions)
    if extreme:
        noise = np.eye(actions)[np.full(actions, rng.integers(actions))]
    share = np.full(actions, eta) if extreme else eta * rng.random(actions)
    xi = (1 - share)[:, None] * np.eye(actions) + share[:, None] * noise
    return outcome, representative, xi @ np.eye(k)[outcome]


@given(
    st.integers(2, 6),
    st.integers(0, 6),
    st.floats(0.0, 0.49),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_gap_and_change_of_measure(
    k: int, spare: int, eta: float, extreme: bool, seed: int
) -> None:
    outcome, representative, to = random_state(
        np.random.default_rng(seed), k, k + spare, eta, extreme
    )
    explored = to[representative]  # T*(s' | r(o)) as [o, s']
    posterior = explored / explored.sum(axis=0)
    lead = np.diagonal(posterior) - np.where(np.eye(k, dtype=bool), -1.0, posterior).max(axis=0)
    assert lead.min() >= theory.outcome_gap(eta=eta, outcomes=k) - 1e-12
    ratio = to / explored.mean(axis=0)
    assert ratio.max() <= k / (1 - eta) + 1e-9
    assert ratio[representative].max() <= k + 1e-9
    # The paper's gap: actions as labels, drawn uniformly.
    posterior = to / to.sum(axis=0)
    shadow = outcome[:, None] == np.arange(k)
    lead = np.where(shadow, posterior, 1.0).min(0) - np.where(shadow, 0.0, posterior).max(0)
    setting = Setting(horizon=2, actions=k + spare, eta=eta, log_class_size=1.0, delta=0.1)
    assert lead.min() >= theory.action_gap(setting) - 1e-12


@pytest.mark.parametrize(("k", "eta"), [(2, 0.1), (3, 0.1), (5, 0.3), (10, 0.49), (4, 0.0)])
def test_gap_and_change_of_measure_are_attained(k: int, eta: float) -> None:
    """Nature sends every other outcome to the first; the second's spare action is not disturbed."""
    to = (1 - eta) * np.eye(k)
    to[1:, 0] += eta
    to[0, 1] += eta
    posterior = to[:, 0] / to[:, 0].sum()
    assert posterior[0] - posterior[1] == pytest.approx(theory.outcome_gap(eta=eta, outcomes=k))
    alone = (1 - eta) * np.eye(k)
    alone[:, 0] += eta * (np.arange(k) == 1)
    alone[:, 2 % k] += eta * (np.arange(k) != 1)
    assert 1 / alone[:, 1].mean() == pytest.approx(k / (1 - eta))


@given(settings_, st.integers(2, 12), st.integers(1, 10**6))
def test_outcomes_never_cost_more_than_actions(setting: Setting, k: int, n: int) -> None:
    k = min(k, setting.actions)
    exploration = Exploration(outcomes=k)
    factor = exploration.factor(setting.eta)
    assert factor <= k**3
    ours, theirs = (
        theory.one_step_error_bound(setting, n_decode=n, union=True, exploration=explored)
        for explored in (exploration, None)
    )
    assert ours <= theirs * (1 + 1e-12)
    budget = outcome_budget(setting, exploration, epsilon=0.5)
    paper = theory.decoding_budget(setting, epsilon=0.5, reading="coupling")
    assert budget.n_decode <= paper.n_decode
    ratio = float(factor / setting.actions**3)
    assert ratio <= 1
    assert budget.n_decode == pytest.approx(ratio * paper.n_decode, rel=1e-11, abs=1)
    if k > 2:
        fewer = Exploration(outcomes=k - 1)
        assert outcome_budget(setting, fewer, epsilon=0.5).n_decode <= budget.n_decode
        assert fewer.factor(setting.eta) < factor


def outcome_budget(setting: Setting, exploration: Exploration, *, epsilon: float) -> theory.Budget:
    return theory.decoding_budget(
        setting, epsilon=epsilon, reading="coupling", exploration=exploration
    )


def test_outcome_constants_by_hand() -> None:
    # k = 3, η = 1/4: 3·(5/4)²/(3/4) = 25/4; 60 % exploring roll-ins cost 2.5.
    exploration = Exploration(outcomes=3)
    assert theory.outcome_gap(eta=0.25, outcomes=3) == 0.4
    assert exploration.factor(0.25) == Fraction(25, 4)
    mixed = replace(exploration, weight=0.4)
    assert float(mixed.factor(0.25)) == pytest.approx(2.5 * 6.25)
    budget = outcome_budget(BY_HAND, exploration, epsilon=0.5)
    assert budget.n_decode == math.ceil(10_000 * LN_40000)  # 8·5²·(25/4) / (½·(½)²) = 10 000
    assert (budget.n_total, budget.n_paper) == (4 * budget.n_decode, 5 * budget.n_decode)
    loss = theory.value_loss_bound(
        BY_HAND, n_decode=10_000, reading="coupling", exploration=exploration, start_error=0.1
    )
    assert loss == pytest.approx(float(LN_40000) / 2 + 0.5)  # 10 000·½·L/n + G·ε₀


def test_exploration_is_checked() -> None:
    two, many = Exploration(outcomes=2), Exploration(outcomes=11)
    calls: list[tuple[str, Any]] = [
        ("outcomes: 1 ", lambda: Exploration(outcomes=1)),
        ("weight: 0 ", lambda: Exploration(outcomes=2, weight=0)),
        ("outcomes: 11 ", lambda: outcome_budget(BY_HAND, many, epsilon=1)),
        ("epsilon: -1 ", lambda: outcome_budget(BY_HAND, two, epsilon=-1)),
        ("eta: 0.5 ", lambda: theory.outcome_gap(eta=0.5, outcomes=2)),
    ]
    for says, call in calls:
        with pytest.raises(ValueError, match=says):
            call()
