"""Features of long vectors are the directions in which they differ most, on one scale."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from tasid.beliefs.features import LARGEST_VECTOR, fit_features

SIZE = 2 * LARGEST_VECTOR


@pytest.mark.parametrize("number", [SIZE // 4, 3 * SIZE], ids=["few", "many"])
def test_directions_of_largest_variance_come_first(number):
    """Known answer: rows made of orthonormal directions with known, falling spreads."""
    rng = np.random.default_rng(4)
    directions, _ = np.linalg.qr(rng.normal(size=(SIZE, SIZE)))
    scores = rng.normal(size=(number, SIZE))
    scores, _ = np.linalg.qr(scores - scores.mean(axis=0))
    spreads = np.geomspace(10, 0.1, scores.shape[1])
    rows = (scores * spreads) @ directions[: len(spreads)] + 3
    found = fit_features(rows.astype(np.float32))
    kept = min(LARGEST_VECTOR, number - 1)
    components = np.asarray(found.components, np.float64)
    lengths = np.linalg.norm(components[:, :kept], axis=0)
    along = np.abs((components[:, :kept] / lengths * directions[:kept].T).sum(axis=0))
    assert along.min() > 0.999
    assert np.allclose(lengths, lengths[0])
    assert not components[:, kept:].any()
    features = np.asarray(found(jnp.asarray(rows, jnp.float32), jnp.int32(0)))
    assert features[:, :kept].var(axis=0).mean() == pytest.approx(1, rel=1e-3)
