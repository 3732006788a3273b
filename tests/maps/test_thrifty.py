"""Plans without their policy lead where the policies lead."""

from __future__ import annotations

import numpy as np
import pytest
from test_fused import WORLDS
from test_sources_text_map import lava

from tasid.maps import AbstractSimulator, robust_dp, robust_plans
from tasid.maps.planning import flips
from tasid.maps.planning.flips import arrives, changes_of, likeliest_starts, way_of
from tasid.maps.planning.thrifty import policy_is_huge, thrifty_plan

MAPS = {**dict(enumerate(WORLDS[:3])), "lava": lava()}


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("eta", [0.0, 0.1, 1 / 3])
def test_every_action_that_can_be_asked_for_is_that_of_the_policy(name, eta):
    sim = MAPS[name]
    whole, thrifty = robust_dp(sim, eta=eta), thrifty_plan(sim, eta=eta)
    assert thrifty.start_value == whole.start_value
    assert (thrifty.eta, thrifty.simulator) == (eta, sim)
    starts = likeliest_starts(sim)
    assert way_of(thrifty, starts) == way_of(whole, starts)
    rng = np.random.default_rng(0)
    for start in starts:  # off the route, too
        state = start
        for h in range(sim.horizon):
            assert thrifty.action(h, state) == whole.action(h, state)
            state = int(sim.successor_at(h)[state, rng.integers(sim.num_actions)])


def test_it_remembers_few_steps():
    sim = lava(horizon=90)
    assert len(thrifty_plan(sim, eta=0.1).marks) == 10
    assert len(thrifty_plan(sim.with_horizon(1), eta=0.1).marks) == 2


@pytest.mark.parametrize(
    ("h", "s", "message"),
    [
        (4, 0, r"h: 4 is not a step; steps run 0 … 3"),
        (-1, 0, r"h: -1 is not a step"),
        (0, 50, r"s: 50 is not a state; states run 0 … 49"),
    ],
)
def test_asking_outside_the_plan_is_an_error(h, s, message):
    with pytest.raises(ValueError, match=message):
        thrifty_plan(WORLDS[2], eta=0.1).action(h, s)


def test_flips_are_the_same_without_policies(monkeypatch):
    sim = lava()
    plan, nominal = robust_plans(sim, etas=[0.1, 0.0])
    expected = changes_of(plan, nominal, (sim.start,))
    assert expected
    monkeypatch.setattr(flips, "policy_is_huge", lambda sim: True)
    monkeypatch.setattr(flips, "robust_dp", None)
    assert changes_of(plan, thrifty_plan(sim, eta=0.0), (sim.start,)) == expected


def test_a_policy_is_huge_by_its_bytes():
    successor = np.zeros((100_000, 1), int)
    for horizon, huge in ((2_000, False), (2_001, True)):
        sim = AbstractSimulator(successor, np.zeros((100_000, 1)), horizon=horizon)
        assert policy_is_huge(sim) is huge


def test_whether_a_way_arrives():
    alley = AbstractSimulator.from_text_map("####LL#\nS.....G\n####LL#", horizon=18)
    assert arrives(robust_dp(alley, eta=0.0), alley.start) is True
    assert arrives(robust_dp(alley, eta=0.4), alley.start) is False
    assert arrives(robust_dp(WORLDS[0], eta=0.0), 0) is None
