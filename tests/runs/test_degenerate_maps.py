"""Maps on which there is nothing to tell apart: one action, or one outcome in every state."""

from __future__ import annotations

import json

import gymnasium
import numpy as np
import pytest

import tasid
from tasid.cli import main
from tasid.maps.planning.flips import changes_of, likeliest_starts

Map = tasid.AbstractSimulator
ONE_ACTION, ONE_OUTCOME = [[1], [2], [2]], [[1, 1], [2, 2], [2, 2]]
MAPS = {
    "one action": (Map(ONE_ACTION, [[0.0], [1.0], [0.0]], horizon=3), 1.0),
    "one action, two starts": (
        Map(ONE_ACTION, [[0.0], [1.0], [0.0]], horizon=3, start=[0, 2]),
        0.5,
    ),
    "one state": (Map([[0]], [[2.0]], horizon=3), 6.0),
    "one step": (Map([[0]], [[2.0]], horizon=1), 2.0),
    "a table per step": (Map(np.zeros((3, 1, 1), int), np.ones((3, 1, 1)), horizon=3), 3.0),
    # The better of two actions pays 1 with probability 1 − η.
    "one outcome": (Map(ONE_OUTCOME, [[0.0, 1.0], [1.0, 0.0], [0.0, 0.0]], horizon=3), 1.8),
    "a function of one action": (
        Map.from_function(lambda s, a: (min(s + 1, 2), float(s)), 0, 1, horizon=3),
        3.0,
    ),
}


class Walk(gymnasium.Env):
    """A map as an environment that shows a noisy one-hot of the state."""

    def __init__(self, sim):
        self.sim = sim
        self.observation_space = gymnasium.spaces.Box(-9, 9, (sim.num_states,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(sim.num_actions)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state, self.step_number = int(self.np_random.choice(self.sim.starts)), 0
        return self.look(), {}

    def step(self, action):
        h, self.step_number = self.step_number, self.step_number + 1
        paid = float(self.sim.reward_at(h)[self.state, action])
        self.state = int(self.sim.successor_at(h)[self.state, action])
        return self.look(), paid, False, False, {}

    def look(self):
        seen = 0.1 * self.np_random.normal(size=self.sim.num_states)
        seen[self.state] += 1.0
        return seen.astype(np.float32)


@pytest.mark.parametrize("name", MAPS)
def test_they_are_planned_on(name):
    sim, value = MAPS[name]
    plan = tasid.robust_dp(sim, eta=0.1)
    assert plan.start_value == pytest.approx(value)
    assert tasid.certify(plan).gap == pytest.approx(0.0, abs=1e-9)
    world = tasid.perturb(sim, eta=0.1)
    assert tasid.is_perturbation(world, sim, eta=0.1)
    assert tasid.policy_value(world, plan) >= value - 1e-9
    nominal = tasid.robust_dp(sim, eta=0.0)
    assert not list(changes_of(plan, nominal, likeliest_starts(sim)))


@pytest.mark.parametrize("name", MAPS)
def test_they_are_checked(name):
    sim, _ = MAPS[name]
    with tasid.wrap(lambda: Walk(sim), num_envs=8) as target:
        found = tasid.check_target(target, sim, eta=0.1, episodes=40)
    shows_nothing = sim.num_states == 1
    assert found.ok or shows_nothing, found.problems
    if len(sim.starts) == 1:
        assert "η cannot be estimated" in " ".join(one.text for one in found.findings)


@pytest.mark.parametrize("name", ["one action, two starts", "one step", "one outcome"])
def test_they_are_learned_on(name):
    """There is nothing to learn, and what any policy earns is known."""
    sim, _ = MAPS[name]
    with tasid.wrap(lambda: Walk(sim), num_envs=8) as target:
        policy = tasid.learn(target, sim, eta=0.1, episodes=16).policy
        score = tasid.evaluate(policy, target, episodes=40)
    nominal = tasid.robust_dp(sim, eta=0.0).start_value
    assert score.mean == pytest.approx(nominal, abs=0.3 if len(sim.starts) > 1 else 1e-6)


def test_the_command_line_plans_on_them(capsys, tmp_path):
    MAPS["one action"][0].save(tmp_path / "map")
    with pytest.raises(SystemExit) as stop:
        main(["plan", str(tmp_path / "map"), "--png", str(tmp_path / "route.png"), "--json"])
    assert not stop.value.code
    assert json.loads(capsys.readouterr().out)["worst_case_value"] == 1.0
    assert (tmp_path / "route.png").exists()
