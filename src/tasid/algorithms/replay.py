"""The randomised transitions of all steps so far, and the scale that models see them in.

Only explored transitions are kept: in a roll-in the action is the plan's, and a model trained on
those would learn to ignore x' (docs/outcome-classes.md, second counterexample).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasid.learning import Labels
from tasid.learning.ridge import Examples, Floats

HOLD_OUT = 5
"""Every fifth episode of a step is held out while that step is judged."""


class Replay:
    """All explored transitions, row after row in one growing table."""

    def __init__(self, inputs: int) -> None:
        self._table = np.zeros((256, inputs), np.float32)
        self.scale: Floats = np.ones(inputs, np.float32)
        """Inputs are divided by it: the spread of the first step's."""
        self.step = np.zeros(0, np.int32)
        self.states = np.zeros(0, np.int32)
        self.command = np.zeros(0, np.int32)
        self.held_out = np.zeros(0, bool)

    @property
    def steps(self) -> int:
        """How many steps have data."""
        return int(self.step[-1]) + 1 if self.step.size else 0

    @property
    def inputs(self) -> Floats:
        """x and x' side by side, flat and scaled, [n, 2d]; not copied."""
        return self._table[: self.step.size]

    def add(
        self, h: int, inputs: Floats, states: NDArray[np.int32], command: NDArray[np.int32]
    ) -> None:
        """New episodes of step h, the step at hand or the next one."""
        before, number = self.step.size, states.size
        taken = int((self.step == h).sum())
        while self._table.shape[0] < before + number:
            self._table = np.concatenate([self._table, np.zeros_like(self._table)])
        self._table[before : before + number] = inputs / self.scale
        self.step = np.concatenate([self.step, np.full(number, h, np.int32)])
        self.states = np.concatenate([self.states, states])
        self.command = np.concatenate([self.command, command])
        place = np.arange(taken, taken + number)
        self.held_out = np.concatenate([self.held_out, place % HOLD_OUT == HOLD_OUT - 1])
        if h == 0:
            self._rescale()

    def centres(self, *, by_step: bool) -> tuple[Floats, NDArray[np.int32]]:
        """Means of training rows, of every step or of the first alone, and each row's."""
        steps = range(self.steps if by_step else 1)
        means = [self.inputs[(self.step == h) & ~self.held_out].mean(axis=0) for h in steps]
        return np.stack(means), self.step if by_step else np.zeros_like(self.step)

    def _rescale(self) -> None:
        """Measure the scale on the first step; constant inputs must not explode later."""
        raw = self.inputs.astype(np.float64) * self.scale
        spread = raw.std(axis=0)
        typical = float(np.sqrt((spread**2).mean()))
        floor = 0.1 * typical if typical > 0 else 1.0
        self.scale = np.maximum(spread, floor).astype(np.float32)
        self._table[: self.step.size] = raw / self.scale


class LabelTables:
    """Labels in NumPy, with the way back from a command to its label."""

    def __init__(self, labels: Labels) -> None:
        self.labels = labels
        self._successor = np.asarray(labels.successor)
        self._command = np.asarray(labels.command)
        self._valid = np.asarray(labels.valid)

    @property
    def size(self) -> int:
        """L."""
        return int(self._valid.shape[-1])

    def examples(self, replay: Replay, *, by_step: bool, weight: Floats) -> Examples:
        """The replay, labelled; rows without a choice of outcome lose nothing and teach nothing."""
        valid = self._at(self._valid, replay.step, replay.states)
        commands = self._at(self._command, replay.step, replay.states)
        label = np.argmax(valid & (commands == replay.command[:, None]), axis=1)
        return Examples(replay.inputs, *replay.centres(by_step=by_step), label, valid, weight)

    def decoded(self, h: int, states: NDArray[np.int32], scores: Floats) -> NDArray[np.int32]:
        """Where the best-scored labels [n, L] lead from these states at step h, [n]."""
        step = np.full(states.size, h, np.int32)
        label = np.where(self._at(self._valid, step, states), scores, -np.inf).argmax(axis=1)
        successors = self._at(self._successor, step, states)
        return np.take_along_axis(successors, label[:, None], axis=1)[:, 0]

    def same_as(self, other: LabelTables, states: NDArray[Any]) -> bool:
        """Do both number the outcomes of these states alike, wherever there is a choice?"""
        if self._valid.ndim != other._valid.ndim or self.size != other.size:
            return False
        mine, theirs = self._valid[..., states, :], other._valid[..., states, :]
        choice = mine.sum(axis=-1) > 1
        where = mine[choice]
        return bool(
            (where == theirs[choice]).all()
            and (
                self._successor[..., states, :][choice][where]
                == other._successor[..., states, :][choice][where]
            ).all()
        )

    @staticmethod
    def _at(
        table: NDArray[Any], step: NDArray[np.int32], states: NDArray[np.int32]
    ) -> NDArray[Any]:
        return table[states] if table.ndim == 2 else table[step, states]
