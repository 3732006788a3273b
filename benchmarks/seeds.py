"""How tables write which seeds their rows are of."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any


def spelt(rows: Sequence[dict[str, Any]]) -> str:
    """Seeds in order, those in a row by the first and the last: 300 … 304, 307."""
    seeds = sorted({row["seed"] for row in rows})
    groups = groupby(enumerate(seeds), key=lambda pair: pair[1] - pair[0])
    runs = [[seed for _, seed in group] for _, group in groups]
    return ", ".join(f"{run[0]} … {run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
