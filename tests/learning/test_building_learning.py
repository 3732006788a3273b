"""A robot that learns a building, is carried away in it, and stands beside particles."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.building_table import named_errors
from benchmarks.followed import final_states, follow
from benchmarks.kidnapping import informed
from benchmarks.particles import MonteCarlo

import tasid

pytestmark = pytest.mark.slow
SMALL = """\
#######
#S....#
#.###.#
#....G#
#######"""
OFFICES = """\
########################
#S.....#.......#.......#
#......#.......#.......#
#......................#
#......#.......#.......#
###.#######.#######.####
#......................#
#......#.......#.......#
#......#.......#......G#
########################"""


@pytest.fixture(scope="module")
def env():
    return tasid.make("building", map=SMALL, seed=9001)


@pytest.fixture(scope="module")
def plan(env):
    return tasid.robust_dp(env.simulator, eta=0.1)


def test_carried_away_the_filter_finds_back(env, plan):
    start = int(env.simulator.starts[0])
    away = np.full(32, 4), np.full(32, start)
    carried = follow(env, informed(env, plan), episodes=32, seed=1, carried=away)
    assert (carried.truth[0] == start).all()
    assert (carried.truth[3] != start).mean() > 0.5
    assert carried.going[4].all()
    assert (carried.truth[4] == start).all()
    assert (carried.distance[8] == 0).mean() > 0.8


def test_particles_with_the_true_sensor_know_where_they_are(env, plan):
    played = follow(env, MonteCarlo.of(env, plan, particles=300), episodes=64, seed=2)
    assert played.returns.mean() >= 0.85 * env.latent.robust_value(plan)
    assert played.distance[played.going].mean() < 0.7
    assert (played.arrived == (played.returns > 0)).all()


@pytest.fixture(scope="module")
def offices():
    return tasid.make("building", map=OFFICES, seed=9001)


@pytest.fixture(scope="module")
def learned(offices):
    return tasid.learn(offices, eta=0.1, episodes=32, seed=9001)


def test_it_delivers_from_a_laser_nobody_described(offices, learned):
    robust = offices.latent.robust_value(learned.policy.plan)
    followed = follow(offices, learned.policy.actor, episodes=128, seed=1)
    assert followed.returns.mean() >= 0.97 * robust
    score = tasid.evaluate(learned.policy, offices, episodes=128, seed=1)
    np.testing.assert_allclose(followed.returns, score.returns, atol=1e-5)
    assert named_errors(offices, learned, 0, 0) == {"ratio": 0.0, "right": 0, "false": 0}


def test_it_finds_back_even_where_it_has_never_been(offices, learned):
    seldom = np.flatnonzero((learned.diagnostics.visits < 1) & ~final_states(offices.simulator))
    assert seldom.size > 50
    rng = np.random.default_rng(0)
    away = np.full(64, 4), rng.choice(seldom, 64)
    carried = follow(offices, learned.policy.actor, episodes=64, seed=1, carried=away)
    assert (carried.distance[4 + 10] == 0)[carried.going[4 + 10]].mean() > 0.8
