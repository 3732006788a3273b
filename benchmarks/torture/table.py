"""The command line and the table that all counts of faults share."""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.torture.count import Count

Rows = Mapping[str, tuple[Callable[..., Count], int, int]]
"""By name: how, and how often at full and at small size."""


def parse(arguments: list[str] | None, rows: Rows, *, about: str | None) -> argparse.Namespace:
    """Which rows, and how often."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--size", choices=["full", "small"], default="full")
    parser.add_argument("--row", action="append", choices=list(rows), help="only these")
    parser.add_argument("--count", type=int, help="so many faults a row instead")
    return parser.parse_args(arguments)


def print_table(given: argparse.Namespace, rows: Rows, *where: Any) -> int:
    """Count and print; rows are called with `where`, a folder, how often, and dice.

    Gives the exit code: was every promise kept?
    """
    print("| fault | tried | promise kept | | seconds |\n|---|---|---|---|---|", flush=True)
    broken = 0
    for name in given.row or rows:
        row, full, small = rows[name]
        number = given.count or (full if given.size == "full" else small)
        started = time.monotonic()
        with tempfile.TemporaryDirectory() as place:
            one = row(*where, Path(place), number, random.Random(name))
        seconds = time.monotonic() - started
        broken += one.kept != one.tried
        print(
            f"| {one.fault} | {one.tried} | {one.kept} | {one.note} | {seconds:.0f} |", flush=True
        )
    return 1 if broken else 0
