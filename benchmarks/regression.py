"""Learning results, seconds and peak memory on a fixed set of tasks, to compare two versions.

    python -m benchmarks.regression --out before.jsonl
    python -m benchmarks.regression --out after.jsonl
    python -m benchmarks.regression --compare before.jsonl after.jsonl

Seeds 900 … 909 appear in no published table. Every task runs in its own process, so that peak
memory and compilation time are its own. Seconds are of processor time, which other processes on the
machine distort least. Only public names of `tasid` are used. The ratio is the mean return over
10 000 episodes (1 000 where observations are rendered) divided by the exact value, in that very
target, of the robust plan with access to the true state.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np

LOCK = "combination-lock"
TASKS = {
    "lock-H20": (LOCK, {"horizon": 20}, {"episodes": 96}),
    "lock-H40": (LOCK, {"horizon": 40}, {"episodes": 128}),
    "lava-250": ("lava-crossing", {}, {"episodes": 250}),
    "lake-400": ("lake", {}, {"episodes": 400}),
    "building-200": ("building", {}, {"episodes": 200}),
    "lock-4-starts": (LOCK, {"horizon": 10, "starts": 4}, {"episodes": 256}),
    "lock-paper-H10": (LOCK, {"horizon": 10}, {"episodes": 10_000, "method": "paper"}),
}
SEEDS = range(900, 910)
EVALUATION_EPISODES = 10_000
LAKE_EVALUATION_EPISODES = 1_000
"""Fewer where every observation is rendered."""


def lake_plan_value(env, plan) -> float:
    """Exact value of a plan on a toy-text table `P`; terminal states earn nothing more."""
    table = env.unwrapped.P
    value = np.zeros(len(table))
    for h in reversed(range(len(plan.actions))):
        new = np.zeros_like(value)
        for s, actions in table.items():
            for probability, successor, reward, done in actions[int(plan.actions[h][s])]:
                new[s] += probability * (reward + (0.0 if done else value[successor]))
        value = new
    return float(value[0])


def run_task(task: str, seeds: list[int]) -> None:
    """Print one JSON line a seed."""
    import gymnasium

    import tasid

    world, options, arguments = TASKS[task]
    for seed in seeds:
        if world == "lake":
            lake = {"map_name": "4x4", "success_rate": 0.8}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                raw = gymnasium.make("FrozenLake-v1", **lake)
                sim = tasid.AbstractSimulator.from_toy_text(
                    raw, horizon=20, deterministic="most-likely"
                )
                env = tasid.wrap("FrozenLake-v1", num_envs=32, observe="render", **lake)
            eta = 0.2
            robust = lake_plan_value(raw, tasid.robust_dp(sim, eta=eta))
        else:
            env, eta = tasid.make(world, seed=seed, **options), 0.1
            sim = env.simulator
            robust = env.latent.robust_value(tasid.robust_dp(sim, eta=eta))
        started = time.process_time()
        result = tasid.learn(env, sim, eta=eta, seed=seed, **arguments)
        seconds = time.process_time() - started
        episodes = LAKE_EVALUATION_EPISODES if world == "lake" else EVALUATION_EPISODES
        score = tasid.evaluate(result.policy, env, episodes=episodes, seed=seed)
        row = {
            "task": task,
            "seed": seed,
            "episodes": result.episodes,
            "ratio": score.mean / robust,
            "seconds": seconds,
            "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
            "warnings": list(result.diagnostics.warnings),
        }
        print(json.dumps(row), flush=True)


def compare(before: Path, after: Path) -> None:
    """Print a table of medians, and what violates the limits."""
    tables = []
    for path in (before, after):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        tables.append({task: [r for r in rows if r["task"] == task] for task in TASKS})
    print("| task | ratio before (lowest) | after (lowest) | seconds | after | GB | after | |")
    print("|---|---|---|---|---|---|---|---|")
    for task in TASKS:
        old, new = tables[0][task], tables[1][task]
        if not old or not new:
            continue
        cells, problems = [], []
        median = [float(np.median([r["ratio"] for r in rows])) for rows in (old, new)]
        lowest = [min(r["ratio"] for r in rows) for rows in (old, new)]
        # The first seed also compiles.
        seconds = [
            float(np.median([r["seconds"] for r in rows[1:] or rows])) for rows in (old, new)
        ]
        peak = [max(r["peak_gb"] for r in rows) for rows in (old, new)]
        cells += [f"{m:.3f} ({low:.3f})" for m, low in zip(median, lowest, strict=True)]
        cells += [f"{s:.1f}" for s in seconds] + [f"{p:.2f}" for p in peak]
        if abs(median[0] - median[1]) > 0.01:
            problems.append("median")
        if any(a["ratio"] >= 0.95 > b["ratio"] for a, b in zip(old, new, strict=False)):
            problems.append("below 0.95")
        if seconds[1] > 1.3 * seconds[0]:
            problems.append("slower")
        if peak[1] > 1.05 * peak[0]:
            problems.append("memory")
        print(f"| {task} | " + " | ".join(cells) + f" | {', '.join(problems) or 'ok'} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("BEFORE", "AFTER"))
    options = parser.parse_args()
    if options.compare:
        compare(*options.compare)
    elif options.worker:
        run_task(options.tasks[0], options.seeds)
    else:
        for task in options.tasks:
            seeds = [str(seed) for seed in options.seeds]
            command = [sys.executable, "-m", "benchmarks.regression", "--worker", "--tasks", task]
            lines = subprocess.run(
                [*command, "--seeds", *seeds], stdout=subprocess.PIPE, text=True, check=True
            ).stdout
            print(lines, end="", flush=True)
            if options.out is not None:
                with options.out.open("a") as file:
                    file.write(lines)


if __name__ == "__main__":
    main()
