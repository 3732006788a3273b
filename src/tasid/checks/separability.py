"""Can commands be told apart by what is seen before and after them? A small, honest test.

The classifier is linear, fitted on one half of the transitions and tried on the other, both ways
round. It lives in the span of the observations, where a ridge penalty means the same as in all
their dimensions, so that images cost no more than vectors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import log_softmax
from threadpoolctl import threadpool_limits

from tasid.theory.binomial import at_least, chance_interval

Floats = NDArray[np.float64]

_NORM = 100.0
"""Mean squared length of a row, for which the penalties are meant."""
_PENALTIES = (0.1, 1.0, 10.0, 100.0, 1000.0)
_AT_A_TIME = 4_096
_CONFIDENCE = 0.95


@dataclass(frozen=True)
class Accuracy:
    """Held-out predictions that were right."""

    right: int
    number: int

    @property
    def rate(self) -> float:
        """The fraction."""
        return self.right / self.number

    @property
    def interval(self) -> tuple[float, float]:
        """A 95 % interval (Clopper–Pearson)."""
        return chance_interval(self.right, self.number, confidence=_CONFIDENCE)

    def p_value(self, at_most: float) -> float:
        """How likely so many would be, were each right with probability `at_most`."""
        return float(at_least(self.right, self.number, at_most))


def separability(before: NDArray[Any], after: NDArray[Any], label: NDArray[np.int64]) -> Accuracy:
    """How well a linear model predicts labels 0 … L−1 from transitions, each [n, …]."""
    rows = _coordinates(np.hstack([x.reshape(len(x), -1) for x in (before, after)]))
    number = int(label.max()) + 1
    half = np.arange(len(label)) % 2 == 0
    right = 0
    for train in (half, ~half):
        weights = _fitted(rows[train], label[train], number)
        guessed = _scores(rows[~train], weights).argmax(axis=1)
        right += int((guessed == label[~train]).sum())
    return Accuracy(right, len(label))


def _fitted(rows: Floats, label: NDArray[np.int64], number: int) -> Floats:
    """Weights, with the penalty that does best on held-out halves of these very rows."""
    half = np.arange(len(label)) % 2 == 0

    def loss(penalty: float) -> float:
        return sum(
            -float(_log_f(rows[~part], weights)[np.arange((~part).sum()), label[~part]].sum())
            for part in (half, ~half)
            for weights in [_solved(rows[part], label[part], number, penalty)]
        )

    return _solved(rows, label, number, min(_PENALTIES, key=loss))


def _solved(rows: Floats, label: NDArray[np.int64], number: int, penalty: float) -> Floats:
    """Multinomial logistic regression, [D+1, L]; the last row is the bias, not penalised.

    Minimises Σ −ln f(label) + ½·penalty·‖weights‖², which is convex, by L-BFGS.
    """
    shape = rows.shape[1] + 1, number
    right = np.arange(len(label)), label

    def objective(flat: Floats) -> tuple[float, Floats]:
        weights = flat.reshape(shape)
        log_f = _log_f(rows, weights)
        residual = np.exp(log_f)
        residual[right] -= 1.0
        gradient = np.concatenate([rows.T @ residual, residual.sum(axis=0)[None]])
        gradient[:-1] += penalty * weights[:-1]
        loss = 0.5 * penalty * float((weights[:-1] ** 2).sum()) - float(log_f[right].sum())
        return loss, gradient.ravel()

    # The products are small: a second BLAS thread costs more than it brings.
    with threadpool_limits(1, "blas"):
        found = minimize(
            objective,
            np.zeros(shape).ravel(),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": 100, "ftol": 1e-6, "gtol": 1e-2},
        )
    solution: Floats = found.x.reshape(shape)
    return solution


def _scores(rows: Floats, weights: Floats) -> Floats:
    return rows @ weights[:-1] + weights[-1]


def _log_f(rows: Floats, weights: Floats) -> Floats:
    """ln f of every label, [n, L]."""
    log_f: Floats = log_softmax(_scores(rows, weights), axis=1)
    return log_f


def _coordinates(table: NDArray[Any]) -> Floats:
    """Standardised rows in an orthonormal basis of their span, [n, at most n]."""
    gram = np.zeros((len(table), len(table)))
    for first in range(0, table.shape[1], _AT_A_TIME):
        part = table[:, first : first + _AT_A_TIME].astype(np.float64)
        part -= part.mean(axis=0)
        spread = part.std(axis=0)
        part /= np.where(spread > 1e-6, spread, np.inf)
        gram += part @ part.T
    values, vectors = np.linalg.eigh(gram)
    kept = values > 1e-9 * max(float(values[-1]), 1e-300)
    rows = vectors[:, kept] * np.sqrt(values[kept])
    norm = float((rows**2).sum(axis=1).mean()) if kept.any() else 0.0
    return rows * np.sqrt(_NORM / norm) if norm > 0 else np.zeros((len(table), 1))
