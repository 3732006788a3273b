"""One row of the table: how often a fault was injected, and how often the promise was kept."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Count:
    """One row of the table."""

    fault: str
    tried: int
    kept: int
    note: str = ""
