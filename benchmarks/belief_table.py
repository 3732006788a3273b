"""What method belief reaches, setting by setting: episodes, ratios, failures, seconds.

    python -m benchmarks belief_table                  # seeds 300 … 309
    python -m benchmarks belief_table --read runs.jsonl

One JSON line is appended to --out as each run finishes; runs that are there are not repeated. The
ratio is the mean return divided by the exact value, in that very target, of the robust plan for an
oracle that sees the true state. Every episode that touched the target is counted. A run fails if
its ratio is below 0.95; it fails silently if it gave no warning either. `auto` does the same for
runs whose episodes the evidence decides.
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
SOLVED = 0.95
STANDARD_ERROR = 0.005
"""Of the ratio, which evaluations aim for."""
LEAST, MOST, MOST_WRAPPED = 256, 65_536, 1_024
"""Evaluation episodes, of our worlds and of wrapped environments."""


def run(setting: Setting, seed: int, episodes: int | str, **options: Any) -> dict[str, Any]:
    """Learn once and evaluate."""
    world = setting.make(seed)
    started = time.perf_counter()
    result = tasid.learn(
        world.target, world.simulator, eta=setting.eta, episodes=episodes, seed=seed, **options
    )
    seconds = time.perf_counter() - started
    robust = robust_value(world, setting.eta)
    score = tasid.evaluate(result.policy, world.target, episodes=LEAST, seed=seed)
    needed = math.ceil((score.returns.std() / robust / STANDARD_ERROR) ** 2)
    if needed > LEAST:
        most = MOST if isinstance(world.target, tasid.BlockMDP) else MOST_WRAPPED
        score = tasid.evaluate(result.policy, world.target, episodes=min(needed, most), seed=seed)
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
        "map_errors": len(result.diagnostics.map_errors),
    }


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """A row for each setting that was run, and one for all."""
    lines = [
        "| setting | runs | episodes | ratio: median | lowest | < 0.95 | without a warning "
        "| warned | false map errors | s, median |",
        "|---" * 10 + "|",
    ]
    for name in [*SETTINGS, "all"]:
        group = [row for row in rows if name in ("all", row["setting"])]
        if group:
            lines.append(_line(name, group))
    return "\n".join(lines)


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
        cells.append(str(sum(bool(row.get("map_errors")) for row in done)))
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


def parser(description: str | None, chosen: Sequence[str], seeds: str) -> argparse.ArgumentParser:
    """The options of a table."""
    result = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    result.add_argument("--settings", nargs="+", choices=SETTINGS, default=chosen)
    result.add_argument("--seeds", type=seed_range, default=seed_range(seeds), help="A-B, or one")
    result.add_argument("--out", type=Path, default=Path("runs.jsonl"))
    result.add_argument("--read", type=Path, metavar="FILE", help="print the table, run nothing")
    return result


def table(options: argparse.Namespace, **learning: Any) -> None:
    """Run all settings for all seeds, learning with these arguments, and print the table."""
    if options.read is not None:
        print(markdown(read(options.read)))
        return
    finished = {(row["setting"], row["seed"]) for row in read(options.out)}
    for seed in options.seeds:
        for name in options.settings:
            if (name, seed) in finished:
                continue
            row: dict[str, Any] = {"setting": name, "seed": seed}
            try:
                arguments = {"episodes": SETTINGS[name].episodes} | learning
                row |= run(SETTINGS[name], seed, **arguments)
            except Exception as error:  # the other runs go on
                traceback.print_exc()
                row["failure"] = f"{type(error).__name__}: {error}"
            with options.out.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(json.dumps(row), flush=True)
    print(markdown(read(options.out)))


if __name__ == "__main__":
    table(parser(__doc__, list(SETTINGS), "300-309").parse_args())
