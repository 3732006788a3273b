"""Maps to plan on: successors anywhere, or next door on a square grid."""

from __future__ import annotations

import numpy as np

import tasid

HORIZON = 40
_MOVES = [(0, 0), (-1, 0), (0, 1), (1, 0), (0, -1), (-1, -1), (1, 1), (-1, 1), (1, -1), (2, 0)]


def random_map(states: int, actions: int, *, horizon: int = HORIZON) -> tasid.AbstractSimulator:
    """Every action leads anywhere."""
    rng = np.random.default_rng(states)
    successor = rng.integers(states, size=(states, actions), dtype=np.int32)
    reward = rng.standard_normal((states, actions))
    return tasid.AbstractSimulator(successor, reward, horizon=horizon)


def grid_map(states: int, actions: int, *, horizon: int = HORIZON) -> tasid.AbstractSimulator:
    """Every action leads to a neighbour; one starts in the middle."""
    side = round(states**0.5)
    row, column = np.divmod(np.arange(side * side), side)
    successor = np.stack(
        [
            np.clip(row + down, 0, side - 1) * side + np.clip(column + right, 0, side - 1)
            for down, right in _MOVES[:actions]
        ],
        axis=1,
    )
    reward = np.random.default_rng(states).standard_normal(successor.shape)
    start = (side // 2) * side + side // 2
    return tasid.AbstractSimulator(successor, reward, horizon=horizon, start=start)


MAPS = {"random": random_map, "grid": grid_map}
