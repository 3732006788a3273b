"""Faults inside a save: the process ends, or the disk fails, at any call that changes the disk."""

from __future__ import annotations

import errno
import os
import random
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.torture.count import Count


def _artifact(folder: Path, value: int) -> None:
    from tasid.files import write_artifact

    arrays = {"x": np.full(100, value, np.float32)}
    write_artifact(folder, kind="probe", metadata={"value": value}, arrays=arrays)


def _loaded(folder: Path) -> int:
    from tasid.files import read_artifact

    found = read_artifact(folder, kind="probe")
    assert (found.arrays["x"] == found.metadata["value"]).all()
    return int(found.metadata["value"])


_CALLS = ("open", "fsync", "replace", "unlink")


@contextmanager
def _at_call(number: int, fault: Callable[[], None]) -> Iterator[list[int]]:
    """Let a fault happen at the so-and-so-many-th call that changes the disk."""
    real, made = {name: getattr(os, name) for name in _CALLS}, [0]

    def one(name: str) -> Any:
        def call(*given: Any, **how: Any) -> Any:
            made[0] += 1
            if made[0] == number:
                fault()
            return real[name](*given, **how)

        return call

    for name in _CALLS:
        setattr(os, name, one(name))
    try:
        yield made
    finally:
        for name, usual in real.items():
            setattr(os, name, usual)


def kills_in_saves(place: Path, number: int, dice: random.Random) -> Count:
    """A process that ends at every call of a save: the old or the new, and no leftovers."""
    folder, kept, tried = place / "artifact", 0, 0
    _artifact(folder, 0)
    while True:
        tried += 1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of threads, which the child does not use
            child = os.fork()
        if not child:
            with _at_call(tried, lambda: os._exit(9)):
                _artifact(folder, tried)
            os._exit(0)
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if ended == 0:
            return Count("SIGKILL inside a save, at every call", tried - 1, kept, "none unloadable")
        whole = _loaded(folder) in (tried - 1, tried)
        _artifact(folder, tried)
        kept += whole and len(list(folder.iterdir())) == 2


def disks(place: Path, number: int, dice: random.Random) -> Count:
    """Errors of the disk at random calls: an OSError, the old artifact, no temporary file."""
    kept, folder = 0, place / "artifact"
    _artifact(folder, 0)
    for turn in range(number):
        code = dice.choice([errno.ENOSPC, errno.EROFS, errno.EIO])

        def fail(code: int = code) -> None:
            raise OSError(code, os.strerror(code))

        told = None
        try:
            with _at_call(dice.randint(1, 9), fail):
                _artifact(folder, turn + 1)
        except OSError as error:
            told = error.errno
        value = _loaded(folder)
        tidy = not list(folder.glob("*.tmp"))
        kept += tidy and value in (turn, turn + 1) and (told == code or value == turn + 1)
        _artifact(folder, turn + 1)
    return Count("full disk, read-only disk, I/O error", number, kept, "typed error, nothing lost")
