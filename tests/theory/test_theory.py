"""The calculators of the theory against hand computation, algebra and brute force."""

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
from tasid.theory import Exploration, Reading, Setting

READINGS = get_args(Reading)

# |F| = 1000, δ = 1/8; logarithms to 15 digits from a table, not from this library.
BY_HAND = Setting(horizon=5, actions=10, eta=0.25, log_class_size=math.log(1000), delta=0.125)
LN_8000 = Fraction("8.98719682066197")
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
readings = st.sampled_from(READINGS)
unions = st.sampled_from([None, False, True])


@pytest.mark.parametrize(
    ("reading", "union", "n_decode"),
    [
        # 8·5²·10³ / (½·(½)²) = 1 600 000; 8·5³·10³ / (½·(½)²) = 8 000 000.
        ("algorithm", None, math.ceil(1_600_000 * LN_8000)),
        ("algorithm", True, math.ceil(1_600_000 * LN_40000)),
        ("appendix", None, math.ceil(8_000_000 * LN_8000)),
        ("appendix", True, math.ceil(8_000_000 * LN_40000)),
        ("coupling", None, math.ceil(1_600_000 * LN_40000)),
        ("coupling", False, math.ceil(1_600_000 * LN_8000)),
    ],
)
def test_printed_formulae_by_hand(reading: Reading, union: bool | None, n_decode: int) -> None:
    budget = theory.decoding_budget(BY_HAND, epsilon=0.5, reading=reading, union=union)
    assert budget.n_decode == n_decode
    assert (budget.n_total, budget.n_paper) == (4 * n_decode, 5 * n_decode)


def test_defaults_are_algorithm_2_as_printed() -> None:
    budget = theory.decoding_budget(BY_HAND, epsilon=0.5)
    assert budget.n_decode == 14_379_515
    assert budget == theory.decoding_budget(BY_HAND, epsilon=0.5, reading="algorithm", union=False)


@given(settings_, st.floats(0.01, 10.0), readings, unions)
def test_doubling_epsilon_halves_n(
    setting: Setting, epsilon: float, reading: Reading, union: bool | None
) -> None:
    once = theory.decoding_budget(setting, epsilon=epsilon, reading=reading, union=union)
    twice = theory.decoding_budget(setting, epsilon=2 * epsilon, reading=reading, union=union)
    assert 2 * twice.n_decode == pytest.approx(once.n_decode, rel=1e-11, abs=2)


@pytest.mark.parametrize(
    ("change", "factors"),
    [
        ({"horizon": 80}, {"algorithm": 4, "appendix": 8, "coupling": 4}),
        ({"horizon": 80, "return_range": 40}, {"algorithm": 2, "appendix": 4, "coupling": 2}),
        ({"return_range": 120}, {"algorithm": 3, "appendix": 3, "coupling": 3}),
        ({"actions": 8}, {"algorithm": 8, "appendix": 8, "coupling": 8}),
        ({"eta": 0.25}, {"algorithm": 4, "appendix": 4, "coupling": 4}),
        ({"delta": 0.25**4}, {"algorithm": 4, "appendix": 4, "coupling": 4}),
    ],
)
def test_units(change: dict[str, Any], factors: dict[Reading, int]) -> None:
    base = Setting(horizon=40, actions=4, eta=0.0, log_class_size=0.0, delta=0.25)
    for reading, factor in factors.items():
        before, after = (
            theory.value_loss_bound(s, n_decode=1000, reading=reading, union=False)
            for s in (base, replace(base, **change))
        )
        assert after == pytest.approx(factor * before)


RAISES_N = {
    "horizon": 61,
    "actions": 13,
    "eta": 0.46,
    "log_class_size": 201.0,
    "return_range": 101.0,
    "delta": 0.0005,
}


@given(settings_, st.sampled_from(sorted(RAISES_N)), st.data())
def test_more_of_anything_hard_needs_more(setting: Setting, name: str, data: Any) -> None:
    mine = float(setting.range) if name == "return_range" else getattr(setting, name)
    low, high = sorted((mine, RAISES_N[name]))
    whole = name in ("horizon", "actions")
    value = data.draw(st.integers(int(low), int(high)) if whole else st.floats(low, high))
    changes: dict[str, Any] = {name: value}
    harder = replace(setting, **changes)
    k = Exploration(outcomes=2)
    for reading in READINGS:
        counts = [
            theory.decoding_budget(s, epsilon=0.1, reading=reading) for s in (setting, harder)
        ]
        assert counts[0].n_decode <= counts[1].n_decode
        assert counts[0].n_total <= counts[1].n_total
    n = [
        theory.decoding_budget(s, epsilon=0.1, reading="coupling", exploration=k).n_decode
        for s in (setting, harder)
    ]
    assert n[0] <= n[1]
    for bound in (theory.one_step_error_bound, theory.any_error_bound, theory.value_loss_bound):
        assert bound(setting, n_decode=100) <= bound(harder, n_decode=100) * (1 + 1e-12)
        assert bound(setting, n_decode=101) < bound(setting, n_decode=100)


@given(settings_, st.integers(1, 10**12), readings, unions)
def test_n_to_epsilon_to_n(setting: Setting, n: int, reading: Reading, union: bool | None) -> None:
    epsilon = theory.value_loss_bound(setting, n_decode=n, reading=reading, union=union)
    budget = theory.decoding_budget(setting, epsilon=epsilon, reading=reading, union=union)
    assert budget.n_decode == n
    ours: dict[str, Any] = {
        "reading": "coupling",
        "exploration": Exploration(outcomes=2, weight=0.4),
    }
    epsilon = theory.value_loss_bound(setting, n_decode=n, **ours)
    assert theory.decoding_budget(setting, epsilon=epsilon, **ours).n_decode == n


@given(settings_, st.floats(1e-6, 10.0), readings, unions)
def test_the_budget_delivers_its_epsilon_and_is_least(
    setting: Setting, epsilon: float, reading: Reading, union: bool | None
) -> None:
    n = theory.decoding_budget(setting, epsilon=epsilon, reading=reading, union=union).n_decode
    loss = theory.value_loss_bound(setting, n_decode=n, reading=reading, union=union)
    assert loss <= epsilon * (1 + 1e-11)
    if 1 < n < 10**10:
        loss = theory.value_loss_bound(setting, n_decode=n - 1, reading=reading, union=union)
        assert loss > epsilon


def test_numbers_beyond_floats() -> None:
    vast = Setting(horizon=10**6, actions=10**100, eta=0.4999, log_class_size=1e9, delta=1e-300)
    assert theory.decoding_budget(vast, epsilon=1e-300).n_decode > 10**600
    assert theory.value_loss_bound(vast, n_decode=1) == math.inf
    assert theory.value_loss_bound(vast, n_decode=10**400) < 1e-50


@given(settings_, st.integers(1, 10**6), st.floats(0.0, 1.0))
def test_lemmas_compose_to_the_theorem(setting: Setting, n: int, e0: float) -> None:
    g, h = float(setting.range), setting.horizon

    def near(x: float) -> Any:
        return pytest.approx(x, rel=1e-12)

    one = theory.one_step_error_bound(setting, n_decode=n)
    wrong = theory.wrong_actions_bound(setting, n_decode=n)
    assert wrong == near(h * h * one)
    assert theory.value_loss_bound(setting, n_decode=n, reading="appendix") == near(g * wrong)
    first = theory.any_error_bound(setting, n_decode=n)
    assert first == near(h * theory.one_step_error_bound(setting, n_decode=n, union=True))
    assert theory.value_loss_bound(setting, n_decode=n, reading="coupling") == near(g * first)
    # A wrong start: all of h actions, one episode, its whole return.
    start: dict[str, Any] = {"n_decode": n, "start_error": e0}
    assert theory.wrong_actions_bound(setting, steps=2, **start) == near(4 * one + 2 * e0)
    assert theory.any_error_bound(setting, **start) == near(first + e0)
    assert theory.value_loss_bound(setting, **start) == near(g * (h * one + e0))


@pytest.mark.parametrize("seed", range(20))
def test_loss_is_at_most_return_range_times_first_errors(seed: int) -> None:
    """The coupling argument, exactly: a random world, decoders that err, values by recursion."""
    rng = np.random.default_rng(seed)
    H, S, A = 6, 4, 3
    step = rng.dirichlet(np.full(S, 0.3), size=(H, S, A))
    reward = rng.random((H, S, A))
    plan = rng.integers(A, size=(H, S))
    # decode[h, s', ŝ'] after a right ŝ; after a wrong one the decoder does as it likes.
    wrong = rng.uniform(0.0, 0.1, size=H)
    decode = wrong[:, None, None] * rng.dirichlet(np.ones(S), size=(H, S))
    decode += (1 - wrong)[:, None, None] * np.eye(S)
    astray = rng.dirichlet(np.ones(S), size=(H, S, S))

    value, lost_value = np.zeros(S), np.zeros((S, S))  # lost_value[s, ŝ]
    for h in reversed(range(H)):
        ahead = np.einsum("xyz,yz->xyz", astray[h], lost_value)  # [ŝ, s', ŝ'] for ŝ wrong
        new = np.empty((S, S))
        for s in range(S):
            for t in range(S):
                a = plan[h, t]
                then = (decode[h] * lost_value if s == t else ahead[t]).sum(axis=1)
                new[s, t] = reward[h, s, a] + step[h, s, a] @ then
        own = plan[h]
        value = reward[h, range(S), own] + step[h, range(S), own] @ value
        lost_value = new
    right, first_errors = np.eye(S)[0], 0.0
    for h in range(H - 1):
        after = right @ step[h, range(S), plan[h]]
        ok = np.diagonal(decode[h])
        first_errors += float(after @ (1 - ok))
        right = after * ok
    loss = value[0] - lost_value[0, 0]
    assert abs(loss) <= H * first_errors + 1e-12
    assert abs(loss) > 1e-6


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"horizon": 0}, ValueError, "horizon: 0 is too small; give an integer ≥ 1"),
        ({"horizon": 2.0}, TypeError, "horizon: 2.0 is a float; give an integer"),
        ({"actions": True}, TypeError, "actions: True is a bool"),
        ({"eta": 0.5}, ValueError, r"eta: 0.5 is outside \[0, 0.5\)"),
        ({"eta": -0.1}, ValueError, "eta: -0.1 is outside"),
        ({"eta": math.nan}, ValueError, "eta: nan is outside"),
        ({"eta": "0.1"}, TypeError, "eta: '0.1' is a str"),
        ({"delta": 0.0}, ValueError, r"delta: 0.0 is outside \(0, 1\)"),
        ({"delta": 1}, ValueError, "delta: 1 is outside"),
        ({"log_class_size": math.inf}, ValueError, "log_class_size: inf is outside"),
        ({"return_range": 0.0}, ValueError, "return_range: 0.0 is outside"),
    ],
)
def test_settings_are_checked(change: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        replace(BY_HAND, **change)


def test_arguments_are_checked() -> None:
    calls: list[tuple[str, Any]] = [
        ("epsilon: 0.0", lambda: theory.decoding_budget(BY_HAND, epsilon=0.0)),
        ("reading: 'x'", lambda: theory.decoding_budget(BY_HAND, epsilon=1.0, reading="x")),  # type: ignore[arg-type]
        ("n_decode: 0", lambda: theory.value_loss_bound(BY_HAND, n_decode=0)),
        ("steps: 6", lambda: theory.any_error_bound(BY_HAND, n_decode=1, steps=6)),
        ("start_error: 2", lambda: theory.value_loss_bound(BY_HAND, n_decode=1, start_error=2)),
    ]
    for says, call in calls:
        with pytest.raises(ValueError, match=says):
            call()
