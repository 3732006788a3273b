"""The report: true to the records, the same every time, safe to open, and readable everywhere."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from itertools import combinations, pairwise
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
from PIL import Image

import tasid
from browser import browse, in_browser, measure
from mdps import quick
from pages import Page, edit_asked, page_of, rewrite
from tasid.baselines.by_name import Baseline
from tasid.files import ArtifactError, read_artifact
from tasid.report import build_report, plan_picture
from tasid.report.figures.drawing import DARK, LIGHT, house_style, inline_svg
from tasid.report.figures.labels import Mark, arrange
from tasid.report.figures.learning import returns_figure
from tasid.report.figures.pictures import NARROW, WIDE, draw_routes
from tasid.report.figures.routes import Routes, columns_of, in_words, lanes_of, share
from tasid.report.pages.baseline import _settings
from tasid.report.pages.findings import read_findings
from tasid.report.pages.page import render
from tasid.report.pages.player import Replay
from tasid.report.text.command import rerun_command
from tasid.report.text.wording import count, duration, number, percent
from tasid.runs.train import Order, train
from tasid.targets.worlds.combination_lock import lock_simulator

OPTIONS = {"horizon": 4, "num_actions": 4, "seed": 7}
EPISODES = {"paper": 600, "belief": 40}


@pytest.fixture(scope="module", params=["paper", "belief"])
def finished(request, tmp_path_factory):
    """A run of each method, with its page."""
    folder = tmp_path_factory.mktemp(request.param) / "run"
    episodes = EPISODES[request.param]
    order = Order(
        "combination-lock", OPTIONS, 0.1, episodes, 7, request.param, evaluation_episodes=300
    )
    train(order, folder)
    build_report(folder)
    return folder


@pytest.fixture
def run(finished, tmp_path):
    """A copy to spoil, without its page."""
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    (folder / "report.html").unlink()
    return folder


def by_beliefs(folder):
    """Was it learned by the belief method, batch by batch?"""
    return (folder / "batches.jsonl").stat().st_size > 0


# ---------------------------------------------------------------- what the page says


def test_the_page_leads_to_the_player_or_says_why_there_is_none(finished):
    found = read_findings(finished)
    there = render(found, Replay(finished / "player.html"))
    assert '<a href="player.html">player.html</a>, beside this page' in there
    assert "No episode could be played: no <map>." not in there
    missing = render(found, Replay(None, "no <map>"))
    assert "No episode could be played: no &lt;map&gt;." in missing
    assert "player.html" not in missing + render(found)


def test_the_page_says_what_the_records_and_the_exact_values_say(finished):
    env = tasid.make("combination-lock", **OPTIONS)
    plan = tasid.robust_dp(env.simulator, eta=0.1)
    nominal = tasid.robust_dp(env.simulator, eta=0.0)
    robust = tasid.policy_value(env.latent.world, plan)
    mean = read_artifact(finished / "evaluation").arrays["returns"].mean()
    page = page_of(finished)
    said = page.text()
    sentence = re.search(
        r"The learned policy earns (\S+) per episode, (\S+)\u202f% of what the robust plan earns "
        r"with the latent state in view \((\S+)\)\.",
        said,
    )
    assert [float(part) for part in sentence.groups()] == pytest.approx(
        [mean, 100 * mean / robust, robust], abs=0.05
    )
    values = {
        name["text"]: value["text"]
        for name, value in zip(
            [e for e in page.all("dt") if "actions" not in str(e["in"])],
            [e for e in page.all("dd") if "value" in e["attributes"].get("class", "")],
            strict=False,
        )
    }
    assert values["Robust value"] == f"{robust:.2f}"
    assert values["Worst case"] == f"{plan.start_value:.2f}"
    assert values["Nominal plan"] == f"{tasid.policy_value(env.latent.world, nominal):.2f}"
    # Paper: three models with 600 / 4 episodes each. Belief: 16, 16, and what is left of 40.
    each = [16, 16, 8] if by_beliefs(finished) else [150, 150, 150]
    assert values["Learning episodes"] == str(sum(each))
    actions = [step.action for step in plan.route()]
    assert " ".join(map(str, actions)) in said
    assert ("Every step has a model of its own." in said) != by_beliefs(finished)
    assert ("The policy then keeps a belief" in said) == by_beliefs(finished)
    head, *rows = page.table("steps")
    assert ("epochs" in head) != by_beliefs(finished)
    assert [int(row[head.index("episodes")]) for row in rows] == each
    assert "None" not in said
    assert "nan" not in said


def test_a_setting_that_blind_play_nearly_solves_is_called_weak(run):
    rewrite(run, robust_value=8.0, blind_value=4.1)
    assert "weak evidence" in page_of(run).text()
    rewrite(run, robust_value=8.0, blind_value=3.9)
    assert "evidence of learning" not in page_of(run).text()
    rewrite(run, robust_value=8.0, blind_value=8.0, skill=None)
    assert "no evidence" in page_of(run).text()


def test_whether_the_robust_value_is_in_the_interval(run):
    for robust, words in ((8.0, "cannot be told apart"), (8.2, "lies below"), (7.0, "lies above")):
        rewrite(run, robust_value=robust, return_ci95=[7.9, 8.1])
        assert words in page_of(run).text()


def test_unknown_values_are_called_unknown(run):
    known = ["robust_value", "ratio", "skill", "seconds", "decoder_accuracy", "episodes"]
    known += ["calibration_error"]
    rewrite(
        run,
        drop=["nominal_plan_value", "blind_value", "worst_case_value", "tracking_accuracy"],
        return_ci95=[None, None],
        **dict.fromkeys(known),
    )
    page = page_of(run)
    assert "what the robust plan would earn here is unknown" in page.text()
    unknown = [e for e in page.all("dd") if e["attributes"].get("class") == "value unknown"]
    assert len(unknown) == 11 - by_beliefs(run), "the paper's method has no estimate of η either"
    assert "None" not in page.text()
    assert "too few for an interval" in page.text()
    for e in page.all("desc"):
        if "returns" in e["attributes"]["id"]:
            assert "learned policy" in e["text"]
            assert "robust plan" not in e["text"]


def test_negative_values_get_no_percentage(run):
    rewrite(run, robust_value=-4.0, ratio=1.25, blind_value=-9.0)
    assert "the robust plan earns −4.00 with the latent state in view." in page_of(run).text()


def test_a_run_of_one_step_and_one_episode_by_beliefs(tmp_path):
    options = {"horizon": 1, "num_actions": 3, "seed": 1}
    order = Order("combination-lock", options, 0.1, 1, 1, evaluation_episodes=1)
    train(order, tmp_path / "run")
    page = page_of(tmp_path / "run")
    assert "It took 1 episode in 1 batch." in page.text()
    assert "Why no more: 1 episode was asked for." in page.text()
    assert "The regret is" not in page.text(), "it is not drawn either"
    assert "None" not in page.text()
    assert "nan" not in page.text()


def test_a_run_of_one_step_and_one_episode(tmp_path):
    options = {"horizon": 1, "num_actions": 3, "seed": 1}
    order = Order("combination-lock", options, 0.1, 10, 1, "paper", evaluation_episodes=1)
    train(order, tmp_path / "run")
    page = page_of(tmp_path / "run")
    assert "nothing to decode" in page.text()
    assert "model" not in page.text()
    assert "η estimated" not in page.text()
    assert [e["attributes"]["id"] for e in page.all("figure")] == ["figure-1", "figure-2"]


def test_a_loss_that_ran_away_leaves_a_gap(run):
    if by_beliefs(run):
        pytest.skip("beliefs have no losses")
    for name in ("steps.jsonl", "epochs.jsonl"):
        text = (run / name).read_text()
        (run / name).write_text(re.sub(r'("validation_loss": )[^,}]+', r"\1null", text))
    page = page_of(run)
    head, *rows = page.table("steps")
    cells = {row[head.index("validation loss")] for row in rows}
    assert cells == {"not finite"}
    assert "nan" not in page.text()


@pytest.mark.parametrize(
    ("value", "text"),
    [(8.8004, "8.80"), (-0.0314, "−0.031"), (0.99996, "1.00"), (0, "0.00"), (1e-5, "1e−05"),
     (12345.678, "12\u202f345.68"), (None, "unknown")],
)  # fmt: skip
def test_numbers(value, text):
    assert number(value) == text


def test_a_hundred_percent_is_said_of_the_whole_only():
    assert percent(1) == "100\u202f%"
    assert percent(0.9996) == "99.96\u202f%"
    assert percent(0.99999) == "99.999\u202f%"
    assert percent(1.002) == "100.2\u202f%"
    assert percent(1.0001) == "100.01\u202f%"
    assert [percent(None), count(None), duration(None)] == ["unknown"] * 3
    assert (count(1_234_567), duration(3.04)) == ("1\u202f234\u202f567", "3.0\u202fs")
    assert duration(99.96) == "1\u202fmin 40\u202fs"
    assert duration(5_999.4) == "99\u202fmin 59\u202fs"
    assert duration(7_199.0) == "2\u202fh 0\u202fmin"


# ---------------------------------------------------------------- what the page is


def test_the_same_records_give_the_same_bytes(finished):
    first = (finished / "report.html").read_bytes()
    with matplotlib.rc_context({"font.size": 30, "lines.linewidth": 9, "svg.fonttype": "path"}):
        assert build_report(finished).read_bytes() == first
        assert matplotlib.rcParams["font.size"] == 30, "the user's settings stay"
    code = f"from tasid.report import build_report; build_report({str(finished)!r})"
    environment = os.environ | {"PYTHONHASHSEED": "1", "TZ": "Asia/Tokyo", "LC_ALL": "C"}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=120)
    assert (finished / "report.html").read_bytes() == first


def test_ids_are_unique_and_references_resolve(finished):
    page = page_of(finished)
    ids = [e["attributes"]["id"] for e in page.elements if "id" in e["attributes"]]
    assert len(set(ids)) == len(ids)
    wanted = set()
    for element in page.elements:
        for name, value in element["attributes"].items():
            if name in ("aria-labelledby", "aria-describedby"):
                wanted.update(value.split())
            if name == "href" and value.startswith("#"):
                wanted.add(value[1:])
            wanted.update(re.findall(r"url\(#([^)]+)\)", value or ""))
    assert len(wanted) > 20
    assert wanted <= set(ids)


def test_nothing_is_fetched_and_nothing_runs(finished):
    text = (finished / "report.html").read_text()
    page = Page(text)
    assert not page.all("script", "iframe", "object", "embed", "img", "image", "base", "form")
    assert "http:" not in text
    assert "https:" not in text
    assert not re.search(r"@import|@font-face|javascript:|src=", text)
    assert not re.findall(r"url\((?!#)", text)
    for element in page.elements:
        assert not [name for name in element["attributes"] if name.startswith("on")]
        assert element["attributes"].get("href", "#")[:1] == "#" or element["tag"] == "link"
    assert [e["attributes"]["href"] for e in page.all("link")] == ["data:,"]
    policies = [e["attributes"].get("content", "") for e in page.all("meta")]
    assert any("default-src 'none'" in policy for policy in policies)


def test_every_figure_has_a_text_for_those_who_do_not_see_it(finished):
    page = page_of(finished)
    numbered = [f"figure-{n}" for n in (1, 2, 3, 4)]  # a lock has no grid to draw visits on
    assert [e["attributes"]["id"] for e in page.all("figure")] == numbered
    said = [re.match(r"Figure (\d)\.", e["text"])[1] for e in page.all("figcaption")]
    assert said == ["1", "2", "3", "4"]
    drawings = page.all("svg")
    assert len(drawings) == (3 if by_beliefs(finished) else 4) + 2 + 2 + 2
    texts = {
        e["attributes"]["id"]: e["text"] for e in page.all("title", "desc") if "svg" in e["in"]
    }
    for drawing in drawings:
        assert drawing["attributes"]["role"] == "img"
        title, description = drawing["attributes"]["aria-labelledby"].split()
        assert texts[title]
        assert len(texts[description]) > 40
        assert "figure" in str(drawing["in"])
    headings = [int(e["tag"][1]) for e in page.all("h1", "h2", "h3", "h4")]
    assert headings[0] == 1
    assert headings.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(headings))


def test_colours_follow_the_page_and_can_be_read(finished):
    text = (finished / "report.html").read_text()
    drawings = "".join(re.findall(r"<svg.*?</svg>", text, flags=re.S))
    assert not re.findall(r"#[0-9a-f]{6}\b", drawings), "a colour that dark mode cannot change"
    assert LIGHT.keys() == DARK.keys()
    assert len(set(LIGHT.values())) == len(LIGHT), "equal codes could not be told apart"

    def luminance(code):
        channels = np.array([int(code[i : i + 2], 16) for i in (1, 3, 5)]) / 255
        linear = np.where(
            channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4
        )
        return float(linear @ [0.2126, 0.7152, 0.0722])

    for palette in (LIGHT, DARK):
        for name in ("ink", "muted", "learned", "robust", "nominal", "blind"):
            pair = sorted((luminance(palette[name]), luminance(palette["paper"])))
            assert (pair[1] + 0.05) / (pair[0] + 0.05) >= 4.5, "WCAG 2.2, level AA"


HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>&\"'`$(x)\ud800"


def test_hostile_strings_are_text(run):
    def poison(asked):
        asked["environment"] = {"name": HOSTILE, "options": {HOSTILE: HOSTILE}}
        asked["versions"] = {HOSTILE: [HOSTILE]}
        asked["method"] = HOSTILE

    edit_asked(run, poison)
    page = page_of(run)
    assert not page.all("script", "img")
    assert page.text().count("<script>alert(1)</script>") >= 6
    assert "<script>" in page.text("h1")


def test_an_incomplete_order_leaves_the_command_unknown(run):
    (run / "run.json").write_text("{}")
    assert "the command is unknown" in page_of(run).text()


# ---------------------------------------------------------------- what is refused


def flip(file):
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(bytes(data))


def rows_of(run):
    """The file that tells how learning went."""
    return run / ("batches.jsonl" if by_beliefs(run) else "steps.jsonl")


SPOILED = {
    "returns damaged": lambda run: flip(next((run / "evaluation").glob("*.safetensors"))),
    "summary damaged": lambda run: flip(run / "evaluation" / "manifest.json"),
    "policy damaged": lambda run: flip(next((run / "policy").glob("*.safetensors"))),
    "no evaluation": lambda run: shutil.rmtree(run / "evaluation"),
    "no order": lambda run: (run / "run.json").unlink(),
    "no rows": lambda run: rows_of(run).unlink(),
    "rows of another run": lambda run: rows_of(run).write_text(""),
    "a word for seconds": lambda run: rows_of(run).write_text(
        re.sub(r'("seconds_fitting": )[^,}]+', r'\1"long"', rows_of(run).read_text())
    ),
    "a word for a number": lambda run: rewrite(run, ratio="good"),
    "three bounds": lambda run: rewrite(run, return_ci95=[1, 2, 3]),
    "no returns": lambda run: rewrite(run, arrays={"returns": np.zeros(0)}),
    "returns not finite": lambda run: rewrite(run, arrays={"returns": np.array([1.0, np.nan])}),
    "accuracies of another run": lambda run: rewrite(run, arrays={"decoder_accuracy": np.ones(9)}),
}


@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED.keys())
def test_a_spoiled_run_gets_no_page(run, spoil):
    spoil(run)
    with pytest.raises(ArtifactError):
        build_report(run)
    assert not (run / "report.html").exists()


def test_batches_of_another_run_are_refused(run):
    if not by_beliefs(run):
        pytest.skip("the paper's method learns in steps")
    rows = rows_of(run).read_text().splitlines()
    rows_of(run).write_text("\n".join(rows[:-1]))
    with pytest.raises(ArtifactError, match="32 episodes, but the run spent 40"):
        build_report(run)
    rows_of(run).write_text("\n".join([rows[1], rows[0]]))
    with pytest.raises(ArtifactError, match="not the batches of one run"):
        build_report(run)


def test_epochs_of_another_run_are_refused(run):
    if by_beliefs(run):
        pytest.skip("beliefs are not learned in epochs")
    row = {"seed": 7, "step": 99, "epoch": 0, "training_loss": 1.0, "validation_loss": 1.0}
    with (run / "epochs.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")
    with pytest.raises(ArtifactError, match=r"epochs\.jsonl"):
        build_report(run)


def test_a_failing_report_keeps_the_old_page(run):
    before = build_report(run).read_bytes()
    SPOILED["returns damaged"](run)
    with pytest.raises(ArtifactError):
        build_report(run)
    assert (run / "report.html").read_bytes() == before


# ---------------------------------------------------------------- to run it again


@pytest.mark.parametrize(
    ("options", "eta", "seed"),
    [
        ({"horizon": 4, "num_actions": 4, "eta": 0.1, "unperturbed": "last", "seed": 7}, 0.1, 7),
        ({"horizon": 9, "eta": 0.25, "bernoulli": True, "noise": 1e-05, "seed": 3}, 0.1, 8),
        ({"unperturbed": "true", "noise": 0, "seed": 0}, 0.0, 0),
        ({"unperturbed": "it's $HOME; rm *", "seed": 0}, 0.3, 0),
        ({"horizon": None, "text_map": None, "eta": 0.1, "seed": 0}, 0.1, 0),
        ({"text_map": "#####\n#S.G#\n#####", "seed": 0}, 0.1, 0),
    ],
)
@pytest.mark.parametrize("episodes", [600, "auto"])
def test_the_command_orders_the_same_run_again(monkeypatch, capsys, options, eta, seed, episodes):
    ordered = []
    monkeypatch.setattr(
        "tasid.runs.train.train", lambda order, *_, **__: ordered.append(order) or {}
    )
    asked = {
        "environment": {"name": "combination-lock", "options": options},
        "eta": eta,
        "episodes": episodes,
        "seed": seed,
        "method": "paper",
        "evaluation_episodes": 300,
    }
    words = shlex.split(rerun_command(asked).replace("\\\n", " "))
    assert words[:2] == ["tasid", "train"]
    from tasid.cli import main

    with pytest.raises(SystemExit) as stop:
        main([*words[1:], "--json"])
    assert not stop.value.code, capsys.readouterr().err
    wanted = {"eta": eta} | {key: value for key, value in options.items() if value is not None}
    assert ordered == [Order("combination-lock", wanted, eta, episodes, seed, "paper", 300)]


def test_the_command_repeats_what_was_asked_besides(monkeypatch, capsys, tmp_path):
    ordered = []
    monkeypatch.setattr(
        "tasid.runs.train.train", lambda order, *_, **__: ordered.append(order) or {}
    )
    asked = {
        "environment": {"name": "combination-lock", "options": {"seed": 0}},
        "eta": 0.1,
        "episodes": "auto",
        "seed": 0,
        "method": "belief",
        "classes": "rank",
        "evaluation_episodes": 300,
        "imports": ["my rovers.py", "json"],
    }
    (tmp_path / "my rovers.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "my rovers", raising=False)
    words = shlex.split(rerun_command(asked).replace("\\\n", " "))
    from tasid.cli import main

    with pytest.raises(SystemExit) as stop:
        main([*words[1:], "--json"])
    assert not stop.value.code, capsys.readouterr().err
    (order,) = ordered
    assert (order.method, order.classes, order.episodes) == ("belief", "rank", "auto")
    assert order.imports == ("my rovers.py", "json")


# ---------------------------------------------------------------- pictures


def test_the_lanes_of_the_lock_are_its_definition():
    lanes = lanes_of(Routes.of(tasid.robust_dp(lock_simulator(6, 5, seed=1), eta=0.1)))
    assert lanes.kinds == (1, 2, 3)
    assert set(lanes.edges) == {frozenset({(1, 1), (1, 2), (2, 1), (2, 2), (2, 3), (3, 3)})}
    assert lanes.walks[0] == ((1, 1, 1, 1, 1, 1, 2),), "type 1 up to the last decision"
    assert lanes.walks[1][0][-1] == 2


def test_words_for_the_routes():
    said = in_words(Routes.of(tasid.robust_dp(lock_simulator(6, 5, seed=1), eta=0.1)))
    assert said.startswith(
        "The robust plan’s route: it is on type 1 in layers 0–5, type 2 in layer 6."
    )


def grid(start=0):
    """A ring of labelled places that is not layered."""
    successor = [[(s + 1) % 9, (s - 1) % 9] for s in range(9)]
    reward = [[float(s == 4), 0.0] for s in range(9)]
    labels = [(s, f"<b>$\x00{s}\n") for s in range(9)]
    return tasid.AbstractSimulator(successor, reward, horizon=60, start=start, states=labels)


def test_other_maps_get_states_over_steps(tmp_path):
    for start in (0, [3, 1, 5]):
        plan = tasid.robust_dp(grid(start), eta=0.2)
        assert lanes_of(Routes.of(plan)) is None
        file = plan_picture(plan, tmp_path / "plan.svg")
        assert "\x00" not in file.read_text()
        with house_style():
            routes = Routes.of(plan)
            drawing = inline_svg(
                draw_routes(routes, width=WIDE), name="x", title="<b>", description=in_words(routes)
            )
        assert not Page(drawing).all("b"), "labels are text"
    pairs = tasid.AbstractSimulator([[1], [0]], [[0.0], [1.0]], horizon=3, states=[(0, 0), (1, 0)])
    assert lanes_of(Routes.of(tasid.robust_dp(pairs, eta=0.1))) is None, "not layered"


@quick
@given(horizon=st.integers(1, 500), limit=st.integers(10, 60))
def test_columns_show_or_fold_every_layer_once(horizon, limit):
    columns = columns_of(horizon, limit)
    hidden = columns.hidden
    assert sorted([*columns.place, *hidden]) == list(range(horizon + 1))
    assert columns.width <= limit
    places = list(columns.place.values())
    assert all(after - before >= 1 for before, after in pairwise(places))
    if hidden:
        walks = [[layer % 3 for layer in range(horizon + 1)]]
        assert sum(share(walks, kind, hidden) for kind in range(3)) == pytest.approx(1)


def overlapping(figure):
    """Pairs of texts of a figure that touch each other, and texts that leave it."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    texts = [t for t in figure.findobj(Text) if t.get_visible() and t.get_text().strip()]
    for axes in figure.axes:  # ticks outside the axes exist, but are not drawn
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            for tick in axis.get_major_ticks():
                if not low <= tick.get_loc() <= high:
                    texts = [t for t in texts if t not in (tick.label1, tick.label2)]
    boxes = [(t.get_text(), t.get_window_extent(renderer)) for t in texts]
    page = figure.bbox
    outside = [name for name, b in boxes if b.x0 < page.x0 - 1 or b.x1 > page.x1 + 1]
    return outside + [(a, b) for (a, x), (b, y) in combinations(boxes, 2) if x.overlaps(y)]


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("horizon", [1, 5, 10, 20, 43, 60, 400])
def test_labels_of_routes_do_not_overlap(horizon, width):
    with house_style():
        lock = Routes.of(tasid.robust_dp(lock_simulator(horizon, 4, seed=2), eta=0.1))
        assert not overlapping(draw_routes(lock, width=width))
        other = Routes.of(tasid.robust_dp(grid([3, 1]), eta=0.1))
        assert not overlapping(draw_routes(other, width=width))


@settings(quick, max_examples=25)
@given(values=st.lists(st.floats(-2, 12), min_size=4, max_size=4), wide=st.booleans())
def test_labels_of_returns_do_not_overlap(values, wide):
    names = (("learned policy", "learned"), ("robust plan", "robust"),
             ("nominal plan", "nominal"), ("blind", "blind"))  # fmt: skip
    marks = [Mark(n, v, c) for (n, c), v in zip(names, values, strict=True)]
    with house_style():
        figure = returns_figure(np.array([0.5, 9.3]), marks, width=WIDE if wide else NARROW)
        assert not overlapping(figure)


@quick
@given(
    places=st.lists(st.floats(0, 300), min_size=1, max_size=4),
    widths=st.lists(st.floats(10, 150), min_size=4, max_size=4),
)
def test_labels_have_a_row_each_and_stay_inside(places, widths):
    placings = arrange(places, widths, 300.0)
    assert sorted(p.row for p in placings) == list(range(len(places)))
    for place, width, placing in zip(places, widths, placings, strict=False):
        assert place >= width if placing.leftward else place + width <= 300


def test_no_line_runs_through_a_label_where_that_can_be_had():
    placings = arrange([180.0, 185.0, 240.0, 242.0], [100.0] * 4, 270.0)
    assert all(p.leftward for p in placings)
    assert [p.row for p in placings] == [0, 1, 2, 3], "to the right is above"


@pytest.mark.parametrize("suffix", ["png", "svg", "PNG"])
def test_a_plan_as_a_picture_file(tmp_path, suffix):
    plan = tasid.robust_dp(lock_simulator(40, 4, seed=2), eta=0.1)
    one, other = (plan_picture(plan, tmp_path / f"{n}.{suffix}") for n in "ab")
    assert one.read_bytes() == other.read_bytes()
    if suffix == "svg":
        assert "<svg" in one.read_text()
        return
    with Image.open(one) as image:
        assert image.width > 1500
        assert len(image.convert("RGB").getcolors(1 << 24)) > 50


@pytest.mark.parametrize("name", ["plan.pdf", "plan", "plan.png.txt"])
def test_other_files_are_refused_by_name(tmp_path, name):
    plan = tasid.robust_dp(lock_simulator(3, 4, seed=2), eta=0.1)
    with pytest.raises(ValueError, match=rf"path: .*{re.escape(name)}.*\.png or \.svg"):
        plan_picture(plan, tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_baselines_page_lists_the_environment_and_what_plays_a_role():
    listed = {}
    for algorithm in ("ppo", "ppo+rnd+dr"):
        baseline = Baseline(algorithm, evaluation_episodes=0)
        asked = {
            "environment": {"name": "combination-lock", "options": {"horizon": 4}},
            "algorithm": algorithm,
            "baseline": baseline.describe(baseline.config(4)),
        }
        listed[algorithm] = dict(_settings(asked).rows)
    assert listed["ppo"]["environment.options.horizon"] == "4"
    others = {"rnd_coefficient", "source_episodes", "epopt_epsilon"}
    assert not listed["ppo"].keys() & {*others, "evaluation_episodes", "every"}
    assert others <= listed["ppo+rnd+dr"].keys()


# ---------------------------------------------------------------- in a browser


@in_browser
def test_the_page_fits_narrow_and_wide_windows(finished, tmp_path):
    for window in measure(tmp_path, finished / "report.html"):
        assert window["scroll"] == window["inner"], "no scrolling sideways"
        assert window["figures"] == (3 if by_beliefs(finished) else 4) + 2 + 1 + 1
        assert window["clashes"] == []
        assert window["small"] == [], "no text below 9 pixels"
        assert window["cut"] == [], "captions do not scroll away with their tables"


@in_browser
def test_the_page_shows_itself_in_light_and_dark(finished, tmp_path):
    brightness = {}
    for scheme, setting in (("dark", 0), ("light", 1)):
        shot = tmp_path / f"{scheme}.png"
        browse(
            tmp_path, Path(finished / "report.html"), f"--screenshot={shot}",
            "--window-size=1200,3000", f"--blink-settings=preferredColorScheme={setting}",
        )  # fmt: skip
        pixels = np.asarray(Image.open(shot).convert("L"), dtype=float)
        background = pixels[5, 5]
        assert (np.abs(pixels - background) > 60).mean() > 0.01, "something is written there"
        brightness[scheme] = background
    assert brightness["dark"] < 60 < 200 < brightness["light"]
