"""Start-up: imports, `tasid --help`, and a demo with and without compiled code from before.

Processor time is the least of the repeats: what a machine of its own would take.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.fresh import Spent, spent

COMMANDS = {
    "python": ["-c", "pass"],
    "`import numpy`": ["-c", "import numpy"],
    "`import jax`": ["-c", "import jax.numpy"],
    "`import tasid`": ["-c", "import tasid"],
    "`tasid --help`": ["-m", "tasid.cli", "--help"],
    "`tasid.load` imported": ["-c", "import tasid.policies.belief_policy"],
}
MEANT = {"`import tasid`": 0.3, "`tasid --help`": 0.5, "`tasid.load` imported": 1.5}
"""Seconds."""
DEMO = ["combination-lock", "--horizon", "20", "--seed", "1"]
_COUNTED = """
import sys
import jax
from tasid.cli import main
spent = []
def note(event, seconds, **_):
    if "/jax/core/compile/" in event:
        spent.append(seconds)
jax.monitoring.register_event_duration_secs_listener(note)
try:
    main()
finally:
    print(sum(spent))
"""


def run(arguments: Sequence[str]) -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks start-up", description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--without-demo", action="store_true")
    options = parser.parse_args(arguments)
    rounds = [{name: spent(c) for name, c in COMMANDS.items()} for _ in range(options.repeats)]
    best = {name: min(one[name].processor for one in rounds) for name in COMMANDS}
    print("| | processor, s | wall, s | times `import numpy` | times `import jax` | meant, s |")
    print("|---|---|---|---|---|---|")
    for name, seconds in best.items():
        wall = min(one[name].wall for one in rounds)
        by = [f"{seconds / best[f'`import {m}`']:.2f}" for m in ("numpy", "jax")]
        print(f"| {name} | {seconds:.2f} | {wall:.2f} | {' | '.join(by)} | {MEANT.get(name, '')} |")
    if not options.without_demo:
        _demos()


def _demos() -> None:
    """The same demo twice: the second finds what the first compiled."""
    print("\n| demo | processor, s | wall, s | compiling, s (wall) | first batch after, s (wall) |")
    print("|---|---|---|---|---|")
    with TemporaryDirectory() as folder:
        runs = [_demo(Path(folder)) for _ in range(2)]
        rows = [(cost.processor, cost.wall, *seconds) for cost, *seconds in runs]
        for name, row in zip(("first", "second"), rows, strict=True):
            print(f"| {name} | {' | '.join(f'{seconds:.1f}' for seconds in row)} |")
    ratios = [f"{one / two:.2f}" for one, two in zip(*rows, strict=True)]
    print(f"| first / second | {' | '.join(ratios)} |\n\nthe last is meant to be at least 2")


def _demo(folder: Path) -> tuple[Spent, float, float]:
    """What a demo costs; seconds of it compiling, and until its first episodes and fits."""
    out = folder / "run"
    cost = spent(
        ["-c", _COUNTED, "train", *DEMO, "--out", str(out), "--overwrite"],
        {
            "JAX_COMPILATION_CACHE_DIR": str(folder / "xla"),  # as the command line sets them
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        },
    )
    first = json.loads((out / "batches.jsonl").read_text().splitlines()[0])
    compiling = float(cost.output.splitlines()[-1])
    return cost, compiling, first["seconds_playing"] + first["seconds_fitting"]
