"""A folder that a task writes, kept the same at the owner's, file by file as they appear.

Files appear whole (`tasid.files`) and are told in the order in which they did, so that what the
owner has is at every moment what a crash would have left.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tasid.files import write_bytes_atomically
from tasid.runs.executors.protocol import Line

_EVERY = 1.0
"""Seconds of files that a kill may cost."""


@dataclass(frozen=True)
class File:
    """A file that appeared; without data, one that is gone."""

    name: str
    data: bytes | None


class Mirror:
    """Tells what changes in a folder."""

    def __init__(self, folder: Path, line: Line, known: Mapping[str, bytes]) -> None:
        self._folder, self._line = folder, line
        for name, data in known.items():
            write_bytes_atomically(folder / name, data)
        self._told = {name: stamp for stamp, name in _stamps(folder)}
        self._lock = threading.Lock()

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Tell once a second for the length of a block, and once more if it fails."""
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(_EVERY):
                self.tell(self._folder)

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        except BaseException:
            self.tell(self._folder)
            raise
        finally:
            ended.set()
            thread.join()

    def tell(self, folder: Path) -> None:
        """What is new since the last time; `folder` is where the files are now."""
        with self._lock:
            found = _stamps(folder)
            if not folder.exists():  # a complete run has just been put in its place
                return
            for stamp, name in sorted(found):
                if self._told.get(name) == stamp:
                    continue
                try:
                    data = (folder / name).read_bytes()
                except FileNotFoundError:
                    continue  # it is gone by now, and so will be told
                self._line.say(File(name, data))
                self._told[name] = stamp
            for name in self._told.keys() - {name for _, name in found}:
                self._line.say(File(name, None))
                del self._told[name]


def files_of(folder: Path) -> dict[str, bytes]:
    """All that is there, the oldest first."""
    return {name: (folder / name).read_bytes() for _, name in sorted(_stamps(folder))}


def write(folder: Path, file: File) -> None:
    """At the owner's: make the change."""
    name = PurePosixPath(file.name)
    if name.is_absolute() or ".." in name.parts:
        raise ValueError(f"{file.name}: a task writes in its own folder")
    if file.data is None:
        (folder / name).unlink(missing_ok=True)
    else:
        write_bytes_atomically(folder / name, file.data)


def _stamps(folder: Path) -> list[tuple[tuple[int, int], str]]:
    """When every file appeared, and which it is; temporary ones are nobody's business."""
    found = []
    for path in folder.rglob("*"):
        try:
            if path.is_file() and not path.name.endswith(".tmp"):
                told = path.stat()
                name = path.relative_to(folder).as_posix()
                found.append(((told.st_mtime_ns, told.st_ino), name))
        except FileNotFoundError:
            continue
    return found
