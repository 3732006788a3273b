"""Long work is told of before it is done."""

from __future__ import annotations

import pytest

from tasid.learning.belief.method import BatchEnded
from tasid.learning.paper.tasid import StepEnded
from tasid.runs.progress import Forecast, seconds_left, seconds_of_steps


def batch(number, episodes, *, of, playing, fitting):
    figures = dict.fromkeys(
        ("foresight", "regret", "regret_error", "evidence", "evidence_error"), 0
    )
    times = {"seconds_playing": playing, "seconds_fitting": fitting}
    return BatchEnded(0, number, episodes, of, 0.0, "warm", **figures, **times)


def test_playing_counts_by_new_episodes_and_fitting_by_all():
    now = batch(1, 32, of=72, playing=1.6, fitting=3.2)
    # Batches of 16 and 24 follow: 0.1 s for each of 40 episodes, 0.1 s for each of 48 and of 72.
    assert seconds_left(now, new=16) == pytest.approx(4 + 4.8 + 7.2)
    assert seconds_left(batch(1, 72, of=72, playing=1, fitting=1), new=24) == 0


def test_it_is_said_once_and_not_of_the_batch_that_compiles():
    said = []
    tell = Forecast(said.append)
    tell(batch(0, 16, of=20_000, playing=60, fitting=60))
    assert not said
    for number, episodes in ((1, 32), (2, 48)):
        tell(batch(number, episodes, of=20_000, playing=8, fitting=0))
    [words] = said
    assert words.startswith(
        "20000 episodes will take about 3 hours more, at the pace of the last 16"
    )


def step(number, *, of, collecting, fitting):
    return StepEnded(0, number, of, 1000, 0.1, 10, collecting, fitting)


def test_later_steps_of_the_papers_method_collect_longer_episodes():
    now = step(1, of=5, collecting=2.0, fitting=7.0)
    # A step of length 2 took 2 s: those of 3, 4 and 5 take as many; each is fitted in 7 s.
    assert seconds_of_steps(now) == pytest.approx(3 + 4 + 5 + 3 * 7)
    said = []
    tell = Forecast(said.append)
    tell(step(0, of=400, collecting=60, fitting=60))
    assert not said
    tell(step(1, of=400, collecting=0, fitting=9))
    assert said[0].startswith("400 steps will take about 60 minutes more, at the pace of step 2")


def test_baselines_are_told_by_what_lies_between_two_checkpoints(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("tasid.runs.progress.time.monotonic", lambda: now[0])
    said = []
    tell = Forecast(said.append)
    tell.pace(1_000, 20_000)
    now[0] += 30.0
    tell.pace(2_000, 20_000)
    [words] = said
    assert words.startswith("20000 episodes will take about 9 minutes more, at the pace of the ")


@pytest.mark.parametrize("of", [None, 48])
def test_nothing_is_said_of_short_runs_or_of_those_without_an_end(of):
    said = []
    tell = Forecast(said.append)
    for number, episodes in ((0, 16), (1, 32), (2, 48)):
        tell(batch(number, episodes, of=of, playing=1, fitting=1))
    assert not said
