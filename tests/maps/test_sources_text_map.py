"""Drawn maps: the worlds an obvious step function makes, and the lava map's known numbers."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mdps import quick
from tasid.maps import (
    AbstractSimulator,
    SimulatorError,
    perturb,
    policy_value,
    robust_dp,
    worst_case_value,
)
from tasid.maps.layout import GOAL, HAZARD, WALL
from tasid.maps.sources import MapError, MapWarning
from tasid.maps.sources.reach import component_map, components
from tasid.maps.sources.text_map import parse

LAVA = """
#######
##LLL##
#.....#
#.LLL.#
#S.L.G#
#..L..#
#..L..#
#.....#
#.....#
"""
LANDMARKS = ("#.....#", "##....#", "#....##")


def lava_map(height):
    rows = [*LAVA.split(), *(["##...##"] if height > 10 else [])]
    rows += [LANDMARKS[y % 3] for y in range(10, height - 1)]
    return "\n".join([*rows, "#######"])


def lava(height=11, horizon=36):
    return AbstractSimulator.from_text_map(lava_map(height), horizon=horizon, moves="turn")


# ---------------------------------------------------------------- known numbers


def test_routes_of_the_lava_map():
    sim = lava()

    def steps(eta):
        return sum(step.reward != 0 for step in robust_dp(sim, eta=eta).route())

    assert steps(0.0) == 8
    assert steps(0.0025) == 8  # still beside the lava
    assert steps(0.005) == 10
    assert [steps(eta) for eta in (0.0125, 0.05, 0.1)] == [12, 12, 12]
    robust = {step.state[:2] for step in robust_dp(sim, eta=0.1).route()}
    assert {(x, 8) for x in range(1, 6)} <= robust


@pytest.mark.parametrize(
    ("eta", "robust", "nominal"),
    [(0.1, 0.691, 0.110), (0.2, 0.198, -0.437), (0.3, -0.398, -0.775), (0.4, -0.816, -0.947)],
)
def test_worst_cases_on_the_lava_map(eta, robust, nominal):
    sim = lava()
    assert robust_dp(sim, eta=eta).start_value == pytest.approx(robust, abs=6e-4)
    plain = robust_dp(sim, eta=0.0)
    assert worst_case_value(sim, plain, eta=eta) == pytest.approx(nominal, abs=6e-4)


@pytest.mark.parametrize("height", [10, 11, 20, 100])
def test_taller_lava_maps_have_the_same_route_and_value(height):
    sim = lava(height)
    plan = robust_dp(sim, eta=0.1)
    assert sum(step.reward != 0 for step in plan.route()) == 12
    values = [policy_value(perturb(sim, eta=0.1, seed=seed), plan) for seed in range(5)]
    assert np.mean(values) == pytest.approx(0.867, abs=0.005)  # other draws of ξ: 0.867, 0.868


def test_only_what_can_be_reached_is_on_the_map():
    whole, short = lava(100, horizon=300), lava(100, horizon=36)
    assert short.num_states < whole.num_states < 4 * 7 * 100
    assert set(short.states) < set(whole.states)
    assert (whole.origin.explored, short.origin.explored) == (None, 36)
    for eta in (0.0, 0.1):
        same = robust_dp(whole.with_horizon(36), eta=eta)
        assert robust_dp(short, eta=eta).start_value == pytest.approx(same.start_value, abs=1e-12)
    with pytest.raises(SimulatorError, match="horizon: 37 for a map that was explored 36 steps"):
        short.with_horizon(37)
    assert short.with_horizon(20).layout is short.layout


# ---------------------------------------------------------------- against an obvious reference


DELTA = {"N": (0, -1), "E": (1, 0), "S": (0, 1), "W": (-1, 0)}
TURNS = [(0, True), (-1, False), (1, False), (-1, True), (1, True)]


def reference(rows, moves, pay=(1.0, -1.0, -0.01)):
    """One step at a time, written without looking at the arrays."""

    def cell(x, y):
        inside = 0 <= y < len(rows) and 0 <= x < len(rows[0])
        return rows[y][x] if inside else "#"

    def step(state, action):
        x, y = state[:2]
        looks = "NESW"[action] if moves == "compass" else state[2]
        go = True
        if moves == "turn":
            turn, go = TURNS[action]
            looks = "NESW"[("NESW".index(looks) + turn) % 4]
        dx, dy = DELTA[looks]
        if go and cell(x + dx, y + dy) != "#":
            x, y = x + dx, y + dy
        after = (x, y) if moves == "compass" else (x, y, looks)
        kind = cell(x, y)
        return after, pay["GL".index(kind)] if kind in "GL" else pay[2], kind in "GL"

    return step


@st.composite
def drawn(draw):
    width, height = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    cells = st.sampled_from("....##GL")
    rows = [[draw(cells) for _ in range(width)] for _ in range(height)]
    x, y = draw(st.integers(0, width - 1)), draw(st.integers(0, height - 1))
    rows[y][x] = "S"
    assume(any("G" in row for row in rows))
    return ["".join(row) for row in rows], (x, y)


@quick
@given(drawn(), st.sampled_from(["compass", "turn"]), st.sampled_from("NESW"), st.integers(1, 9))
def test_a_drawn_map_is_what_its_step_function_says(drawing, moves, heading, horizon):
    rows, (x, y) = drawing
    start = (x, y) if moves == "compass" else (x, y, heading)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MapWarning)  # goals out of reach and walls around are fine
        sim = AbstractSimulator.from_text_map(
            "\n".join(rows), horizon=horizon, moves=moves, heading=heading
        )
        other = AbstractSimulator.from_function(
            reference(rows, moves), start, 4 if moves == "compass" else 5, horizon=horizon
        )
    assert set(sim.states) == set(other.states)
    assert sim.states[sim.start] == start
    where = [other.states.index(label) for label in sim.states]
    expected = [[other.states[t] for t in other.successor[s]] for s in where]
    assert [[sim.states[t] for t in row] for row in sim.successor] == expected
    assert sim.reward.tolist() == other.reward[where].tolist()
    assert sim.origin.explored == other.origin.explored


def test_turning_into_a_wall_still_turns_and_walking_into_it_does_nothing():
    sim = AbstractSimulator.from_text_map("S.G", horizon=9, moves="turn", heading="E")
    at = {label: index for index, label in enumerate(sim.states)}
    after = {label: [sim.states[t] for t in sim.successor[s]] for label, s in at.items()}
    assert after[0, 0, "N"][0] == (0, 0, "N")
    assert after[0, 0, "E"] == [(1, 0, "E"), (0, 0, "N"), (0, 0, "S"), (0, 0, "N"), (0, 0, "S")]
    assert sim.origin.actions == (
        "forward", "left", "right", "left and forward", "right and forward"
    )  # fmt: skip


def test_goals_and_hazards_absorb_and_pay_once():
    sim = AbstractSimulator.from_text_map(
        "LSG", horizon=5, goal_reward=3.0, hazard_reward=-7.0, step_reward=-0.5
    )
    assert sim.states == ((1, 0), (0, 0), (2, 0))
    assert sim.reward[0].tolist() == [-0.5, 3.0, -0.5, -7.0]
    assert sim.reward[1:].tolist() == [[0.0] * 4] * 2
    assert sim.successor[1:].tolist() == [[1] * 4, [2] * 4]
    assert sim.layout.cells.tolist() == [[HAZARD, 0, GOAL]]


def test_several_starts_are_equally_likely():
    sim = AbstractSimulator.from_text_map("S.G.S", horizon=4)
    assert [sim.states[s] for s in sim.starts] == [(0, 0), (4, 0)]
    assert sim.start_probabilities.tolist() == [0.5, 0.5]


def test_without_a_horizon_it_is_three_times_the_way():
    assert AbstractSimulator.from_text_map(lava_map(11)).horizon == 24
    assert AbstractSimulator.from_text_map("S...G\n.....").horizon == 12


def test_indentation_and_blank_edges_do_not_count():
    sim = AbstractSimulator.from_text_map(
        """
        ###
        #S#
        #G#
        """,
        horizon=1,
    )
    assert sim.layout.cells.shape == (3, 3)
    assert robust_dp(sim, eta=0.0).start_value == 1.0


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("S.\n.?", {}, "text: '?' in line 2, column 2 is none of # . S G L"),
        ("S.G\n..", {}, "text: line 2 has 2 characters, line 1 has 3; all lines"),
        ("..G", {}, "text: the map has no start 'S'"),
        ("\n\n", {}, "text: the map is empty"),
        (["S", "G"], {}, "text: a list is not text"),
        ("SG", {"moves": "fly"}, "moves: 'fly' is none of 'compass', 'turn'"),
        ("SG", {"heading": "up", "moves": "turn"}, "heading: 'up' is none of N, E, S, W"),
        ("SG", {"heading": "", "moves": "turn"}, "heading: '' is none of N, E, S, W"),
        ("SG", {"horizon": 0}, "horizon: 0 is below 1"),
        ("SG", {"horizon": 2.5}, "horizon: 2.5 is not a whole number"),
        ("SG", {"goal_reward": float("nan")}, "reward: nan at (s, a)"),
    ],
)
def test_bad_maps_are_refused_with_their_place(text, options, message):
    with pytest.raises(SimulatorError, match="^" + re.escape(message)):
        AbstractSimulator.from_text_map(text, **{"horizon": 3, **options})


@pytest.mark.parametrize(
    ("text", "moves", "needed"),
    [("S....\n####G", "compass", 5), ("S#.\n..G", "turn", 3), ("G.S", "turn", 3)],
)
def test_a_short_horizon_warns_with_the_needed_one(text, moves, needed):
    for horizon in range(1, needed):
        with pytest.warns(MapWarning, match=f"{horizon} steps are too few .* {needed} are needed"):
            AbstractSimulator.from_text_map(text, horizon=horizon, moves=moves)
    sim = AbstractSimulator.from_text_map(text, horizon=needed, moves=moves)  # no warning: tight
    assert robust_dp(sim, eta=0.0).start_value > 0


def test_an_unreachable_goal_warns_with_the_areas():
    text = "S..#G.#.\n...#..#L\n####.##."
    with pytest.warns(MapWarning) as caught:
        AbstractSimulator.from_text_map(text, horizon=9)
    message = str(caught[0].message)
    assert "the start's area has 6 cells, the goal's 5, and there are 4 separate areas" in message
    assert message.endswith("S++#Ga#b\n+++#aa#!\n####a##c")
    assert caught[0].filename == __file__  # it points at the caller
    with pytest.warns(MapWarning), pytest.raises(MapError, match="horizon: none given, and no g"):
        AbstractSimulator.from_text_map(text)


def test_lava_may_cut_off_a_goal_too():
    with pytest.warns(MapWarning, match="cannot be reached"):
        AbstractSimulator.from_text_map("SL.G", horizon=9)


def test_one_start_of_several_may_be_cut_off():
    with pytest.warns(MapWarning, match="cannot be reached: the start's area has 1 cells"):
        AbstractSimulator.from_text_map("S.G#S", horizon=9)


def test_a_map_without_a_goal_warns():
    with pytest.warns(MapWarning, match="no goal"):
        sim = AbstractSimulator.from_text_map("S.", horizon=4)
    assert robust_dp(sim, eta=0.0).start_value == pytest.approx(-0.04)


def test_a_goal_does_not_join_the_areas_beside_it():
    cells, _ = parse("S.G..")
    areas, number = components(cells)
    assert number == 2
    assert areas.tolist() == [[1, 1, 1, 2, 2]]


def test_large_areas_are_drawn_small():
    cells = np.full((400, 1000), WALL, dtype=np.uint8)
    cells[:200], cells[220:, 500:] = 0, 0
    cells[399, 999] = GOAL
    lines = component_map(cells, (0, 0)).split("\n")
    assert max(map(len, lines)) <= 72
    assert len(lines) <= 36
    assert lines[0][0] == "S"
    assert lines[0][1:] == "+" * (len(lines[0]) - 1)
    assert lines[-1][-1] == "G"
    assert "a" in lines[-1]
