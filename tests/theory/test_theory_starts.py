"""Several start states: counts by hand, and the clustering lemmas on random distributions."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasid import theory
from tasid.theory import Setting, StartReading, StartSetting

START_READINGS = get_args(StartReading)
LN_8 = Fraction("2.07944154167984")


def three_starts(**change: Any) -> StartSetting:
    setting = Setting(horizon=4, actions=2, eta=0.25, log_class_size=math.log(1000), delta=0.125)
    start = StartSetting(
        setting=setting, starts=3, min_probability=0.25, margin=0.5, complexity=3.0
    )
    return replace(start, **change)


def test_start_counts_by_hand() -> None:
    printed = theory.start_budget(three_starts(), epsilon=0.5, reading="printed")
    # 8·4⁴·2³/(½·¼) = 131 072 and ln(9·1000·8); 4²/(2·¼) = 32 and ln(3·8).
    assert printed.n_learn == math.ceil(131_072 * Fraction("11.1844213979982"))
    assert printed.n_test == math.ceil(32 * Fraction("3.17805383034795"))
    # 256·4²·3⁴·2⁴·3/(¼·¼·4⁻⁴) against 1024·3⁴·2⁴·3/(¼·4⁻⁶).
    terms = (256 * 16 * 81 * 16 * 3 * 16 * 256, 1024 * 81 * 16 * 3 * 4 * 4096)
    assert printed.n_cluster == math.ceil(max(terms) * LN_8)
    assert printed.n_total == 9 * (printed.n_learn + printed.n_test) + printed.n_cluster
    corrected = theory.start_budget(three_starts(), epsilon=0.5)
    assert corrected.n_learn == printed.n_learn
    assert corrected.n_test == math.ceil(32 * Fraction("4.27666611901606"))  # ln(9·8)
    coarse = {
        r: theory.cluster_samples(three_starts(), epsilon=4, reading=r) for r in START_READINGS
    }
    assert coarse["printed"] == math.ceil(terms[1] * LN_8)
    assert coarse["corrected"] == math.ceil(256 * 729 * 16 * 3 * 4 * 4096 * LN_8)
    assert coarse["direct"] == math.ceil(64 * 81 * 16 * 3 * 4 * 256 * LN_8)


def test_purity_and_limits_by_hand() -> None:
    # N = 3, |A| = 2, Γ = ½, μ = ¼: 8·3²·2²/(½·4⁻²) = 9216, and μ³Γ/(16N³|A|²) = 1/221 184.
    start = three_starts()
    purity = {r: theory.purity_bound(start, error=1e-5, reading=r) for r in START_READINGS}
    twice = pytest.approx(1 - 2 * 0.09216)
    assert purity == {"printed": twice, "corrected": twice, "direct": pytest.approx(1 - 0.09216)}
    limit = {r: theory.regression_error_limit(start, reading=r) for r in START_READINGS}
    assert limit["corrected"] == pytest.approx(1 / 221_184)
    assert limit["printed"] == pytest.approx(11 / 36 / 36_864)  # 1 − (1 − 1/6)² = 11/36
    assert limit["direct"] == pytest.approx(1 / 9216)
    assert theory.regression_error(start, n=300) == pytest.approx(math.sqrt(float(LN_8) / 100))


@given(
    st.integers(2, 8),
    st.floats(0.05, 1.0),
    st.floats(0.01, 1.0),
    st.floats(0.01, 3.9),
    st.sampled_from(["corrected", "direct"]),
)
def test_cluster_samples_meet_their_condition(
    n: int, share: float, margin: float, epsilon: float, reading: StartReading
) -> None:
    start = three_starts(starts=n, min_probability=share / n, margin=margin)
    samples = theory.cluster_samples(start, epsilon=epsilon, reading=reading)
    error = theory.regression_error(start, n=samples)
    close = 1 + 1e-11
    assert error <= theory.regression_error_limit(start, reading=reading) * close
    impurity = 1 - theory.purity_bound(start, error=error, reading=reading)
    assert impurity <= epsilon / 4 * close + 1e-12
    limits = [
        theory.regression_error_limit(start, reading=r) for r in ("corrected", "printed", "direct")
    ]
    assert limits == sorted(limits)
    assert samples >= theory.cluster_samples(start, epsilon=epsilon, reading="direct")


def test_printed_cluster_samples_miss_the_proofs_condition_but_suffice() -> None:
    start = three_starts()
    samples = theory.cluster_samples(start, epsilon=3.9, reading="printed")
    error = theory.regression_error(start, n=samples)
    assert error > theory.regression_error_limit(start, reading="corrected")
    assert error < theory.regression_error_limit(start, reading="direct")
    assert theory.purity_bound(start, error=error, reading="direct") > 1 - 3.9 / 4


@pytest.mark.parametrize("seed", range(80))
def test_purity_and_bijection_from_pair_confusion(seed: int) -> None:
    """The clustering theorem on random joint distributions of (state, cluster)."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 5))
    spill = rng.choice([1.0, 0.1, 0.01, 0.001])
    assignment = (1 - spill) * np.eye(n) + spill * rng.dirichlet(np.full(n, 0.3), size=n)
    joint = rng.dirichlet(np.full(n, 3.0))[:, None] * assignment
    mu, cluster = joint.sum(axis=1).min(), joint.sum(axis=0)
    confusion = float((joint * (cluster - joint)).sum())
    start = three_starts(starts=n, min_probability=float(mu))
    error = confusion * start.margin / (8 * 4)
    assert theory.pair_confusion_bound(start, error=error) == pytest.approx(confusion)
    sigma = joint.argmax(axis=1)
    purity = joint[range(n), sigma] / cluster[sigma]
    assert purity.min() >= theory.purity_bound(start, error=error, reading="direct") - 1e-12
    for reading in START_READINGS:
        if error < theory.regression_error_limit(start, reading=reading):
            assert len(set(sigma)) == n
            assert purity.min() >= theory.purity_bound(start, error=error, reading=reading)


@pytest.mark.parametrize("seed", range(40))
def test_pair_confusion_from_regression_error(seed: int) -> None:
    """The one-sided error lemma, exactly, for random dynamics, clusters and regressors."""
    rng = np.random.default_rng(seed)
    n, actions, nexts = int(rng.integers(2, 5)), 2, 4
    mu = rng.dirichlet(np.full(n, 2.0))
    step = rng.dirichlet(np.full(nexts, 0.3), size=(n, actions))
    marginal = np.einsum("s,say->y", mu, step) / actions
    best = step / (step + marginal)
    data = mu[:, None, None] / (2 * actions) * (step + marginal)
    cluster = rng.integers(n, size=n)
    fit = np.stack(
        [best[cluster == c].mean(axis=0) if (cluster == c).any() else best[0] * 0 for c in range(n)]
    )[cluster]
    error = float((data * np.abs(fit - best)).sum())
    apart = np.abs(step[:, None] - step[None]).sum(axis=-1).mean(axis=-1) / 2
    margin = float(apart[~np.eye(n, dtype=bool)].min())
    same = (cluster[:, None] == cluster) & ~np.eye(n, dtype=bool)
    start = three_starts(starts=n, min_probability=float(mu.min()), margin=margin)
    bound = theory.pair_confusion_bound(start, error=error)
    assert float((np.outer(mu, mu) * same).sum()) <= bound + 1e-12


def test_start_settings_are_checked() -> None:
    calls: list[tuple[str, Any]] = [
        ("starts: 1 ", lambda: three_starts(starts=1)),
        ("min_probability: 0.34 ", lambda: three_starts(min_probability=0.34)),
        ("margin: 1.5 ", lambda: three_starts(margin=1.5)),
        ("complexity: 0 ", lambda: three_starts(complexity=0)),
        ("reading: 'x' ", lambda: theory.start_budget(three_starts(), epsilon=1.0, reading="x")),  # type: ignore[arg-type]
        ("error: -1.0 ", lambda: theory.purity_bound(three_starts(), error=-1.0)),
    ]
    for says, call in calls:
        with pytest.raises(ValueError, match=says):
            call()
    assert three_starts(min_probability=1 / 3).starts == 3
