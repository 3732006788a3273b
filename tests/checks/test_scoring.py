"""Scores beside exact values: what is said where a ratio would mean nothing."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from tasid.checks.scoring import Yardsticks, summary, yardsticks
from tasid.cli.answers import print_scores


def measure(robust, *, lowest, highest):
    return Yardsticks(robust, robust, lowest, lowest, lowest, highest)


def scored(mean, found):
    score = SimpleNamespace(mean=mean, ci95=(mean - 1, mean + 1), returns=np.zeros(5))
    return summary(score, found)


def test_a_negative_robust_value_has_no_ratio():
    """−119 is worse than −114.9, and would have been 1.04 of it."""
    found = scored(-119.0, measure(-114.9, lowest=-2000.0, highest=-13.0))
    assert found["ratio"] is None
    assert found["difference"] == pytest.approx(-4.1 / 1987)


def test_nor_has_one_next_to_zero_where_returns_may_be_negative():
    assert scored(0.5, measure(0.01, lowest=-1.0, highest=1.0))["ratio"] is None
    assert scored(0.5, measure(0.0, lowest=0.0, highest=1.0))["ratio"] is None
    found = scored(0.45, measure(0.5, lowest=-1.0, highest=1.0))
    assert (found["ratio"], found["difference"]) == (pytest.approx(0.9), pytest.approx(-0.025))


def test_where_nothing_is_ever_taken_small_values_have_a_ratio():
    assert scored(0.005, measure(0.01, lowest=0.0, highest=1.0))["ratio"] == pytest.approx(0.5)


def test_a_map_on_which_all_returns_are_one_has_neither_difference_nor_negative_ratio():
    found = scored(-3.0, measure(-3.0, lowest=-3.0, highest=-3.0))
    assert (found["ratio"], found["difference"]) == (None, None)


def test_the_range_is_from_the_worst_to_the_best_of_all_actions(learned, lock):
    """By brute force: all action sequences of the small lock's map."""
    sim = lock.simulator
    returns = [0.0]
    totals = {(sim.start, 0.0)}
    for h in range(sim.horizon):
        totals = {
            (int(sim.successor_at(h)[s, a]), round(paid + float(sim.reward_at(h)[s, a]), 9))
            for s, paid in totals
            for a in range(sim.num_actions)
        }
    returns = [paid for _, paid in totals]
    found = yardsticks(learned.policy, lock)
    assert found.lowest_return == pytest.approx(min(returns))
    assert found.highest_return == pytest.approx(max(returns))


def test_the_worst_case_of_a_plan_is_known_everywhere(capsys):
    score = SimpleNamespace(mean=1.0, ci95=(0.0, 2.0), returns=np.zeros(5))
    found = summary(score, None, worst_case=0.5)
    names = ["robust_value", "nominal_plan_value", "blind_value", "worst_case_value"]
    assert [found[name] for name in names] == [None, None, None, 0.5]
    print_scores(found)
    assert "worst case        0.5000" in capsys.readouterr().out


def test_words_say_the_difference_instead(capsys):
    found = scored(-119.0, measure(-114.9, lowest=-200.0, highest=0.0))
    print_scores(found)
    out = capsys.readouterr().out
    assert "ratio" not in out
    assert "difference        -0.0205  (of the range of returns)" in out
    assert "weak evidence" not in out
    print_scores(scored(0.45, measure(0.5, lowest=-1.0, highest=1.0)))
    assert "ratio             0.9000" in capsys.readouterr().out
