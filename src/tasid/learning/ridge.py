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

from tasid.learning.choices import Choices, Floats


@dataclass(frozen=True, eq=False)
class Examples:
    """Inputs with labels; centres are subtracted on the fly."""

    inputs: Floats
    """[n, D]."""
    centres: Floats
    """[T, D]."""
    group: NDArray[np.int32]
    """Which centre belongs to each row, [n]."""
    choices: Choices

    def only(self, rows: NDArray[np.bool_]) -> Examples:
        """Some of the rows."""
        return Examples(self.inputs[rows], self.centres, self.group[rows], self.choices.only(rows))

    def scores(self, weights: Floats) -> Floats:
        """(inputs − centre)·W + b for weights [D+1, L], of every row, [n, L]."""
        offset = weights[-1:] - self.centres @ weights[:-1]
        return self.inputs @ weights[:-1] + offset[self.group]


@cache
def _threads() -> ThreadpoolController:
    return ThreadpoolController()


def fit_ridge(
    examples: Examples, *, penalty: float, start: Floats, iterations: int = 100
) -> Floats:
    """Weights [D+1, L]; the last row is the bias, which is not penalised.

    Minimises Σ −ln f(label) + ½·penalty·‖weights‖², by L-BFGS from `start`.
    """
    choices, groups = examples.choices, examples.centres.shape[0]
    right = np.arange(choices.label.size), choices.label

    def objective(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        table = flat.reshape(start.shape)
        log_f = choices.log_probabilities(examples.scores(table.astype(np.float32)))
        residual = np.exp(log_f)
        residual[right] -= 1.0
        by_group = np.stack(
            [np.bincount(examples.group, column, groups) for column in residual.T], axis=1
        )
        gradient = np.empty(start.shape)
        gradient[:-1] = examples.inputs.T @ residual - examples.centres.T @ by_group
        gradient[:-1] += penalty * table[:-1]
        gradient[-1] = by_group.sum(axis=0)
        loss = -float(log_f[right].sum(dtype=np.float64))
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
