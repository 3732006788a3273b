"""What filtering and smoothing give back: beliefs, evidence and counts, as NumPy arrays."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from jaxtyping import Float32, Float64, Int32


@dataclass(frozen=True, eq=False)
class Beliefs:
    """Where N episodes may have been at steps 0 … H, as lists of E states and their weights."""

    states: Int32[np.ndarray, "N T E"]
    """[N, H+1, E]; −1 where a list is shorter. No state is listed twice."""
    weights: Float32[np.ndarray, "N T E"]
    """[N, H+1, E]. They sum up to 1; to 0 after an episode's end and where nothing is possible."""
    log_evidence: Float64[np.ndarray, " N"]
    """ln p(what was seen | commands), [N]; −∞ if the map cannot have shown it."""
    discarded: Float32[np.ndarray, "N T"]
    """The share of the belief that was pruned at each step, [N, H+1]; 0 without a frontier."""
    num_states: int

    @cached_property
    def dense(self) -> NDArray[np.float32]:
        """The same over all states, [N, H+1, S]."""
        rows, steps, _ = self.states.shape
        table = np.zeros((rows, steps, self.num_states), np.float32)
        n, h, entry = np.nonzero(self.states >= 0)
        table[n, h, self.states[n, h, entry]] = self.weights[n, h, entry]
        return table

    @property
    def likeliest(self) -> NDArray[np.int32]:
        """The state of the largest weight, [N, H+1]; −1 where there is no belief."""
        best = self.weights.argmax(axis=-1)[..., None]
        state = np.take_along_axis(self.states, best, axis=-1)[..., 0]
        weight = np.take_along_axis(self.weights, best, axis=-1)[..., 0]
        return np.where(weight > 0, state, -1).astype(np.int32)

    def at(self, episode: int, step: int) -> dict[int, float]:
        """One belief: state → probability, the likeliest first."""
        states, weights = self.states[episode, step], self.weights[episode, step]
        order = np.argsort(-weights, kind="stable")
        return {int(states[i]): float(weights[i]) for i in order if weights[i] > 0}


@dataclass(frozen=True, eq=False)
class OutcomeCounts:
    """How often a command, given in a state, led where; expected, over all episodes; [E] each."""

    steps: Int32[np.ndarray, " E"] | None
    """The step, on maps with a table for every step; None where one table serves all."""
    states: Int32[np.ndarray, " E"]
    commands: Int32[np.ndarray, " E"]
    successors: Int32[np.ndarray, " E"]
    counts: Float64[np.ndarray, " E"]

    def of(self, state: int, command: int, *, step: int | None = None) -> dict[int, float]:
        """Where the command led from the state: successor → expected count."""
        if (step is None) != (self.steps is None):
            needs = "needs" if step is None else "has no"
            raise ValueError(f"step: {step}, but this map {needs} steps")
        mine = (self.states == state) & (self.commands == command)
        if self.steps is not None:
            mine &= self.steps == step
        return dict(zip(self.successors[mine].tolist(), self.counts[mine].tolist(), strict=True))


@dataclass(frozen=True, eq=False)
class SmoothedBeliefs(Beliefs):
    """Beliefs in the light of whole episodes, and what commands came to."""

    outcomes: OutcomeCounts
    leaps: Float64[np.ndarray, " N"]
    """How often the episode was carried away to anywhere, expected, [N]."""


class OutcomeCounter:
    """Adds up counts step by step; memory is that of the different ones."""

    _MOST_PENDING = 1 << 20

    def __init__(self, *, per_step: bool) -> None:
        self._per_step = per_step
        self._keys: list[NDArray[np.int32]] = []
        self._counts: list[NDArray[np.float64]] = []
        self._pending = 0

    def add(
        self,
        step: int,
        states: NDArray[np.integer],
        commands: NDArray[np.integer],
        successors: NDArray[np.integer],
        counts: NDArray[np.floating],
    ) -> None:
        """Counts of one step; all broadcast against each other."""
        counts, states, commands, successors = np.broadcast_arrays(
            counts, states, commands, successors
        )
        some = np.nonzero(counts)
        steps = np.full(some[0].size, step if self._per_step else 0)
        key = np.stack([steps, states[some], commands[some], successors[some]])
        self._keys.append(key.astype(np.int32))
        self._counts.append(counts[some].astype(np.float64))
        self._pending += steps.size
        if self._pending > self._MOST_PENDING:
            self._compact()

    def result(self) -> OutcomeCounts:
        """All of them, sorted by step, state, command and successor."""
        self._compact()
        steps, states, commands, successors = self._keys[0]
        return OutcomeCounts(
            steps if self._per_step else None, states, commands, successors, self._counts[0]
        )

    def _compact(self) -> None:
        if not self._keys:
            self._keys, self._counts = [np.zeros((4, 0), np.int32)], [np.zeros(0)]
        keys, place = np.unique(np.concatenate(self._keys, axis=1), axis=1, return_inverse=True)
        counts = np.bincount(place.ravel(), np.concatenate(self._counts), minlength=keys.shape[1])
        self._keys, self._counts, self._pending = [keys], [counts.astype(np.float64)], 0
