"""Maps from step functions: reachable states only, endings, and functions that waver."""

from __future__ import annotations

import itertools
import random
import re

import numpy as np
import pytest
from hypothesis import given

from mdps import quick, worlds
from tasid.maps import AbstractSimulator, SimulatorError, policy_value, robust_dp
from tasid.maps.sources import MapError, MapWarning

make = AbstractSimulator.from_function


def walk(state, action):
    """An endless line; +1 for reaching 3, and that is the end."""
    after = state + (1 if action else -1)
    return after, float(after == 3), after == 3


def test_an_endless_world_is_cut_at_the_horizon():
    sim = make(walk, 0, 2, horizon=4)
    assert sorted(sim.states) == [-4, -3, -2, -1, 0, 1, 2, 3]
    assert sim.states[sim.start] == 0
    assert sim.origin.explored == 4
    assert robust_dp(sim, eta=0.0).start_value == 1.0
    # Worst case, by hand: three steps up of four, each with 0.9, one may fail: 3 needs 3 in a row.
    assert robust_dp(sim, eta=0.1).start_value == pytest.approx(0.9**3)
    with pytest.raises(SimulatorError, match="explored 4 steps"):
        sim.with_horizon(5)


def test_done_absorbs_and_step_is_never_asked_beyond_it():
    asked = []

    def step(state, action):
        asked.append(state)
        return walk(state, action)

    sim = make(step, 2, 2, horizon=3)
    end = sim.states.index(3)
    assert 3 not in asked
    assert sim.successor[end].tolist() == [end, end]
    assert sim.reward[end].tolist() == [0.0, 0.0]


def test_actions_that_never_matter_are_suspicious():
    with pytest.warns(MapWarning, match="in no state does it matter.* called with 'down', 'up'$"):
        make(lambda s, a: (s + (1 if a == 1 else -1), 0.0), 0, ["down", "up"], horizon=3)
    make(lambda s, a: (s + 1, float(a)), 0, 2, horizon=3)  # they pay differently
    make(lambda s, a: (s + 1, 0.0), 0, 1, horizon=3)  # nothing to choose


def test_a_state_may_end_an_episode_or_be_passed_through():
    def step(state, action):
        return ("hall", 5.0, True) if action == "leave" else ("hall", 1.0, False)

    sim = make(step, "hall", ["wait", "leave"], horizon=3)
    assert sim.states == ("hall", ("hall", "done"))
    assert sim.successor.tolist() == [[0, 1], [1, 1]]
    assert sim.reward.tolist() == [[1.0, 5.0], [0.0, 0.0]]
    assert sim.origin.actions == ("wait", "leave")
    assert sim.origin.explored is None
    assert robust_dp(sim.with_horizon(10), eta=0.0).start_value == 14.0


def test_actions_may_be_any_values():
    sim = make(lambda s, a: ((s + a) % 5, 0), 0, np.array([2, -1]), horizon=9)
    assert [[sim.states[t] for t in row] for row in sim.successor] == [
        [(s + 2) % 5, (s - 1) % 5] for s in sim.states
    ]


def test_several_starts():
    sim = make(walk, [0, 2], 2, horizon=3, start_probabilities=[0.25, 0.75])
    assert [sim.states[s] for s in sim.starts] == [0, 2]
    assert robust_dp(sim, eta=0.0).start_value == 1.0


@pytest.mark.filterwarnings("ignore:step. in no state does it matter")
@quick
@given(worlds(per_step=False))
def test_a_table_read_through_a_function_keeps_its_values(world):
    starts = world.starts.tolist()

    def step(s, a):
        return int(world.successor[s, a]), world.reward[s, a]

    sim = make(
        step,
        starts,
        world.num_actions,
        horizon=world.horizon,
        start_probabilities=world.start_probabilities.tolist(),
    )
    for eta in (0.0, 0.3):
        assert robust_dp(sim, eta=eta).start_value == pytest.approx(
            robust_dp(world, eta=eta).start_value
        )
    assert policy_value(sim, np.zeros((1, 1), int)) == pytest.approx(
        policy_value(world, np.zeros((1, 1), int))
    )


def test_chance_is_noticed():
    dice = random.Random(0)
    with pytest.raises(MapError, match=r"^step: step\(.*gave .* and then .*deterministic"):
        make(lambda s, a: (dice.randrange(100), 0.0), 0, 2, horizon=3)
    with pytest.raises(MapError, match="deterministic"):
        make(lambda s, a: (s, dice.random()), 0, 1, horizon=2)
    with pytest.raises(MapError, match="deterministic"):  # before it makes more states than fit
        make(lambda s, a: (dice.random(), 0.0), 0, 2, horizon=50, max_states=100)


def test_a_memory_is_noticed_even_if_it_answers_twice_alike():
    calls = itertools.count()

    def step(state, action):
        return (state + 1) % 7, float(next(calls) >= 10)

    with pytest.raises(MapError, match=r"step\(\d, 0\) gave .*0\.0.* and then .*1\.0"):
        make(step, 0, 1, horizon=5)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (lambda s, a: s, "step: step(0, 0) gave 0; it should be (next_state, reward) or"),
        (lambda s, a: (s, 0, False, {}), "step: step(0, 0) gave (0, 0, False, {}); it should"),
        (lambda s, a: ([s], 0), "step: the next state of step(0, 0): [0] of type list cannot be"),
        (lambda s, a: (s, float("nan")), "step: the reward of step(0, 0) is nan, not a finite"),
        (lambda s, a: (s, "much"), "step: the reward of step(0, 0) is 'much', not a finite"),
        (lambda s, a: (s, 0, "no"), "step: done of step(0, 0) is 'no', neither True nor False"),
    ],
)
def test_answers_that_are_no_step_are_refused(step, message):
    with pytest.raises(MapError, match="^" + re.escape(message)):
        make(step, 0, 1, horizon=2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"start": {}}, "start: {} of type dict cannot be hashed"),
        ({"start": np.zeros(2)}, "start: array([0., 0.]) of type ndarray cannot be hashed"),
        ({"actions": 0}, "actions: there are none"),
        ({"actions": []}, "actions: there are none"),
        ({"actions": True}, "actions: True is neither a number of actions nor a list"),
        ({"actions": 2.5}, "actions: 2.5 is neither a number of actions nor a list"),
        ({"horizon": 0}, "horizon: 0 is below 1"),
        ({"horizon": 50, "max_states": 20}, "max_states: more than 20 states can be reached; the"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    given = {"start": 0, "actions": 2, "horizon": 3, **arguments}
    with pytest.raises(SimulatorError, match="^" + re.escape(message)):
        make(walk, given.pop("start"), given.pop("actions"), **given)


def test_an_error_inside_the_function_is_not_hidden():
    def step(state, action):
        raise ZeroDivisionError("the robot fell over")

    with pytest.raises(ZeroDivisionError, match="fell over"):
        make(step, 0, 1, horizon=1)


def test_what_is_no_function_is_named():
    with pytest.raises(TypeError, match="step: 5 is no function of a state and an action"):
        AbstractSimulator.from_function(5, 0, 2, horizon=4)
