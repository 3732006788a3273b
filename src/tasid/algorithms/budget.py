"""How many episodes each step gets: a fixed total spread unevenly, or as many as evidence asks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from scipy.stats import chi2

_FIRST_STEPS = 2
_FIRST_SHARE = 8
"""The first steps, where nothing is known yet, get this many times a later step's episodes."""
_LEAST = 5
"""Episodes a step needs at least: four to learn from, one to judge by."""


class Progress(Protocol):
    """What a learner can tell about a step it has fitted."""

    def excess(self, h: int) -> float:
        """Mean held-out loss above a perfect decoder's level."""

    def ambiguous(self, h: int) -> tuple[int, int]:
        """Held-out transitions that are not clearly decoded, and how many were judged."""


class Quota(Protocol):
    """Decides how many episodes a step gets."""

    def wants(self, h: int, taken: int, progress: Progress) -> int:
        """How many more episodes step h gets, having had `taken`; 0 if enough."""


@dataclass(frozen=True)
class FixedQuota:
    """`episodes` in all; the first two steps get eight shares, every other step one."""

    episodes: int
    horizon: int

    def __post_init__(self) -> None:
        needed = _LEAST * self._shares
        if self.horizon > 1 and self.episodes < needed:
            raise ValueError(
                f"episodes: {self.episodes} are too few for a horizon of {self.horizon}; "
                f"give {needed} or more"
            )

    @property
    def _shares(self) -> int:
        steps = self.horizon - 1
        first = min(steps, _FIRST_STEPS)
        return first * _FIRST_SHARE + steps - first

    def wants(self, h: int, taken: int, progress: Progress) -> int:
        """The step's share, at once; rounding never spends more than the total."""
        if taken:
            return 0
        before, share = self._shares_before(h), _FIRST_SHARE if h < _FIRST_STEPS else 1
        upto = self.episodes * (before + share) // self._shares
        return upto - self.episodes * before // self._shares

    def _shares_before(self, h: int) -> int:
        first = min(h, _FIRST_STEPS)
        return first * _FIRST_SHARE + h - first


@dataclass
class EvidenceQuota:
    """Collect at every step until held-out evidence suffices.

    With no ambiguous transition among N held-out ones, the chance of an ambiguous one is at most
    ln(1/δ)/N with confidence 1−δ, so a step's error is at most ε/H in the mean once all steps
    together have judged N ≥ H·ln(1/δ)/ε; ambiguous ones raise the bound (Poisson). Besides, no
    step ends while its held-out loss exceeds what a perfect decoder could lose.
    """

    horizon: int
    epsilon: float = 0.05
    delta: float = 0.1
    most: int = 4_096
    """Episodes after which a step is given up."""

    def __post_init__(self) -> None:
        if not 0 < self.epsilon < 1:
            raise ValueError(f"epsilon: {self.epsilon} is not in (0, 1)")
        if not 0 < self.delta < 1:
            raise ValueError(f"delta: {self.delta} is not in (0, 1)")
        self._judged: dict[int, tuple[int, int]] = {}

    @property
    def batch(self) -> int:
        """Episodes collected at a time: a step's fair share when nothing is ambiguous."""
        return max(16, math.ceil(math.log(1 / self.delta) / self.epsilon))

    def wants(self, h: int, taken: int, progress: Progress) -> int:
        """Another batch, unless the evidence so far suffices or the step is hopeless."""
        if taken == 0:
            return self.batch
        self._judged[h] = progress.ambiguous(h)
        if taken >= self.most or self._suffices(h, taken, progress):
            return 0
        return min(max(self.batch, taken // 2), self.most - taken)

    def _suffices(self, h: int, taken: int, progress: Progress) -> bool:
        unclear, judged = self._judged[h]
        if judged == 0:
            return True
        tolerance = 0.25 / math.sqrt(judged)
        if progress.excess(h) > tolerance:
            return False
        recent = [self._judged[step] for step in range(max(0, h - 9), h + 1)]
        unclear, judged = (sum(part) for part in zip(*recent, strict=True))
        bound = chi2.ppf(1 - self.delta, 2 * (unclear + 1)) / 2
        share = len(recent) * math.log(1 / self.delta) / self.epsilon / 5
        return judged >= share * bound / math.log(1 / self.delta) * 0.9
