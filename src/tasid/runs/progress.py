"""Progress on standard error: how far, episodes, time left, and a figure that tells most.

A bar on a terminal; elsewhere, as in the log of a job, a plain line now and then.
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

from tasid.learning.belief.method import BatchEnded
from tasid.learning.paper.tasid import StepEnded
from tasid.runs.events import Event

_EVERY = 10.0
"""Seconds between two plain lines, and before the first."""


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

    def __init__(
        self, what: str = "learning step", figure: str = "validation loss", *, quiet: bool = False
    ) -> None:
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
