"""All tasks of a sweep, so many at a time, and one view of how far they are.

A task whose process or machine is gone is done again from what the owner has on record by then.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

from tasid.runs.executors.protocol import (
    USUAL,
    Executor,
    Hear,
    Interrupted,
    Line,
    Lost,
    Needs,
    Work,
)

_LOSSES = 5
"""How often a task may be lost; what kills every process it is in should not go on for ever."""


@dataclass(frozen=True)
class Task:
    """One job, as its owner sees it."""

    name: str
    work: Work
    given: Callable[[], Any]
    """What it goes on from, asked for anew whenever it is begun."""
    hear: Hear
    """Writes down what it tells, except for how far it is."""
    needs: Needs = USUAL
    cost: float = 1.0
    """How much work it is at most, in a unit that all tasks of a sweep share."""


@dataclass(frozen=True)
class Fraction:
    """How far a task is, of 1."""

    part: float


@dataclass(frozen=True)
class State:
    """How far a sweep is."""

    done: int
    total: int
    running: tuple[tuple[str, float], ...]
    """Tasks under way, and how far they are."""
    seconds: float
    left: float | None
    """Seconds left at the speed so far; None before there is one."""


Watcher = Callable[[State], None]


def do_all(
    tasks: Sequence[Task], executor: Executor, *, total: int, watchers: Sequence[Watcher] = ()
) -> None:
    """All tasks; the first error ends the others, and is raised. `total` counts those done before.

    The executor is closed at the end.
    """
    board = _Board(total, tasks, watchers)
    halted = threading.Event()

    def one(task: Task) -> None:
        if halted.is_set():
            raise Interrupted
        try:
            _until_done(task, executor, board)
        except BaseException:
            halted.set()  # before this thread takes the next task
            raise

    try:
        with ThreadPoolExecutor(max_workers=max(1, min(executor.workers, len(tasks)))) as pool:
            futures = [pool.submit(one, task) for task in tasks]
            try:
                wait(futures, return_when=FIRST_EXCEPTION)
                failed = any(f.done() and f.exception() is not None for f in futures)
            except BaseException:
                failed = True
                raise
            finally:  # after Ctrl-C, tasks end where they check
                if failed:
                    halted.set()
                    executor.halt()
                    for future in futures:
                        future.cancel()
    finally:
        executor.close()
    errors = [f.exception() for f in futures if not f.cancelled()]
    for error in errors:
        if error is not None and not isinstance(error, Interrupted):
            raise error


def _until_done(task: Task, executor: Executor, board: _Board) -> None:
    def hear(message: Any) -> None:
        if isinstance(message, Fraction):
            board.tell(task, message.part)
        else:
            task.hear(message)

    for loss in range(_LOSSES):
        try:
            executor.do(_begin, (task.work, task.given()), hear, task.needs)
        except Lost as lost:
            if loss + 1 == _LOSSES:
                raise RuntimeError(f"{task.name}: lost {_LOSSES} times, last: {lost}") from None
        else:
            board.finish(task)
            return


def _begin(given: tuple[Work, Any], line: Line) -> None:
    """Where the task is done: say that it has begun, and do it."""
    work, data = given
    line.say(Fraction(0.0))
    work(data, line)


class _Board:
    """Who works on what, and how long the rest will take."""

    def __init__(self, total: int, tasks: Sequence[Task], watchers: Sequence[Watcher]) -> None:
        self._lock = threading.Lock()
        self._watchers = watchers
        self._started = time.monotonic()
        self._total = total
        self._waiting = {task.name: task.cost for task in tasks}
        self._running: dict[str, tuple[float, float]] = {}
        self._spent = 0.0
        self._done = total - len(tasks)

    def tell(self, task: Task, fraction: float) -> None:
        with self._lock:
            self._waiting.pop(task.name, None)
            self._running[task.name] = (task.cost, fraction)
            self._announce()

    def finish(self, task: Task) -> None:
        with self._lock:
            cost, fraction = self._running.pop(task.name)  # it said so when it began
            self._spent += cost * fraction  # what an early end saves is no work
            self._done += 1
            self._announce()

    def _announce(self) -> None:
        seconds = time.monotonic() - self._started
        spent = self._spent + sum(cost * part for cost, part in self._running.values())
        rest = sum(self._waiting.values())
        rest += sum(cost * (1.0 - part) for cost, part in self._running.values())
        running = tuple((name, part) for name, (_, part) in self._running.items())
        left = seconds * rest / spent if spent > 0 else None
        state = State(self._done, self._total, running, seconds, left)
        for watcher in self._watchers:
            watcher(state)
