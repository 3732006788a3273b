"""Ctrl-C and SIGTERM end a command within seconds, whatever JAX is doing at that moment.

The first one is raised in the command, which saves and tidies up; not while modules are imported,
where the process just ends. Python can only raise between two of its own instructions, and a
compiled fit may take minutes: a thread waits a few seconds, and then ends the process from the
outside. All files are whole at every moment, so nothing is lost but what was not yet on disk. A
second signal ends the process at once.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

CODE = 130
"""The exit code that Typer gives to Ctrl-C, and to whatever else is raised in its place."""
_CODES = {signal.SIGINT: CODE, signal.SIGTERM: 143}
_SOON = 0.05
_PATIENCE = 3.5
"""Seconds that a command has to save and tidy up."""
_SAME = 0.5
"""Seconds within which two signals count as one: `timeout` and terminals send some twice."""
_TIDYING = 1.0


class _Watch:
    """Which signals came, and what to say at the end."""

    def __init__(self) -> None:
        self.first: int | None = None
        self.echoes = 0
        """Signals that were sent again by ourselves."""
        self.words: Callable[[], str | None] = lambda: None

    @property
    def code(self) -> int:
        return _CODES[signal.Signals(self.first or signal.SIGINT)]

    def raised(self, number: int, frame: FrameType | None) -> None:
        """In the main thread, between two instructions."""
        if self.first is None:
            self.first = number
        if _importing():
            self._end(at_once=False)
        raise KeyboardInterrupt

    def look(self, pipe: int) -> None:
        """In a thread of its own: end the process if the main thread does not, or cannot."""
        came: float | None = None
        while True:
            left = None if came is None else max(came + _PATIENCE - time.monotonic(), 0)
            ready, _, _ = select.select([pipe], [], [], left)
            if not ready:
                self._end(at_once=False)
            told = os.read(pipe, 64)
            if not told:
                return  # the command has ended by itself
            ours = [number for number in told if number in _CODES]
            if not ours:
                continue
            if came is None:
                self.first = self.first or ours[0]
                came = time.monotonic()
            elif self.echoes:
                self.echoes -= 1
            elif time.monotonic() - came > _SAME:
                self._end(at_once=True)

    def _end(self, *, at_once: bool) -> NoReturn:
        if not at_once:
            _end_workers()
            words = self.words()
            print(*([f"tasid: {words}"] if words else []), _GOODBYE, sep="\n", file=sys.stderr)
            sys.stderr.flush()
        os._exit(self.code)


def _importing() -> bool:
    """Is a module being imported? Compiled ones crash if anything is raised in the middle."""
    specs = [getattr(module, "__spec__", None) for module in list(sys.modules.values())]
    return any(getattr(spec, "_initializing", False) for spec in specs)


_GOODBYE = "tasid: interrupted"
_watch = _Watch()


@contextmanager
def saying(words: Callable[[], str | None]) -> Iterator[None]:
    """What to say if a signal ends the process, not the command, during a block."""
    before, _watch.words = _watch.words, words
    try:
        yield
    finally:
        _watch.words = before


@contextmanager
def guarded(*, whole_process: bool = False) -> Iterator[None]:
    """Answer signals for the length of a block as this module says.

    If the process ends with the block, nothing is left to interrupt after it: a signal would end
    Python while it takes itself apart, and a command that succeeded seem to have failed.
    """
    global _watch
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    watch = _watch = _Watch()
    heard, told = os.pipe()
    os.set_blocking(told, False)
    # A shell that runs a command in the background has it ignore Ctrl-C.
    usual = {n: signal.getsignal(n) for n in _CODES if signal.getsignal(n) != signal.SIG_IGN}
    wakeup = signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    thread = threading.Thread(target=watch.look, args=(heard,), daemon=True)
    thread.start()
    for number in usual:
        signal.signal(number, watch.raised)
    try:
        with _never_lost(watch):
            yield
    finally:
        for number, handler in usual.items():
            signal.signal(number, signal.SIG_IGN if whole_process else handler)
        signal.set_wakeup_fd(wakeup)
        os.close(told)
        thread.join()
        os.close(heard)


@contextmanager
def _never_lost(watch: _Watch) -> Iterator[None]:
    """Repeat an interrupt that came while garbage was collected.

    Python drops what is raised in callbacks of the collector, and JAX has such a callback.
    """
    usual = sys.unraisablehook

    def repeat() -> None:
        watch.echoes += 1
        os.kill(os.getpid(), signal.SIGINT)

    def again(lost: UnraisableHookArgs) -> None:
        if not issubclass(lost.exc_type, KeyboardInterrupt):
            usual(lost)
            return
        timer = threading.Timer(_SOON, repeat)  # not at once: it would be dropped again
        timer.daemon = True
        timer.start()

    sys.unraisablehook = again
    try:
        yield
    finally:
        sys.unraisablehook = usual


def leave() -> NoReturn:
    """End the process after an interrupt, without taking the interpreter apart.

    Everything of ours is tidied up by now, but XLA may still compute what nobody waits for, and
    taking the interpreter apart under its threads is a segmentation fault now and then.
    """
    _end_workers()
    print(_GOODBYE, file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(_watch.code)


def _end_workers() -> None:
    """End processes of ours and give their semaphores back, which otherwise is complained about."""
    if "multiprocessing.process" not in sys.modules:
        return
    from multiprocessing import active_children, util

    for child in active_children():
        child.terminate()
    # What the interpreter would do at its end; a queue that waits for its reader must not keep us.
    tidy = threading.Thread(target=util._exit_function, daemon=True)  # type: ignore[attr-defined]
    tidy.start()
    tidy.join(_TIDYING)
