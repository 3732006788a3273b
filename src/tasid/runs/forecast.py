"""How long a run will take, said once as soon as it can be told that it is long."""

from __future__ import annotations

import time

from tasid.learning.belief.method import FIRST, GROWTH, BatchEnded
from tasid.learning.paper.tasid import StepEnded
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


def seconds_of_steps(ended: StepEnded) -> float:
    """At the pace of a step of Algorithm 2; episodes for a later one are longer."""
    done = ended.step + 1
    longer = sum(range(done + 1, ended.steps + 1)) / done
    return ended.seconds_collecting * longer + ended.seconds_fitting * (ended.steps - done)


class Forecast:
    """A callback that tells about long work, before most of it is done.

    What comes first compiles, so it says nothing about the rest.
    """

    def __init__(self, notice: Notice) -> None:
        self._notice, self._before, self._said = notice, 0, False
        self._since: tuple[float, int] | None = None

    def __call__(self, event: Event) -> None:
        if isinstance(event, BatchEnded):
            new, self._before = event.episodes - self._before, event.episodes
            left = seconds_left(event, new) if event.batch > 0 else 0.0
            self._tell(left, f"{event.of} episodes", f"the last {new}")
        elif isinstance(event, StepEnded) and event.step > 0:
            self._tell(seconds_of_steps(event), f"{event.steps} steps", f"step {event.step + 1}")

    def pace(self, episodes: int, of: int) -> None:
        """So many are done now; whoever calls it again is told by what lies between."""
        now = time.monotonic()
        if self._since is None:
            self._since = now, episodes
            return
        then, before = self._since
        left = (now - then) * (of - episodes) / max(episodes - before, 1)
        self._tell(left, f"{of} episodes", f"the last {episodes - before}")

    def _tell(self, left: float, what: str, measured_on: str) -> None:
        if left >= _LONG and not self._said:
            self._said = True
            self._notice(
                f"{what} will take about {_told(left)} more, at the pace of {measured_on}; Ctrl-C "
                "keeps what was learned from"
            )


def _told(seconds: float) -> str:
    for length, name in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {name}"
    return f"{seconds:.0f} seconds"
