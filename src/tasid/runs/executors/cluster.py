"""The executor of a Ray cluster: every task is a Ray task that streams what it tells.

Ray itself retries nothing: a task that is lost begins again from what the owner has on record
then, which Ray cannot know (`tasid.runs.executors.dispatch`).
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from importlib.metadata import version
from queue import SimpleQueue
from typing import Any

from tasid.runs.executors.dispatch import Failure, Hear, Interrupted, Line, Lost, Work
from tasid.runs.record import versions
from tasid.targets.ray.session import connect

_SUBMITTED = 256
"""Tasks that the cluster knows of at a time, more than it can do: Ray then grows, if it can."""


class RayCluster:
    """Tasks on a Ray cluster, as many at a time as its nodes have room for."""

    def __init__(self, address: str, *, workers: int | None = None) -> None:
        if workers is not None and workers < 1:
            raise ValueError(f"workers: {workers} is below 1")
        self._ray, self._ours = connect(address, argument="--cluster")
        self.workers = _SUBMITTED if workers is None else workers
        # No retries by Ray; and no spreading of one task's words over calls.
        self._remote = self._ray.remote(num_returns="streaming", max_retries=0)(stream)
        self._versions = _versions()
        self._running: set[Any] = set()
        self._lock = threading.Lock()
        self._halted = False

    def do(self, work: Work, given: Any, hear: Hear, memory: int) -> None:
        """Wherever there is room."""
        errors = self._ray.exceptions
        with self._lock:
            if self._halted:
                raise Interrupted
            remote = self._remote.options(num_cpus=1, memory=memory)
            told = remote.remote(work, given, self._versions)
            self._running.add(told)
        try:
            for reference in told:
                for message in self._ray.get(reference):
                    if isinstance(message, Failure):
                        raise message.error()
                    hear(message)
        except errors.RayTaskError:
            raise
        except errors.RayError as error:  # of a process, a node, or an object that lived there
            if self._halted:
                raise Interrupted from None
            raise Lost(f"{type(error).__name__}: {str(error).splitlines()[0]}") from None
        finally:
            with self._lock:
                self._running.discard(told)

    def halt(self) -> None:
        """End all tasks: what the owner has heard is what they go on from."""
        with self._lock:
            self._halted = True
            for told in self._running:
                self._ray.cancel(told, force=True)

    def close(self) -> None:
        """Leave the cluster; one that was started here ends."""
        if self._ours:
            self._ray.shutdown()


class _End:
    """Nothing more will be said."""


def stream(work: Work, given: Any, expected: dict[str, str]) -> Iterator[list[Any]]:
    """Do a task in a thread, and give what it tells, as much at a time as there is."""
    queue: SimpleQueue[Any] = SimpleQueue()

    def do() -> None:
        try:
            _check_versions(expected)
            work(given, Line(queue.put, lambda: None))  # a task that is to end is ended by Ray
        except Exception as error:
            queue.put(Failure.of(error))
        queue.put(_End())

    threading.Thread(target=do, daemon=True).start()
    ended = False
    while not ended:
        batch = [queue.get()]
        while not queue.empty():
            batch.append(queue.get())
        ended = isinstance(batch[-1], _End)
        yield batch[:-1] if ended else batch


def _versions() -> dict[str, str]:
    """Of what decides the bytes."""
    return {**versions(), "scipy": version("scipy")}


def _check_versions(expected: dict[str, str]) -> None:
    for name, here in _versions().items():
        if here != expected[name]:
            raise ValueError(
                f"cluster: {name} is {here} on {socket.gethostname()}, but {expected[name]} where "
                "the sweep was started; with different versions bytes would differ"
            )
