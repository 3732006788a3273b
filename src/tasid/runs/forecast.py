"""How long a run by beliefs will take, said once as soon as it can be told that it is long."""

from __future__ import annotations

from tasid.learning.belief.method import FIRST, GROWTH, BatchEnded
from tasid.runs.events import Event
from tasid.runs.unfinished import Notice

_LONG = 60.0
"""Seconds that nobody needs to be told of."""


def seconds_left(ended: BatchEnded, new: int) -> float:
    """At the pace of a batch with so many new episodes: of playing them, and of fitting all.

    Every batch is fitted together with all before it, so a later one takes longer.
    """
    play, fit = ended.seconds_playing / new, ended.seconds_fitting / ended.episodes
    done, seconds = ended.episodes, 0.0
    while ended.of is not None and done < ended.of:
        more = min(max(FIRST, int(done * GROWTH)), ended.of - done)
        done += more
        seconds += play * more + fit * done
    return seconds


class Forecast:
    """A callback that tells about long work, before most of it is done.

    The first batch compiles, so it says nothing about the others.
    """

    def __init__(self, notice: Notice) -> None:
        self._notice, self._before, self._said = notice, 0, False

    def __call__(self, event: Event) -> None:
        if not isinstance(event, BatchEnded):
            return
        new, self._before = event.episodes - self._before, event.episodes
        left = seconds_left(event, new) if event.batch > 0 else 0.0
        if left >= _LONG and not self._said:
            self._said = True
            self._notice(
                f"{event.of} episodes will take about {_told(left)} more, at the pace of the last "
                f"{new}; Ctrl-C keeps what was learned from"
            )


def _told(seconds: float) -> str:
    for length, name in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {name}"
    return f"{seconds:.0f} seconds"
