"""Maps with one broken invariant."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.torture.count import Count


def maps(place: Path, number: int, dice: random.Random) -> Count:
    """Maps with one broken invariant are refused."""
    import tasid

    kept = 0
    for _ in range(number):
        states, actions = dice.randint(1, 6), dice.randint(1, 3)
        successor: Any = np.array(
            [[dice.randrange(states) for _ in range(actions)] for _ in range(states)]
        )
        reward: Any = np.zeros((states, actions))
        s, a = dice.randrange(states), dice.randrange(actions)
        start, horizon = 0, 3
        kind = dice.randrange(7)
        if kind == 0:
            successor[s, a] = dice.choice([-1, states, states + 7])
        elif kind == 1:
            reward[s, a] = dice.choice([np.nan, np.inf, -np.inf])
        elif kind == 2:
            successor = successor + 0.5
        elif kind == 3:
            reward = reward.astype(complex) + 1j
        elif kind == 4:
            reward = reward[:, :0] if actions == 1 else reward[:, 1:]
        elif kind == 5:
            start = dice.choice([-1, states])
        else:
            horizon = dice.choice([0, -2])
        try:
            tasid.AbstractSimulator(successor, reward, horizon=horizon, start=start)
        except (ValueError, TypeError):
            kept += 1
    return Count("maps with a broken invariant", number, kept, "refused")
