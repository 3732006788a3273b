"""Knowing when one is wrong: how often outcomes differ from the intended ones, and where.

A surprise is a step whose outcome is not the one the command should have had. On a right map its
probability is at most η in every (h, s, a), so counts are dominated by a binomial: too many in all
mean that η was chosen too small, too many in one place mean that the map is wrong there. What is
estimated is the mean over visited places with a choice of outcomes, a lower bound on η.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasid.maps import AbstractSimulator, RobustPlan
from tasid.maps.outcomes import outcomes
from tasid.theory.binomial import at_least, chance_interval

_CONFIDENCE = 0.95
_LEVEL = 0.01


@dataclass(frozen=True)
class EtaEstimate:
    """The probability that the outcome differs from the intended one, where it could differ."""

    rate: float
    low: float
    high: float
    """A 95 % interval (Clopper–Pearson)."""
    transitions: int
    planned: float
    p_value: float
    """How likely so many surprises would be at most, were the planned η right."""

    @classmethod
    def of(cls, surprises: int, number: int, *, planned: float) -> EtaEstimate:
        """From so many surprises in so many transitions."""
        if number == 0:
            return cls(0.0, 0.0, 1.0, 0, planned, 1.0)
        low, high = chance_interval(surprises, number, confidence=_CONFIDENCE)
        p_value = float(at_least(surprises, number, planned))
        return cls(surprises / number, low, high, number, planned, p_value)

    @property
    def exceeded(self) -> bool:
        """Is the planned η refuted at level 0.01?"""
        return self.p_value < _LEVEL


@dataclass(frozen=True)
class MapFault:
    """A place where the target does not do what the map says, more often than η allows."""

    step: int
    state: Any
    action: int
    visits: int
    surprises: int
    p_value: float


def count_surprises(plan: RobustPlan, path: NDArray[np.int32]) -> tuple[int, int]:
    """Surprises, and steps with a choice of outcomes, in tracked states [n, H] of the plan."""
    sim, number = plan.simulator, outcomes(plan.simulator).number
    found = total = 0
    for h in range(path.shape[1] - 1):
        states, became = path[:, h], path[:, h + 1]
        choice = (number if number.ndim == 1 else number[h])[states] > 1
        intended = sim.successor_at(h)[states, plan.actions[h, states]]
        found += int((_differ(sim, intended, became) & choice).sum())
        total += int(choice.sum())
    return found, total


def _differ(
    sim: AbstractSimulator, intended: NDArray[np.int32], became: NDArray[np.int32]
) -> NDArray[np.bool_]:
    """Are they different outcomes? Ends that pay the same are not, and may look alike."""
    differ: NDArray[np.bool_] = intended != became
    if differ.any() and sim.successor.ndim == 2:
        ends = _ends(sim)
        one, two = ends[intended], ends[became]
        differ &= (one != two) | (one < 0)
    return differ


def _ends(sim: AbstractSimulator) -> NDArray[np.int64]:
    """For states that are never left, a number that those with equal rewards share; else −1."""
    stay = np.flatnonzero((sim.successor == np.arange(sim.num_states)[:, None]).all(axis=1))
    found = np.full(sim.num_states, -1, np.int64)
    if stay.size:
        rewards = np.moveaxis(sim.reward, -2, 0)[stay].reshape(stay.size, -1)
        found[stay] = np.unique(rewards, axis=0, return_inverse=True)[1].ravel()
    return found
