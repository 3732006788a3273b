"""`tasid plan` on maps: sources by name, warnings, pictures, and the η where routes change."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from PIL import Image
from test_sources_text_map import lava, lava_map

from commands import run, run_json
from tasid.cli import main
from tasid.maps import AbstractSimulator, certify, robust_dp, worst_case_value
from tasid.maps.planning.backward import frontier_when_cheaper, layers
from tasid.maps.planning.flips import Way, bisected, in_words, spans_of, way_of
from tasid.report import plan_picture
from tasid.report.figures.grid_heat import arrival_values
from tasid.report.figures.routes import Routes


def pixels_of(path):
    with Image.open(path) as picture:
        return np.asarray(picture.convert("RGB")).astype(int)


@pytest.fixture
def room(tmp_path):
    """A robot's map: 2 m by 1 m with a table in the middle."""
    pixels = np.full((20, 40), 254, dtype=np.uint8)
    pixels[8:12, 18:22] = 0
    Image.fromarray(pixels).save(tmp_path / "room.png")
    (tmp_path / "room.yaml").write_text(
        "image: room.png\nresolution: 0.05\norigin: [-1.0, -0.5, 0.0]\nnegate: 0\n"
        "occupied_thresh: 0.65\nfree_thresh: 0.196\n"
    )
    return tmp_path / "room.yaml"


# ---------------------------------------------------------------- sources


def test_the_start_is_chosen_by_label_or_index(capsys, tmp_path):
    """On drawn maps, tables, saved simulators and Gymnasium's tables alike."""
    (tmp_path / "alley.txt").write_text("S...G")
    sim = AbstractSimulator.from_text_map("S...G", horizon=4)
    sim.save(tmp_path / "saved")
    for source in (tmp_path / "alley.txt", tmp_path / "saved"):
        given = [source, "--horizon", 4, "--eta", 0]
        for how in (["--start-state", "2,0"], ["--map", "start_state=[2, 0]"]):
            got = run_json(capsys, "plan", *given, *how)
            assert got["route"][0]["state"] == [2, 0]
            assert got["nominal_value"] == pytest.approx(0.99)
        assert run_json(capsys, "plan", *given, "--start-state", 1)["route"][0]["state"] == [1, 0]
        said = run(capsys, "plan", *given, "--start-state", "7,7", code=2).err
        assert "start_state: 7,7 is neither the label of a state (0,0, " in said
        assert run(capsys, "plan", *given, "--start-state", -1, code=2).err
    lake = ["gym:FrozenLake-v1", "--deterministic", "most-likely", "--start-state", 14]
    assert run_json(capsys, "plan", *lake)["route"][0]["state"] == 14


def test_a_plan_too_large_for_memory_has_the_same_answer(capsys, tmp_path, monkeypatch):
    (tmp_path / "field.txt").write_text("S...\n.L..\n...G\n")
    given = [tmp_path / "field.txt", "--horizon", 9]
    whole = run_json(capsys, "plan", *given)
    monkeypatch.setattr("tasid.maps.planning.thrifty.policy_is_huge", lambda _: True)
    monkeypatch.setattr("tasid.maps.robust_plans", None)
    monkeypatch.setattr("tasid.maps.planning.robust_dp", None)
    assert run_json(capsys, "plan", *given) == whole


def test_a_map_explored_from_its_start_has_no_other(capsys, tmp_path):
    far = AbstractSimulator.from_function(lambda s, a: (s + a, 0.0), 0, 2, horizon=3)
    far.save(tmp_path / "far")
    said = run(capsys, "plan", tmp_path / "far", "--start-state", 2, code=2).err
    assert "start_state: 2 on a map that was explored 3 steps far from its own start" in said


def test_a_plan_that_stays_or_goes_elsewhere_says_why(capsys, tmp_path):
    # At η = 0.4 the two steps between lava earn 0.6·(0.6 − 0.4) − 0.4 < 0.
    (tmp_path / "alley.txt").write_text("####LL#\nS.....G\n####LL#")
    got = run(capsys, "plan", tmp_path / "alley.txt", "--eta", 0.4).out
    assert "The plan stays where it is: against η = 0.4 and within 18 steps nothing is" in got
    assert "nothing is gained" not in run(capsys, "plan", tmp_path / "alley.txt", "--eta", 0.1).out
    (tmp_path / "fork.txt").write_text(".###LL#\nS.....G\n.###LL#")
    got = run(capsys, "plan", tmp_path / "fork.txt", "--eta", 0.4).out
    assert "The plan does not go to a goal: against η = 0.4 and within 18 steps" in got
    (tmp_path / "shut.txt").write_text("S..#G")
    got = run(capsys, "plan", tmp_path / "shut.txt", "--horizon", 9).out
    assert "no way leads to one" in got
    assert "--horizon" not in got
    (tmp_path / "open.txt").write_text("S...G")
    assert run_json(capsys, "plan", tmp_path / "open.txt")["arrives"] is True
    assert run_json(capsys, "plan", "combination-lock")["arrives"] is None


def test_a_text_map(capsys, tmp_path):
    (tmp_path / "lava.txt").write_text(lava_map(11))
    got = run_json(capsys, "plan", tmp_path / "lava.txt", "--moves", "turn", "--horizon", 36)
    assert got["worst_case_value"] == pytest.approx(0.691, abs=6e-4)
    assert (got["states"], got["actions"], got["horizon"]) == (144, 5, 36)
    assert got["route"][0]["state"] == [1, 4, "E"]
    north = run_json(capsys, "plan", tmp_path / "lava.txt", "--moves", "turn", "--set", "heading=N")
    assert north["route"][0]["state"] == [1, 4, "N"]


def test_an_occupancy_map(capsys, room, tmp_path):
    places = ["--start", "-0.9,0.0", "--goal", "0.9,0.0", "--cell-size", "0.1"]
    got = run_json(capsys, "plan", room, *places, "--eta", "0")
    # From column 1 to column 19 of 20; the table covers rows 4 and 5 of 10, so row 5 needs 1 up.
    assert got["best_nominal_value"] == pytest.approx(1 - 0.01 * 19)
    assert got["route"][0]["state"] == [-0.85, 0.05]
    wide = run_json(capsys, "plan", room, *places, "--eta", "0", "--robot-radius", "0.1")
    assert wide["states"] < got["states"]
    zones = ["--hazard", "0,0.3,0.1", "--hazard", "-0.2,-0.5,0.2,-0.2", "--png", tmp_path / "r.png"]
    assert "picture" in run(capsys, "plan", room, *places, *zones, "--moves", "turn").out
    assert pixels_of(tmp_path / "r.png").shape[1] > 1000


def test_tables_and_saved_simulators(capsys, tmp_path):
    np.savez(tmp_path / "t.npz", successor=[[0, 1], [1, 1]], reward=[[0, 0], [1, 0.5]], horizon=4)
    assert run_json(capsys, "plan", tmp_path / "t.npz", "--eta", 0)["worst_case_value"] == 3.0
    lava().save(tmp_path / "saved")
    got = run_json(capsys, "plan", tmp_path / "saved", "--horizon", 30)
    assert (got["horizon"], got["states"]) == (30, 144)
    png = tmp_path / "saved.png"
    assert "picture" in run(capsys, "plan", tmp_path / "saved", "--png", png).out
    plan_picture(robust_dp(lava(), eta=0.1), tmp_path / "fresh.png")
    assert png.read_bytes() == (tmp_path / "fresh.png").read_bytes()  # the layout was kept


def test_toy_text_by_its_id(capsys):
    got = run_json(capsys, "plan", "gym:FrozenLake-v1", "--set", "is_slippery=false", "--eta", "0")
    assert (got["worst_case_value"], got["horizon"], got["implied_eta"]) == (1.0, 100, 0.0)
    err = run(capsys, "plan", "gym:FrozenLake-v1", "--set", "success_rate=0.8", code=2).err
    assert "env: P[0][0] = " in err
    assert "most-likely" in err
    flags = ["--set", "success_rate=0.8", "--deterministic", "most-likely", "--horizon", "20"]
    got = run_json(capsys, "plan", "gym:FrozenLake-v1", *flags, "--eta", "0.2")
    assert got["implied_eta"] == 0.2
    assert (
        "η of the environment on this map      0.2"
        in run(capsys, "plan", "gym:FrozenLake-v1", *flags).out
    )
    many = run_json(capsys, "plan", "gym:Taxi-v4", "--horizon", "20")
    assert (many["states"], len(many["route"])) == (500, 20)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["map.yaml"], "start: an occupancy map needs one, as x,y in metres"),
        (["map.yaml", "--start", "0,0"], "goal: an occupancy map needs one"),
        (["map.yaml", "--start", "here", "--goal", "1,1"], "start: ['here'] is neither"),
        (["map.yaml", "--start", "1;2", "--goal", "1,1"], "--start: '1;2' should be numbers"),
        (["map.yaml", "--start", "0,0", "--goal", "1,1"], "map.yaml: lacks the key 'image'"),
        (["map.txt", "--goal", "1,1"], "goal: not an option of map.txt; its options: moves, head"),
        (["map.txt", "--moves", "fly"], "moves: 'fly' is none of"),
        (["map.txt", "--set", "colour=3"], "colour: not an option of map.txt"),
        (["broken.txt"], "broken.txt: '?' in line 1, column 2"),
        (["binary.txt"], "binary.txt: not a text file"),
        (["map.jpg"], "source: 'map.jpg' is not a map; maps are .txt"),
        (["map.npz"], "map.npz: not a file of plain numeric tables"),
        (["gym:Nothing-v0"], "source: Gymnasium makes no 'Nothing-v0' of this"),
        (["gym:FrozenLake-v1", "--set", "ice=1"], "source: Gymnasium makes no 'FrozenLake-v1' of"),
        (["gym:CartPole-v1"], "env: CartPoleEnv has no table `P`"),
        (["gym:Blackjack-v1"], "horizon: Blackjack-v1 has no step limit of its own"),
        (["combination-lock", "--goal", "1,1"], "goal"),
    ],
)
def test_bad_sources_are_one_message_and_code_two(capsys, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "map.yaml").write_text("resolution: 0.05")
    (tmp_path / "map.txt").write_text("S.G")
    (tmp_path / "broken.txt").write_text("S?G")
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe\x00S")
    (tmp_path / "map.jpg").write_bytes(b"")
    (tmp_path / "map.npz").write_bytes(b"")
    got = run(capsys, "plan", *arguments, code=2)
    assert words in got.err
    assert got.err.startswith("tasid: ")
    assert "Traceback" not in got.err
    assert got.out == ""


def test_warnings_go_to_standard_error_and_the_plan_is_made(capsys, tmp_path):
    (tmp_path / "far.txt").write_text("S....G")
    got = run(capsys, "plan", tmp_path / "far.txt", "--horizon", "3", "--json")
    assert json.loads(got.out)["worst_case_value"] == pytest.approx(-0.03)
    assert got.err.startswith("tasid: warning: horizon: 3 steps are too few to reach the goal; at ")
    assert "5 are needed" in got.err
    (tmp_path / "cut.txt").write_text("S.#G")
    got = run(capsys, "plan", tmp_path / "cut.txt", "--horizon", "3", "--json")
    assert got.err.endswith("S+#G\n")


# ---------------------------------------------------------------- where routes change


def test_where_the_lava_route_changes():
    sim = lava()
    changes = Routes.of(robust_dp(sim, eta=0.1)).changes
    steps = [(c.before.steps, c.after.steps) for c in changes]
    assert steps == [(8, 10), (10, 12), (12, 14), (14, 12)]
    for change in changes:
        assert change.high - change.low <= 0.01 * change.high
        for eta, way in ((change.low, change.before), (change.high, change.after)):
            assert way_of(robust_dp(sim, eta=eta), (sim.start,)) == way
    assert 0.0025 < changes[0].high < 0.005  # known from plans on a grid of η
    assert 0.01 < changes[1].high < 0.0125
    assert re.fullmatch(
        r"The route changes at η ≈ 0\.0026\d \(8 → 10 steps\), at η ≈ 0\.010\d \(10 → 12 steps\)\. "
        r"Above η = 0\.1 it changes at η ≈ 0\.14\d \(12 → 14 steps\), at η ≈ 0\.28\d "
        r"\(14 → 12 steps\)\.",
        in_words(changes, 0.1),
    )


def test_at_a_change_of_route_both_plans_are_worth_the_same():
    """The max–min value is continuous in η, so the old and the new plan tie there."""
    sim = lava()
    for change in Routes.of(robust_dp(sim, eta=0.1)).changes:
        old, new = robust_dp(sim, eta=change.low), robust_dp(sim, eta=change.high)
        middle = (change.low + change.high) / 2
        assert worst_case_value(sim, old, eta=middle) == pytest.approx(
            worst_case_value(sim, new, eta=middle), abs=1e-3
        )


def test_bisection_finds_known_places():
    ways = [Way((((0, k),),), k) for k in range(4)]

    def way(eta):
        return ways[sum(eta > place for place in (0.013, 0.0371, 0.062))]

    found = bisected(way, {0.0: way(0.0), 0.1: way(0.1)}, 60)
    assert [c.before.steps for c in found] == [0, 1, 2]
    for change, place in zip(found, (0.013, 0.0371, 0.062), strict=True):
        assert change.low <= place < change.high
        assert change.high - change.low <= 0.01 * change.high
    assert len(bisected(way, {0.0: way(0.0), 0.1: way(0.1)}, 1)) == 2  # out of budget, still true


def test_a_route_that_does_not_change_is_followed_upward():
    corridor = AbstractSimulator.from_text_map("#####\n#S.G#\n#####", horizon=6)
    plan = robust_dp(corridor, eta=0.1)
    assert Routes.of(plan).changes == ()
    assert in_words((), 0.1) == "The route is the same for η = 0, 0.1 and 0.5."
    assert in_words((), 0.6) == "The route is the same for η = 0 and 0.6."
    both = (
        r"changes at η ≈ 0\.0026\d? \(8 → 10 steps\), at η ≈ 0\.010\d \(10 → 12 steps\), at "
        r"η ≈ 0\.14\d \(12 → 14 steps\) and shifts 1 time more up to η = 0\.5\."
    )
    nothing = Routes.of(robust_dp(lava(), eta=0.0)).changes
    assert re.fullmatch("The route " + both, in_words(nothing, 0.0))
    later = Routes.of(robust_dp(lava(), eta=0.001)).changes
    assert re.fullmatch(
        r"The route stays the same up to η = 0\.001\. Above η = 0\.001 it " + both,
        in_words(later, 0.001),
    )


def test_every_eta_belongs_to_one_way():
    sim = lava()
    routes = Routes.of(robust_dp(sim, eta=0.1))
    spans = spans_of(routes.changes, way_of(routes.plan, routes.starts), 0.5)
    assert (spans[0].low, spans[-1].high) == (0.0, 0.5)
    for span in spans:
        for eta in (span.low, (span.low + span.high) / 2, span.high):
            assert way_of(robust_dp(sim, eta=eta), routes.starts) == span.way, eta
    corridor = AbstractSimulator.from_text_map("#S.G#", horizon=6)
    (only,) = spans_of((), way_of(robust_dp(corridor, eta=0.1), (0,)), 0.5)
    assert (only.low, only.high, only.way.steps) == (0.0, 0.5, 2)


def test_flips_are_printed_and_in_the_answer(capsys, tmp_path):
    (tmp_path / "lava.txt").write_text(lava_map(11))
    flags = [tmp_path / "lava.txt", "--moves", "turn", "--horizon", 36]
    flips = run_json(capsys, "plan", *flags)["flips"]
    assert [(f["steps_before"], f["steps_after"]) for f in flips[:2]] == [(8, 10), (10, 12)]
    assert all(f["low"] < f["eta"] < f["high"] for f in flips)
    assert "The route changes at η ≈ 0.0026" in run(capsys, "plan", *flags).out
    png = tmp_path / "lava.png"
    assert run_json(capsys, "plan", *flags, "--png", png)["flips"] == flips
    # Layered maps have routes through states instead of cells.
    lock = run_json(capsys, "plan", "combination-lock", "--horizon", 5, "--env-seed", 3)["flips"]
    assert all(f["steps_before"] == f["steps_after"] == 5 for f in lock)


def test_a_way_into_a_hazard_and_one_that_never_arrives_are_called_so():
    sim = AbstractSimulator.from_text_map("G..S.L", horizon=5, hazard_reward=5.0)
    assert way_of(robust_dp(sim, eta=0.0), (0,)).told == "2 steps into a hazard"
    sim = AbstractSimulator.from_text_map("S.G", horizon=3, goal_reward=-5.0)
    assert way_of(robust_dp(sim, eta=0.0), (0,)).told == "3 steps without arriving"


def test_maps_in_order_of_distance_are_swept_by_slices_with_equal_results():
    """The fast rows are a superset of the reachable ones: values and plans must be the same."""
    row = "." * 80
    text = "\n".join([row] * 40 + ["." * 40 + "S" + "." * 39] + [row] * 40)
    sim = AbstractSimulator.from_text_map(text + "\n" + "." * 45 + "G" + "." * 34, horizon=60,
                                          moves="turn")  # fmt: skip
    fast = robust_dp(sim, eta=0.1)
    assert isinstance(frontier_when_cheaper(sim)[0], slice)
    exact = robust_dp(sim, eta=0.1, reachable_only=True)
    full = robust_dp(sim, eta=0.1, reachable_only=False)
    assert exact.start_value == fast.start_value == full.start_value
    assert exact.states_swept <= fast.states_swept < full.states_swept
    for h, rows in enumerate(layers(sim)[:-1]):
        assert (fast.actions[h, rows] == exact.actions[h, rows]).all()
    assert certify(fast).gap == 0.0


def test_shifts_of_equal_length_are_told_apart():
    ways = [Way((((0, k),),), 5) for k in range(3)]
    changes = bisected(lambda eta: ways[int(eta > 0) + int(eta > 0.05)], {
        0.0: ways[0], 0.1: ways[2]}, 40)  # fmt: skip
    assert in_words(changes, 0.1) == (
        "The route shifts as soon as η > 0 and shifts 1 time more up to η = 0.1; "
        "it always takes 5 steps."
    )


def test_values_on_arrival_are_the_plans_own():
    sim = lava(20)
    plan = robust_dp(sim, eta=0.1, keep_values=True, reachable_only=True)
    values = arrival_values(plan)
    for s in range(sim.num_states):
        decided = [plan.values[h, s] for h in range(sim.horizon) if np.isfinite(plan.values[h, s])]
        assert values[s] == pytest.approx(decided[0]) if decided else np.isnan(values[s])
    assert values[sim.start] == pytest.approx(plan.start_value)


# ---------------------------------------------------------------- pictures


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_pictures_repeat_byte_for_byte(tmp_path, kind):
    plan = robust_dp(lava(), eta=0.1)
    one, two = (plan_picture(plan, tmp_path / f"{n}.{kind}").read_bytes() for n in "ab")
    assert one == two
    if kind == "svg":
        for words in ("robust plan, η = 0.1", "plan for η = 0", "hazard", "8 → 10 steps"):
            assert words in one.decode()


@pytest.mark.parametrize(
    "text", ["SG", "S\nG", "S.G.S", "S" + "." * 120 + "G", "\n".join("S" + "." * 90 + "G")]
)
def test_maps_of_any_shape_are_drawn(tmp_path, text):
    sim = AbstractSimulator.from_text_map(text)
    pixels = pixels_of(plan_picture(robust_dp(sim, eta=0.1), tmp_path / "map.png"))
    assert min(pixels.shape[:2]) >= 300
    assert max(pixels.shape[:2]) < 4000
    colours = {tuple(c) for c in pixels.reshape(-1, 3)}
    assert (0x8C, 0xC7, 0xA0) in colours  # the goal
    assert (0x0B, 0x6E, 0x6E) in colours  # the robust route


def test_the_picture_shows_the_cells_where_they_are(tmp_path):
    """Find the goal's green and the lava's orange in the picture of a map without walls."""
    sim = AbstractSimulator.from_text_map("S.L\n...\nG..", horizon=9)
    pixels = pixels_of(plan_picture(robust_dp(sim, eta=0.0), tmp_path / "map.png"))

    def middle(colour):
        found = np.argwhere(np.abs(pixels - colour).sum(axis=-1) < 6)
        return np.median(found, axis=0)

    goal, lava_cell = middle((0x8C, 0xC7, 0xA0)), middle((0xE5, 0x9A, 0x76))
    assert goal[0] > lava_cell[0]  # the goal is lower
    assert goal[1] < lava_cell[1]  # and further left


# ---------------------------------------------------------------- one spelling of map options


def test_options_of_a_map_are_spelled_alike_wherever_a_map_is_named(capsys, room, monkeypatch):
    """--map KEY=VALUE is what check and train take; plan's own flags say the same."""
    spelled = ["--map", "start=-0.7,0,N", "--map", "goal=0.7,0", "--map", "cell_size=0.2"]
    listed = [
        "--map",
        'start=[-0.7, 0.0, "N"]',
        "--map",
        "goal=[0.7, 0.0]",
        "--set",
        "cell_size=0.2",
    ]
    flags = ["--start=-0.7,0,N", "--goal", "0.7,0", "--cell-size", "0.2"]
    turning = ["--map", "moves=turn", "--horizon", "12"]
    one, two, three = (
        run_json(capsys, "plan", room, *way, *turning) for way in (spelled, listed, flags)
    )
    assert one == two == three
    seen = []
    monkeypatch.setattr("tasid.checks.check.check_target", lambda world, sim, **_: seen.append(sim))
    with pytest.raises(AttributeError):  # nothing was found
        main(["check", "combination-lock", "--simulator", str(room), *spelled, *turning])
    assert (seen[0].num_states, seen[0].horizon) == (one["states"], 12)


def test_a_map_option_that_is_none_is_told_by_its_flag(capsys, room):
    assert (
        "--map: 'goal' is not KEY=VALUE" in run(capsys, "plan", room, "--map", "goal", code=2).err
    )
    said = run(capsys, "plan", room, "--map", "start=here", "--map", "goal=0,0", code=2).err
    assert "start: 'here' is neither (x, y) nor (x, y, heading)" in said


def test_a_file_that_is_no_map_is_named(capsys, tmp_path):
    (tmp_path / "room.txt").write_text("...G")
    err = run(capsys, "plan", tmp_path / "room.txt", "--horizon", "4", code=2).err
    assert f"{tmp_path / 'room.txt'}: the map has no start 'S'" in err
