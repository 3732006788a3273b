"""All tasks of a sweep by an executor, so many at a time, and one view of how far they are.

A task is a function of a module and plain data, so that any process can do it. It writes no file
that lasts: what it has to say it says on its line, and the owner of the sweep writes it down. One
whose process or machine is gone is done again from what the owner has on record by then.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

Result = TypeVar("Result")
USUAL_MEMORY = 1 << 30
"""Bytes of a process with JAX and little data: a guess, not a measurement."""
_LOSSES = 5
"""How often a task may be lost; what kills every process it is in should not go on for ever."""


class Interrupted(Exception):
    """Raised in a task when the sweep is to end."""


class Lost(Exception):
    """Where a task was done is gone: a process was killed, or a machine."""


class Line(NamedTuple):
    """How a task talks to the owner of the sweep."""

    say: Callable[[Any], None]
    """Tells the owner; what is said first arrives first."""
    check: Callable[[], None]
    """Raises `Interrupted` if the sweep is to end."""


Work = Callable[[Any, Line], None]
"""A function of a module that does a task from plain data."""
Hear = Callable[[Any], None]


class Executor(Protocol):
    """Does tasks, so many at a time."""

    @property
    def workers(self) -> int:
        """How many threads may call `do` at a time."""

    def do(self, work: Work, given: Any, hear: Hear, memory: int) -> None:
        """Do one task and hear what it tells; raise its error, `Lost`, or `Interrupted`."""

    def halt(self) -> None:
        """All tasks are to end soon."""

    def close(self) -> None:
        """Give back what was taken."""


@dataclass(frozen=True)
class Failure:
    """An error as it travels: what it was, in words, and where it came from."""

    kind: str
    text: str
    trace: str

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Errors of users' code need not survive a journey themselves."""
        kind = next((name for name, one in _KINDS.items() if isinstance(error, one)), "")
        text = str(error) if kind else f"{type(error).__name__}: {error}"
        return cls(kind, text, "".join(traceback.format_exception(error)))

    def error(self) -> Exception:
        """The nearest built-in error, with the trace as a note."""
        error = _KINDS.get(self.kind, RuntimeError)(self.text)
        error.add_note(self.trace)
        return error


_KINDS: dict[str, type[Exception]] = {
    one.__name__: one
    for one in (ValueError, TypeError, MemoryError, OverflowError, OSError, RuntimeError)
}


@dataclass(frozen=True)
class Task:
    """One job, as its owner sees it."""

    name: str
    work: Work
    given: Callable[[], Any]
    """What it goes on from, asked for anew whenever it is begun."""
    hear: Hear
    """Writes down what it tells, except for how far it is."""
    memory: int = USUAL_MEMORY
    """Bytes it takes, by estimate."""
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

    def halt() -> None:  # tasks end where they check
        halted.set()
        executor.halt()

    try:
        in_threads([partial(one, task) for task in tasks], workers=executor.workers, halt=halt)
    finally:
        executor.close()


def in_threads(
    jobs: Sequence[Callable[[], Result]], *, workers: int, halt: Callable[[], None]
) -> list[Future[Result]]:
    """All jobs, so many at a time. After an error or Ctrl-C `halt` is to end the others.

    The first error that is not `Interrupted` is raised.
    """
    with ThreadPoolExecutor(max(1, min(workers, len(jobs)))) as pool:
        running = [pool.submit(job) for job in jobs]
        try:
            wait(running, return_when=FIRST_EXCEPTION)
        finally:
            if any(not one.done() or one.exception() is not None for one in running):
                halt()
                pool.shutdown(cancel_futures=True)
    for error in [one.exception() for one in running if not one.cancelled()]:
        if error is not None and not isinstance(error, Interrupted):
            raise error
    return running


def _until_done(task: Task, executor: Executor, board: _Board) -> None:
    def hear(message: Any) -> None:
        if isinstance(message, Fraction):
            board.tell(task, message.part)
        else:
            task.hear(message)

    for loss in range(_LOSSES):
        try:
            executor.do(_begin, (task.work, task.given()), hear, task.memory)
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
