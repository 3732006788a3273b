"""Learning from recorded episodes: what a policy earns that never met its target; refusals too.

Every seed is a random instance of its own. Somebody plays it (the robust plan with eyes shut, a
policy learned before, or chance) with a share of random commands, and tasid.learn_from_episodes
gets the log, the map and nothing else.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import tasid
from tasid.checks.scoring import score
from tasid.learning.belief.logs import Undecided
from tasid.runs.recording import eyes_shut, record_episodes


@dataclass(frozen=True)
class Result:
    """Of one seed; ratios are of the robust value."""

    logged: float
    ratio: float | None
    skill: float | None
    coverage: float | None
    seconds: float
    refusal: str = ""


def run(arguments: Sequence[str]) -> None:
    """Print one Markdown row, and a line for every refusal."""
    options = _parse(arguments)
    results = [_result(seed, options) for seed in options.seeds]
    learned = [one for one in results if one.ratio is not None]
    ratios = [one.ratio for one in learned]
    print(
        "| setting | logged episodes | by | their ratio | ratio median, lowest (all) | skill "
        "| coverage | refused | seconds |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    middle = f"{np.median(ratios):.3f}, {min(ratios):.3f}" if ratios else "–"
    each = ", ".join("refused" if one.ratio is None else f"{one.ratio:.3f}" for one in results)
    skill = f"{np.median([one.skill for one in learned]):.3f}" if ratios else "–"
    covered = f"{np.median([one.coverage for one in learned]):.3f}" if ratios else "–"
    print(
        f"| {_setting(options)} | {options.episodes} | {options.by}, {options.explore:.0%} random "
        f"| {np.median([one.logged for one in results]):.3f} | {middle} ({each}) | {skill} | "
        f"{covered} | {len(results) - len(learned)} of {len(results)} | "
        f"{np.median([one.seconds for one in results]):.1f} |"
    )
    for seed, one in zip(options.seeds, results, strict=True):
        if one.refusal:
            print(f"seed {seed}: {one.refusal}")


def _result(seed: int, options: argparse.Namespace) -> Result:
    more = {} if options.horizon is None else {"horizon": options.horizon}
    env = tasid.make(options.environment, eta=options.eta, seed=seed, **more)
    log = record_episodes(
        env, _player(env, seed, options), episodes=options.episodes, explore=options.explore, seed=0
    )
    plan = tasid.robust_dp(env.simulator, eta=options.eta)
    logged = float(log.recorded.returns.mean()) / env.latent.robust_value(plan)
    started = time.perf_counter()
    try:
        result = tasid.learn_from_episodes(log, env.simulator, eta=options.eta)
    except Undecided as error:
        return Result(logged, None, None, None, time.perf_counter() - started, str(error))
    seconds = time.perf_counter() - started
    _, figures = score(result.policy, env, episodes=options.evaluation_episodes, seed=seed)
    covered = result.diagnostics.coverage
    return Result(logged, figures["ratio"], figures["skill"], covered, seconds)


def _player(env: tasid.BlockMDP, seed: int, options: argparse.Namespace) -> Any:
    if options.by == "random":
        return None
    if options.by == "plan":
        return eyes_shut(env.target, env.simulator, eta=options.eta)
    return tasid.learn(env, eta=options.eta, episodes=options.practice, seed=seed).policy


def _setting(options: argparse.Namespace) -> str:
    steps = "" if options.horizon is None else f", H = {options.horizon}"
    return f"{options.environment}{steps}, η = {options.eta:g}"


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks logs-table", description=__doc__)
    parser.add_argument("--environment", default="lava-crossing")
    parser.add_argument("--horizon", type=int)
    parser.add_argument("--eta", type=float, default=0.1)
    parser.add_argument("--episodes", type=int, default=500)
    parser.add_argument("--explore", type=float, default=0.3)
    parser.add_argument("--by", choices=("plan", "belief", "random"), default="plan")
    parser.add_argument("--practice", type=int, default=96, help="episodes belief learned from")
    parser.add_argument("--seeds", type=int, nargs="+", default=[9201, 9202, 9203, 9204, 9205])
    parser.add_argument("--evaluation-episodes", type=int, default=10_000)
    return parser.parse_args(arguments)
