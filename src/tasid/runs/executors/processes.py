"""The executor without a cluster: processes of this machine, or, for one worker, this one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection
from typing import Any, Literal

from tasid.runs.executors.dispatch import Failure, Hear, Interrupted, Line, Lost, Work

_GONE = (EOFError, ConnectionError)
_PATIENCE = 5.0
"""Seconds that a process has to end."""
_HALT = "halt"
_Kind = Literal["said", "done", "failed", "interrupted"]


class Processes:
    """So many processes, started when first needed and used again.

    They live apart from this one, JAX and all: one that crashes costs its task and nothing else.
    """

    def __init__(self, workers: int) -> None:
        if workers < 1:
            raise ValueError(f"workers: {workers} is below 1")
        self.workers = workers
        self._lock = threading.Lock()
        self._idle: list[_Process] = []
        self._all: list[_Process] = []
        self._halted = threading.Event()

    def do(self, work: Work, given: Any, hear: Hear, memory: int) -> None:
        """By an idle process, or a new one."""
        if self.workers == 1:
            work(given, Line(hear, self._check))
            return
        process = self._taken()
        try:
            process.do(work, given, hear)
        finally:
            with self._lock:
                if process.usable:
                    self._idle.append(process)
                else:
                    self._all.remove(process)

    def halt(self) -> None:
        """Tasks end where they check."""
        self._halted.set()
        with self._lock:
            for process in self._all:
                process.halt()

    def close(self) -> None:
        """End all processes."""
        with self._lock:
            for process in self._all:
                process.close()
            self._all, self._idle = [], []

    def _check(self) -> None:
        if self._halted.is_set():
            raise Interrupted

    def _taken(self) -> _Process:
        with self._lock:
            self._check()
            if self._idle:
                return self._idle.pop()
            process = _Process()
            self._all.append(process)
            return process


class _Process:
    """A process that does one task after the other; this end of its pipe."""

    def __init__(self) -> None:
        context = get_context("spawn")  # JAX has threads, and a fork would copy their locks
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs,))
        with _deaf():
            self._process.start()
        theirs.close()
        self._lock = threading.Lock()
        self.usable = True

    def do(self, work: Work, given: Any, hear: Hear) -> None:
        try:
            self._send((work, given))
            while True:
                kind, what = self._pipe.recv()
                if kind != "said":
                    break
                hear(what)
        except _GONE:
            self.close()
            code = self._process.exitcode
            raise Lost(f"a worker process died (exit code {code})") from None
        except BaseException:  # nobody listens to the rest
            self.close()
            raise
        if kind == "failed":
            raise what.error()
        if kind == "interrupted":
            raise Interrupted

    def halt(self) -> None:
        with suppress(OSError):
            self._send(_HALT)

    def _send(self, order: Any) -> None:
        with self._lock:
            self._pipe.send(order)

    def close(self) -> None:
        self.usable = False
        self._pipe.close()
        self._process.join(_PATIENCE)
        if self._process.is_alive():
            self._process.terminate()
            self._process.join()


@contextmanager
def _deaf() -> Iterator[None]:
    """Block Ctrl-C for what is started here: a terminal tells all processes, ours save first."""
    resource_tracker.ensure_running()  # first: starting it unblocks what is blocked
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def serve(pipe: Connection) -> None:
    """Do tasks until nobody is there to ask for more."""
    lock = threading.Lock()

    def send(kind: _Kind, what: Any = None) -> None:
        with lock:
            pipe.send((kind, what))

    def check() -> None:
        if pipe.poll():
            with suppress(EOFError):  # the owner is gone
                pipe.recv()
            raise Interrupted

    line = Line(partial(send, "said"), check)
    with suppress(*_GONE):
        while True:
            order = pipe.recv()
            if order == _HALT:  # it came when the task had ended
                continue
            work, given = order
            try:
                work(given, line)
            except Interrupted:
                send("interrupted")
            except _GONE:
                raise
            except Exception as error:
                send("failed", Failure.of(error))
            else:
                send("done")
