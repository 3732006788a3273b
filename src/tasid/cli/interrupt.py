"""Ctrl-C ends a command, whatever JAX is doing at that moment."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

CODE = 130
"""The exit code that Typer gives to Ctrl-C."""
_SOON = 0.05
_PATIENCE = 3.0


@contextmanager
def never_lost() -> Iterator[None]:
    """Repeat, for the length of a block, an interrupt that came while garbage was collected.

    Python drops what is raised in callbacks of the collector, and JAX has such a callback.
    """
    usual = sys.unraisablehook

    def again(lost: UnraisableHookArgs) -> None:
        if not issubclass(lost.exc_type, KeyboardInterrupt):
            usual(lost)
            return
        # Not at once: it would be dropped again.
        timer = threading.Timer(_SOON, os.kill, (os.getpid(), signal.SIGINT))
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
    print("tasid: interrupted", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(CODE)


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
    tidy.join(_PATIENCE)
