"""A robot that learns a small building, is carried away in it, and stands beside particles."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.building_episodes import follow
from benchmarks.building_table import informed, named_errors
from benchmarks.particles import MonteCarlo

import tasid

pytestmark = pytest.mark.slow
SMALL = """\
#######
#S....#
#.###.#
#....G#
#######"""


@pytest.fixture(scope="module")
def env():
    return tasid.make("building", map=SMALL, seed=9001)


@pytest.fixture(scope="module")
def plan(env):
    return tasid.robust_dp(env.simulator, eta=0.1)


def test_carried_away_the_filter_finds_back(env, plan):
    away = np.array([int(env.simulator.starts[0])])
    carried = follow(env, informed(env, plan), episodes=32, seed=1, carried=(4, away))
    assert (carried.truth[0] == away[0]).all()
    assert (carried.truth[3] != away[0]).mean() > 0.5
    assert (carried.truth[4] == away[0]).all()
    assert (carried.distance[8] == 0).mean() > 0.8


def test_particles_with_the_true_sensor_know_where_they_are(env, plan):
    played = follow(env, MonteCarlo.of(env, plan, particles=300), episodes=64, seed=2)
    assert played.returns.mean() >= 0.85 * env.latent.robust_value(plan)
    assert played.distance[played.going].mean() < 0.7
    assert (played.arrived == (played.returns > 0)).all()


def test_it_delivers_from_a_laser_nobody_described(env, plan):
    learned = tasid.learn(env, eta=0.1, episodes=64, seed=9001)
    robust = env.latent.robust_value(plan)
    followed = follow(env, learned.policy.actor, episodes=128, seed=1)
    assert followed.returns.mean() >= 0.9 * robust
    score = tasid.evaluate(learned.policy, env, episodes=128, seed=1)
    np.testing.assert_allclose(followed.returns, score.returns, atol=1e-5)
    assert named_errors(env, learned, 0, 0) == {"ratio": 0.0, "right": 0, "false": 0}
