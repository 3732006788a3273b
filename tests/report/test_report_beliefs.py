"""The page of a run by the belief method, and the certificate that may come with a run."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
from test_report import overlapping

import tasid
from browser import in_browser, measure
from pages import Page, page_of, rewrite
from tasid.checks.certify import Certify
from tasid.cli import main
from tasid.files import ArtifactError, read_artifact
from tasid.learning.belief.method import BatchEnded
from tasid.learning.monitor import Calibration
from tasid.maps.layout import GridLayout
from tasid.policies.certificate import ReturnCertificate
from tasid.report import build_report
from tasid.report.figures.drawing import house_style
from tasid.report.figures.grid_heat import visit_heat
from tasid.report.figures.grid_picture import draw_grid
from tasid.report.figures.labels import Mark
from tasid.report.figures.learning import BeliefBatches, regret_panel, returns_panel
from tasid.report.figures.pictures import NARROW, WIDE
from tasid.report.figures.reliability import reliability_panel
from tasid.report.figures.routes import Routes
from tasid.report.pages.findings import read_findings
from tasid.report.text.command import rerun_command
from tasid.runs.train import Order, train

LOCK = {"horizon": 4, "num_actions": 4, "seed": 7}
EPISODES, STEPS = 40, 4


@pytest.fixture(scope="module")
def certified(tmp_path_factory):
    """A lock learned by beliefs, with a certificate."""
    folder = tmp_path_factory.mktemp("belief") / "run"
    order = Order(
        "combination-lock",
        LOCK,
        0.1,
        EPISODES,
        7,
        evaluation_episodes=300,
        certify=Certify(epsilon=1.5, episodes=150),
    )
    train(order, folder)
    return folder


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    """A few episodes on a frozen lake that is not slippery: a Gymnasium target with a grid."""
    folder = tmp_path_factory.mktemp("lake") / "run"
    with pytest.raises(SystemExit) as stop:
        main(
            ["train", "gym:FrozenLake-v1", "--simulator", "gym:FrozenLake-v1", "--set",
             "is_slippery=false", "--horizon", "8", "--eta", "0.1", "--episodes", "16",
             "--evaluation-episodes", "20", "--out", str(folder), "--json"]
        )  # fmt: skip
    assert not stop.value.code
    return folder


@pytest.fixture
def run(certified, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(certified, folder)
    return folder


def batches(*rows):
    """Batches with these numbers of episodes so far, returns, regrets and their errors."""
    return BeliefBatches(
        batches=tuple(
            BatchEnded(
                **dict.fromkeys(BatchEnded.__dataclass_fields__, 0.0)
                | {"batch": number, "best": "warm, by place", "episodes": so_far}
                | {"return_mean": earned, "regret": regret, "regret_error": error}
            )
            for number, (so_far, earned, regret, error) in enumerate(rows)
        ),
        stopped=None,
        tracking_accuracy=None,
        visits=None,
    )


# ---------------------------------------------------------------- what is drawn


def test_every_batch_is_a_dash_over_its_own_episodes():
    found = batches((16, 0.25, None, None), (40, 0.5, 1.0, 0.1), (100, 0.75, 0.5, 0.0))
    marks = (Mark("robust plan", 1.0, "robust"), Mark("blind", 0.1, "blind"))
    with house_style():
        (axes,) = returns_panel(found, marks).axes
        (regret,) = regret_panel(found).axes
    (dashes,) = axes.collections
    drawn = [np.asarray(path.vertices).tolist() for path in dashes.get_paths()]
    assert drawn == [
        [[0, 0.25], [16, 0.25]],
        [[16, 0.5], [40, 0.5]],
        [[40, 0.75], [100, 0.75]],
    ]
    levels = {float(line.get_ydata()[0]) for line in axes.lines if len(line.get_ydata()) == 2}
    assert levels == {1.0, 0.1}
    assert {text.get_text() for text in axes.texts} == {"robust plan 1.00", "blind 0.100"}
    # Two standard errors; the first batch has no regret, and nothing is drawn for it.
    spans = [line.get_ydata() for line in regret.lines if len(line.get_ydata()) == 2]
    assert [list(span) for span in spans] == [pytest.approx([0.8, 1.2]), [0.5, 0.5]]


def test_visits_add_up_to_what_was_commanded(certified):
    """A lock never ends early: every episode acts once in every layer, at first in the start."""
    found = read_findings(certified)
    sim, visits = found.policy.simulator, found.beliefs.visits
    assert visits.sum() == pytest.approx(EPISODES * STEPS, rel=1e-3)
    assert visits[sim.start] == pytest.approx(EPISODES, rel=1e-3)
    layers = np.array([label[0] for label in sim.states])
    for layer in range(STEPS):
        assert visits[layers == layer].sum() == pytest.approx(EPISODES, rel=1e-3)


def test_cells_are_coloured_by_the_visits_of_all_their_headings():
    cells = np.zeros((2, 3), int)
    cells[1, 2] = 3  # a goal, where time is waited out
    layout = GridLayout(cells, [[0, 0], [0, 0], [0, 1], [1, 2], [1, 0]], headings=[0, 1, 0, 0, 2])
    heat = visit_heat(layout, np.array([3.0, 4.0, 2.0, 100.0, 0.2]))
    assert heat.cells[0, 0] == 7.0
    assert heat.cells[0, 1] == 2.0
    assert np.isnan(heat.cells[1]).all(), "a goal, and less than half a visit"
    assert heat.range == (2.0, 7.0)


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("flips", [True, False])
def test_legends_of_grids_are_not_clipped(width, flips):
    for text in ("#####\n#S.L#\n#..G#\n#####", "#######\n#S...L#\n#.LL..#\n#....G#\n#######"):
        sim = tasid.AbstractSimulator.from_text_map(text, horizon=14)
        routes = Routes.of(tasid.robust_dp(sim, eta=0.1))
        with house_style():
            assert not overlapping(draw_grid(routes, width=width, flips=flips))


def test_routes_keep_to_their_cells_and_lead_somewhere():
    text = "#########\n#S.L...G#\n#..L....#\n#.......#\n#.......#\n#########"
    sim = tasid.AbstractSimulator.from_text_map(text, horizon=14)
    routes = Routes.of(tasid.robust_dp(sim, eta=0.1))
    assert any(change.after.trouble for change in routes.changes)
    with house_style():
        figure = draw_grid(routes, width=WIDE)
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert not [name for name in names if "without arriving" in name]
    ways = [line.get_xydata() for line in figure.axes[0].lines if len(line.get_xydata()) > 1]
    asides = [np.abs(way - way.round()).max() for way in ways]
    assert 0 < max(asides) <= 0.15 + 1e-9


def test_a_map_with_a_grid_is_drawn_as_one_in_the_colours_of_the_page(lake):
    text = build_report(lake).read_text()
    page = Page(text)
    titles = [e["text"] for e in page.all("title") if "svg" in e["in"]]
    assert titles.count("Routes of the plans on the map") == 2
    assert titles.count("Visits of the learning episodes") == 2
    assert not page.all("image"), "pixels could not follow the page into the dark"
    drawings = "".join(re.findall(r"<svg.*?</svg>", text, flags=re.S))
    assert not re.findall(r"#[0-9a-f]{6}\b", drawings)
    for name in ("hazard", "goal", "heat"):
        assert f"var(--{name})" in drawings


def test_a_target_without_slips_is_not_said_to_slip(lake):
    said = page_of(lake).text()
    assert "some do not" not in said
    assert "η estimated" in said
    assert "was not measured" in said, "calibration takes more episodes of somebody else's target"


# ---------------------------------------------------------------- what is said


def test_the_page_says_why_learning_stopped(run):
    said = page_of(run).text()
    assert "It took 40 episodes in 3 batches." in said
    assert "Why no more: 40 episodes were asked for." in said
    rewrite(run, stopped="more would not help")
    assert "Why no more: More would not help." in page_of(run).text()


def test_how_many_batches_there_will_be_need_not_be_known(run):
    told = (run / "batches.jsonl").read_text()
    (run / "batches.jsonl").write_text(re.sub(r'"of": \d+', '"of": null', told))
    assert '"of": null' in (run / "batches.jsonl").read_text()
    assert "It took 40 episodes in 3 batches." in page_of(run).text()


def test_batches_are_told_as_they_were_recorded(run):
    rows = [json.loads(line) for line in (run / "batches.jsonl").read_text().splitlines()]
    head, *table = page_of(run).table("steps")
    assert [row[head.index("best fit")] for row in table] == [row["best"] for row in rows]
    assert [row[head.index("so far")] for row in table] == ["16", "32", "40"]
    assert table[0][head.index("regret")] == "–", "nothing was known yet"
    means = [float(row[head.index("return")].replace("−", "-")) for row in table]
    assert means == pytest.approx([row["return_mean"] for row in rows], abs=0.005 + 1e-9)


def test_places_without_a_step_of_their_own(run):
    error = {"step": -1, "state": 3, "action": 1, "visits": 9, "surprises": 8, "p_value": 1e-9}
    rewrite(run, map_errors=[error])
    assert page_of(run).table("map-errors")[1][:2] == ["any", "3"]


def test_the_surest_slips_are_told_in_words(run):
    assert "slips" in json.loads((run / "result.json").read_text())
    outcomes = [
        {"successor": [3, 5], "actions": [1], "count": 68.2, "probability": 0.8, "expected": 0.9},
        {"successor": "<b>", "actions": [0], "count": 11.9, "probability": 0.2, "expected": 0.1},
    ]
    slip = {"step": -1, "state": [3, 4], "action": 1, "visits": 80, "outcomes": outcomes}
    kept = [outcomes[0] | {"count": 80.0}, outcomes[1] | {"count": 0.0}]
    told = [
        slip | {"evidence": 9.0},
        slip | {"evidence": 8.0, "outcomes": kept},  # fewer slips than expected are none
        slip | {"evidence": 7.0, "step": 2},
        slip | {"evidence": 4.0},
    ]
    rewrite(run, slips=told)
    said = [e["text"] for e in page_of(run).all("li") if "came out" in e["text"]]
    assert said == [
        "In (3, 4) action 1 came out as action 0 in 12 of 80.",
        "At step 2 in (3, 4) action 1 came out as action 0 in 12 of 80.",
    ]
    rewrite(run, slips=[])
    assert "What commands came to" not in page_of(run).text()
    for spoiled in ("none", [3], [slip], [slip | {"evidence": 9.0, "outcomes": outcomes[:1]}]):
        rewrite(run, slips=spoiled)
        with pytest.raises(ArtifactError, match="slips"):
            build_report(run)


def test_probabilities_get_no_interval_of_coins():
    said = np.array([0.95] * 20 + [0.55] * 10)
    with house_style():
        (axes,) = reliability_panel(Calibration(said, said - 0.05)).axes
        (coins,) = reliability_panel(Calibration(said, said > 0.6)).axes
    dots = sorted(tuple(line.get_xydata()[0]) for line in axes.lines if len(line.get_xdata()) == 1)
    assert dots == [pytest.approx((0.55, 0.5)), pytest.approx((0.95, 0.9))]
    assert len(axes.lines) == 3, "the diagonal and two dots"
    assert len(coins.lines) == 5, "and an interval each"


def test_confidence_is_held_against_whole_episodes(certified, run):
    stored = read_artifact(certified / "evaluation").arrays
    assert stored["calibration.correct"].dtype == np.float64
    assert "once the whole episode" in page_of(run).text()
    for wrong in (1.5, -0.1, np.nan):
        spoiled = np.full_like(stored["calibration.correct"], wrong)
        rewrite(run, arrays={"calibration.correct": spoiled})
        with pytest.raises(ArtifactError, match="truth values or probabilities"):
            build_report(run)


@in_browser
@pytest.mark.parametrize("which", ["certified", "lake"])
def test_the_page_fits_narrow_and_wide_windows(request, which, tmp_path):
    folder = request.getfixturevalue(which)
    for window in measure(tmp_path, build_report(folder)):
        assert window["scroll"] == window["inner"], "no scrolling sideways"
        assert window["clashes"] == []
        assert window["small"] == []
        assert window["cut"] == []


# ---------------------------------------------------------------- certificates


def test_the_certificate_is_that_of_the_frozen_policy(certified):
    summary = json.loads((certified / "result.json").read_text())
    assert summary["episodes"] == EPISODES, "certifying episodes are counted apart"
    env = tasid.make("combination-lock", **LOCK)
    policy = tasid.load(certified / "policy")
    again = tasid.certify_return(policy, env, epsilon=1.5, max_episodes=150, seed=7)
    assert summary["certificate"] == json.loads(json.dumps(again.record()))
    assert ReturnCertificate.of(summary["certificate"]) == again


def test_the_page_shows_it(certified, run):
    record = read_artifact(certified / "evaluation").metadata["certificate"]
    page = page_of(run)
    names = [e["text"] for e in page.all("dt")]
    values = [e["text"] for e in page.all("dd") if "value" in e["attributes"].get("class", "")]
    shown = dict(zip(names, values, strict=False))
    assert shown["Certifying episodes"] == str(record["episodes"])
    assert shown["Earns at least"] == f"{record['lower_bound']:.2f}"
    assert shown["Promise kept"] == ("yes" if record["passed"] else "not shown")
    assert ReturnCertificate.of(record).summary() in page.text()
    bad = record | {"void": "a return <b>off</b> the map", "lower_bound": None, "passed": False}
    rewrite(run, certificate=bad)
    page = page_of(run)
    assert "This certificate is void: a return <b>off</b> the map." in page.text()
    assert not page.all("b") or all(e["text"].startswith("Figure") for e in page.all("b"))
    rewrite(run, certificate=None)
    assert "What is certain" not in page_of(run).text()


@pytest.mark.parametrize(
    "change",
    [{"lower_bound": "much"}, {"epsilon": None}, {"episodes": True}, {"range": [1]}, {"void": 1}],
)
def test_a_spoiled_certificate_is_refused(run, change):
    record = read_artifact(run / "evaluation").metadata["certificate"]
    rewrite(run, certificate=record | change)
    with pytest.raises(ArtifactError, match="certificate is none of ours"):
        build_report(run)


def order_of(monkeypatch, capsys, *flags, code=0):
    """The order that a command makes, or what it says instead."""
    ordered = []
    monkeypatch.setattr(
        "tasid.runs.train.train", lambda order, *_, **__: ordered.append(order) or {}
    )
    with pytest.raises(SystemExit) as stop:
        main(["train", "combination-lock", *flags, "--json"])
    assert (stop.value.code or 0) == code
    return capsys.readouterr().err if code else ordered[0]


def test_the_command_orders_a_certificate(monkeypatch, capsys):
    assert order_of(monkeypatch, capsys).certify is None
    assert order_of(monkeypatch, capsys, "--certify").certify == Certify()
    flags = ["--certify", "--certify-epsilon", "0.5", "--certify-episodes", "90"]
    flags += ["--certify-attempt", "2"]
    assert order_of(monkeypatch, capsys, *flags).certify == Certify(0.5, 90, 2)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--certify-episodes", "9"], "--certify-episodes: 9 without --certify"),
        (["--certify", "--certify-epsilon", "-1"], "certify: epsilon -1.0 is no finite number"),
        (["--certify", "--certify-episodes", "0"], "--certify-episodes: 0 is not in 1"),
        (["--certify", "--algorithm", "ppo"], "--certify: with a baseline"),
    ],
)
def test_what_cannot_be_certified_is_refused_before_learning(monkeypatch, capsys, flags, words):
    assert words in order_of(monkeypatch, capsys, *flags, code=2)


def test_the_command_that_makes_it_again_certifies_again(monkeypatch, capsys, certified):
    asked = json.loads((certified / "run.json").read_text())
    words = rerun_command(asked).replace("\\\n", " ").split()
    order = order_of(monkeypatch, capsys, *words[3:])
    assert order.certify == Certify(1.5, 150, 1)
    assert replace(order, certify=None).episodes == EPISODES
