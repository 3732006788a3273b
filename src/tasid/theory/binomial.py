"""Counts of independent trials: how likely so many are, and what they tell of the chance.

By the incomplete beta function, I_p(k, n−k+1) = P(X ≥ k) for X ~ Bin(n, p). SciPy's `stats` has all
of this; to import it takes longer than to plan on most maps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainc, betaincinv


def at_least(count: ArrayLike, number: ArrayLike, chance: ArrayLike) -> Any:
    """P(X ≥ count) in so many trials of this chance."""
    k, n = np.asarray(count, float), np.asarray(number, float)
    inside = (k > 0) & (k <= n)
    beta = betainc(np.where(inside, k, 1.0), np.where(inside, n - k + 1, 1.0), chance)
    return np.where(inside, beta, k <= 0)


def at_most(count: ArrayLike, number: ArrayLike, chance: ArrayLike) -> Any:
    """P(X ≤ count): as many failures at least as that leaves."""
    return at_least(np.subtract(number, count), number, np.subtract(1.0, chance))


def chance_interval(count: int, number: int, *, confidence: float) -> tuple[float, float]:
    """The chance lies in here with at least this confidence (Clopper–Pearson)."""
    tail = (1 - confidence) / 2
    low = betaincinv(count, number - count + 1, tail) if count > 0 else 0.0
    high = betaincinv(count + 1, number - count, 1 - tail) if count < number else 1.0
    return float(low), float(high)
