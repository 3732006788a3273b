"""What the paper leaves open about PPO, tried on locks that are in no table: λ and minibatches.

Prints the episodes after which a lock is solved, or the highest evaluation where it is not.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace

import tasid
from tasid.baselines.by_name import BASELINES, Baseline, train_baseline
from tasid.baselines.ppo import PPOConfig
from tasid.baselines.training import Checkpoint
from tasid.experiments.lock.jobs import SOLVED


@dataclass(frozen=True)
class Varied(Baseline):
    """A baseline with another λ and other minibatches."""

    decay: float = 0.95
    minibatch: int = 32
    """In transitions."""

    def config(self, horizon: int, *, ends: bool = False) -> PPOConfig:
        """PPO's hyper-parameters at a horizon."""
        return replace(
            super().config(horizon, ends=ends), decay=self.decay, minibatch=self.minibatch
        )


def run(arguments: Sequence[str]) -> None:
    """Print one Markdown row per choice."""
    options = _parse(arguments)
    print(f"{options.algorithm}, H = {options.horizon}, at most {options.episodes} episodes")
    print("| λ | minibatch | " + " | ".join(f"seed {seed}" for seed in options.seeds) + " |")
    print("|---" * (len(options.seeds) + 2) + "|")
    for decay in options.decays:
        for minibatch in options.minibatches:
            each = minibatch if options.of == "transitions" else minibatch * options.horizon
            varied = Varied(
                options.algorithm,
                target_episodes=options.episodes,
                source_episodes=options.source_episodes,
                decay=decay,
                minibatch=each,
            )
            cells = [_cell(varied, options.horizon, seed) for seed in options.seeds]
            print(f"| {decay} | {minibatch} {options.of} | " + " | ".join(cells) + " |", flush=True)


def _cell(baseline: Baseline, horizon: int, seed: int) -> str:
    env = tasid.make("combination-lock", horizon=horizon, seed=seed)
    value = env.latent.robust_value(tasid.robust_dp(env.simulator, eta=0.1))
    ratios: list[float] = []

    def note(here: Checkpoint) -> None:
        if here.evaluation is not None:
            ratios.append(here.evaluation.mean / value)

    def solved(here: Checkpoint) -> bool:
        return ratios[-1] >= SOLVED

    trained = train_baseline(baseline, env, seed=seed, stop=solved, callbacks=[note])
    return f"{trained.episodes}" if trained.stopped else f"no ({max(ratios):.3f})"


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks baseline-choices", description=__doc__
    )
    parser.add_argument("--algorithm", choices=BASELINES, default="ppo+rnd")
    parser.add_argument("--horizon", type=int, default=20)
    parser.add_argument("--episodes", type=int, default=200_000)
    parser.add_argument("--source-episodes", type=int, default=150_000)
    parser.add_argument("--decays", type=float, nargs="+", default=[0.5, 0.8, 0.95])
    parser.add_argument("--minibatches", type=int, nargs="+", default=[32])
    parser.add_argument("--of", choices=["episodes", "transitions"], default="episodes")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    return parser.parse_args(arguments)
