"""A progress bar on standard error: steps done, episodes, time left, validation loss."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bar

from tasid.algorithms.tasid import Event, StepEnded


class Progress:
    """A callback that draws how far learning is."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._bar = Bar(
            TextColumn("learning step"),
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn("{task.fields[episodes]} episodes"),
            TextColumn("validation loss {task.fields[loss]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=quiet,
            transient=True,
        )
        self._task = self._bar.add_task("learn", total=None, episodes=0, loss="…")
        self._episodes = 0

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def __call__(self, event: Event) -> None:
        if not isinstance(event, StepEnded):
            return
        self._episodes += event.episodes
        self._bar.update(
            self._task,
            completed=event.step + 1,
            total=event.steps,
            episodes=self._episodes,
            loss=f"{event.validation_loss:.4f}",
        )
