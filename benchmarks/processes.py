"""Fresh processes, measured from their first instruction to their last."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

LAUNCHER = """
import json, resource, subprocess, sys, time
started = time.perf_counter()
done = subprocess.run([sys.executable, *sys.argv[1:]], stdout=subprocess.PIPE, text=True)
wall = time.perf_counter() - started
used = resource.getrusage(resource.RUSAGE_CHILDREN)
processor = used.ru_utime + used.ru_stime
print(json.dumps([done.returncode, wall, processor, used.ru_maxrss, done.stdout]))
"""
"""A small process in between: Linux counts a parent's memory as its child's."""


class Spent(NamedTuple):
    """What a process took."""

    wall: float
    """Seconds."""
    processor: float
    """Seconds, of all its threads."""
    memory: float
    """Largest resident set, in MB."""
    output: str
    code: int


def spent(arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> Spent:
    """Run this Python with arguments."""
    done = subprocess.run(
        [sys.executable, "-c", LAUNCHER, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, **(environment or {})},
    )
    code, wall, processor, memory, output = json.loads(done.stdout)
    return Spent(wall, processor, memory / (1e6 if sys.platform == "darwin" else 1e3), output, code)


def table(columns: Sequence[str]) -> None:
    """Print the head of a Markdown table."""
    print(f"\n| {' | '.join(columns)} |\n{'|---' * len(columns)}|", flush=True)


def row(*cells: object) -> None:
    """Print a row of a Markdown table."""
    texts = (f"{cell:.3g}" if isinstance(cell, float) else str(cell) for cell in cells)
    print(f"| {' | '.join(texts)} |", flush=True)
