"""Bounds and budgets against the printed formulas and independent computations."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from tasid.theory import (
    Setting,
    StartSetting,
    action_gap,
    at_least,
    binomial_interval,
    decoding_budget,
    one_step_error_bound,
    pair_confusion_bound,
    purity_bound,
    regression_error,
    regression_error_limit,
    start_budget,
    value_loss_bound,
    wrong_actions_bound,
)

SETTING = Setting(horizon=20, actions=10, eta=0.1, log_class_size=100.0, delta=0.05)
READINGS = {"algorithm": (2, False), "appendix": (3, False), "coupling": (2, True)}


def test_binomial_tails_and_interval_against_scipy_stats():
    k, n = np.meshgrid(np.arange(-1, 13), [1, 5, 11])
    for p in (0.0, 0.2, 0.9, 1.0):
        np.testing.assert_allclose(at_least(k, n, p), stats.binom.sf(k - 1, n, p), atol=1e-12)
    for successes in (0, 3, 10):
        exact = stats.binomtest(successes, 10).proportion_ci(0.95, method="exact")
        assert binomial_interval(successes, 10, confidence=0.95) == pytest.approx(tuple(exact))


@pytest.mark.parametrize("reading", READINGS)
def test_decoding_budget_is_the_printed_formula_and_inverts_the_bound(reading):
    power, union = READINGS[reading]
    log = 100.0 + math.log((20 if union else 1) / 0.05)
    exact = 8 * 20**power * 10**3 * log / (0.5 * 0.8**2)
    counts = decoding_budget(SETTING, epsilon=0.5, reading=reading)
    assert counts.n_decode == math.ceil(exact)
    assert (counts.n_total, counts.n_paper) == (19 * counts.n_decode, 20 * counts.n_decode)
    bound = value_loss_bound(SETTING, n_decode=counts.n_decode, reading=reading)
    assert bound == pytest.approx(0.5, rel=1e-5)
    assert bound <= 0.5
    exact_n = decoding_budget(SETTING, epsilon=bound, reading=reading).n_decode
    assert exact_n == counts.n_decode
    wrong_start = value_loss_bound(SETTING, n_decode=1000, reading=reading, start_error=0.1)
    assert wrong_start == pytest.approx(
        value_loss_bound(SETTING, n_decode=1000, reading=reading) + 20 * 0.1
    )


def test_step_bounds_and_gaps():
    step = 8 * 1000 * (100 - math.log(0.05)) / (1e6 * 0.64)
    assert one_step_error_bound(SETTING, n_decode=10**6) == pytest.approx(step)
    wrong = wrong_actions_bound(SETTING, n_decode=10**6, steps=7, start_error=0.01)
    assert wrong == pytest.approx(7 * (7 * step + 0.01))
    assert action_gap(SETTING) == pytest.approx(0.08)
    with pytest.raises(ValueError, match="steps: 21"):
        wrong_actions_bound(SETTING, n_decode=10, steps=21)


@pytest.mark.parametrize("eta", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("num_actions", [2, 5])
def test_action_gap_is_never_undercut(eta, num_actions):
    """Posterior of a uniformly drawn action; some actions intend the successor, the others slip."""
    setting = Setting(horizon=5, actions=num_actions, eta=eta, log_class_size=1.0, delta=0.1)
    rng = np.random.default_rng(num_actions)
    for _ in range(2000):
        likelihood = eta * rng.choice([0.0, rng.random(), 1.0], size=num_actions)
        right = rng.integers(1, num_actions)
        likelihood[:right] = 1 - likelihood[:right]
        posterior = likelihood / likelihood.sum()
        gap = posterior[:right].min() - posterior[right:].max()
        assert gap >= action_gap(setting) - 1e-12


def start_setting(**changes):
    values = {"starts": 3, "min_probability": 0.2, "margin": 0.5, "complexity": 30.0, **changes}
    return StartSetting(setting=SETTING, **values)


@pytest.mark.parametrize(
    ("reading", "pure", "separate", "tests"),
    [
        ("printed", 256, 1024 * 3**4 / 0.2**6, 3),
        ("corrected", 256, 256 * 3**6 / 0.2**6, 9),
    ],
)
@pytest.mark.parametrize("epsilon", [0.5, 500.0])
def test_start_budget_is_the_printed_formula(reading, pure, separate, tests, epsilon):
    counts = start_budget(start_setting(), epsilon=epsilon, reading=reading)
    unit = 10**4 * 30.0 * math.log(1 / 0.05) / 0.5**2
    first = pure * 20**2 * 3**4 / (epsilon**2 * 0.2**4)
    assert counts.n_cluster == pytest.approx(max(first, separate) * unit, rel=1e-12)
    n_learn = 8 * 20**4 * 1000 * (100 + math.log(9 / 0.05)) / (epsilon * 0.64)
    assert counts.n_learn == math.ceil(n_learn)
    assert counts.n_test == math.ceil(20**2 * math.log(tests / 0.05) / (2 * epsilon**2))
    assert counts.n_total == 9 * (counts.n_learn + counts.n_test) + counts.n_cluster


def test_cluster_count_satisfies_both_conditions_of_its_proof():
    start = start_setting()
    n = start_budget(start, epsilon=0.5).n_cluster
    error = regression_error(start, n=n)
    assert error <= regression_error_limit(start) * (1 + 1e-9)
    assert purity_bound(start, error=error) >= 1 - 0.5 / 20 - 1e-9
    assert pair_confusion_bound(start, error=0.01) == pytest.approx(8 * 100 * 0.01 / 0.5)


def test_printed_cluster_count_falls_short_of_its_proof():
    """For N > 2 and a large ε the printed second term exceeds the limit of the corrected Δ."""
    start = start_setting(starts=5, min_probability=0.1)
    n = start_budget(start, epsilon=1000.0, reading="printed").n_cluster
    assert regression_error(start, n=n) > regression_error_limit(start, reading="corrected")


@pytest.mark.parametrize(
    ("argument", "changes"),
    [
        ("horizon", {"horizon": 0}),
        ("actions", {"actions": 2.5}),
        ("eta", {"eta": 0.5}),
        ("delta", {"delta": 1.0}),
        ("log_class_size", {"log_class_size": -1.0}),
        ("min_probability", {"starts": 2, "margin": 1, "complexity": 1, "min_probability": 0.6}),
        ("margin", {"starts": 2, "margin": 2.0, "complexity": 1, "min_probability": 0.5}),
    ],
)
def test_errors_name_the_argument(argument, changes):
    of_starts = {k: changes.pop(k) for k in list(changes) if k not in vars(SETTING)}
    with pytest.raises(ValueError, match=f"^{argument}: "):
        StartSetting(setting=replace(SETTING, **changes), **of_starts)
    with pytest.raises(ValueError, match=r"^epsilon: "):
        decoding_budget(SETTING, epsilon=0.0)
