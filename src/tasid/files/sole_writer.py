"""One writer per folder: a lock beside it that says whose it is, and dies with its holder."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tasid.files.atomic import make_directory

_MOST_BYTES = 4096


class FolderBusy(ValueError):
    """Somebody else is writing in this folder."""


class Owner(NamedTuple):
    """Who holds a lock."""

    pid: int
    host: str

    @property
    def here(self) -> bool:
        """Is it a process of this machine?"""
        return self.host == socket.gethostname()

    @property
    def alive(self) -> bool:
        """Is that process still there? Of another machine's, nobody here can tell."""
        if not self.here:
            return True
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except OSError:  # there, and somebody else's
            pass
        return True


@contextlib.contextmanager
def sole_writer(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Keep everybody else from writing a folder for the length of a block.

    The lock is the file `.NAME.lock` beside the folder, gone at the end of the block. The kernel
    drops it with its holder: after a kill the next writer takes it over. A second writer gets
    `FolderBusy` with the holder's process and machine. On file systems without locks the file's
    word counts, and two that start in the same instant may both believe it.
    """
    place = Path(os.path.abspath(folder))
    make_directory(place.parent)
    path = place.with_name(f".{place.name}.lock")
    descriptor = _taken(path, folder)
    try:
        owner = json.dumps(Owner(os.getpid(), socket.gethostname())._asdict())
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, owner.encode(), 0)
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
        os.close(descriptor)


def _taken(path: Path, folder: str | os.PathLike[str]) -> int:
    """The open lock file, ours."""
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        except OSError as error:  # named by the lock, which tells nobody anything
            raise OSError(error.errno, error.strerror, os.fspath(folder)) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            busy = False
        except BlockingIOError:
            busy = True
        except OSError:  # no locks on this file system
            owner = _owner(descriptor)
            busy = owner is not None and owner.alive
        if busy:
            owner = _owner(descriptor)
            os.close(descriptor)
            raise _refusal(folder, path, owner)
        if _still_there(descriptor, path):
            return descriptor
        os.close(descriptor)  # its holder ended, and removed it, between our two looks


def _still_there(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _owner(descriptor: int) -> Owner | None:
    try:
        told = json.loads(os.pread(descriptor, _MOST_BYTES, 0))
        return Owner(int(told["pid"]), str(told["host"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _refusal(folder: str | os.PathLike[str], path: Path, owner: Owner | None) -> FolderBusy:
    who = "another process" if owner is None else f"process {owner.pid} on {owner.host}"
    hint = f"; if it is gone, remove {path}" if owner and not owner.here else ""
    return FolderBusy(
        f"{folder}: {who} is writing here; let it end, or choose another folder with --out{hint}"
    )
