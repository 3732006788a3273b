"""Has a ratio dropped beyond noise? Fresh rounds against recorded ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

ALLOWED = 0.25
"""A median that fell by less is noise."""

Rounds = Mapping[str, Sequence[float]]
"""The ratios of every round, by the name of what was measured; more is better."""


@dataclass(frozen=True)
class Verdict:
    """One ratio, then and now."""

    name: str
    recorded: Sequence[float]
    """Of every round; empty if it is new."""
    fresh: Sequence[float]
    """Empty if it was not measured."""

    @property
    def change(self) -> float:
        """Of the median: −0.5 is half of what was recorded."""
        return median(self.fresh) / median(self.recorded) - 1

    @property
    def dropped(self) -> bool:
        """Is the median far below, and even the best round below what used to be the middle?

        What is no longer measured counts as dropped: nobody would notice if it were.
        """
        if not self.recorded or not self.fresh:
            return not self.fresh
        return self.change < -ALLOWED and max(self.fresh) < median(self.recorded)


def compare(recorded: Rounds, fresh: Rounds) -> list[Verdict]:
    """A verdict for everything that was measured, then or now."""
    names = [*recorded, *(name for name in fresh if name not in recorded)]
    return [Verdict(name, recorded.get(name, ()), fresh.get(name, ())) for name in names]
