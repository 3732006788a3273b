"""What method belief reaches, setting by setting: episodes, ratios, failures, seconds.

    python -m benchmarks belief_table                  # fixed numbers of episodes, seeds 300 … 309
    python -m benchmarks belief_table --auto           # 200 runs that decide by themselves
    python -m benchmarks belief_table --read runs.jsonl

One JSON line is appended to --out as each run finishes; runs that are there are not repeated. The
ratio is the mean return divided by the exact value, in that very target, of the robust plan for an
oracle that sees the true state. Every episode that touched the target is counted. A run fails if
its ratio is below 0.95; it fails silently if it gave no warning either.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import tasid
from benchmarks.worlds import Setting, robust_value, settings

SETTINGS = settings()
AUTO_SETTINGS = (
    "doorkey-5x5 fourrooms simplecrossing-9x9 empty-8x8 lock-H20 lock-H40 lava building "
    "lock-4-starts lava-4-docks"
).split()
SOLVED = 0.95
STANDARD_ERROR = 0.005
"""Of the ratio, which evaluations of our worlds aim for."""
LEAST, MOST = 2_048, 65_536
"""Evaluation episodes; wrapped environments play the least."""


def run(setting: Setting, seed: int, episodes: int | str) -> dict[str, Any]:
    """Learn once and evaluate."""
    world = setting.make(seed)
    started = time.perf_counter()
    result = tasid.learn(
        world.target, world.simulator, eta=setting.eta, episodes=episodes, seed=seed
    )
    seconds = time.perf_counter() - started
    robust = robust_value(world, setting.eta)
    score = tasid.evaluate(result.policy, world.target, episodes=LEAST, seed=seed)
    needed = math.ceil((score.returns.std() / robust / STANDARD_ERROR) ** 2)
    if needed > LEAST and isinstance(world.target, tasid.BlockMDP):
        score = tasid.evaluate(result.policy, world.target, episodes=min(needed, MOST), seed=seed)
    error = score.returns.std() / math.sqrt(score.returns.size) / abs(robust)
    return {
        "episodes": result.episodes,
        "ratio": score.mean / robust,
        "error": float(error),
        "robust_value": robust,
        "seconds": seconds,
        "states": world.simulator.num_states,
        "horizon": world.simulator.horizon,
        "stopped": result.diagnostics.stopped,
        "warnings": list(result.diagnostics.warnings),
    }


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """The table of fixed numbers of episodes and that by auto, as far as there are rows."""
    tables = []
    for auto in (False, True):
        those = [row for row in rows if row["auto"] == auto]
        if not those:
            continue
        lines = [
            f"{'By auto' if auto else 'Fixed numbers of episodes'}:\n",
            "| setting | runs | episodes | ratio: median | lowest | < 0.95 | without a warning "
            "| runs with warnings | s, median |\n|---|---|---|---|---|---|---|---|---|",
        ]
        for name in [*SETTINGS, "all"]:
            group = [row for row in those if name in ("all", row["setting"])]
            if group:
                lines.append(_line(name, group))
        tables.append("\n".join(lines))
    return "\n\n".join(tables)


def _line(name: str, rows: Sequence[dict[str, Any]]) -> str:
    done = [row for row in rows if "ratio" in row]
    failed = [row for row in done if row["ratio"] < SOLVED]
    silent = [row for row in failed if not row["warnings"]]
    cells = [name, str(len(rows))]
    if done:
        episodes = sorted(row["episodes"] for row in done)
        ends = "" if episodes[0] == episodes[-1] else f" ({episodes[0]} … {episodes[-1]})"
        ratios = [row["ratio"] for row in done]
        cells += [f"{np.median(episodes):.0f}{ends}", f"{np.median(ratios):.3f}"]
        cells += [f"{min(ratios):.3f}", str(len(failed)), str(len(silent))]
        cells.append(str(sum(bool(row["warnings"]) for row in done)))
        cells.append(f"{np.median([row['seconds'] for row in done]):.0f}")
    if len(done) < len(rows):
        cells[1] += f", {len(rows) - len(done)} ended in an error"
    return f"| {' | '.join(cells)} |"


def read(path: Path) -> list[dict[str, Any]]:
    """Rows of a file; a torn last line is left out."""
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def seed_range(text: str) -> range:
    """Seeds A-B, or one."""
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, help="some of them only")
    parser.add_argument("--seeds", type=seed_range, help="A-B; 300-309, or 300-319 with --auto")
    parser.add_argument("--auto", action="store_true", help="evidence decides the episodes")
    parser.add_argument("--episodes", type=int, help="instead of the numbers of the settings")
    parser.add_argument("--out", type=Path, default=Path("belief_table.jsonl"))
    parser.add_argument("--read", type=Path, metavar="FILE", help="print the table, run nothing")
    options = parser.parse_args()
    if options.read is not None:
        print(markdown(read(options.read)))
        return
    seeds = options.seeds or seed_range("300-319" if options.auto else "300-309")
    names = options.settings or (AUTO_SETTINGS if options.auto else list(SETTINGS))
    finished = {(row["setting"], row["seed"], row["auto"]) for row in read(options.out)}
    for name in names:
        for seed in seeds:
            if (name, seed, options.auto) in finished:
                continue
            fixed = options.episodes or SETTINGS[name].episodes
            row: dict[str, Any] = {"setting": name, "seed": seed, "auto": options.auto}
            try:
                row |= run(SETTINGS[name], seed, "auto" if options.auto else fixed)
            except Exception as error:  # the other runs go on
                traceback.print_exc()
                row["failure"] = f"{type(error).__name__}: {error}"
            with options.out.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(json.dumps(row), flush=True)
    print(markdown(read(options.out)))


if __name__ == "__main__":
    main()
