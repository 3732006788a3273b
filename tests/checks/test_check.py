"""`tasid check`: a target that fits is called so, and every way not to fit is named."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache

import gymnasium
import numpy as np
import pytest

import tasid
from commands import run
from tasid.checks.check import check_target
from tasid.checks.separability import Accuracy, separability
from tasid.checks.sight import equal_pairs, leaks
from tasid.checks.subject import Subject

ROOM = "#####\n#..L#\n#S..#\n#..G#\n#####"
MAP = tasid.AbstractSimulator.from_text_map(ROOM, horizon=8)


@dataclass(frozen=True)
class Faults:
    """What is wrong with a room, and how much it slips."""

    slip: float = 0.05
    shows_command: bool = False
    pay: float = 1.0
    ends_at: int | None = None
    ignores_seed: bool = False
    actions: int = 4
    constant: bool = False
    broken: bool = False


class Room(gymnasium.Env):
    """The map as an environment: one sees a noisy one-hot of the state."""

    def __init__(self, faults: Faults) -> None:
        size = MAP.num_states + (4 if faults.shows_command else 0)
        self.observation_space = gymnasium.spaces.Box(-9, 9, (size,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(faults.actions)
        self._faults = faults

    def reset(self, *, seed=None, options=None):
        super().reset(seed=None if self._faults.ignores_seed else seed)
        self._state, self._steps, self._command = MAP.start, 0, None
        return self._look(), {}

    def step(self, action):
        faults, rng = self._faults, self.np_random
        happened = rng.integers(4) if rng.random() < faults.slip else action
        reward = float(MAP.reward[self._state, happened])
        self._state, self._command = int(MAP.successor[self._state, happened]), action
        self._steps += 1
        if faults.broken and self._steps == 3:
            raise RuntimeError("motor stalled")
        over = bool((MAP.successor[self._state] == self._state).all())
        over |= self._steps == faults.ends_at
        return self._look(), reward * (faults.pay if reward == 1 else 1.0), over, False, {}

    def _look(self):
        x = np.zeros(self.observation_space.shape, np.float32)
        x[self._state] = 1.0
        if self._faults.shows_command and self._command is not None:
            x[MAP.num_states + self._command] = 1.0
        if self._faults.constant:
            return np.ones_like(x)
        return x + 0.1 * self.np_random.normal(size=x.shape).astype(np.float32)


@cache
def checked(simulator=MAP, *, eta=0.1, **faults):
    with tasid.wrap(lambda: Room(Faults(**faults)), num_envs=16) as target:
        return check_target(target, simulator, eta=eta, episodes=120)


def names(found):
    return sorted({p.partition(":")[0] for p in found.problems})


# ---------------------------------------------------------------- fitting targets


def test_a_room_that_fits_is_called_so_and_its_eta_is_read_off():
    found = checked(slip=0.1)
    assert found.ok, found.problems
    # Of the slips a quarter is the command itself, and some lead to the same place.
    assert found.slip_rate.low <= 0.075 <= found.slip_rate.high
    assert found.slip_rate.transitions == 120


def test_environments_of_ours_fit_their_maps():
    lock = tasid.make("combination-lock", horizon=4, num_actions=4, seed=3)
    found = check_target(lock, episodes=200)
    assert found.ok, found.problems
    assert found.limit.value == pytest.approx(found.limit.robust_value)


def test_a_map_with_one_outcome_everywhere_leaves_nothing_to_estimate():
    sim = tasid.AbstractSimulator([[1, 1], [1, 1]], [[0.0, 0.0], [0.0, 0.0]], horizon=2)
    lock = tasid.make("combination-lock", horizon=2, num_actions=3)
    assert names(check_target(lock, sim)) == ["actions"]


# ---------------------------------------------------------------- every way not to fit


@pytest.mark.parametrize(
    ("faults", "expected"),
    [
        ({"shows_command": True}, "leak"),
        ({"pay": 0.5}, "rewards"),
        ({"ends_at": 1}, "ends"),
        ({"ignores_seed": True}, "repeats"),
        ({"actions": 5}, "actions"),
        ({"constant": True}, "observations"),
        ({"broken": True}, "episodes"),
        ({"slip": 0.4, "eta": 0.02}, "η"),
    ],
)
def test_what_does_not_fit_is_named(faults, expected):
    found = checked(**faults)
    assert not found.ok
    assert expected in names(found), found.problems


def test_rewards_that_the_map_does_not_know_are_named():
    assert "reward values" in names(checked(pay=0.5))
    assert "the target paid 0.5" in " ".join(checked(pay=0.5).problems)


def test_ends_that_the_map_does_not_know_are_named():
    (found,) = (p for p in checked(ends_at=1).problems if p.startswith("early ends"))
    assert "120 of 120 episodes with random commands end after 1 steps" in found


def test_a_target_that_is_cut_off_before_the_horizon_does_not_fit():
    env = gymnasium.wrappers.TimeLimit(Room(Faults()), 5)
    found = check_target(tasid.wrap(env), MAP, episodes=8)
    assert names(found) == ["episodes"]
    assert "truncated before the horizon" in found.problems[0]


def test_another_map_of_the_same_size_does_not_fit():
    mirrored = tasid.AbstractSimulator.from_text_map("#####\n#..G#\n#S..#\n#..L#\n#####", horizon=8)
    assert {"rewards"} <= set(names(checked(mirrored)))


def test_without_a_map_there_is_nothing_to_check():
    with pytest.raises(ValueError, match="simulator: this target brings no map"):
        check_target(tasid.wrap(Room(Faults())))
    with pytest.raises(ValueError, match="episodes: 1 is below 2"):
        check_target(tasid.wrap(Room(Faults())), MAP, episodes=1)


@pytest.mark.parametrize(
    ("name", "options", "implied"),
    [
        ("FrozenLake-v1", {"success_rate": 0.8}, 0.2),
        ("CliffWalking-v1", {"is_slippery": True}, 2 / 3),
    ],
)
def test_an_eta_below_that_of_the_environments_own_table_is_named(name, options, implied):
    sim = tasid.AbstractSimulator.from_toy_text(
        name, horizon=12, deterministic="most-likely", **options
    )
    with tasid.wrap(name, **options) as target:
        too_low = check_target(target, sim, eta=min(implied, 0.45) - 0.15, episodes=4)
        assert "η of the table" in names(too_low)
        assert f"probability {implied:.6g}" in " ".join(too_low.problems)
        if implied < 0.5:
            assert "η of the table" not in names(check_target(target, sim, eta=implied, episodes=4))


# ---------------------------------------------------------------- can the map work at all?


def test_states_that_look_alike_are_noticed_before_an_episode_is_spent():
    target = tasid.wrap(lambda: Room(Faults()), num_envs=16)
    clear = check_target(target, MAP, episodes=40, render=lambda state: np.array(state))
    assert clear.limit.value == pytest.approx(clear.limit.robust_value)
    dark = check_target(target, MAP, episodes=40, render=lambda state: np.zeros(2))
    assert dark.limit.value < 0.9 * dark.limit.robust_value
    # That binds who decodes pairs of observations, and beliefs are not bound: no problem.
    assert "population limit" not in names(dark)
    (told,) = [found for found in dark.findings if found.name == "population limit"]
    assert told.status == "note"
    assert "look too much alike for method 'paper'" in told.text
    bound = check_target(target, MAP, episodes=40, method="paper", render=lambda state: np.zeros(2))
    assert "population limit" in names(bound), "who decodes two observations is bound"
    with pytest.raises(ValueError, match="method: 'outcome' is none of belief, paper"):
        check_target(target, MAP, method="outcome")


# ---------------------------------------------------------------- the test for leaks


class ShowsMoves(Room):
    """A room that shows the last of some commands only, as Taxi's picture shows its moves."""

    def __init__(self, sim, shown):
        super().__init__(Faults(shows_command=True))
        self._sim, self._shown, self._last = sim, shown, None

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._state, self._last = int(self.np_random.choice(self._sim.starts)), None
        return self._look(), {}

    def step(self, action):
        self._last = int(action) if action in self._shown else self._last
        return super().step(action)

    def _look(self):
        self._command = self._last
        return super()._look()


INSIDE = [s for s in range(MAP.num_states) if not (MAP.successor[s] == s).all()]


@pytest.mark.parametrize("start", [*INSIDE, INSIDE], ids=str)
@pytest.mark.parametrize("shown", [(), (2, 3), (0, 1, 2, 3)], ids=str)
def test_shown_commands_are_found_whatever_the_start(start, shown):
    sim = MAP.with_start(start)
    with tasid.wrap(lambda: ShowsMoves(sim, shown), num_envs=16) as target:
        (found,) = leaks(Subject(target.with_horizon(8), sim, 0.1, 160, 0))
    assert found.status == ("problem" if shown else "ok"), found.text


@pytest.mark.slow
@pytest.mark.parametrize(("observe", "status"), [("render", "problem"), ("observation", "ok")])
def test_taxis_picture_shows_the_last_move_and_its_number_does_not(observe, status):
    sim = tasid.AbstractSimulator.from_toy_text(gymnasium.make("Taxi-v4"), horizon=20)
    with tasid.wrap("Taxi-v4", observe=observe) as target:
        (found,) = leaks(Subject(target.with_horizon(20), sim, 0.1, 160, 0))
    assert found.status == status, found.text


def subject(sim, eta=0.0):
    return Subject(None, sim, eta, 10, 0)


def test_pairs_with_one_successor_are_found_and_sure():
    # From the start in the west, only west leads nowhere; in a corner two actions do.
    for site in equal_pairs(subject(MAP, 0.05)):
        state = MAP.replay(site.prefix)[-1]
        assert len(set(MAP.successor[state, list(site.actions)])) == 1
        assert site.sure == pytest.approx(0.95**site.h)


def test_pairs_are_sure_for_several_starts_too():
    """Driving north and then west ends in the corner from anywhere: there both stay."""
    sim = tasid.AbstractSimulator.from_text_map("S..\n...\n..S\nG..", horizon=20)
    sites = equal_pairs(subject(sim))
    assert sites
    for site in sites:
        places = set()
        for start in sim.starts:
            state = sim.with_start(int(start)).replay(site.prefix)[-1]
            after = sim.successor[state]
            places.add(len(set(after[list(site.actions)])))
        assert places == {1}
        assert site.sure == pytest.approx(1.0)


def test_chance_stays_chance_and_a_difference_is_found():
    rng = np.random.default_rng(0)
    label = rng.integers(2, size=400)
    before, after = rng.normal(size=(2, 400, 30))
    assert separability(before, after, label).p_value(0.5) > 0.01
    after[:, 3] += 3.0 * label
    found = separability(before, after, label)
    assert found.rate > 0.8
    assert found.p_value(0.5) < 1e-9


def test_images_far_wider_than_the_sample_are_told_apart_as_well():
    rng = np.random.default_rng(1)
    label = rng.integers(2, size=120)
    before, after = rng.integers(0, 255, size=(2, 120, 40, 40, 3)).astype(np.uint8)
    assert separability(before, after, label).p_value(0.5) > 0.01
    after[label == 1, 5:15, 5:15] = 200
    assert separability(before, after, label).rate > 0.95


def test_accuracy_is_held_against_a_binomial():
    assert Accuracy(50, 100).p_value(0.5) == pytest.approx(0.5398, abs=1e-3)
    assert Accuracy(0, 10).interval[0] == 0.0
    assert Accuracy(10, 10).interval == (pytest.approx(0.6915, abs=1e-3), 1.0)


# ---------------------------------------------------------------- the command


def test_an_eta_that_cannot_be_learned_with_does_not_fit(lock):
    found = check_target(lock, eta=0.5, episodes=8)
    assert [one.text for one in found.findings if one.name == "η to plan for"] == [
        "0.5; from 0.5 on nobody can tell what happened"
    ]
    assert not found.ok


def test_the_command_answers_in_words_and_in_json(capsys):
    flags = ["combination-lock", "--horizon", 3, "--episodes", 64]
    out = run(capsys, "check", *flags).out
    assert out.endswith("fits\n")
    assert "ok      actions: 10 in both" in out
    got = json.loads(run(capsys, "check", *flags, "--json").out)
    assert (got["ok"], got["problems"]) == (True, [])
    assert got["population_limit"]["loss"] == pytest.approx(0.0, abs=1e-9)


def test_the_command_checks_where_no_eta_could_be_planned_for(capsys):
    """Gymnasium's lake slips in two of three steps unless told otherwise."""
    lake = ["gym:FrozenLake-v1", "--simulator", "gym:FrozenLake-v1", "--horizon", 5]
    found = json.loads(run(capsys, "check", *lake, "--episodes", 4, "--json").out)
    assert not found["ok"]
    assert any("nobody can tell" in one for one in found["problems"])


def test_the_command_names_a_map_that_does_not_fit(capsys, tmp_path):
    (tmp_path / "room.txt").write_text(ROOM)
    flags = ["combination-lock", "--horizon", 3, "--simulator", tmp_path / "room.txt"]
    got = json.loads(run(capsys, "check", *flags, "--json").out)
    assert not got["ok"]
    assert got["problems"] == ["actions: the map has 4, the target 10"]
    assert run(capsys, "check", *flags).out.endswith("does not fit: 1 problem\n")
