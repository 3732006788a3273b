"""`check_target`: right maps pass, every kind of wrong one is a problem."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import tasid
from tasid.learning.check import check_target


class Ring(gymnasium.Env):
    """Five cells in a ring; actions 0 and 2 stay, 1 goes on. Leaving cell 4 earns 1.

    Observations are a noisy one-hot code of the cell.
    """

    observation_space = spaces.Box(-np.inf, np.inf, (6,), np.float64)
    action_space = spaces.Discrete(3)

    def __init__(self, slips=0.1, reward=1.0, leak=False, seeded=True, ends=False, blind=False):
        self.slips, self.reward, self.leak, self.ends, self.blind = slips, reward, leak, ends, blind
        self.seeded = seeded

    def reset(self, *, seed=None, options=None):
        self.rng = np.random.default_rng(seed if self.seeded else None)
        self.cell = 0
        return self._observation(0), {}

    def step(self, action):
        happened = action if self.rng.random() >= self.slips else self.rng.integers(3)
        reward = self.reward * (self.cell == 4 and happened == 1)
        self.cell = (self.cell + (happened == 1)) % 5
        return self._observation(action), reward, self.ends and self.cell == 2, False, {}

    def _observation(self, action):
        if self.blind:
            return np.zeros(6)
        code = np.append(np.eye(5)[self.cell], self.leak and action == 2)
        return code + self.rng.normal(scale=0.05, size=6)


def ring_map(horizon=8, **changes):
    cells = np.arange(5)
    parts = {
        "successor": np.stack([cells, (cells + 1) % 5, cells], axis=1),
        "reward": np.outer(cells == 4, [0.0, 1.0, 0.0]),
    }
    return tasid.AbstractSimulator(**(parts | changes), horizon=horizon)


def names(report):
    return {problem.partition(":")[0] for problem in report.problems}


def checked(sim=None, eta=0.1, **faults):
    with tasid.wrap(lambda: Ring(**faults), num_envs=8, horizon=8) as target:
        return check_target(target, ring_map() if sim is None else sim, eta=eta, episodes=120)


def test_a_right_map_passes(lock):
    for report in (checked(), check_target(lock, episodes=64)):
        assert report.ok
        assert not report.problems
        assert report.to_json()["ok"]


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        ({"reward": 2.0}, "rewards and ends"),
        ({"leak": True}, "leaks"),
        ({"seeded": False}, "repeats"),
        ({"ends": True}, "rewards and ends"),
        ({"blind": True}, "observations"),
    ],
)
def test_faults_of_the_target_are_problems(fault, problem):
    assert problem in names(checked(**fault))


def test_a_wrong_edge_on_the_route_is_a_problem():
    wrong = ring_map().successor.copy()
    wrong[:, [0, 1]] = wrong[:, [1, 0]]  # two actions are exchanged
    assert "route" in names(
        checked(ring_map(successor=wrong, reward=ring_map().reward[:, [1, 0, 2]]))
    )


def test_sizes_that_differ_are_problems(lock):
    assert names(check_target(lock, ring_map(horizon=10))) == {"num_actions"}
    assert "horizon" in names(check_target(lock, lock.simulator.replace(
        successor=lock.simulator.successor, horizon=9
    )))  # fmt: skip


@pytest.mark.parametrize("reward", [0.0, 1.0])
@pytest.mark.parametrize("source", ["tables", "function", "text", "toy text"])
def test_a_map_on_which_every_plan_earns_the_same_is_a_problem(source, reward):
    if source == "tables":
        sim = ring_map(reward=np.full((5, 3), reward))
    elif source == "function":
        sim = tasid.AbstractSimulator.from_function(
            lambda s, a: ((s + (a == 1)) % 5, reward), 0, 3, horizon=8
        )
    elif source == "text":
        text = "#####\n#S..#\n#####"
        sim = tasid.AbstractSimulator.from_text_map(text, horizon=8, step_reward=-reward)
    else:
        env = gymnasium.make("FrozenLake-v1", desc=["SF", "FF"], is_slippery=False)
        for row in env.unwrapped.P.values():
            row.update({a: [(p, s, reward, False) for p, s, _, _ in o] for a, o in row.items()})
        sim = tasid.AbstractSimulator.from_toy_text(env, horizon=8)
    target = Still(sim.num_actions)
    with tasid.wrap(target, horizon=8) as wrapped:
        report = check_target(wrapped, sim, episodes=4)
        assert "map" in names(report)
        result = tasid.learn(wrapped, sim, eta=0.1, episodes=2)
    assert any("plan" in warning for warning in result.diagnostics.warnings)


class Still(gymnasium.Env):
    """Nothing ever happens."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, actions):
        self.action_space = spaces.Discrete(actions)

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 0.0, False, False, {}


def test_more_slips_than_planned_are_a_problem():
    assert names(checked(eta=0.0, slips=0.4)) >= {"route"}


def test_what_cannot_be_checked_is_named(lock):
    for name, arguments in (
        ("eta", {"eta": 0.5}),
        ("eta", {"eta": -0.1}),
        ("episodes", {"episodes": 1}),
    ):
        with pytest.raises(ValueError, match=f"^{name}:"):
            check_target(lock, **arguments)
    with (
        tasid.wrap(lambda: Ring(), horizon=8) as target,
        pytest.raises(ValueError, match="simulator"),
    ):
        check_target(target)
