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
    print("\n| demo | processor, s | wall, s | first batch after, s (wall) |\n|---|---|---|---|")
    with TemporaryDirectory() as folder:
        runs = [_demo(Path(folder)) for _ in range(2)]
        for name, (cost, first) in zip(("first", "second"), runs, strict=True):
            print(f"| {name} | {cost.processor:.1f} | {cost.wall:.1f} | {first:.1f} |")
    (one, early), (two, late) = runs
    print(
        f"| first / second | {one.processor / two.processor:.2f} | {one.wall / two.wall:.2f} | "
        f"{early / late:.2f} |\n\nmeant to be at least 2"
    )


def _demo(folder: Path) -> tuple[Spent, float]:
    """What a demo costs, and the seconds that its first batch of episodes and fits took."""
    out = folder / "run"
    cost = spent(
        ["-m", "tasid.cli", "train", *DEMO, "--out", str(out), "--overwrite"],
        {"XDG_CACHE_HOME": str(folder)},
    )
    first = json.loads((out / "batches.jsonl").read_text().splitlines()[0])
    return cost, first["seconds_playing"] + first["seconds_fitting"]
