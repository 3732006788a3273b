"""Files that are replaced whole or not at all, whatever happens to the writer.

A write goes to a temporary file of the same folder, is flushed to the disk, and takes the target's
name in one rename. The writer holds a lock on its temporary file, which the kernel drops when the
process dies: a temporary file that can be locked belongs to a dead write and is swept.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path

_TEMPORARY = re.compile(r"\.tasid-[0-9a-f]{16}\.tmp")


def write_bytes_atomically(path: str | os.PathLike[str], data: bytes) -> Path:
    """Write a file so that every reader, at every moment, sees the old or the new bytes whole.

    Missing folders are created. A failing write raises its `OSError`, leaves the old file as it
    was and removes its temporary file; those of killed writes go at the next write in that folder.
    """
    target = Path(path)
    make_directory(target.parent)
    _sweep_temporaries(target.parent)
    try:
        temporary, descriptor = _open_temporary(target.parent)
    except OSError as error:  # named by its temporary file, which tells nobody anything
        raise OSError(error.errno, error.strerror, str(target)) from error
    try:
        with open(descriptor, "wb") as handle:
            handle.write(data)
            handle.flush()
            os.fsync(descriptor)
            os.replace(temporary, target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError) and error.errno is not None and error.filename is None:
            # Say of which file; a full disk does not.
            raise OSError(error.errno, error.strerror, str(target)) from error
        raise
    sync_directory(target.parent)
    return target


def make_directory(directory: Path) -> None:
    """Create a directory and its parents so that they outlive a power failure."""
    missing = [folder for folder in (directory, *directory.parents) if not folder.exists()]
    for folder in (directory, *directory.parents):
        if folder.exists() and not folder.is_dir():
            raise NotADirectoryError(f"{folder}: is a file, so no folder can be made in it")
    directory.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        sync_directory(folder.parent)


@contextlib.contextmanager
def directory_lock(directory: Path) -> Iterator[None]:
    """Let one writer at a time into a directory; the lock dies with its holder and leaves no file.

    Some shared file systems have no locks; there, one writer at a time is the caller's duty.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        # Unlock by name: a process forked meanwhile shares the lock and would keep it on close.
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def _open_temporary(folder: Path) -> tuple[Path, int]:
    """Create a temporary file and lock it, again if a sweep came in between."""
    while True:
        temporary = folder / f".tasid-{secrets.token_hex(8)}.tmp"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            swept = not os.path.lexists(temporary)
        except BlockingIOError:
            swept = True
        except OSError:
            swept = False  # no locks on this file system, hence no sweeps either
        if not swept:
            return temporary, descriptor
        os.close(descriptor)


def _sweep_temporaries(folder: Path) -> None:
    """Remove the temporary files whose writers are dead."""
    with os.scandir(folder) as entries:
        candidates = [
            entry.path
            for entry in entries
            if _TEMPORARY.fullmatch(entry.name) and entry.is_file(follow_symlinks=False)
        ]
    for candidate in candidates:
        with contextlib.suppress(OSError):  # gone already, alive, or not ours to touch
            _remove_if_dead(candidate)


def _remove_if_dead(temporary: str) -> None:
    descriptor = os.open(temporary, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(temporary)
    finally:
        os.close(descriptor)


def sync_directory(directory: Path) -> None:
    """Flush a directory's entries, so that a rename in it outlives a power failure."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # file systems that cannot
            raise
    finally:
        os.close(descriptor)
