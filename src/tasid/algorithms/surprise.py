"""Knowing when one is wrong: how often outcomes differ from the intended ones, and where.

A surprise is a step whose decoded outcome is not the one the command should have had. On a right
map its probability is at most η in every (h, s, a), so counts are dominated by a binomial: too many
in all mean that η was chosen too small, too many in one place mean that the map is wrong there.
What is estimated is the mean over visited places with a choice of outcomes, a lower bound on η.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, binom

from tasid.algorithms.looks import Testimony
from tasid.mdp import RobustPlan

_CONFIDENCE = 0.95
_LEVEL = 0.01
_DECODING_ERRORS = 0.1
"""Allowance for wrongly decoded transitions before a place on the map is blamed."""
_FEWEST = 10
"""Visits before a place is tested."""
_UNEXPLAINED = 0.1
"""A transition is strange if the outcomes on the map get less than this of the model's belief."""


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
        tail = (1 - _CONFIDENCE) / 2
        low = 0.0 if surprises == 0 else float(beta.ppf(tail, surprises, number - surprises + 1))
        full = surprises == number
        high = 1.0 if full else float(beta.isf(tail, surprises + 1, number - surprises))
        p_value = float(binom.sf(surprises - 1, number, planned))
        return cls(surprises / number, low, high, number, planned, p_value)

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
        self._strange: list[tuple[NDArray[np.int64], NDArray[np.bool_]]] = []
        self._told: list[tuple[NDArray[np.int64], NDArray[np.bool_]]] = []

    def add_path(
        self,
        path: NDArray[np.int32],
        detour: NDArray[np.int32] | None = None,
        begun: NDArray[np.int32] | None = None,
    ) -> None:
        """Tracked states [n, h+1] of roll-ins, whose actions were the plan's but at the detour.

        Of the steps, `begun` were taken before the episode ended; all, if it is not given.
        """
        everyone = np.ones(len(path), bool)
        for h in range(path.shape[1] - 1):
            planned = everyone if detour is None else detour != h
            rows = path[planned & (everyone if begun is None else begun > h)]
            states = rows[:, h]
            self.add(h, states, self._plan.actions[h, states], rows[:, h + 1])

    def add(
        self,
        h: int,
        states: NDArray[np.int32],
        actions: NDArray[Any],
        became: NDArray[np.int32],
        explained: NDArray[np.floating[Any]] | None = None,
    ) -> None:
        """Steps from `states` by `actions`, decoded as leading to `became`.

        `explained` is what the model believes of the outcomes on the map, were all labels possible.
        """
        sim = self._plan.simulator
        number = self._number if self._number.ndim == 1 else self._number[h]
        keys, choice = self._place(h, states, actions), number[states] > 1
        hits = self._differ(sim.successor_at(h)[states, actions.astype(np.int64)], became)
        self._keys.append(keys[choice])
        self._hits.append(hits[choice])
        if explained is not None:
            # What the only outcome of a state looks like, training never had to tell.
            strange = hits | (explained < _UNEXPLAINED)
            self._strange.append((keys[choice], strange[choice]))

    def add_testimony(
        self,
        step: NDArray[np.int32],
        states: NDArray[np.int32],
        actions: NDArray[Any],
        told: Testimony,
    ) -> None:
        """Whether a model that never saw a step thinks its commands led elsewhere."""
        keys = self._place(step, states, actions)
        self._told.append((keys[told.reliable], told.elsewhere[told.reliable]))

    def _place(
        self, step: int | NDArray[np.int32], states: NDArray[np.int32], actions: NDArray[Any]
    ) -> NDArray[np.int64]:
        """(h, s, a) as one number."""
        sim = self._plan.simulator
        before = np.asarray(step, np.int64) * sim.num_states
        return (before + states) * sim.num_actions + actions

    def _differ(self, intended: NDArray[Any], became: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Are they different outcomes? Ends that pay the same are not, and may look alike."""
        differ: NDArray[np.bool_] = intended != became
        if differ.any() and self._plan.simulator.successor.ndim == 2:
            one, two = self._ends[intended], self._ends[became]
            differ &= (one != two) | (one < 0)
        return differ

    @cached_property
    def _ends(self) -> NDArray[np.int64]:
        """For states that are never left, a number that those with equal rewards share; else −1."""
        sim = self._plan.simulator
        stay = np.flatnonzero((sim.successor == np.arange(sim.num_states)[:, None]).all(axis=1))
        found = np.full(sim.num_states, -1, np.int64)
        if stay.size:
            rewards = np.moveaxis(sim.reward, -2, 0)[stay].reshape(stay.size, -1)
            found[stay] = np.unique(rewards, axis=0, return_inverse=True)[1].ravel()
        return found

    @property
    def counts(self) -> NDArray[np.int64]:
        """How many surprises, in how many transitions, [2]."""
        hits = np.concatenate(self._hits) if self._hits else np.zeros(0, bool)
        return np.array([hits.sum(), hits.size], np.int64)

    def eta(self) -> EtaEstimate:
        """The estimate, with its interval and the test against the planned η."""
        return EtaEstimate.of(*self.counts.tolist(), planned=self._plan.eta)

    def map_errors(self) -> tuple[MapError, ...]:
        """Places with more surprises than η and decoding errors explain.

        Explored transitions are tested for strangeness, too: they may lead where the map has no
        outcome at all. And a witness is heard about them who was not fitted to them: the model that
        was may have come to believe the map. The level is 0.01 for all places and tests together
        (Bonferroni). In the order of steps: a wrong place misleads what follows it.
        """
        found: dict[tuple[int, Any, int], MapError] = {}
        tests = [list(zip(self._keys, self._hits, strict=True)), self._strange, self._told]
        for rows in filter(None, tests):
            keys, hits = (np.concatenate(part) for part in zip(*rows, strict=True))
            for error in self._tested(keys, hits, len(tests)):
                place = error.step, error.state, error.action
                if place not in found or error.p_value < found[place].p_value:
                    found[place] = error
        return tuple(sorted(found.values(), key=lambda error: (error.step, error.p_value)))

    def _tested(
        self, keys: NDArray[np.int64], hits: NDArray[np.bool_], tests: int
    ) -> Iterator[MapError]:
        places, where = np.unique(keys, return_inverse=True)
        visits = np.bincount(where)
        surprises = np.bincount(where, weights=hits).astype(np.int64)
        # A place is held against the planned η, and against how often all others surprise.
        others = np.maximum(visits.sum() - visits, 1)
        rate = (surprises.sum() - surprises) / others
        usual = rate + 2 * np.sqrt(rate * (1 - rate) / others)
        allowed = np.minimum(np.maximum(self._plan.eta, usual) + _DECODING_ERRORS, 1.0)
        tested = visits >= _FEWEST
        p_values = binom.sf(surprises - 1, visits, allowed)
        for i in np.flatnonzero(tested & (p_values * tests * tested.sum() < _LEVEL)):
            yield self._map_error(
                int(places[i]), int(visits[i]), int(surprises[i]), float(p_values[i])
            )

    def _map_error(self, place: int, visits: int, surprises: int, p_value: float) -> MapError:
        sim = self._plan.simulator
        rest, action = divmod(place, sim.num_actions)
        step, state = divmod(rest, sim.num_states)
        return MapError(step, sim.states[state], action, visits, surprises, p_value)
