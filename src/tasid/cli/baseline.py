"""`tasid train --algorithm`: a baseline instead of TASID."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tasid.cli import interrupt
from tasid.cli.answers import answer, counted, notice, print_scores
from tasid.cli.arguments import run_folder

if TYPE_CHECKING:
    from tasid.baselines.by_name import Baseline
    from tasid.runs.baseline_run import BaselineOrder

_EPISODES = 20_000
"""Where no number is given; baselines have no evidence to decide by."""
OF_TASID = (
    "simulator",
    "map_settings",
    "start_state",
    "method",
    "classes",
    "from_policy",
    "certify",
    "certify_epsilon",
    "certify_episodes",
    "certify_attempt",
)
"""Flags that say something to TASID and nothing to a baseline, which has no map."""


def baseline_of(
    algorithm: str, episodes: int | Literal["auto"], epopt_epsilon: float | None
) -> Baseline:
    """The baseline of that name."""
    from tasid.baselines.by_name import BASELINES, Baseline

    if algorithm not in BASELINES:
        raise ValueError(f"--algorithm: {algorithm!r} is none of tasid, {', '.join(BASELINES)}")
    number = _EPISODES if episodes == "auto" else episodes
    return Baseline(
        algorithm,
        target_episodes=number,
        source_episodes=number,
        epopt_epsilon=1.0 if epopt_epsilon is None else epopt_epsilon,
        every=min(1000, number),
        evaluation_episodes=0,
    )


def train_baseline(
    order: BaselineOrder, *, out: Path | None, overwrite: bool, resume: bool, as_json: bool
) -> None:
    """Train one of the paper's baselines, and answer as `tasid train` does."""
    from tasid.baselines.ppo import PPOConfig
    from tasid.baselines.training import Checkpoint
    from tasid.runs.baseline_run import run_baseline
    from tasid.runs.forecast import Forecast
    from tasid.runs.progress import Progress
    from tasid.runs.unfinished import how_to_go_on

    baseline = order.baseline
    folder = out or run_folder(order.environment, baseline.algorithm, f"seed{order.seed}")
    bar = Progress("training batch", "mean return", quiet=not sys.stderr.isatty())
    forecast = Forecast(notice)
    with interrupt.saying(partial(how_to_go_on, folder)), bar as progress:

        def show(here: Checkpoint) -> None:
            done, total = baseline.episodes_at(here), baseline.episodes
            batch, earned = PPOConfig.batch, f"{here.returns.mean():.3f}"
            progress.show(done // batch, total // batch, episodes=done, figure=earned)
            forecast.pace(done, total)

        result = run_baseline(
            order, folder, overwrite=overwrite, resume=resume, callbacks=[show], notice=notice
        )
    answer(result, _print, as_json=as_json)


def _print(result: dict[str, Any]) -> None:
    before = result["source_episodes"]
    print(
        f"learned from {counted(result['episodes'])}"
        + (f", after {before} in relatives of the target," if before else "")
        + f" in {result['seconds']:.1f} s"
    )
    print_scores(result)
    print(f"policy            {result['policy']}")
