"""The outcome method on the combination lock, beside the paper's method with the same episodes.

Every seed is a random instance of its own and seeds the learner too; all seeds are shown. The
default seeds 100 … 109 were never used while the method was made.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import tasid
from tasid.runs.scoring import score


@dataclass(frozen=True)
class Setting:
    """One row of the table."""

    name: str
    horizon: int
    episodes: int | str
    eta: float = 0.1
    options: dict[str, Any] = field(default_factory=dict)


SETTINGS = {
    setting.name: setting
    for setting in (
        Setting("H10", 10, 800),
        Setting("H10-auto", 10, "auto"),
        Setting("H20-auto", 20, "auto"),
        Setting("H40", 40, 2_000),
        Setting("H40-auto", 40, "auto"),
        Setting("H100", 100, 6_000),
        Setting("H400", 400, 40_000, eta=0.02),
        Setting("A4", 40, 2_000, options={"num_actions": 4}),
        Setting("A25", 40, 2_000, options={"num_actions": 25}),
        Setting("eta0.3", 20, 2_000, eta=0.3),
        Setting("bernoulli", 40, 4_000, options={"bernoulli": True}),
        Setting("depth2", 20, 3_000, options={"depth": 2}),
    )
}


def run(arguments: Sequence[str]) -> None:
    """Print one Markdown row per setting and method."""
    options = _parse(arguments)
    print("| setting | method | episodes | ratio median | quartile | skill | ratios | s/seed |")
    print("|---|---|---|---|---|---|---|---|")
    for name in options.settings:
        setting = SETTINGS[name]
        spent = setting.episodes
        if "outcome" in options.methods:
            spent = _row(setting, "outcome", spent, options.seeds)
        if "paper" in options.methods:
            if not isinstance(spent, int):
                raise SystemExit(f"{name}: the outcome method decides how many episodes; run both")
            _row(setting, "paper", max(spent, 2 * setting.horizon), options.seeds)


def _row(setting: Setting, method: str, episodes: int | str, seeds: Sequence[int]) -> int:
    envs = [
        tasid.make(
            "combination-lock",
            horizon=setting.horizon,
            eta=setting.eta,
            seed=seed,
            **setting.options,
        )
        for seed in seeds
    ]
    started = time.perf_counter()
    results = tasid.learn(envs, eta=setting.eta, episodes=episodes, seeds=seeds, method=method)
    seconds = (time.perf_counter() - started) / len(seeds)
    scores = [
        score(result.policy, env, episodes=10_000, seed=seed)[1]
        for result, env, seed in zip(results, envs, seeds, strict=True)
    ]
    ratios = [figures["ratio"] for figures in scores]
    spent = [result.episodes for result in results]
    shown = f"{min(spent)}" if min(spent) == max(spent) else f"{min(spent)} … {max(spent)}"
    print(
        f"| {setting.name} | {method} | {shown} | {np.median(ratios):.3f} | "
        f"{np.quantile(ratios, 0.25):.3f} | {np.median([s['skill'] for s in scores]):.3f} | "
        f"{' '.join(f'{ratio:.3f}' for ratio in ratios)} | {seconds:.1f} |",
        flush=True,
    )
    return max(spent)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks outcome-table", description=__doc__)
    parser.add_argument("--settings", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(100, 110)))
    both = ["outcome", "paper"]
    parser.add_argument("--methods", nargs="+", default=both, choices=both)
    return parser.parse_args(arguments)
