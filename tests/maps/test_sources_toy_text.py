"""Gymnasium's toy-text tables: the deterministic map, the chances on top, and the η they imply."""

from __future__ import annotations

import re

import gymnasium
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdps import quick, worlds
from tasid.maps import (
    AbstractSimulator,
    is_perturbation,
    policy_value,
    robust_dp,
)
from tasid.maps.layout import GOAL, HAZARD
from tasid.maps.planning.perturbation import perturb
from tasid.maps.sources import MapError, MapWarning
from tasid.maps.sources.toy_text import from_toy_text

CORRIDOR = ["SFFFG"]
SLIPPERY = {
    "lake, 0.8": ("FrozenLake-v1", {"success_rate": 0.8}, {"is_slippery": False}, 0.2),
    "lake, a third": ("FrozenLake-v1", {}, {"is_slippery": False}, 2 / 3),
    "lake, 0.45": ("FrozenLake-v1", {"success_rate": 0.45}, {"is_slippery": False}, 0.55),
    "large lake": ("FrozenLake8x8-v1", {"success_rate": 0.9}, {"is_slippery": False}, 0.1),
    # Both slips lead to where one is: together they outweigh the move.
    "corridor": (
        "FrozenLake-v1",
        {"desc": CORRIDOR, "success_rate": 0.4},
        {"desc": CORRIDOR, "is_slippery": False},
        0.6,
    ),
    "cliff": ("CliffWalking-v1", {"is_slippery": True}, {"is_slippery": False}, 2 / 3),
    "taxi": ("Taxi-v4", {"is_rainy": True}, {}, 0.2),
}


def made(name, **options):
    return gymnasium.make(name, **options)


def value_by_table(env, plan, horizon):
    """The plan's value straight from P and its done flags, with no absorbing states."""
    table = env.unwrapped.P
    value = np.zeros(len(table))
    for h in reversed(range(horizon)):
        value = np.array(
            [
                sum(
                    p * (r + (not done) * value[t]) for p, t, r, done in table[s][plan.action(h, s)]
                )
                for s in table
            ]
        )
    return float(env.unwrapped.initial_state_distrib @ value)


@pytest.mark.parametrize("case", SLIPPERY)
def test_the_map_behind_the_chances_is_the_deterministic_environment(case):
    name, options, plain, eta = SLIPPERY[case]
    read = from_toy_text(made(name, **options), horizon=15, deterministic="most-likely")
    expected = AbstractSimulator.from_toy_text(made(name, **plain), horizon=15)
    assert read.simulator.successor.tolist() == expected.successor.tolist()
    assert read.simulator.reward.tolist() == expected.reward.tolist()
    assert read.simulator.origin.implied_eta == pytest.approx(eta)
    assert expected.origin.implied_eta == 0.0


@pytest.mark.parametrize("case", SLIPPERY)
def test_the_world_is_the_environment(case):
    name, options, _, eta = SLIPPERY[case]
    env = made(name, **options)
    read = from_toy_text(env, horizon=15, deterministic="most-likely")
    plan = robust_dp(read.simulator, eta=0.2)
    assert policy_value(read.world, plan) == pytest.approx(value_by_table(env, plan, 15), abs=1e-9)
    assert read.world.eta == pytest.approx(eta)


@pytest.mark.parametrize("case", ["lake, 0.8", "corridor", "cliff"])
def test_the_implied_eta_is_the_smallest(case):
    name, options, *_ = SLIPPERY[case]
    read = from_toy_text(made(name, **options), horizon=1, deterministic="most-likely")
    tables = read.world.transition_at(0), read.world.reward_at(0)
    assert is_perturbation(tables, read.simulator, eta=read.simulator.origin.implied_eta)
    assert not is_perturbation(tables, read.simulator, eta=read.simulator.origin.implied_eta - 1e-3)


def test_values_of_deterministic_games():
    lake = AbstractSimulator.from_toy_text(made("FrozenLake-v1", is_slippery=False), horizon=6)
    assert (lake.num_states, lake.num_actions, lake.start) == (16, 4, 0)
    assert robust_dp(lake, eta=0.0).start_value == 1.0
    assert robust_dp(lake.with_horizon(5), eta=0.0).start_value == 0.0
    cliff = AbstractSimulator.from_toy_text(made("CliffWalking-v1"), horizon=100)
    assert robust_dp(cliff, eta=0.0).start_value == -13.0
    assert cliff.start == 36


def test_taxi_has_many_starts_and_its_ends_absorb():
    env = made("Taxi-v4")
    sim = AbstractSimulator.from_toy_text(env, horizon=30)
    assert sim.num_states == 500
    assert len(sim.starts) == 300
    assert sim.start_probabilities.tolist() == pytest.approx([1 / 300] * 300)
    plan = robust_dp(sim, eta=0.0)
    assert plan.start_value == pytest.approx(value_by_table(env, plan, 30))
    assert plan.start_value == pytest.approx(7.93)  # Dietterich's optimal policy
    end = int(sim.successor[16 + 0, 5])  # passenger aboard, at the destination: drop off
    assert sim.reward[16, 5] == 20.0
    assert (sim.successor[end] == end).all()
    assert not sim.reward[end].any()


def test_chance_is_refused_with_its_place():
    with pytest.raises(MapError, match=re.escape("env: P[0][0] = [(0.09999999999999998, 0, 0.0, ")):
        AbstractSimulator.from_toy_text(made("FrozenLake-v1", success_rate=0.8), horizon=5)
    env = made("FrozenLake-v1", is_slippery=False)
    env.unwrapped.P[9][2] = [(0.5, 10, 0, False), (0.5, 8, 0, False)]
    with pytest.raises(MapError, match=re.escape("env: P[9][2] = [(0.5, 10, 0.0, False), (0.5, 8")):
        AbstractSimulator.from_toy_text(env, horizon=5)
    env.unwrapped.P[9][2] = [(0.5, 10, 0, False), (0.5, 10, 0, False), (0.0, 3, 9, True)]
    assert AbstractSimulator.from_toy_text(env, horizon=5).successor[9, 2] == 10


class Game:
    """What from_toy_text needs of an environment."""

    def __init__(self, table, mu=None):
        self.P = table
        if mu is not None:
            self.initial_state_distrib = np.array(mu)


@st.composite
def perturbed(draw):
    """A table of shadow actions: the commanded one keeps more than half."""
    sim = draw(worlds(per_step=False))
    world = perturb(sim, eta=draw(st.floats(0.0, 0.45)), seed=draw(st.integers(0, 99)))
    table = {
        s: {
            a: [
                (world.xi[s, a, b], sim.successor[s, b], sim.reward[s, b], False)
                for b in draw(st.permutations(range(sim.num_actions)))
            ]
            for a in range(sim.num_actions)
        }
        for s in range(sim.num_states)
    }
    mu = np.zeros(sim.num_states)
    mu[sim.starts] = sim.start_probabilities
    return sim, world, Game(table, mu)


@quick
@given(perturbed())
def test_any_map_is_found_under_less_than_half_of_chance(case):
    sim, world, game = case
    read = from_toy_text(game, horizon=sim.horizon, deterministic="most-likely")
    assert read.simulator.successor.tolist() == sim.successor.tolist()
    assert read.simulator.reward.tolist() == sim.reward.tolist()
    assert read.simulator.origin.implied_eta <= world.eta + 1e-6
    assert np.allclose(read.world.transition_at(0), world.transition_at(0), atol=1e-6)
    assert np.allclose(read.world.reward_at(0), world.reward_at(0), atol=1e-6)


def test_one_successor_may_be_listed_in_parts():
    parts = [(0.3, 1, 2.0, False), (0.4, 0, 0.0, False), (0.3, 1, 2.0, False)]
    table = {s: {0: parts, 1: [(1.0, 0, 0.0, False)]} for s in range(2)}
    read = from_toy_text(Game(table, [1.0, 0.0]), horizon=2, deterministic="most-likely")
    assert read.simulator.successor.tolist() == [[1, 0], [1, 0]]
    assert read.simulator.reward.tolist() == [[2.0, 0.0], [2.0, 0.0]]
    assert read.simulator.origin.implied_eta == pytest.approx(0.4)


def test_no_perturbation_for_any_eta_is_said_with_its_place():
    stay = [(1.0, 0, 0.0, False)]
    game = Game({0: {0: [(0.9, 0, 0.0, False), (0.1, 1, 0.0, False)], 1: stay},
                 1: {0: stay, 1: stay}}, [1.0, 0.0])  # fmt: skip
    with pytest.warns(MapWarning, match="at state 0, action 0, it may lead to state 1, where no"):
        read = from_toy_text(game, horizon=2, deterministic="most-likely")
    assert read.simulator.origin.implied_eta is None
    assert read.world is None
    paid = Game({0: {0: [(0.6, 0, 1.0, False), (0.4, 0, 5.0, False)]}}, [1.0])
    with pytest.warns(MapWarning, match="it pays 2.6 on average, outside what the map can, 1 … 1"):
        from_toy_text(paid, horizon=2, deterministic="most-likely")


def test_a_state_that_ends_some_episodes_and_not_others_is_doubled():
    table = {
        0: {0: [(1.0, 1, 2.0, True)], 1: [(1.0, 1, 0.0, False)]},
        1: {0: [(1.0, 0, 1.0, False)], 1: [(1.0, 1, 3.0, False)]},
    }
    game = Game(table, [1.0, 0.0])
    sim = AbstractSimulator.from_toy_text(game, horizon=3)
    assert sim.states == (0, 1, (1, "done"))
    assert sim.successor.tolist() == [[2, 1], [0, 1], [2, 2]]
    assert sim.reward.tolist() == [[2.0, 0.0], [1.0, 3.0], [0.0, 0.0]]


@pytest.mark.parametrize(
    ("game", "message"),
    [
        (Game(None), "env: Game has no table `P`"),
        (Game({1: {0: []}}), "env: the states of P are not numbered 0 … 0"),
        (Game({0: {1: []}}), "env: the actions of P[0] are not numbered 0 … 0"),
        (Game({0: {0: [(1.0, 0)]}}), "env: P[0][0] = [(1.0, 0)] is not a list of (probability"),
        (Game({0: {0: [(0.5, 0, 0, False)]}}), "env: the probabilities of P[0][0] ="),
        (Game({0: {0: [(1.0, 4, 0, False)]}}), "env: P[0][0] = [(1.0, 4, 0, False)] leads outside"),
        (Game({0: {0: [(1.0, 0, 0, False)]}}), "env: Game does not say where episodes start"),
        (Game({0: {0: [(1.0, 0, 0, False)]}}, [0.5]), "env: initial_state_distrib is no distrib"),
    ],
)
def test_tables_that_are_none(game, message):
    with pytest.raises(MapError, match="^" + re.escape(message)):
        AbstractSimulator.from_toy_text(game, horizon=2)


def test_an_id_will_do_and_takes_the_options_of_its_environment():
    for name in ("FrozenLake-v1", "gym:FrozenLake-v1"):
        by_id = AbstractSimulator.from_toy_text(name, horizon=9, is_slippery=False)
        by_env = AbstractSimulator.from_toy_text(
            made("FrozenLake-v1", is_slippery=False), horizon=9
        )
        assert (by_id.successor == by_env.successor).all()
        assert (by_id.reward == by_env.reward).all()
    slips = AbstractSimulator.from_toy_text(
        "FrozenLake-v1", horizon=9, deterministic="most-likely", success_rate=0.8
    )
    assert slips.origin.implied_eta == pytest.approx(0.2)
    with pytest.raises(MapError, match="'FrozenLak-v1' of this: no such id; nearest: Frozen"):
        AbstractSimulator.from_toy_text("FrozenLak-v1", horizon=9)
    with pytest.raises(MapError, match="success_rate: only an id takes options"):
        AbstractSimulator.from_toy_text(made("FrozenLake-v1"), horizon=9, success_rate=0.8)


def test_other_environments_and_choices_are_refused():
    with pytest.raises(MapError, match="env: CartPoleEnv has no table `P`"):
        AbstractSimulator.from_toy_text(made("CartPole-v1"), horizon=2)
    with pytest.raises(MapError, match="deterministic: 'maybe' is none of 'refuse', 'most-likely'"):
        AbstractSimulator.from_toy_text(made("FrozenLake-v1"), horizon=2, deterministic="maybe")
    with pytest.warns(MapWarning, match="fickle passenger"):
        AbstractSimulator.from_toy_text(made("Taxi-v4", fickle_passenger=True), horizon=2)


def test_lakes_and_cliffs_know_how_they_look():
    lake = AbstractSimulator.from_toy_text(made("FrozenLake-v1", is_slippery=False), horizon=5)
    assert lake.layout.cells[3, 3] == GOAL
    assert [tuple(c) for c in np.argwhere(lake.layout.cells == HAZARD)] == [
        (1, 1), (1, 3), (2, 3), (3, 0)
    ]  # fmt: skip
    assert lake.layout.positions[6].tolist() == [1, 2]
    cliff = AbstractSimulator.from_toy_text(made("CliffWalking-v1"), horizon=5)
    assert cliff.layout.cells.shape == (4, 12)
    assert cliff.layout.cells[3].tolist() == [0, *[HAZARD] * 10, GOAL]
    assert AbstractSimulator.from_toy_text(made("Taxi-v4"), horizon=5).layout is None
