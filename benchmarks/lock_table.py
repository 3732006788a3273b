"""TASID on the combination lock, several seeds per row: ratio, skill, time; failures included.

Every seed is a random instance of its own (good actions, perturbation, observation) and seeds the
learner too. By the paper's method the seeds of a row train together under vmap unless `--alone`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import numpy as np

import tasid
from tasid.checks.scoring import score

PAPER = {5: 10_000, 10: 10_000, 20: 50_000, 40: 400_000}
"""The paper's smallest sufficient n for each horizon (its table of results, TASID rows)."""


def run(arguments: Sequence[str]) -> None:
    """Print one Markdown row per horizon."""
    options = _parse(arguments)
    print("| method | H | episodes | ratio median (all seeds) | skill median | seconds |")
    print("|---|---|---|---|---|---|")
    for horizon in options.horizons:
        print(_row(horizon, options), flush=True)


def _row(horizon: int, options: argparse.Namespace) -> str:
    episodes = options.episodes or PAPER[horizon]
    envs = [
        tasid.make(
            "combination-lock",
            horizon=horizon,
            seed=seed,
            eta=options.eta,
            num_actions=options.actions,
            bernoulli=options.bernoulli,
        )
        for seed in options.seeds
    ]
    started = time.perf_counter()
    common = {"eta": options.eta, "episodes": episodes, "method": options.method}
    if options.alone:
        pairs = zip(envs, options.seeds, strict=True)
        results = [tasid.learn(env, seed=seed, **common) for env, seed in pairs]
    else:
        results = tasid.learn(envs, seeds=options.seeds, **common)
    seconds = time.perf_counter() - started
    scores = [
        score(result.policy, env, episodes=10_000, seed=seed)[1]
        for result, env, seed in zip(results, envs, options.seeds, strict=True)
    ]
    ratios = [figures["ratio"] for figures in scores]
    skill = np.median([figures["skill"] for figures in scores])
    spent = sorted({result.episodes for result in results})
    each = ", ".join(f"{ratio:.3f}" for ratio in ratios)
    return (
        f"| {options.method} | {horizon} | {', '.join(map(str, spent))} | "
        f"{np.median(ratios):.3f} ({each}) | {skill:.3f} | {seconds:.1f} |"
    )


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks lock-table", description=__doc__)
    parser.add_argument("--horizons", type=int, nargs="+", default=list(PAPER))
    parser.add_argument("--episodes", type=int, help="the paper's n for the horizon if not given")
    parser.add_argument("--seeds", type=int, nargs="+", default=[100, 101, 102, 103, 104])
    parser.add_argument("--method", default="paper")
    parser.add_argument("--eta", type=float, default=0.1)
    parser.add_argument("--actions", type=int, default=10)
    parser.add_argument("--bernoulli", action="store_true")
    parser.add_argument("--alone", action="store_true", help="one seed after the other")
    return parser.parse_args(arguments)
