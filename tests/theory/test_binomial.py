"""Tails and intervals of counts, beside SciPy's own."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom, binomtest

from tasid.theory.binomial import at_least, at_most, chance_interval


@pytest.mark.parametrize("chance", [0.0, 1e-3, 0.1, 0.5, 0.9, 1.0])
def test_tails_are_those_of_the_binomial(chance: float) -> None:
    count, number = np.meshgrid(np.arange(-2, 60), [0, 1, 7, 48, 5000], indexing="ij")
    tolerance = {"rtol": 1e-10, "atol": 1e-300}
    np.testing.assert_allclose(
        at_least(count, number, chance), binom.sf(count - 1, number, chance), **tolerance
    )
    np.testing.assert_allclose(
        at_most(count, number, chance), binom.cdf(count, number, chance), **tolerance
    )


@pytest.mark.parametrize("number", [1, 7, 843])
def test_the_interval_is_clopper_and_pearsons(number: int) -> None:
    for count in {0, 1, number // 2, number - 1, number}:
        expected = binomtest(count, number).proportion_ci(0.95)
        assert chance_interval(count, number, confidence=0.95) == pytest.approx(
            (expected.low, expected.high), abs=1e-9
        )
