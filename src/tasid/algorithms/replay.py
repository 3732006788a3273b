"""The randomised transitions of all steps so far, and the scale that models see them in.

Only explored transitions are kept: in a roll-in the action is the plan's, and a model trained on
those would learn to ignore x' (docs/outcome-classes.md, second counterexample).
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from tasid.learning import Labels
from tasid.learning.choices import Choices, Floats
from tasid.learning.pictures import Patches

_CHUNK = 1024
"""Pictures looked at together."""
HOLD_OUT = 5
"""Every fifth episode of a step is held out while that step is judged."""

Rows = NDArray[np.bool_] | NDArray[np.intp]


class Replay:
    """All explored transitions, row after row in growing tables.

    With `patches`, they hold what that layer sees of pictures instead of the pictures.
    """

    def __init__(self, patches: Patches | None = None) -> None:
        self.patches = patches
        self.measured: Floats = np.zeros(0, np.float32)
        """The layer's parameters, once there were pictures to measure."""
        self._pairs = _Growing()
        self.steps = 0
        """How many steps have had episodes."""
        self.step = np.zeros(0, np.int32)
        self.states = np.zeros(0, np.int32)
        self.command = np.zeros(0, np.int32)
        self.held_out = np.zeros(0, bool)

    @property
    def pairs(self) -> NDArray[Any]:
        """x and x', [n, 2, …]; not copied."""
        return self._pairs.rows

    @cached_property
    def flat(self) -> FlatInputs:
        """The same for models of vectors."""
        return FlatInputs(self)

    def add(
        self,
        h: int,
        pairs: NDArray[Any],
        states: NDArray[np.int32],
        command: NDArray[np.int32],
    ) -> None:
        """New transitions of step h: the step at hand, the next one, or an earlier one."""
        number, taken = states.size, int((self.step == h).sum())
        held_out = np.arange(taken, taken + number) % HOLD_OUT == HOLD_OUT - 1
        self._pairs.add(pairs if self.patches is None else self._seen(pairs, held_out))
        self.steps = max(self.steps, h + 1)
        self.step = np.concatenate([self.step, np.full(number, h, np.int32)])
        self.states = np.concatenate([self.states, states])
        self.command = np.concatenate([self.command, command])
        self.held_out = np.concatenate([self.held_out, held_out])

    def _seen(self, pairs: NDArray[Any], held_out: NDArray[np.bool_]) -> Floats:
        """What the layer sees of pictures; the first that are not held out measure it."""
        assert self.patches is not None
        if not self.measured.size:
            first = pairs[~held_out]
            self.measured = self.patches.measure(first.reshape(-1, *first.shape[2:]))
        images = pairs.reshape(-1, *pairs.shape[2:])
        parts = [
            _look(self.patches, self.measured, images[first : first + _CHUNK])
            for first in range(0, len(images), _CHUNK)
        ]
        seen = np.concatenate([np.zeros((0, *self.patches.grid), np.float32), *parts])
        return seen.reshape(len(pairs), 2, *self.patches.grid)


class FlatInputs:
    """x and x' side by side, scaled by the spread of the first step's."""

    def __init__(self, replay: Replay) -> None:
        self._replay = replay
        self._table = _Growing()
        self._means: dict[int, tuple[int, Floats]] = {}
        """By step: how many rows, and their mean."""
        self.scale: Floats = np.ones(0, np.float32)

    @property
    def inputs(self) -> Floats:
        """[n, 2d], brought up to date; not copied."""
        replay = self._replay
        grown = replay.steps == 1 and len(self._table) != replay.step.size
        if grown or not self.scale.size:
            self._table, self._means = _Growing(), {}
            self._measure(replay.pairs[replay.step == 0])
        new = replay.pairs[len(self._table) :]
        if len(new):
            self._table.add(new.reshape(len(new), -1).astype(np.float32) / self.scale)
        return self._table.rows

    def centres(self, *, by_step: bool) -> tuple[Floats, NDArray[np.int32]]:
        """Means of training rows, of every step or of the first alone, and each row's."""
        replay, inputs = self._replay, self.inputs
        training = ~replay.held_out
        number = np.bincount(replay.step[training], minlength=replay.steps)
        means: list[Floats] = []
        for h in range(replay.steps if by_step else 1):
            if self._means.get(h, (0, None))[0] != number[h]:
                mean = inputs[training & (replay.step == h)].mean(axis=0)
                self._means[h] = int(number[h]), mean
            # A step may have no rows: all its episodes had ended before.
            means.append(self._means[h][1] if number[h] else means[-1])
        return np.stack(means), replay.step if by_step else np.zeros_like(replay.step)

    def _measure(self, pairs: NDArray[Any]) -> None:
        """Constant inputs must not explode later."""
        spread = pairs.reshape(len(pairs), -1).std(axis=0, dtype=np.float64)
        typical = float(np.sqrt((spread**2).mean()))
        floor = 0.1 * typical if typical > 0 else 1.0
        self.scale = np.maximum(spread, floor).astype(np.float32)


class _Growing:
    """A table that takes rows at its end, with room to spare."""

    def __init__(self) -> None:
        self._table: NDArray[Any] | None = None
        self._used = 0

    def __len__(self) -> int:
        return self._used

    @property
    def rows(self) -> NDArray[Any]:
        """All so far; not copied."""
        assert self._table is not None, "a replay is read only after something was added"
        return self._table[: self._used]

    def add(self, rows: NDArray[Any]) -> None:
        """More of them."""
        if self._table is None:
            self._table = np.zeros((max(256, len(rows)), *rows.shape[1:]), rows.dtype)
        needed = self._used + len(rows)
        if needed > len(self._table):
            grown = np.zeros((max(needed, 2 * len(self._table)), *rows.shape[1:]), rows.dtype)
            grown[: self._used] = self.rows
            self._table = grown
        self._table[self._used : needed] = rows
        self._used = needed


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

    def choices(self, replay: Replay) -> Choices:
        """The replay, labelled."""
        valid = self._at(self._valid, replay.step, replay.states)
        commands = self._at(self._command, replay.step, replay.states)
        label = np.argmax(valid & (commands == replay.command[:, None]), axis=1)
        return Choices(label, valid)

    def decoded(self, h: int, states: NDArray[np.int32], scores: Floats) -> NDArray[np.int32]:
        """Where the best-scored labels [n, L] lead from these states at step h, [n]."""
        label = np.where(self.valid_at(h, states), scores, -np.inf).argmax(axis=1)
        successors = self._at(self._successor, np.full(states.size, h, np.int32), states)
        return np.take_along_axis(successors, label[:, None], axis=1)[:, 0]

    def valid_at(self, h: int, states: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Which labels exist in these states at step h, [n, L]."""
        return self._at(self._valid, np.full(states.size, h, np.int32), states)

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


def _look(patches: Patches, measured: Floats, images: NDArray[Any]) -> Floats:
    """Filled up, so that one shape is compiled."""
    filled = np.zeros((_CHUNK, *images.shape[1:]), images.dtype)
    filled[: len(images)] = images
    seen: Floats = np.asarray(_look_at_all(patches, measured, filled))[: len(images)]
    return seen


_look_at_all = jax.jit(lambda patches, *given: patches.look(*given), static_argnums=0)
