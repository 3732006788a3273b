"""`tasid budget`: the theory's own numbers, the measured ones, and no others."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import get_args

import pytest

import tasid
from commands import run, run_json
from tasid import theory
from tasid.maps.outcomes import outcomes
from tasid.models import MLP
from tasid.theory import Exploration, Setting, StartSetting, budget_table

BY_HAND = "--horizon 5 --actions 10 --eta 0.25 --epsilon 0.5 --delta 0.125".split()
SIZE = ["--log-class-size", str(math.log(1000))]
SETTING = Setting(horizon=5, actions=10, eta=0.25, log_class_size=math.log(1000), delta=0.125)


def test_the_printed_formula_by_hand(capsys):
    # 8·5²·10³ / (½·(½)²) · ln 8000 = 1 600 000 · 8.98719682066197
    table = run_json(capsys, "budget", *BY_HAND, *SIZE)
    assert table["n_decode"] == 14_379_515
    assert table["n_total"] == 4 * 14_379_515
    rows = {(row["reading"], row["union"]): row["n_decode"] for row in table["readings"]}
    # ln 40 000 = 10.5966347330961; the appendix has one H more.
    assert rows["coupling", True] == rows["algorithm", True] == 16_954_616
    assert rows["appendix", False] == math.ceil(8_000_000 * 8.98719682066197)


def test_it_is_what_the_theory_says(capsys):
    start = ["--starts", 3, "--min-probability", 0.2, "--margin", 0.5, "--complexity", 7]
    flags = ["--return-range", 2.5, "--outcomes", 4, "--weight", 0.25, *start]
    table = run_json(capsys, "budget", *BY_HAND, *SIZE, *flags)
    setting = Setting(**{**vars(SETTING), "return_range": 2.5})
    assert table["return_range"] == 2.5
    assert len(table["readings"]) == 6
    for row in table["readings"]:
        budget = theory.decoding_budget(
            setting, epsilon=0.5, reading=row["reading"], union=row["union"]
        )
        for key in ("n_decode", "n_total", "n_paper"):
            assert row[key] == getattr(budget, key)
        own = theory.decoding_budget(setting, epsilon=0.5, reading=row["reading"])
        assert row["stated"] == (own == budget)
    exploration = Exploration(outcomes=4, weight=0.25)
    assert [row["union"] for row in table["outcome"]] == [False, True]
    for row in table["outcome"]:
        ours = theory.decoding_budget(
            setting, epsilon=0.5, union=row["union"], exploration=exploration
        )
        assert (row["n_decode"], row["n_total"]) == (ours.n_decode, ours.n_total)
        assert row["factor"] == float(exploration.factor(0.25))
        assert (row["outcomes"], row["weight"]) == (4, 0.25)
    several = StartSetting(
        setting=setting, starts=3, min_probability=0.2, margin=0.5, complexity=7.0
    )
    assert [row["reading"] for row in table["starts"]] == list(get_args(theory.StartReading))
    for row in table["starts"]:
        budget = theory.start_budget(several, epsilon=0.5, reading=row["reading"])
        for key in ("n_learn", "n_test", "n_cluster", "n_total"):
            assert row[key] == getattr(budget, key)
        assert (row["suboptimality"], row["failure"]) == (2.0, 0.375)


def test_what_is_not_said_is_the_locks(capsys):
    """ln|F| of its network and its k: constants here, facts there."""
    for horizon, actions in ((5, 4), (10, 10), (40, 10), (44, 3)):
        env = tasid.make("combination-lock", horizon=horizon, num_actions=actions)
        network = MLP(env.target.observation_shape[0], actions, (56, 56))
        wanted = network.num_parameters * 32 * math.log(2)
        assert budget_table.lock_class_size(horizon, actions) == pytest.approx(wanted)
        assert outcomes(env.simulator).most == budget_table.LOCK_OUTCOMES
    table = run_json(capsys, "budget")
    assert (table["horizon"], table["outcome"][0]["outcomes"]) == (40, 3)
    assert table["log_class_size"] == budget_table.lock_class_size(40, 10)
    assert table["starts"] == []
    two = run_json(capsys, "budget", "--actions", 2)
    assert two["outcome"][0]["outcomes"] == 2
    assert run_json(capsys, "budget", "--actions", 1)["outcome"] == []


@pytest.mark.parametrize(
    ("horizon", "paper", "belief"),
    [(5, 10_000, False), (10, 11_000, True), (20, 48_000, True), (40, 393_000, True)],
)
def test_measured_counts(capsys, horizon, paper, belief):
    practice = run_json(capsys, "budget", "--horizon", horizon)["practice"]
    assert practice["paper"] == paper, "the median in the paper's appendix"
    assert (practice["belief"] is not None) == belief
    assert len(practice["paper_seeds"]) == 5
    assert bool(practice["notes"]) != belief
    said = run(capsys, "budget", "--horizon", horizon).out
    assert f"{paper:,}" in said
    assert ("2 of the paper's 5 seeds did not get there" in said) == (horizon == 10)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--horizon", 15], "at H = 15, but at 5, 10, 20, 40"),
        (["--horizon", 10, "--actions", 9], "not with 9 and 0.1"),
        (["--horizon", 10, "--eta", 0.2], "not with 10 and 0.2"),
    ],
)
def test_where_nothing_was_measured_nothing_is_made_up(capsys, flags, words):
    practice = run_json(capsys, "budget", *flags)["practice"]
    assert practice["paper"] is practice["belief"] is practice["paper_seeds"] is None
    assert any(words in note for note in practice["notes"])
    said = run(capsys, "budget", *flags).out
    assert words in said
    assert said.count("not measured") >= 2


def test_the_text_has_every_count(capsys):
    start = ["--starts", 2, "--margin", 0.5, "--complexity", 7]
    table = run_json(capsys, "budget", *BY_HAND, *SIZE, *start)
    said = run(capsys, "budget", *BY_HAND, *SIZE, *start).out
    for row in (*table["readings"], *table["outcome"], *table["starts"]):
        assert f"{row['n_total']:,}" in said
    assert "14,379,515" in said
    assert "None" not in said


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--horizon", "0"], "horizon: 0"),
        (["--horizon", "2.5"], "--horizon"),
        (["--actions", "0"], "actions: 0"),
        (["--eta", "0.5"], "eta: 0.5 is outside [0, 0.5)"),
        (["--eta", "nan"], "eta: nan"),
        (["--epsilon", "0"], "epsilon: 0.0"),
        (["--delta", "1"], "delta: 1.0"),
        (["--log-class-size", "-1"], "log_class_size: -1.0"),
        (["--log-class-size", "inf"], "log_class_size: inf"),
        (["--return-range", "0"], "return_range: 0"),
        (["--outcomes", "1"], "outcomes: 1"),
        (["--actions", "4", "--outcomes", "5"], "outcomes: 5 is more than the number of actions"),
        (["--weight", "0"], "weight: 0.0"),
        (["--starts", "2"], "starts: 2 start states need a margin and a complexity"),
        (["--starts", "1", "--margin", "0.5", "--complexity", "1"], "starts: 1"),
        (["--margin", "0.5"], "margin: 0.5 says nothing without the number of starts"),
        (["--wings", "2"], "--wings"),
    ],
)
def test_bad_input_is_one_message_and_code_two(capsys, flags, words):
    got = run(capsys, "budget", *flags, code=2)
    assert words in got.err
    assert "Traceback" not in got.err
    assert got.out == ""


def test_counts_beyond_floats_are_whole_numbers(capsys):
    table = run_json(capsys, "budget", "--epsilon", "1e-300", *SIZE)
    assert isinstance(table["n_total"], int)
    assert table["n_total"] > 10**305


def test_it_needs_no_jax():
    code = (
        "import sys\nfrom tasid.cli import main\n"
        "try:\n    main(['budget', '--json'])\n"
        "except SystemExit:\n    assert 'jax' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, capture_output=True)
