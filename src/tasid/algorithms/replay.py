"""The randomised transitions of all steps so far, and the scale that models see them in.

Only explored transitions are kept: in a roll-in the action is the plan's, and a model trained on
those would learn to ignore x' (docs/outcome-classes.md, second counterexample).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasid.learning import Labels
from tasid.learning.ridge import Examples

HOLD_OUT = 5
"""Every fifth episode of a step is held out while that step is judged."""


@dataclass(eq=False)
class StepData:
    """What has been explored at one step; rows in the order of their episodes."""

    inputs: NDArray[np.float32]
    """x and x' side by side and flat, [n, 2d]."""
    states: NDArray[np.int32]
    command: NDArray[np.int32]

    @property
    def held_out(self) -> NDArray[np.bool_]:
        """Which rows judge and do not train."""
        return np.arange(self.states.size) % HOLD_OUT == HOLD_OUT - 1

    @property
    def centre(self) -> NDArray[np.float32]:
        """The mean input, of rows that train."""
        return self.inputs[~self.held_out].mean(axis=0)


@dataclass(eq=False)
class Replay:
    """All steps' data; grows as steps are explored."""

    steps: list[StepData] = field(default_factory=list)
    scale: NDArray[np.float32] | None = None

    def add(self, h: int, data: StepData) -> None:
        """New episodes of step h."""
        if h == len(self.steps):
            self.steps.append(data)
        else:
            old = self.steps[h]
            self.steps[h] = StepData(
                np.concatenate([old.inputs, data.inputs]),
                np.concatenate([old.states, data.states]),
                np.concatenate([old.command, data.command]),
            )
        if h == 0:
            self.scale = _scale_of(self.steps[0].inputs)

    def centre(self, h: int, *, by_step: bool) -> NDArray[np.float32]:
        """What is subtracted from step h's inputs: its own mean, or the first step's."""
        return self.steps[h if by_step else 0].centre

    def examples(
        self, h: int, tables: LabelTables, *, by_step: bool, rows: NDArray[np.bool_] | None = None
    ) -> Examples:
        """Step h standardised and labelled; rows without a choice of outcome teach nothing."""
        assert self.scale is not None
        step = self.steps[h]
        label, valid = tables.label(h, step.states, step.command)
        use = valid.sum(axis=1) > 1
        if rows is not None:
            use &= rows
        inputs = (step.inputs[use] - self.centre(h, by_step=by_step)) / self.scale
        return Examples(inputs, label[use], valid[use])


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

    def label(
        self, h: int, states: NDArray[np.int32], command: NDArray[np.int32]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The labels [n] whose command was executed, and the existing labels [n, L]."""
        valid, commands = self._at(self._valid, h)[states], self._at(self._command, h)[states]
        return np.argmax(valid & (commands == command[:, None]), axis=1), valid

    def successor(
        self, h: int, states: NDArray[np.int32], label: NDArray[np.int64]
    ) -> NDArray[np.int32]:
        """Where the labels lead, [n]."""
        return self._at(self._successor, h)[states, label]

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
    def _at(table: NDArray[Any], h: int) -> NDArray[Any]:
        return table if table.ndim == 2 else table[h]


def concatenated(parts: list[Examples]) -> Examples:
    """Several steps' examples as one set."""
    return Examples(
        np.concatenate([part.inputs for part in parts]),
        np.concatenate([part.label for part in parts]),
        np.concatenate([part.valid for part in parts]),
    )


def _scale_of(inputs: NDArray[np.float32]) -> NDArray[np.float32]:
    """The standard deviation of every input, floored: constant inputs must not explode later."""
    spread = inputs.astype(np.float64).std(axis=0)
    typical = float(np.sqrt((spread**2).mean()))
    return np.maximum(spread, 0.1 * typical if typical > 0 else 1.0).astype(np.float32)
