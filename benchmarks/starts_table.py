"""Several start states: the outcome method, and Algorithms 3 and 4 of the paper beside it.

Every seed is a random instance of its own and seeds the learner too; all seeds are shown. "Starts"
is the fraction of fresh episodes whose first state was told rightly, lowest over seeds. A seed is
solved if its ratio is at least 0.95 and every cluster was assigned to the right start: starts are
equally likely, so one that was not would cost at least 1/N of the episodes. The default
seeds 100 … 109 were never used while the method was made. The paper's method has its practical
counts: 512 N episodes to cluster by, 1000 H to learn and 256 to test for each of N² hypotheses.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import tasid
from tasid.runs.diagnosis import diagnose
from tasid.runs.scoring import score


@dataclass(frozen=True)
class Setting:
    """One row of the table."""

    name: str
    environment: str
    options: dict[str, Any] = field(default_factory=dict)
    episodes: int | str = "auto"


SETTINGS = {
    setting.name: setting
    for setting in (
        *(
            Setting(
                f"{layout}-N{starts}-H{horizon}",
                "combination-lock",
                {"starts": starts, "layout": layout, "horizon": horizon},
            )
            for horizon in (10, 20)
            for starts in (2, 4, 8)
            for layout in ("layer0", "copies")
        ),
        Setting("docks-N4", "lava-crossing", {"starts": 4}, episodes=40_000),
    )
}


def run(arguments: Sequence[str]) -> None:
    """Print one Markdown row per setting."""
    options = _parse(arguments)
    print(
        "| setting | method | episodes | of these for starts | starts, lowest | ratio median "
        "| solved | skill | ratios | s/seed |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name in options.settings:
        _row(SETTINGS[name], options.method, options.seeds)


def _row(setting: Setting, method: str, seeds: Sequence[int]) -> None:
    ratios, skills, spent, told, right, seconds = [], [], [], [], [], 0.0
    for seed in seeds:
        env = tasid.make(setting.environment, seed=seed, **setting.options)
        started = time.perf_counter()
        result = tasid.learn(env, eta=0.1, episodes=setting.episodes, seed=seed, method=method)
        seconds += time.perf_counter() - started
        figures = score(result.policy, env, episodes=10_000, seed=seed)[1]
        ratios.append(figures["ratio"])
        skills.append(figures["skill"])
        spent.append(result.episodes)
        found = result.diagnostics.starts
        told.append(0 if found is None else found.episodes)
        right.append(float(diagnose(result.policy, env, seed=seed).tracking_accuracy[0]))
    assigned = np.asarray(right) > 1 - 0.5 / setting.options["starts"]
    solved = int((assigned & (np.asarray(ratios) >= 0.95)).sum())
    print(
        f"| {setting.name} | {method} | {_span(spent)} | {_span(told)} | {min(right):.4f} | "
        f"{np.median(ratios):.3f} | {solved} of {len(seeds)} | {np.median(skills):.3f} | "
        f"{' '.join(f'{ratio:.3f}' for ratio in ratios)} | {seconds / len(seeds):.1f} |",
        flush=True,
    )


def _span(numbers: Sequence[int]) -> str:
    least, most = min(numbers), max(numbers)
    return f"{least}" if least == most else f"{least} … {most}"


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks starts-table", description=__doc__)
    parser.add_argument("--settings", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(100, 110)))
    parser.add_argument("--method", choices=["outcome", "paper"], default="outcome")
    return parser.parse_args(arguments)
