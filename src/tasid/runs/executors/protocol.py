"""What an executor does: one task, somewhere, and all that the task tells comes back in order.

A task is a function of a module and plain data, so that any process can do it. It writes no file
that lasts: what it has to say it says on its line, and the owner of the sweep writes it down.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol


class Interrupted(Exception):
    """Raised in a task when the sweep is to end."""


class Lost(Exception):
    """Where a task was done is gone: a process was killed, or a machine."""


class Line(Protocol):
    """How a task talks to the owner of the sweep."""

    def say(self, message: Any) -> None:
        """Tell the owner; what is said first arrives first."""

    def check(self) -> None:
        """Raise `Interrupted` if the sweep is to end."""


Work = Callable[[Any, Line], None]
"""A function of a module that does a task from plain data."""
Hear = Callable[[Any], None]


class Needs(NamedTuple):
    """What a task takes, by estimate."""

    cpus: float = 1.0
    memory: int = 1 << 30
    """Bytes; a guess for a process with JAX and little data, not a measurement."""


USUAL = Needs()


class Executor(Protocol):
    """Does tasks, so many at a time."""

    @property
    def workers(self) -> int:
        """How many threads may call `do` at a time."""

    def do(self, work: Work, given: Any, hear: Hear, needs: Needs) -> None:
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
