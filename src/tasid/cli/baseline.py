"""`tasid train --algorithm`: a baseline instead of TASID."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tasid.cli.answers import print_json, print_scores

_EPISODES = 20_000
"""Where no number is given; baselines have no evidence to decide by."""


def train_baseline(
    env: str,
    options: dict[str, Any],
    *,
    algorithm: str,
    episodes: str,
    epopt_epsilon: float | None,
    seed: int,
    evaluation_episodes: int,
    out: Path | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Train one of the paper's baselines, and answer as `tasid train` does."""
    from tasid.runs.baseline_run import BaselineOrder, run_baseline
    from tasid.runs.baselines import Baseline

    number = _EPISODES if episodes == "auto" else int(episodes)
    baseline = Baseline(
        algorithm,
        target_episodes=number,
        source_episodes=number,
        epopt_epsilon=1.0 if epopt_epsilon is None else epopt_epsilon,
        every=min(1000, number),
        evaluation_episodes=0,
    )
    order = BaselineOrder(env, options, baseline, seed, evaluation_episodes)
    name = env.replace("/", "-").replace(":", "-")
    folder = out or Path("runs") / f"{name}-{algorithm}-seed{seed}"
    result = run_baseline(order, folder, overwrite=overwrite)
    if as_json:
        print_json(result)
        return
    before = result["source_episodes"]
    print(
        f"learned from {result['episodes']} episodes"
        + (f", after {before} in relatives of the target," if before else "")
        + f" in {result['seconds']:.1f} s"
    )
    print_scores(result)
    print(f"policy            {result['policy']}")
