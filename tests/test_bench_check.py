"""The guard on speed: what counts as a drop, on numbers made up; and a yardstick that is right."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.comparison import ALLOWED, compare
from benchmarks.dense_smoother import dense_smoother, some_episodes

from tasid.beliefs import smooth_beliefs

THEN = [9.0, 10.0, 11.0]


@pytest.mark.parametrize(
    ("now", "dropped"),
    [
        ([9.0, 10.0, 11.0], False),
        ([20.0, 30.0, 40.0], False),
        ([7.6, 7.6, 7.6], False),  # less than a quarter
        ([7.4, 7.4, 7.4], True),
        ([1.0, 5.0, 10.5], False),  # so wide a range says nothing
        ([1.0, 5.0, 9.9], True),
        ([], True),  # nobody looks any more
    ],
)
def test_a_drop_is_one_beyond_noise(now, dropped):
    (verdict,) = compare({"planning": THEN}, {"planning": now} if now else {})
    assert verdict.dropped == dropped


def test_every_ratio_is_judged_by_its_own_record():
    verdicts = compare({"one": THEN, "two": [5.0]}, {"two": [5.0], "one": [1.0], "new": [3.0]})
    assert {v.name: v.dropped for v in verdicts} == {"one": True, "two": False, "new": False}
    assert verdicts[0].change == pytest.approx(-0.9)
    assert 0 < ALLOWED < 0.5  # half the speed is never noise


def test_the_dense_yardstick_smooths():
    sim, commands, scores = some_episodes(side=4, number=5, horizon=6)
    dense = dense_smoother(sim, commands, scores, 0.1)
    ours = smooth_beliefs(sim, commands, scores, eta=0.1)
    np.testing.assert_allclose(ours.dense, dense, atol=1e-5)
