"""Ridge regression against its optimality conditions and an independent solver."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

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
        label,
        valid,
        rng.choice([0.0, 1.0, 2.0], size=rows).astype(np.float32),
    )


def plain_objective(examples, penalty, table):
    """Written row by row, in float64, with centres subtracted beforehand."""
    total = 0.5 * penalty * (table[:-1] ** 2).sum()
    for x, g, y, valid, w in zip(
        examples.inputs.astype(float),
        examples.group,
        examples.label,
        examples.valid,
        examples.weight,
        strict=True,
    ):
        scores = ((x - examples.centres[g]) @ table[:-1] + table[-1])[valid]
        own = ((x - examples.centres[g]) @ table[:-1] + table[-1])[y]
        total += w * (np.log(np.exp(scores).sum()) - own)
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


def test_rows_of_weight_zero_do_not_matter():
    examples = examples_of()
    start = np.zeros((4, 3), np.float32)
    whole = fit_ridge(examples, penalty=1.0, start=start)
    part = fit_ridge(examples.only(examples.weight > 0), penalty=1.0, start=start)
    np.testing.assert_allclose(whole, part, atol=2e-2)


def test_scores_and_losses():
    examples = examples_of(rows=5)
    table = np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32)
    scores = examples.scores(table)
    for i in range(5):
        x = examples.inputs[i] - examples.centres[examples.group[i]]
        np.testing.assert_allclose(scores[i], x @ table[:-1] + table[-1], rtol=1e-4, atol=1e-5)
    probabilities = np.exp(examples.log_probabilities(scores))
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-5)
    assert (probabilities[~examples.valid] == 0).all()
    own = probabilities[np.arange(5), examples.label]
    np.testing.assert_allclose(examples.losses(scores), -np.log(own), rtol=1e-4)


def test_a_single_outcome_costs_nothing():
    examples = examples_of(rows=6)
    only = np.zeros_like(examples.valid)
    only[np.arange(6), examples.label] = True
    alone = Examples(
        examples.inputs, examples.centres, examples.group, examples.label, only, examples.weight
    )
    assert (alone.losses(alone.scores(np.ones((4, 3), np.float32))) == 0).all()
