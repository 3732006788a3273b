"""What a user should know before trusting what was learned."""

from __future__ import annotations

import numpy as np
import pytest

import tasid
from tasid.runs.recording import record_episodes
from tasid.runs.warnings import reward_warnings

ROOM = tasid.AbstractSimulator.from_text_map("#####\n#S.G#\n#####", horizon=3)


@pytest.mark.parametrize(
    ("paid", "said"),
    [
        ([-0.01, 1.0, 0.0], None),
        (np.float32([-0.01, 1.0, -1.0]), "-1 most often, in 33.33% of the steps"),
        ([-0.01, 5.0, 5.0], "5 most often, in 66.67% of the steps"),
        ([-0.02, -0.02, 1.5], "1.5 most often, in 33.33% of the steps"),
        ([-0.012, 0.955, 0.03], None),  # a little less with every step, or noise
    ],
)
def test_rewards_that_the_map_does_not_have_are_named(paid, said):
    found = list(reward_warnings(np.array([paid]), ROOM))
    assert len(found) == (said is not None)
    assert said is None or f"the target paid what the map does not know, {said}" in found[0]


def test_learning_says_that_the_map_pays_otherwise(lock):
    sim = lock.simulator
    other = sim.replaced(reward=2 * sim.reward)
    for map_given, told in ((sim, False), (other, True)):
        learned = tasid.learn(lock, map_given, eta=0.1, episodes=16, seed=3)
        log = record_episodes(lock, None, episodes=64, seed=2)
        from_log = tasid.learn_from_episodes(log, map_given, eta=0.1)
        for result in (learned, from_log):
            words = " ".join(result.diagnostics.warnings)
            assert ("the map does not know" in words) == told
