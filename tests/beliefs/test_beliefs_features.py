"""Features: directions in which long vectors differ most, averaged squares of pictures."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from tasid.beliefs.features import LARGEST_VECTOR, by_step, fit_features, flattened

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


@pytest.mark.parametrize("pool", [1, 4, 16, 17])
@pytest.mark.parametrize("kind", [np.uint8, np.float32])
def test_pictures_are_averaged_over_squares(kind, pool):
    """By hand, pixel by pixel; whole squares only, white as well as black."""
    rng = np.random.default_rng(5)
    pictures = rng.integers(0, 256, (3, 2 * pool + pool // 2, 3 * pool, 3)).astype(kind)
    pictures[0] = 255
    squares = [
        pictures[:, pool * i : pool * (i + 1), pool * j : pool * (j + 1)].astype(float).mean((1, 2))
        for i in range(2)
        for j in range(3)
    ]
    expected = np.stack(squares, axis=1).reshape(3, -1) / 255
    found = flattened(pictures, pool)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    np.testing.assert_allclose(flattened(jnp.asarray(pictures), pool), expected, rtol=1e-6)


def test_whole_episodes_have_the_features_of_their_steps():
    """Centred step by step on what is live; a step that nobody lived to see is left as it is."""
    rng = np.random.default_rng(6)
    seen = (rng.normal(size=(8, 4, 5)) + 10 * np.arange(4)[:, None]).astype(np.float32)
    live = np.ones((8, 4), bool)
    live[2:, 2], live[:, 3] = False, False
    found = by_step(fit_features(seen.reshape(-1, 5)), seen, live)
    whole = np.asarray(found.whole(jnp.asarray(seen)))
    for h in range(4):
        step = found(jnp.asarray(seen[:, h]), jnp.int32(h))
        np.testing.assert_allclose(whole[h], step, atol=1e-5)
    for h, rows in enumerate((slice(None), slice(None), slice(2))):
        np.testing.assert_allclose(whole[h][rows].mean(axis=0), 0, atol=1e-5)
    np.testing.assert_array_equal(found.usual[3], 0)
