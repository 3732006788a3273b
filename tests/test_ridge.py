"""Ridge regression against its optimality conditions and an independent solver."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from tasid.learning.choices import Choices
from tasid.learning.ridge import Examples, fit_ridge


def examples_of(rows=80, size=3, labels=3, groups=2, seed=0):
    rng = np.random.default_rng(seed)
    label = rng.integers(labels, size=rows)
    valid = rng.random((rows, labels)) < 0.7
    valid[np.arange(rows), label] = True
    group = rng.integers(groups, size=rows).astype(np.int32)
    centres = rng.normal(size=(groups, size)).astype(np.float32)
    inputs = rng.normal(size=(rows, size)) + np.eye(labels)[label][:, :size] + centres[group]
    return Examples(
        inputs.astype(np.float32),
        centres,
        group,
        Choices(label, valid),
    )


def plain_objective(examples, penalty, table):
    """Written row by row, in float64, with centres subtracted beforehand."""
    total = 0.5 * penalty * (table[:-1] ** 2).sum()
    for x, g, y, valid in zip(
        examples.inputs.astype(float),
        examples.group,
        examples.choices.label,
        examples.choices.valid,
        strict=True,
    ):
        scores = ((x - examples.centres[g]) @ table[:-1] + table[-1])[valid]
        own = ((x - examples.centres[g]) @ table[:-1] + table[-1])[y]
        total += np.log(np.exp(scores).sum()) - own
    return total


@pytest.mark.parametrize("penalty", [0.5, 20.0])
def test_solution_is_the_optimum(penalty):
    examples = examples_of()
    start = np.zeros((4, 3), np.float32)
    found = fit_ridge(examples, penalty=penalty, start=start)

    def flat(vector):
        return plain_objective(examples, penalty, vector.reshape(4, 3))

    reference = minimize(flat, start.ravel().astype(np.float64), method="BFGS")
    assert flat(found.ravel().astype(float)) == pytest.approx(reference.fun, abs=2e-3)


def test_scores_and_losses():
    examples = examples_of(rows=5)
    table = np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32)
    scores = examples.scores(table)
    for i in range(5):
        x = examples.inputs[i] - examples.centres[examples.group[i]]
        np.testing.assert_allclose(scores[i], x @ table[:-1] + table[-1], rtol=1e-4, atol=1e-5)
    probabilities = np.exp(examples.choices.log_probabilities(scores))
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-5)
    assert (probabilities[~examples.choices.valid] == 0).all()
    own = probabilities[np.arange(5), examples.choices.label]
    np.testing.assert_allclose(examples.choices.losses(scores), -np.log(own), rtol=1e-4)


def test_a_single_outcome_costs_nothing():
    choices = examples_of(rows=6).choices
    only = np.zeros_like(choices.valid)
    only[np.arange(6), choices.label] = True
    scores = np.random.default_rng(1).normal(size=(6, 3)).astype(np.float32)
    assert (Choices(choices.label, only).losses(scores) == 0).all()
