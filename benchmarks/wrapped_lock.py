"""Learning through Gymnasium costs nothing: the lock natively and wrapped, with the same episodes.

Every seed is a random lock of its own and seeds the learner too. The wrapped learner sees nothing
but tasid/CombinationLock-v0 and the map. Both policies are scored in the same native lock.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import numpy as np

import tasid
from tasid.checks.scoring import score

ID = "tasid/CombinationLock-v0"
ETA = 0.1


def run(arguments: Sequence[str]) -> None:
    """Print two Markdown rows per horizon, and the largest difference of the medians."""
    options = _parse(arguments)
    print("| path | H | episodes | ratio median | ratios | seconds |")
    print("|---|---|---|---|---|---|")
    gap = 0.0
    for horizon in options.horizons:
        medians = [
            _row(horizon, options.episodes, options.seeds, wrapped=wrapped)
            for wrapped in (False, True)
        ]
        gap = max(gap, abs(medians[0] - medians[1]))
    print(f"\nlargest difference of the medians: {gap:.4f}")


def _row(horizon: int, episodes: int, seeds: Sequence[int], *, wrapped: bool) -> float:
    ratios, spent, seconds = [], set(), 0.0
    for seed in seeds:
        env = tasid.make("combination-lock", horizon=horizon, eta=ETA, seed=seed)
        started = time.perf_counter()
        common = {"eta": ETA, "episodes": episodes, "seed": seed}
        if wrapped:
            with tasid.wrap(ID, num_envs=128, eta=ETA, horizon=horizon, seed=seed) as target:
                result = tasid.learn(target, env.simulator, **common)
        else:
            result = tasid.learn(env, **common)
        seconds += time.perf_counter() - started
        spent.add(result.episodes)
        ratios.append(score(result.policy, env, episodes=10_000, seed=seed)[1]["ratio"])
    median, path = float(np.median(ratios)), "wrapped" if wrapped else "native"
    print(
        f"| {path} | {horizon} | {', '.join(map(str, sorted(spent)))} "
        f"| {median:.3f} | {' '.join(f'{ratio:.3f}' for ratio in ratios)} | {seconds:.1f} |",
        flush=True,
    )
    return median


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks wrapped-lock", description=__doc__)
    parser.add_argument("--horizons", type=int, nargs="+", default=[10, 20])
    parser.add_argument("--episodes", type=int, default=96)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(100, 105)))
    return parser.parse_args(arguments)
