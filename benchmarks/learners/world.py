"""One of our block MDPs as plain NumPy tables, all episodes of a batch at once; no tasid needed."""

from __future__ import annotations

import numpy as np

DARKEST, LIGHTEST = 50, 150


class World:
    """The tables that `tables.write` wrote, and episodes in them."""

    def __init__(self, path: str, seed: int) -> None:
        with np.load(path) as tables:
            self._tables = dict(tables)
        self.rng = np.random.default_rng(seed)
        self.horizon = int(self._tables["horizon"])
        self.plan = self._tables["plan"]
        self.successor = self._tables["successor"]
        self.start = int(self._tables["start"])
        self.robust_value = float(self._tables["robust_value"])
        self.final = self._tables["final"]
        self.num_actions = self.successor.shape[1]
        self.pictures = "pictures" in self._tables
        self.shape = self.observe(np.array([self.start])).shape[1:]

    def observe(self, states: np.ndarray) -> np.ndarray:
        """x ~ q(· | s) for states [N]."""
        tables = self._tables
        if self.pictures:
            seen = tables["pictures"][tables["look"][states]]
            noise = self.rng.integers(DARKEST, LIGHTEST + 1, seen.shape, np.uint8)
            return np.where(seen == 0, noise, seen)
        drawn = self.rng.standard_normal((len(states), len(tables["mixing"])), np.float32)
        drawn *= tables["noise"]
        return tables["clean"][states] + drawn @ tables["mixing"]

    def step(
        self, states: np.ndarray, actions: np.ndarray, h: int | np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Where actions [N] lead from states [N] at step h, and what that pays."""
        chances = self._tables["outcome"]
        chances = chances[states, actions] if chances.ndim == 3 else chances[h, states, actions]
        drawn = self.rng.random((len(states), 1), np.float32)
        happened = np.minimum((drawn >= chances).sum(axis=1), self.num_actions - 1)
        return self.successor[states, happened], self._tables["reward"][states, happened]
