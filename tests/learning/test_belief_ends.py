"""Ends are evidence where a target tells them, and nowhere else."""

from __future__ import annotations

import pytest

import tasid
from probes import Cliff
from tasid.learning.belief.method import belief
from tasid.learning.belief.monitor import _played
from tasid.targets.streams import MONITORING


def step(place, action):
    """Action 0 ends the episode, action 1 goes on and earns 1."""
    if action == 0 or place == "over":
        return "over", 0.0, True
    return place + 1, 1.0


def cliff():
    sim = tasid.AbstractSimulator.from_function(step, 0, 2, horizon=4)
    return Cliff(), sim


def lock():
    env = tasid.make("combination-lock", horizon=4, num_actions=3, seed=1)
    return env, env.simulator


@pytest.mark.parametrize(("world", "tells"), [(cliff, True), (lock, False)])
def test_ends_are_told_by_targets_that_have_them(world, tells):
    target, sim = world()
    plan = tasid.robust_dp(sim, eta=0.1)
    assert target.ends_early is tells
    learnt = belief(target, plan, episodes=16, seed=0)
    assert [bool(chunk.tells) for chunk in learnt.chunks] == [tells] * len(learnt.chunks)
    policy = tasid.learn(target, sim, eta=0.1, episodes=16).policy
    for chunk in _played(policy, target, MONITORING, 4, 0):
        assert bool(chunk.tells) is tells
