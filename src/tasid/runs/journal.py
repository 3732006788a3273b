"""Episodes as they came from a target, on disk before the run that wanted them has ended; and fits.

    episodes-000007-9f86d081884c7d65.safetensors    whole episodes, named after their content
    fits-000003/    an artifact: the fits after the fourth batch, or of the fourth step

An episode is found again by its key, which is a function of (seed, phase, index); all else about a
run is a function of the order and of its episodes. So a run that goes on plays from here what it
has played before, and ends with the same bytes, without asking the target twice.

A file is written whole, flushed and renamed; one that is damaged is dropped with all that follow,
and their episodes are played again. Fits that are damaged, or of other data, are fitted again.
"""

from __future__ import annotations

import hashlib
import re
import time
import warnings
from collections import defaultdict, deque
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from tasid.files import ArtifactError, read_artifact, write_artifact, write_bytes_atomically
from tasid.files.manifest import MANIFEST_NAME
from tasid.learning.memory import Remembered

_FILE = re.compile(r"episodes-(\d{6,})-([0-9a-f]{16})\.safetensors")
_FITS = "fits"
_PATIENCE = 1.0
"""Seconds of episodes that a kill may cost, where a batch of them does not take longer."""
_SHARE = 1e-3
"""The share of a long run that it may cost: files stay few."""
_MOST_BYTES = 1 << 26
"""What is held back at most."""
_OPEN = 2
"""Files in memory while a run goes on."""


class Played(NamedTuple):
    """One episode, as far as it was played or until it ended; T steps."""

    key: bytes
    actions: NDArray[np.int32]
    """[T]."""
    observations: NDArray[Any]
    """[T+1, …]."""
    rewards: NDArray[Any]
    """[T]."""
    over: NDArray[np.bool_]
    """Had it ended? [T+1]"""


_COLUMNS = Played._fields[1:]


class Journal:
    """The episodes of one run: those on disk to take from, new ones to add."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files: list[Path] = []
        self._places: dict[bytes, deque[tuple[int, int]]] = defaultdict(deque)
        self._open: dict[int, list[Played]] = {}
        self._waiting: list[Played] = []
        self._bytes = 0
        self._began = self._written = time.monotonic()
        self.episodes = 0
        """How many are on disk."""
        self._read()

    def has(self, key: bytes) -> bool:
        """Is there an episode of this key to take?"""
        return bool(self._places.get(key))

    def take(self, key: bytes) -> Played | None:
        """The next episode of this key that is on record; None if there is none left."""
        places = self._places.get(key)
        if not places:
            return None
        file, row = places.popleft()
        if file not in self._open:
            while len(self._open) >= _OPEN:
                self._open.pop(next(iter(self._open)))
            self._open[file] = _episodes(self._files[file])
        return self._open[file][row]

    def add(self, episode: Played) -> None:
        """Remember a whole episode; `settle` says when a batch is complete."""
        self._waiting.append(episode)
        self._bytes += episode.observations.nbytes

    def settle(self) -> None:
        """Put on disk what was added, unless that was done a moment ago."""
        now = time.monotonic()
        patience = max(_PATIENCE, _SHARE * (now - self._began))
        if now - self._written >= patience or self._bytes >= _MOST_BYTES:
            self.flush()

    def flush(self) -> None:
        """Put on disk all that was added."""
        if self._waiting:
            data = save(_tables(self._waiting))
            name = f"episodes-{len(self._files):06d}-{_digest(data)}.safetensors"
            self._files.append(write_bytes_atomically(self.folder / name, data))
            self.episodes += len(self._waiting)
            self._waiting, self._bytes = [], 0
        self._written = time.monotonic()

    def _read(self) -> None:
        names = {path.name: path for path in self.folder.glob("episodes-*.safetensors")}
        found = sorted((int(m[1]), m[0]) for m in map(_FILE.fullmatch, names) if m)
        for place, (number, name) in enumerate(found):
            try:
                if number != place:
                    raise ValueError("the file before it is missing")
                episodes = _episodes(names[name])
            except (OSError, ValueError) as error:
                warnings.warn(
                    f"{names[name]}: {error}; its episodes and those after it are played again",
                    stacklevel=2,
                )
                for _, later in found[place:]:
                    names[later].unlink()
                return
            self._files.append(names[name])
            self.episodes += len(episodes)
            for row, episode in enumerate(episodes):
                self._places[episode.key].append((place, row))


def _tables(episodes: list[Played]) -> dict[str, NDArray[Any]]:
    return {
        "keys": np.stack([np.frombuffer(one.key, np.uint8) for one in episodes]),
        "steps": np.array([len(one.actions) for one in episodes], np.int32),
        **{name: np.concatenate([getattr(one, name) for one in episodes]) for name in _COLUMNS},
    }


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _episodes(path: Path) -> list[Played]:
    """What a file holds, verified."""
    data = path.read_bytes()
    named = _FILE.fullmatch(path.name)
    if named is None or _digest(data) != named[2]:
        raise ValueError("is damaged")
    try:
        tables = load(data)
        steps = tables["steps"]
        before, seen = np.cumsum(steps)[:-1], np.cumsum(steps + 1)[:-1]
        cuts = (before, seen, before, seen)
        columns = [np.split(tables[n], cut) for n, cut in zip(_COLUMNS, cuts, strict=True)]
        rows = zip(tables["keys"], *columns, strict=True)
        return [Played(key.tobytes(), *rest) for key, *rest in rows]
    except (SafetensorError, KeyError, IndexError) as error:
        raise ValueError(f"holds no episodes ({error})") from error


class FitsOnRecord:
    """A learner's memory in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def recall(self, number: int, seal: str) -> Remembered | None:
        """What was kept under this number for data of this seal; None if nothing was."""
        place = self._place(number)
        if not (place / MANIFEST_NAME).exists():  # written last: a save was cut short, or none made
            return None
        try:
            found = read_artifact(place, kind=_FITS)
        except ArtifactError as error:
            warnings.warn(f"{error} Fitted again.", stacklevel=2)
            return None
        if found.metadata.get("seal") != seal:
            warnings.warn(f"{place}: fits of other data; fitted again", stacklevel=2)
            return None
        return Remembered(found.metadata, found.arrays)

    def keep(self, number: int, seal: str, found: Remembered) -> None:
        """Keep it for the next time."""
        metadata = {**found.metadata, "seal": seal}
        write_artifact(self._place(number), kind=_FITS, metadata=metadata, arrays=found.arrays)

    def _place(self, number: int) -> Path:
        return self._folder / f"fits-{number:06d}"
