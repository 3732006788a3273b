"""How many episodes each step gets: a fixed total spread unevenly, or as many as evidence asks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom, norm

_FIRST_STEPS = 2
_FIRST_SHARE = 8
"""The first steps, where nothing is known yet, get this many times a later step's episodes, …"""
_FIRST_MOST = 400
"""… but no more than so many on top: learning from nothing has a price that does not grow."""
_LEAST_MASS = 0.1
"""A step counts for at least so much of a step that always meets a choice."""
_FIRST_BATCHES = 4
"""When evidence decides, the first steps start with this many batches."""
_LEVEL = 0.001
"""How rarely a single step that is good enough may be asked for more."""
_LEAST = 5
"""Episodes a step needs at least: four to learn from, one to judge by."""


class Judgement(NamedTuple):
    """What the held-out transitions of one step say about its model."""

    rows: int
    unclear: int
    """Not clearly decoded: the best outcome leads by less than half of what theory grants."""
    excess: float
    """Nats lost above the most that a perfect decoder can lose, summed over rows."""


class Progress(Protocol):
    """What a learner can tell about a step it has fitted."""

    def judged(self, h: int) -> Judgement:
        """The evidence about step h."""

    def doubt(self, h: int) -> float:
        """How likely slips outvote what the rarest of its outcomes looks like, at most."""


class Quota(Protocol):
    """Decides how many episodes a step gets."""

    def wants(self, h: int, taken: int, progress: Progress) -> int:
        """How many more episodes step h gets, having had `taken`; 0 if enough."""


@dataclass(frozen=True)
class FixedQuota:
    """`episodes` in all, spread by how likely each step is to meet a choice of outcomes.

    The first two steps, where nothing is known yet, get more on top: seven shares of a step that
    always meets one, but no more than 400 episodes each.
    """

    episodes: int
    choice_mass: tuple[float, ...]
    """For every step with a model: the probability that outcomes differ there."""

    def __post_init__(self) -> None:
        steps = len(self.choice_mass)
        needed = _LEAST * (steps + (_FIRST_SHARE - 1) * min(steps, _FIRST_STEPS))
        if steps and self.episodes < needed:
            raise ValueError(
                f"episodes: {self.episodes} are too few for a horizon of {steps + 1}; "
                f"give {needed} or more"
            )

    @cached_property
    def _upto(self) -> NDArray[np.int64]:
        """Episodes of all steps up to each one; rounding never spends more than the total."""
        mass = np.maximum(self.choice_mass, _LEAST_MASS)
        first = np.arange(mass.size) < _FIRST_STEPS
        free = self.episodes - _LEAST * mass.size
        on_top = (_FIRST_SHARE - 1) * first * free / (mass.sum() + (_FIRST_SHARE - 1) * first.sum())
        on_top = np.minimum(on_top, _FIRST_MOST)
        wanted = _LEAST + on_top + (free - on_top.sum()) * mass / mass.sum()
        whole = np.floor(np.cumsum(wanted) + 1e-6).astype(np.int64)
        return np.concatenate([[0], whole])

    def wants(self, h: int, taken: int, progress: Progress) -> int:
        """The step's share, at once."""
        return 0 if taken else int(self._upto[h + 1] - self._upto[h])


@dataclass
class EvidenceQuota:
    """Collect at every step until held-out evidence suffices.

    A step gets ln(1/δ)/ε episodes at least: an event of probability ε would show itself among
    them with probability 1−δ. It gets more while one of its outcomes was commanded so rarely that
    slips might outvote what it looks like, with a probability above ε; and while, over the last
    steps together, more than a fraction ε of the held-out transitions is not clearly decoded, or
    the held-out loss exceeds what a perfect decoder could lose by more than chance; or if the step
    by itself stands out so (a good step before it must not hide it). ε is what the
    evidence is held to, not a guarantee: the guarantee's price is in `tasid.theory`.
    """

    epsilon: float = 0.05
    delta: float = 0.1
    most: int = 4_096
    """Episodes after which a step is given up."""
    window: int = 10
    """How many steps are judged together."""

    def __post_init__(self) -> None:
        if not 0 < self.epsilon < 1:
            raise ValueError(f"epsilon: {self.epsilon} is not in (0, 1)")
        if not 0 < self.delta < 1:
            raise ValueError(f"delta: {self.delta} is not in (0, 1)")

    @property
    def batch(self) -> int:
        """Episodes collected at a time, and at least; the first steps start with four of them."""
        return max(_LEAST, math.ceil(math.log(1 / self.delta) / self.epsilon))

    def wants(self, h: int, taken: int, progress: Progress) -> int:
        """Another batch, unless the evidence so far suffices or the step is hopeless."""
        if taken == 0:
            return self.batch * (_FIRST_BATCHES if h < _FIRST_STEPS else 1)
        if taken >= self.most or self._suffices(h, progress):
            return 0
        return min(max(self.batch, taken // 2), self.most - taken)

    def _suffices(self, h: int, progress: Progress) -> bool:
        judged = [progress.judged(step) for step in range(max(0, h + 1 - self.window), h + 1)]
        if judged[-1].rows == 0:
            return True
        if self._stands_out(judged[-1]) or progress.doubt(h) > self.epsilon:
            return False
        rows = sum(step.rows for step in judged)
        unclear = sum(step.unclear for step in judged)
        excess = sum(step.excess for step in judged)
        return unclear <= max(1.0, self.epsilon * rows) and excess <= math.sqrt(rows)

    def _stands_out(self, step: Judgement) -> bool:
        """Is a step by itself worse than chance would make it, if all were well?"""
        by_chance = binom.sf(step.unclear - 1, step.rows, self.epsilon)
        return by_chance < _LEVEL or step.excess > norm.isf(_LEVEL) * math.sqrt(step.rows)
