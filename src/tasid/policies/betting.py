"""A lower bound on a mean that holds at every moment, by betting against smaller means.

Whoever doubts that independent numbers x₁, x₂, … in [0, 1] have a mean above m is offered bets. A
stake c in [0, 1] turns a wealth of 1 into 1 + c (x/m − 1): never below 0, and no more than 1 on
average if the mean is at most m. Several stakes that were fixed beforehand share a first wealth
of 1, so the sum W_n(m) is a supermartingale as well, and by Ville's inequality it reaches 1/δ at
any time with probability at most δ.

Guarantee: with probability 1−δ, at all n at once, the mean is at least
sup {m : W_i(m) ≥ 1/δ for some i ≤ n}. W falls in m, so the bound is found by bisection, and a
bound may be looked at after every number: stopping at a lucky moment gains nothing.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

_BOLD = 0.999
"""Nearly everything: best while every number is 1; at 1 itself the first 0 would end it."""
_CAUTIOUS = 1.0 / (1.0 + np.exp(-np.linspace(math.log(0.003), math.log(9.0), 12)))
"""From 0.003 to 0.9, in equal steps of log-odds: few failures ask for large stakes, noise and
many numbers for small ones."""
_STAKES = np.append(_BOLD, _CAUTIOUS)[:, None]
_SHARES = np.log(np.append(0.5, np.full(_CAUTIOUS.size, 0.5 / _CAUTIOUS.size)))[:, None]
_HALVINGS = 40


class Wager:
    """Bets that the mean is above `mean`, carried on number by number."""

    def __init__(self, mean: float, *, delta: float) -> None:
        self._mean, self._enough = mean, -math.log(delta)
        self._fortunes, self._seen = _SHARES, 0
        self.won: int | None = 0 if mean <= 0 else None
        """After how many numbers the wealth reached 1/δ; nothing in [0, 1] is below 0."""

    def watch(self, numbers: NDArray[np.float64]) -> None:
        """Bet on some more numbers, [n] in [0, 1]."""
        if self.won is not None or not numbers.size:
            return
        fortunes = self._fortunes + _growth(numbers, self._mean)
        enough = _total(fortunes) >= self._enough
        if enough.any():
            self.won = self._seen + int(enough.argmax()) + 1
        self._fortunes, self._seen = fortunes[:, -1:], self._seen + numbers.size


def lower_bound(
    numbers: NDArray[np.float64], *, delta: float, above: float = 0.0, below: float = 1.0
) -> float:
    """The bound on the mean of numbers [n] in [0, 1], known to lie between `above` and `below`."""
    if not numbers.size:
        return above
    for _ in range(_HALVINGS):
        middle = (above + below) / 2
        if _total(_SHARES + _growth(numbers, middle)).max() >= -math.log(delta):
            above = middle
        else:
            below = middle
    return above


def _growth(numbers: NDArray[np.float64], mean: float) -> NDArray[np.float64]:
    """How each stake's wealth has grown after each number, as logarithms [stakes, n]."""
    gains = np.log1p(_STAKES * (numbers / mean - 1.0)[None])
    return np.cumsum(gains, axis=1, out=gains)


def _total(fortunes: NDArray[np.float64]) -> NDArray[np.float64]:
    """The logarithm of the wealth of all stakes together, [n]."""
    most = fortunes.max(axis=0)
    total: NDArray[np.float64] = most + np.log(np.exp(fortunes - most).sum(axis=0))
    return total
