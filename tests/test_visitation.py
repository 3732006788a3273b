"""Where the plan is expected to meet a choice, against enumeration by hand."""

from __future__ import annotations

import numpy as np
import pytest

import tasid
from tasid.mdp.visitation import choice_mass


def test_a_corridor_with_a_goal():
    """Three cells, the last one absorbing; the plan walks right, a slip is one of two actions."""
    successor = [[0, 1], [0, 2], [2, 2]]
    reward = [[0.0, 0.0], [0.0, 1.0], [0.0, 0.0]]
    sim = tasid.AbstractSimulator(successor, reward, horizon=4)
    plan = tasid.robust_dp(sim, eta=0.2)
    right = 1 - 0.2 / 2
    at_goal = right**2
    later = at_goal + (1 - right) * right**2  # a late start; a step back takes longer
    np.testing.assert_allclose(choice_mass(plan), [1, 1, 1 - at_goal, 1 - later], atol=1e-12)


@pytest.mark.parametrize("eta", [0.0, 0.3])
def test_equals_simulation_on_random_maps(eta):
    rng = np.random.default_rng(4)
    horizon, states, actions = 6, 7, 3
    successor = rng.integers(0, states, (horizon, states, actions))
    successor[:, 4:] = successor[:, 4:, :1]  # no choice here
    sim = tasid.AbstractSimulator(
        successor,
        rng.random((horizon, states, actions)),
        horizon=horizon,
        start=[0, 5],
        start_probabilities=[0.3, 0.7],
    )
    plan = tasid.robust_dp(sim, eta=eta)
    number = 40_000
    state = rng.choice([0, 5], number, p=[0.3, 0.7])
    for h, mass in enumerate(choice_mass(plan)):
        few = np.array([len(set(row)) for row in successor[h]])
        assert mass == pytest.approx((few[state] > 1).mean(), abs=0.015)
        slip = rng.random(number) < eta
        action = np.where(slip, rng.integers(0, actions, number), plan.actions[h, state])
        state = successor[h, state, action]
