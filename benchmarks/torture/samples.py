"""One good file of every kind that is read, small and quickly made."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Sample:
    """A folder, and how it is read."""

    folder: Path
    read: Callable[[Path], Any]

    def whole(self) -> dict[Path, bytes]:
        """Its files as they should be."""
        return {path: path.read_bytes() for path in sorted(self.folder.iterdir())}


def samples(place: Path) -> dict[str, Sample]:
    """Policies of both methods and of a baseline, a log of episodes, a map, a run's record."""
    import tasid
    from tasid.runs.episode_log import EpisodeLog
    from tasid.runs.recording import record_episodes

    lock = tasid.make("combination-lock", horizon=3, num_actions=3, seed=0)
    for method, episodes in (("belief", 16), ("paper", 60)):
        found = tasid.learn(lock, eta=0.1, episodes=episodes, method=method)
        found.policy.save(place / method)
    lock.simulator.save(place / "map")
    record_episodes(lock, None, episodes=3).save(place / "log")
    _record(place / "record")
    return {
        "belief": Sample(place / "belief", tasid.load),
        "paper": Sample(place / "paper", tasid.load),
        "log": Sample(place / "log", EpisodeLog.load),
        "map": Sample(place / "map", tasid.AbstractSimulator.load),
        "record": Sample(place / "record", _journal),
    }


def _record(folder: Path) -> None:
    from tasid.runs.journal import Journal, Played

    folder.mkdir()
    journal = Journal(folder)
    for number in range(3):
        numbers = np.full(2, number, np.float32)
        seen, over = np.full((3, 4), number, np.float32), np.zeros(3, bool)
        journal.add(Played(bytes([number] * 8), np.zeros(2, np.int32), seen, numbers, over))
    journal.flush()


def _journal(folder: Path) -> Any:
    """A damaged record is dropped with a warning, and played again; here that is a refusal."""
    from tasid.files import ArtifactError
    from tasid.runs.journal import Journal

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        journal = Journal(folder)
    if said and journal.episodes == 0:
        raise ArtifactError(str(said[0].message))
    return journal
