"""What a run survives: faults by the hundred, counted. `make torture`, or --size small.

Every row injects one kind of fault and counts how often the promise of docs/reliability.md was
kept. The table goes to standard output as Markdown.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.torture.count import Count
from benchmarks.torture.hostile import hostile
from benchmarks.torture.maps import maps
from benchmarks.torture.mutations import mutations
from benchmarks.torture.runs import kills, races, signals
from benchmarks.torture.saves import disks, kills_in_saves
from benchmarks.torture.table import parse, print_table
from benchmarks.torture.targets import exceptions, hangs, observations, overhead

Row = Callable[[Path, int, random.Random], Count]
ROWS: dict[str, tuple[Row, int, int]] = {
    "kills": (kills, 100, 2),
    "saves": (kills_in_saves, 0, 0),
    "signals": (signals, 50, 2),
    "disks": (disks, 50, 50),
    "mutations": (mutations, 100_000, 500),
    "hostile": (hostile, 500, 60),
    "observations": (observations, 1000, 20),
    "overhead": (overhead, 2_000, 300),
    "exceptions": (exceptions, 100, 5),
    "hangs": (hangs, 20, 1),
    "maps": (maps, 10_000, 300),
    "races": (races, 100, 3),
}
"""By name: how, and how often at full and at small size."""


def main(arguments: list[str] | None = None) -> int:
    """Print the table; the exit code says whether every promise was kept."""
    return print_table(parse(arguments, ROWS, about=__doc__), ROWS)


def run(options: list[str]) -> None:
    """As a benchmark among others."""
    sys.exit(main(options))
