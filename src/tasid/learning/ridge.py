"""The simplest model first: multinomial logistic regression with a ridge penalty, solved exactly.

The objective is convex, so there is nothing to tune but the penalty, no early stopping and no
held-out data inside. It is the linear case of `MLP` (no hidden layers) and is saved as one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from threadpoolctl import ThreadpoolController

Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Examples:
    """Standardised inputs with labels, ready to regress on."""

    inputs: Floats
    """[n, D]."""
    label: NDArray[np.int64]
    valid: NDArray[np.bool_]
    """Which labels exist where the transition started, [n, L]."""

    def log_probabilities(self, scores: Floats) -> Floats:
        """ln f over the existing labels, [n, L]; −∞ elsewhere."""
        masked = np.where(self.valid, scores, -np.inf)
        masked = masked - masked.max(axis=1, keepdims=True)
        normaliser = np.log(np.exp(masked).sum(axis=1, keepdims=True))
        log_f: Floats = masked - normaliser
        return log_f

    def losses(self, scores: Floats) -> Floats:
        """−ln f(label) of every row, [n]."""
        rows = np.arange(self.label.size)
        return -self.log_probabilities(scores)[rows, self.label]


@cache
def _threads() -> ThreadpoolController:
    return ThreadpoolController()


def fit_ridge(
    examples: Examples, *, penalty: float, start: Floats, iterations: int = 100
) -> Floats:
    """Weights [D+1, L] (the last row is the bias, which is not penalised).

    Minimises Σ −ln f(label) + ½·penalty·‖weights‖², by L-BFGS from `start`.
    """
    inputs, rows = examples.inputs, np.arange(examples.label.size)

    def objective(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        weights = flat.reshape(start.shape).astype(np.float32)
        log_f = examples.log_probabilities(inputs @ weights[:-1] + weights[-1:])
        residual = np.exp(log_f)
        residual[rows, examples.label] -= 1.0
        gradient = np.empty(start.shape)
        gradient[:-1] = inputs.T @ residual
        gradient[-1] = residual.sum(axis=0)
        table = flat.reshape(start.shape)
        gradient[:-1] += penalty * table[:-1]
        loss = -float(log_f[rows, examples.label].sum(dtype=np.float64))
        return loss + 0.5 * penalty * float((table[:-1] ** 2).sum()), gradient.ravel()

    # The products are small: a second BLAS thread costs more than it brings.
    with _threads().limit(limits=1, user_api="blas"):
        found = minimize(
            objective,
            start.astype(np.float64).ravel(),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": iterations, "ftol": 1e-6, "gtol": 1e-2},
        )
    solution: Floats = found.x.reshape(start.shape).astype(np.float32)
    return solution
