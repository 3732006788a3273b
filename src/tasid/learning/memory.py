"""What was fitted before a run stopped early: the same data give it back.

A fit is a function of the data so far, and takes most of a run's time. Whoever runs a learner may
give it a memory; where it is kept is not the learner's business.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray


class Remembered(NamedTuple):
    """The outcome of one round of fits, as a file can hold it."""

    metadata: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]]


class Memory(Protocol):
    """Rounds of fits by number."""

    def recall(self, number: int, seal: str) -> Remembered | None:
        """What was kept under this number for data of this seal; None if nothing was."""

    def keep(self, number: int, seal: str, found: Remembered) -> None:
        """Keep it for the next time."""


@dataclass(frozen=True)
class SharedMemory:
    """One learner's part of a memory that several share."""

    memory: Memory
    learner: int
    learners: int

    def recall(self, number: int, seal: str) -> Remembered | None:
        """What this learner kept."""
        return self.memory.recall(number * self.learners + self.learner, seal)

    def keep(self, number: int, seal: str, found: Remembered) -> None:
        """Keep it where no other learner does."""
        self.memory.keep(number * self.learners + self.learner, seal, found)


def seal_of(*data: ArrayLike) -> str:
    """Tells apart what fits were made of, numbers and shapes."""
    digest = hashlib.sha256()
    for table in map(np.ascontiguousarray, data):
        digest.update(f"{table.dtype.str}{table.shape}".encode())
        digest.update(table.tobytes())
    return digest.hexdigest()
