"""How far a sweep is, on standard error: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time

from rich.progress import BarColumn, TextColumn

from tasid.runs.executors.dispatch import State
from tasid.runs.progress import Shown

_EVERY = 60.0
"""Seconds between two lines where there is no terminal."""


class SweepProgress(Shown):
    """A watcher of `sweep`."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._last = time.monotonic()
        super().__init__(
            TextColumn("{task.fields[done]}"),
            BarColumn(),
            TextColumn("{task.fields[left]}"),
            TextColumn("{task.fields[running]}"),
            quiet=not self._terminal,
        )
        self._task = self._bar.add_task("sweep", total=1.0, done="", left="", running="")

    def __call__(self, state: State) -> None:
        done, left = f"{state.done} of {state.total} jobs", _left(state)
        running = [f"{name} {part:.0%}" for name, part in state.running]
        if self._terminal:
            share = 0.0 if state.left is None else state.seconds / (state.seconds + state.left)
            self._bar.update(
                self._task, completed=share, done=done, left=left, running=", ".join(running)
            )
        elif time.monotonic() - self._last > _EVERY:
            self._last = time.monotonic()
            sys.stderr.write(f"{done}, {left}: {'; '.join(running)}\n")
            sys.stderr.flush()


def _left(state: State) -> str:
    if state.left is None:
        return "time left unknown"
    minutes = round(state.left / 60.0)
    return f"about {minutes // 60} h {minutes % 60:02d} min left" if minutes else "nearly done"
