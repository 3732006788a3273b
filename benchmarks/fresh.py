"""Fresh processes, timed: what a command costs from its first instruction to its last."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_LAUNCHER = """
import json, resource, subprocess, sys, time
started = time.perf_counter()
done = subprocess.run([sys.executable, *sys.argv[1:]], stdout=subprocess.PIPE, text=True)
wall = time.perf_counter() - started
used = resource.getrusage(resource.RUSAGE_CHILDREN)
processor = used.ru_utime + used.ru_stime
print(json.dumps([done.returncode, wall, processor, used.ru_maxrss, done.stdout]))
"""
"""A small process in between: Linux counts a parent's memory as its child's."""


@dataclass(frozen=True)
class Spent:
    """What a process took."""

    wall: float
    """Seconds."""
    processor: float
    """Seconds, of all its threads."""
    memory: float
    """The most it ever held, in MB."""
    output: str


def spent(arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> Spent:
    """Run this Python with arguments; it must succeed."""
    answer = subprocess.run(
        [sys.executable, "-c", _LAUNCHER, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, **(environment or {})},
    )
    code, wall, processor, memory, output = json.loads(answer.stdout)
    if code:
        raise RuntimeError(f"python {' '.join(arguments)} ended with {code}")
    return Spent(wall, processor, memory / (1e6 if sys.platform == "darwin" else 1e3), output)
