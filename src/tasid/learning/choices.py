"""Which of the labels that exist was the right one: what scores are judged by."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Choices:
    """A label for every row, out of those that exist where its transition started."""

    label: NDArray[np.int64]
    """[n]."""
    valid: NDArray[np.bool_]
    """[n, L]."""
    aversion: float = np.inf
    """How many nats of odds a label that does not exist is given; ∞ rules it out."""

    @property
    def number(self) -> NDArray[np.int64]:
        """How many labels exist, [n]; where it is one there is nothing to choose."""
        return self.valid.sum(axis=1)

    def log_probabilities(self, scores: Floats) -> Floats:
        """ln f over the labels, [n, L]; −∞ where one is ruled out."""
        masked = np.where(self.valid, scores, scores - self.aversion)
        masked -= masked.max(axis=1, keepdims=True)
        masked -= np.log(np.exp(masked).sum(axis=1, keepdims=True))
        return masked

    def losses(self, scores: Floats) -> Floats:
        """−ln f(label) of every row, [n]."""
        return -self.log_probabilities(scores)[np.arange(self.label.size), self.label]

    def only(self, rows: NDArray[np.bool_]) -> Choices:
        """These rows alone."""
        return Choices(self.label[rows], self.valid[rows])
