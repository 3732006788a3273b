"""Progress on standard error: how far, episodes, time left, and a figure that tells most.

A bar on a terminal; elsewhere, as in the log of a job, a plain line now and then. How long a run
will take is said once, as soon as it can be told that it is long.
"""

from __future__ import annotations

import sys
import time
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bar

from tasid.learning.belief.method import FIRST, GROWTH, BatchEnded
from tasid.learning.paper.tasid import StepEnded
from tasid.runs.record import Event
from tasid.runs.unfinished import Notice

_EVERY = 10.0
"""Seconds between two plain lines, and before the first."""
_LONG = 60.0
"""Seconds that nobody needs to be told of."""


class Shown:
    """A bar on standard error that is there while its block runs."""

    def __init__(self, *columns: ProgressColumn, quiet: bool) -> None:
        self._bar = Bar(*columns, console=Console(stderr=True), disable=quiet, transient=True)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *ended: object) -> None:
        self._bar.stop()


class Progress(Shown):
    """A callback that draws how far learning is; or whatever `show` is told."""

    def __init__(self, what: str, figure: str, *, quiet: bool) -> None:
        super().__init__(
            TextColumn(what),
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn("{task.fields[counted]}"),
            TextColumn(f"{figure} {{task.fields[figure]}}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            quiet=quiet,
        )
        self._task = self._bar.add_task("learn", total=None, counted="", figure="…")
        self._episodes = 0
        self._plain, self._words = quiet, (what, figure)
        self._said = time.monotonic()

    def __call__(self, event: Event) -> None:
        if isinstance(event, BatchEnded):
            figure = f"{event.return_mean:.4g} by {event.best}"
            self.show(event.episodes, event.of, figure=figure)
        if not isinstance(event, StepEnded):
            return
        self._episodes += event.episodes
        figure = f"{event.validation_loss:.4f}"
        self.show(event.step + 1, event.steps, episodes=self._episodes, figure=figure)

    def show(
        self, completed: int, total: int | None, *, figure: str, episodes: int | None = None
    ) -> None:
        """Draw so much of the whole; and how many episodes it took, unless these are counted."""
        counted = "" if episodes is None else f"{episodes} episodes"
        self._bar.update(
            self._task, completed=completed, total=total, counted=counted, figure=figure
        )
        if self._plain and time.monotonic() - self._said >= _EVERY:
            what, named = self._words
            whole = "" if total is None else f" of {total}"
            parts = (f"{what} {completed}{whole}", counted, f"{named} {figure}")
            sys.stderr.write(f"tasid: {', '.join(filter(None, parts))}\n")
            sys.stderr.flush()
            self._said = time.monotonic()


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
