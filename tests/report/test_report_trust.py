"""What a report says about the model, η, the map and its own confidence."""

from __future__ import annotations

import math
import re
import shutil

import numpy as np
import pytest

from browser import in_browser, measure
from pages import page_of, rewrite
from tasid.files import ArtifactError, read_artifact
from tasid.learning.belief.findings import Findings
from tasid.learning.monitor import Calibration
from tasid.learning.surprise import EtaEstimate
from tasid.report import build_report
from tasid.report.figures.drawing import house_style
from tasid.report.figures.reliability import counts_panel, reliability_panel, short_count
from tasid.runs.train import Order, train
from tasid.runs.warnings import slip_warnings

ETA = {"rate": 0.08, "low": 0.06, "high": 0.1, "transitions": 900, "planned": 0.1, "p_value": 0.98}
ERROR = {"step": 1, "state": [1, 2], "action": 3, "visits": 20, "surprises": 19, "p_value": 1e-9}
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>"
NOTICED = ["model", "eta_estimate", "map_errors", "warnings", "calibration_error"]
ARRAYS = ["calibration.confidence", "calibration.correct"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trust") / "run"
    options = {"horizon": 4, "num_actions": 4, "seed": 7}
    order = Order("combination-lock", options, 0.1, 600, 7, "paper", evaluation_episodes=300)
    train(order, folder)
    return folder


@pytest.fixture
def run(finished, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    return folder


def figures(page):
    """Values by name."""
    names = [e["text"] for e in page.all("dt")]
    values = [e["text"] for e in page.all("dd") if "value" in e["attributes"].get("class", "")]
    return dict(zip(names, values, strict=False))


@pytest.mark.parametrize(
    ("change", "learned", "words"),
    [
        ({}, True, "Nothing here speaks against η = 0.1."),
        ({"rate": 0.2, "p_value": 0.0015}, True, "but not surely enough to say that the plan"),
        ({"rate": 0.2, "p_value": 1e-30}, False, "but not surely enough to say that the plan"),
        ({"rate": 0.2, "p_value": 9e-4}, True, "all but impossible (p = 0.0009): the plan allows"),
        ({"rate": 0.3, "p_value": 1e-30}, True, "all but impossible (p < 0.0001): the plan allows"),
    ],
)  # fmt: skip
def test_eta_as_planned_and_as_seen(run, change, learned, words):
    """Of the plan the page says no more than the warnings do."""
    estimate = ETA | change
    findings = Findings(EtaEstimate(**estimate), (), np.zeros(0), ())
    rewrite(run, eta_estimate=estimate, warnings=list(slip_warnings(findings)) if learned else [])
    page = page_of(run)
    assert words in page.text().replace("\u00a0", " ")
    values = figures(page)
    assert (values["η planned"], values["η estimated"]) == ("0.1", f"{estimate['rate']:.3f}")
    said = page.text().replace("\u202f", " ")
    assert "in 900 transitions. 95 % interval: 0.060 to 0.100." in said
    assert "a lower bound on the paper’s η" in said
    assert "the visited places with a choice of outcomes" in said


def test_no_transition_no_estimate(run):
    rewrite(run, eta_estimate=ETA | {"rate": 0.0, "low": 0.0, "high": 1.0, "transitions": 0})
    assert figures(page_of(run))["η estimated"] == "unknown"


def test_warnings_come_before_all_figures(run):
    assert not [e for e in page_of(run).elements if e["attributes"].get("class") == "warnings"]
    rewrite(run, warnings=["the map is wrong", f"odd {HOSTILE}"])
    page = page_of(run)
    assert not page.all("script", "img")
    (box,) = [e for e in page.all("div") if e["attributes"].get("class") == "warnings"]
    assert "header" in box["in"]
    said = [e["text"] for e in page.all("li")]
    assert said[0] == "The map is wrong."
    assert said[1].startswith("Odd <script>")


def test_places_where_the_map_is_wrong(run):
    assert "Where the map is wrong" not in page_of(run).text()
    rewrite(run, map_errors=[ERROR, ERROR | {"step": 0, "state": "<b>hall", "visits": 19}])
    page = page_of(run)
    assert [row[:4] for row in page.table("map-errors")] == [
        ["step", "state", "action", "visits"],
        ["1", "(1, 2)", "3", "20"],
        ["0", "<b>hall", "3", "19"],
    ]
    shares = [row[4].replace("\u202f", " ") for row in page.table("map-errors")]
    assert shares == ["surprises", "19 (95.0 %)", "19 (100 %)"]
    rewrite(run, map_errors=[ERROR] * 13)
    folded = [e for e in page_of(run).all("details") if "open" not in e["attributes"]]
    assert any(e["text"].strip().startswith("13 places") for e in folded)


def test_confidence_against_what_came_true(run):
    said = np.array([0.95] * 20 + [0.55] * 10 + [1.0] * 10)
    was = np.array([True] * 15 + [False] * 5 + [False] * 10 + [True] * 10)
    rewrite(run, arrays={"calibration.confidence": said, "calibration.correct": was})
    page = page_of(run)
    (words,) = {e["text"].replace("\u202f", " ") for e in page.all("desc") if "reliab" in str(e)}
    assert "confidence 55.0 % came true 0.0 % of 10 times" in words
    # 1.0 belongs to the last bin: 30 rows of mean 29/30, 25 of them right.
    assert "confidence 96.7 % came true 83.3 % of 30 times" in words
    calibration = Calibration(said, was)
    with house_style():
        (axes,) = reliability_panel(calibration).axes
        lines = [np.asarray(line.get_xydata(), float) for line in axes.lines]
        (counts,) = counts_panel(calibration).axes
    dots = sorted(tuple(line[0]) for line in lines if len(line) == 1)
    assert dots == [pytest.approx((0.55, 0.0)), pytest.approx((29 / 30, 25 / 30))]
    # None of 10: the upper bound solves (1 − p)¹⁰ = 0.025.
    wide = [line for line in lines if len(line) == 2 and line[0, 0] == pytest.approx(0.55)]
    assert wide[0][:, 1] == pytest.approx([0.0, 1 - 0.025 ** (1 / 10)])
    assert [bar.get_height() for bar in counts.patches] == [10, 30]
    assert [round(bar.get_x() + bar.get_width() / 2, 2) for bar in counts.patches] == [0.55, 0.95]


def test_the_printed_calibration_error_is_that_of_the_arrays(finished, run):
    stored = read_artifact(finished / "evaluation").arrays
    said, was = (stored[name] for name in ARRAYS)
    error = 0.0
    for low in range(10):
        here = (said * 10 >= low) & ((said * 10 < low + 1) | (low == 9))
        if here.any():
            error += abs(said[here].sum() - was[here].sum()) / said.size
    printed = figures(page_of(run))["Calibration error"].replace("\u202f%", "")
    assert float(printed) == pytest.approx(100 * error, abs=0.051)


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (999, "999"), (1000, "1.0k"), (1249, "1.2k"), (9949, "9.9k"), (9950, "10k"),
     (999_499, "999k"), (999_500, "1.0M"), (12_345_678, "12M")],
)  # fmt: skip
def test_counts_in_four_characters(number, text):
    assert short_count(number) == text


def test_a_run_that_recorded_none_of_it(run):
    rewrite(run, drop=[*NOTICED, *ARRAYS])
    page = page_of(run)
    assert figures(page)["η estimated"] == figures(page)["Calibration error"] == "unknown"
    assert "was not measured" in page.text()
    assert "way of modelling" not in page.text()
    assert [e["attributes"]["id"] for e in page.all("figure")] == [f"figure-{n}" for n in (1, 2, 3)]
    rewrite(run, **dict.fromkeys(NOTICED))
    assert "None" not in page_of(run).text()


def confident(*values, right=True):
    return {ARRAYS[0]: np.array(values), ARRAYS[1]: np.full(2, right)}


SPOILED = {
    "a number for the model": {"model": 3},
    "an estimate without interval": {"eta_estimate": {"rate": 0.1}},
    "a word for a rate": {"eta_estimate": ETA | {"rate": "low"}},
    "a word for places": {"map_errors": "none"},
    "a place without visits": {"map_errors": [{"step": 1}]},
    "a truth value for a step": {"map_errors": [ERROR | {"step": True}]},
    "a word for warnings": {"warnings": "none"},
    "a number for a warning": {"warnings": [1]},
    "a word for the calibration error": {"calibration_error": "small"},
    "confidence above 1": {"arrays": confident(0.5, 1.5)},
    "confidence that is no number": {"arrays": confident(0.5, math.nan)},
    "confidence of other transitions": {"arrays": confident(0.5, 0.5, 0.5)},
    "numbers for truth values": {"arrays": confident(0.5, 0.5, right=2.0)},
    "confidence alone": {"drop": [ARRAYS[1]]},
}


@pytest.mark.parametrize("change", SPOILED.values(), ids=SPOILED.keys())
def test_what_is_spoiled_is_refused(run, change):
    rewrite(run, **change)
    with pytest.raises(ArtifactError, match="evaluation"):
        build_report(run)


@in_browser
def test_warnings_and_tables_fit_narrow_and_wide_windows(run, tmp_path):
    rewrite(
        run,
        warnings=["outcomes differ from the intended ones " * 5] * 3,
        map_errors=[ERROR | {"visits": 12_345}] * 5,
        eta_estimate=ETA | {"rate": 0.3, "p_value": 0.0},
        arrays={
            ARRAYS[0]: np.repeat(np.arange(10) / 10 + 0.05, 1500),
            ARRAYS[1]: np.arange(15_000) % 10 < 5,
        },
    )
    for window in measure(tmp_path, build_report(run)):
        assert window["scroll"] == window["inner"], "no scrolling sideways"
        assert window["clashes"] == []
        assert window["small"] == []
        assert window["cut"] == []


def test_numbers_in_the_page_are_whole(finished):
    text = build_report(finished).read_text()
    assert not re.search(r"\bnan\b|None|inf\b", re.sub(r"<svg.*?</svg>", "", text, flags=re.S))
