"""Ways to model outcomes, competing by evidence.

A candidate is a numbering of outcomes and a model class with its centring. All of them predict the
same thing — which of the k outcomes of ŝ was commanded — so that their held-out likelihoods can be
compared, and the evidence is simply its sum over steps.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tasid.algorithms.models import Mask, Model
from tasid.algorithms.replay import LabelTables, Replay
from tasid.learning.choices import Choices, Floats


class Judged(NamedTuple):
    """Held-out transitions of one step, where there was a choice of outcomes."""

    scores: Floats
    choices: Choices
    losses: Floats
    """−ln f of the commanded outcome."""


class Candidate:
    """One way to model outcomes, with its evidence and its current model."""

    def __init__(self, tables: LabelTables, model: Model) -> None:
        self.tables, self.model = tables, model
        self.judged: dict[int, Judged] = {}
        """What held-out transitions said about every step."""

    @property
    def name(self) -> str:
        """What it is, in words."""
        return f"{self.model.kind}, {self.tables.labels.kind}, {self.model.centring}"

    @property
    def evidence(self) -> float:
        """Nats lost on held-out transitions so far; lower is better."""
        return float(sum(step.losses.sum() for step in self.judged.values()))

    @property
    def rank(self) -> float:
        """By which the best is chosen: a richer model has to be better by more than chance."""
        return self.evidence + self.model.handicap

    def learn(self, h: int, replay: Replay) -> None:
        """Refit on all steps up to h, and be judged on the held-out part of step h."""
        judged = replay.held_out & (replay.step == h)
        kept_away = replay.held_out if self.model.remembers else judged
        self.judged.update(self._fit(h, replay, trained=~kept_away, judged=judged))

    def hindsight(self, replay: Replay) -> bool:
        """Would the model of all steps together have been better on all that was held out?

        If so, it serves all steps; a model that is cheap to refit is refitted on everything.
        """
        later, kept = replay.steps, self.model.parameters
        seen = self._fit(later, replay, trained=~replay.held_out, judged=replay.held_out)
        if sum(step.losses.sum() for step in seen.values()) >= self.evidence:
            self.model.parameters = kept
            return False
        if not self.model.remembers:
            everything = np.ones_like(replay.held_out)
            self._fit(later + 1, replay, trained=everything, judged=replay.held_out)
        self.judged = seen
        return True

    def _fit(self, h: int, replay: Replay, *, trained: Mask, judged: Mask) -> dict[int, Judged]:
        """Fit on the one part, score the other, and sort the scores by step.

        Rows without a choice of outcomes lose nothing and teach nothing.
        """
        choices = self.tables.choices(replay)
        there = choices.number > 1
        trained, judged = trained & there, judged & there
        if not trained.any():
            return {}
        scores = self.model.fit(h, replay, choices, trained=trained, judged=judged)
        held_out, where = choices.only(judged), replay.step[judged]
        losses = held_out.losses(scores)
        return {
            int(step): Judged(scores[here], held_out.only(here), losses[here])
            for step in np.unique(where)
            if (here := where == step).any()
        }
