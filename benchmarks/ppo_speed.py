"""PPO's environment steps per second on the lock, ours beside Stable-Baselines3's, same updates.

Both collect 100 episodes, make 4 passes in minibatches of 32 and have [56, 56] networks for policy
and critic. Stable-Baselines3 runs in `.venv-compat`, which `make compat` makes, with the best of
several numbers of threads; where that is missing, only ours is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import tasid
from tasid.baselines.training import ppo

_PEER = Path(__file__).parent.parent / ".venv-compat" / "bin" / "python"
_SCRIPT = Path(__file__).parent.parent / "compat" / "ppo_speed_peer.py"


def run(arguments: Sequence[str]) -> None:
    """Print one Markdown row per horizon."""
    options = _parse(arguments)
    print("| H | ours, one seed | ours, seeds in threads | Stable-Baselines3 (threads) | ratio |")
    print("|---|---|---|---|---|")
    for horizon in options.horizons:
        alone = ours(horizon, 1, options.batches)
        together = ours(horizon, os.cpu_count() or 1, options.batches)
        peer = theirs(horizon, options.threads)
        if peer is None:
            print(f"| {horizon} | {alone:.0f} | {together:.0f} | not installed: make compat | |")
            continue
        best, threads = peer
        shown = f"{best:.0f} ({threads})"
        print(f"| {horizon} | {alone:.0f} | {together:.0f} | {shown} | {alone / best:.1f} |")


def ours(horizon: int, seeds: int, batches: int) -> float:
    """Steps per second, all seeds together, after compilation."""
    envs = [tasid.make("combination-lock", horizon=horizon, seed=seed) for seed in range(seeds)]
    marks: list[float] = []

    def train(seed: int) -> None:
        ppo(
            envs[seed].target,
            seed=seed,
            episodes=100 * batches * 3,
            every=100 * batches,
            evaluation_episodes=0,
            callbacks=[lambda here: marks.append(time.perf_counter())],
        )

    with ThreadPoolExecutor(seeds) as pool:
        list(pool.map(train, range(seeds)))
    # The first checkpoint of every seed holds the compilation.
    seconds = marks[-1] - marks[seeds - 1]
    return 2 * 100 * batches * horizon * seeds / seconds


def theirs(horizon: int, threads: Sequence[int]) -> tuple[float, int] | None:
    """Stable-Baselines3's steps per second with the best number of threads, and that number."""
    there = (
        _PEER.exists()
        and not subprocess.run(
            [str(_PEER), "-c", "import stable_baselines3"], capture_output=True, check=False
        ).returncode
    )
    if not there:
        return None
    found = []
    for number in threads:
        environment = {**os.environ, "OMP_NUM_THREADS": str(number), "PYTHONPATH": ""}
        command = [str(_PEER), str(_SCRIPT), str(horizon), str(number)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        found.append((float(json.loads(done.stdout.splitlines()[-1])["steps_per_second"]), number))
    return max(found)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks ppo-speed", description=__doc__)
    parser.add_argument("--horizons", type=int, nargs="+", default=[10, 40])
    parser.add_argument("--batches", type=int, default=20, help="of 100 episodes, measured twice")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    return parser.parse_args(arguments)
