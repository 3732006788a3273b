"""Knowing when one is wrong: how often outcomes differ from the intended ones, and where.

A surprise is a step whose decoded outcome is not the one the command should have had. On a right
map its probability is at most η in every (h, s, a), so counts are dominated by a binomial: too many
in all mean that η was chosen too small, too many in one place mean that the map is wrong there.
What is estimated is the mean over visited places with a choice of outcomes, a lower bound on η.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, binom

from tasid.mdp import RobustPlan

_CONFIDENCE = 0.95
_LEVEL = 0.01
_DECODING_ERRORS = 0.1
"""Allowance for wrongly decoded transitions before a place on the map is blamed."""
_FEWEST = 10
"""Visits before a place is tested."""


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

    @property
    def exceeded(self) -> bool:
        """Is the planned η refuted at level 0.01?"""
        return self.p_value < _LEVEL


@dataclass(frozen=True)
class MapError:
    """A place where the target does not do what the map says, more often than η allows."""

    step: int
    state: Any
    action: int
    visits: int
    surprises: int
    p_value: float


class Surprises:
    """Counts of surprises by (step, state, action)."""

    def __init__(self, plan: RobustPlan, number: NDArray[np.int64]) -> None:
        self._plan, self._number = plan, number
        self._keys: list[NDArray[np.int64]] = []
        self._hits: list[NDArray[np.bool_]] = []

    def add_path(self, path: NDArray[np.int32], detour: NDArray[np.int32] | None = None) -> None:
        """Tracked states [n, h+1] of roll-ins, whose actions were the plan's but at the detour."""
        for h in range(path.shape[1] - 1):
            rows = path if detour is None else path[detour != h]
            states = rows[:, h]
            self.add(h, states, self._plan.actions[h, states], rows[:, h + 1])

    def add(
        self,
        h: int,
        states: NDArray[np.int32],
        actions: NDArray[Any],
        became: NDArray[np.int32],
    ) -> None:
        """Steps from `states` by `actions`, decoded as leading to `became`."""
        sim = self._plan.simulator
        number = self._number if self._number.ndim == 1 else self._number[h]
        choice = number[states] > 1
        states, actions, became = states[choice], actions[choice].astype(np.int64), became[choice]
        self._keys.append(
            (h * sim.num_states + states.astype(np.int64)) * sim.num_actions + actions
        )
        self._hits.append(sim.successor_at(h)[states, actions] != became)

    def eta(self) -> EtaEstimate:
        """The estimate, with its interval and the test against the planned η."""
        hits = np.concatenate(self._hits) if self._hits else np.zeros(0, bool)
        number, surprises, planned = hits.size, int(hits.sum()), self._plan.eta
        if number == 0:
            return EtaEstimate(0.0, 0.0, 1.0, 0, planned, 1.0)
        tail = (1 - _CONFIDENCE) / 2
        low = 0.0 if surprises == 0 else float(beta.ppf(tail, surprises, number - surprises + 1))
        full = surprises == number
        high = 1.0 if full else float(beta.isf(tail, surprises + 1, number - surprises))
        p_value = float(binom.sf(surprises - 1, number, planned))
        return EtaEstimate(surprises / number, low, high, number, planned, p_value)

    def map_errors(self) -> tuple[MapError, ...]:
        """Places with more surprises than η and decoding errors explain.

        The level is 0.01 for all places together (Bonferroni).
        """
        if not self._keys:
            return ()
        places, where = np.unique(np.concatenate(self._keys), return_inverse=True)
        visits = np.bincount(where)
        surprises = np.bincount(where, weights=np.concatenate(self._hits)).astype(np.int64)
        # A place is held against the planned η, and against how often all others surprise.
        others = np.maximum(visits.sum() - visits, 1)
        rate = (surprises.sum() - surprises) / others
        usual = rate + 2 * np.sqrt(rate * (1 - rate) / others)
        allowed = np.minimum(np.maximum(self._plan.eta, usual) + _DECODING_ERRORS, 1.0)
        tested = visits >= _FEWEST
        p_values = binom.sf(surprises - 1, visits, allowed)
        wrong = np.flatnonzero(tested & (p_values < _LEVEL / max(1, int(tested.sum()))))
        order = wrong[np.argsort(p_values[wrong], kind="stable")]
        return tuple(
            self._map_error(int(places[i]), int(visits[i]), int(surprises[i]), float(p_values[i]))
            for i in order
        )

    def _map_error(self, place: int, visits: int, surprises: int, p_value: float) -> MapError:
        sim = self._plan.simulator
        rest, action = divmod(place, sim.num_actions)
        step, state = divmod(rest, sim.num_states)
        return MapError(step, sim.states[state], action, visits, surprises, p_value)
