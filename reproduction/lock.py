"""Figure 2 of the paper and its table of episodes: which method solves the lock, and how soon.

Solved means: an evaluation reaches 95 % of the exact value, in that very target, of the robust plan
for an oracle that sees the true state. Each seed is a lock of its own. A baseline ends at its first
evaluation that solves the lock. The belief method learns from each n of a grid in turn, from
scratch, until one solves; of the paper's method, the smallest n whose median seed solves counts.

The second experiment, `readings`, runs what the paper leaves open about the baselines both ways, on
seeds that are in no table.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

import tasid
from reproduction.baselines import ALGORITHMS, BaselineConfig, train_baseline
from reproduction.records import Job, Outcome
from tasid.keys import episode_keys
from tasid.targets.rollout import exploration, rollout

ETA, SOLVED = 0.1, 0.95
CURVE_EPISODES = 1000
"""Training episodes per step whose mean return is drawn for the paper's method."""


@dataclass(frozen=True)
class LockSize:
    """What a size of the experiment has."""

    seeds: tuple[int, ...]
    horizons: tuple[int, ...]
    paper_episodes: Mapping[int, tuple[int, ...]]
    """Grid of n for the paper's method, by horizon."""
    belief_episodes: tuple[int, ...]
    """Grid of n for the belief method."""
    baseline: Mapping[str, Any]
    """Budget of the baselines: fields of `BaselineConfig`."""
    search_horizon: int = 10
    """Horizon of the searches over RND's coefficient and EPOpt's ε."""
    coefficients: tuple[float, ...] = (100.0,)
    """Of RND, besides 0 (PPO) and 500 (the default)."""
    epsilons: tuple[float, ...] = (0.1, 0.2, 0.5)
    """Of EPOpt, besides 1 (the default)."""
    evaluation_episodes: int = 10_000
    """For policies of TASID."""


GRID = (10_000, 50_000, 100_000, 400_000)
"""The paper's grid of n; values above the smallest that solves are left out."""
FEW = (16, 32, 48, 64, 96, 128, 192, 256)
SMOKE = {
    "target_episodes": 200,
    "source_episodes": 200,
    "evaluate_every": 100,
    "evaluation_episodes": 128,
}
SIZES = {
    "smoke": LockSize((0,), (3,), {3: (300,)}, (16,), SMOKE, 3, (), (), 256),
    "quick": LockSize(
        (200, 201, 202),
        (5, 10, 20, 40),
        {5: GRID[:1], 10: GRID[:2], 20: GRID[:2], 40: GRID[2:]},
        FEW,
        {"target_episodes": 30_000, "source_episodes": 10_000, "evaluation_episodes": 1024},
    ),
    "full": LockSize(
        (100, 101, 102, 103, 104),
        (5, 10, 20, 40),
        {5: GRID[:1], 10: GRID[:2], 20: GRID[:2], 40: GRID},
        FEW,
        {},
    ),
}
BASELINES = ALGORITHMS[:4]

# Jobs


def jobs(size: str) -> list[Job]:
    """Quick and telling jobs first, so that a part of the experiment shows all figures."""
    what = SIZES[size]
    planned = [job for horizon in what.horizons for job in _tasid_jobs(what, horizon)]
    plain = [BaselineConfig(name, **what.baseline) for name in BASELINES]
    searched = [
        BaselineConfig("ppo-rnd", rnd_coefficient=coefficient, **what.baseline)
        for coefficient in what.coefficients
    ] + [
        BaselineConfig(name, epopt_epsilon=epsilon, **what.baseline)
        for name in ("ppo-dr", "ppo-rnd-dr")
        for epsilon in what.epsilons
    ]
    for horizon in what.horizons:
        configs = plain + (searched if horizon == what.search_horizon else [])
        planned += [
            baseline_job(config, horizon, seed) for config in configs for seed in what.seeds
        ]
    return planned


def baseline_job(config: BaselineConfig, horizon: int, seed: int, *variant: str) -> Job:
    """A job whose setting says what differs from the defaults."""
    parts = [config.algorithm]
    if "rnd" in config.algorithm and config.rnd_coefficient != 500.0:
        parts.append(f"{config.rnd_coefficient:g}")
    if config.epopt_epsilon != 1.0:
        parts.append(f"epopt-{config.epopt_epsilon:g}")
    setting = "-".join((*parts, *variant, f"H{horizon}"))
    return Job(setting, seed, {"horizon": horizon, "eta": ETA, **asdict(config)})


def _tasid_jobs(what: LockSize, horizon: int) -> Iterator[Job]:
    shared = {"horizon": horizon, "eta": ETA, "evaluation_episodes": what.evaluation_episodes}
    grids: list[tuple[str, Any]] = [("belief", list(what.belief_episodes))]
    grids += [("paper", episodes) for episodes in what.paper_episodes[horizon]]
    for method, episodes in grids:
        suffix = f"-n{episodes}" if method == "paper" else ""
        configuration = {"algorithm": "tasid", "method": method, "episodes": episodes, **shared}
        for seed in what.seeds:
            yield Job(f"tasid-{method}{suffix}-H{horizon}", seed, configuration)


def reading_jobs(size: str) -> list[Job]:
    """Both readings of what the paper leaves open about PPO, on seeds that are in no table.

    Also the paper's method on forty locks, at a count that solves about a quarter of them.
    """
    budget = SIZES[size].baseline
    smoke = size == "smoke"
    seeds = {"smoke": (0,), "quick": (0, 1), "full": (0, 1, 2, 3, 4)}[size]

    def each(algorithm: str, horizons: Sequence[int], variant: str, **options: Any) -> list[Job]:
        config = BaselineConfig(algorithm, **{**budget, **options})
        chosen = (3,) if smoke else horizons
        return [baseline_job(config, h, seed, variant) for h in chosen for seed in seeds]

    settings: dict[str, dict[str, Any]] = {
        "transitions": {"minibatch_of": "transitions", "gae_lambda": 0.95},
        "episodes": {"minibatch_of": "episodes", "gae_lambda": 0.5},
    }
    planned = []
    for of, options in settings.items():
        for updates in ("passes", "minibatches"):
            for algorithm in ("ppo", "ppo-rnd"):
                variant = f"{updates}-{of}"
                planned += each(algorithm, (5, 10), variant, updates_are=updates, **options)
        planned += each("ppo-rnd", (20,), f"passes-{of}", **options)
        planned += each("ppo-rnd-dr", (10, 20), f"passes-{of}", **options)
    planned += each("ppo-rnd-dr", (10, 20), "rnd-kept", keep_rnd=True)
    planned += each("ppo-rnd-dr", (10, 20), "all-kept", keep_rnd=True, keep_optimisers=True)
    for algorithm in BASELINES:
        planned += each(algorithm, (5, 10), "to-the-end", stop_when_solved=False)[:: len(seeds)]
    paper = {"algorithm": "tasid", "method": "paper", "episodes": GRID[0], "horizon": 10}
    paper |= {"eta": ETA, "evaluation_episodes": SIZES[size].evaluation_episodes}
    locks = range(40 if size == "full" else len(seeds))
    planned += [Job(f"tasid-paper-n{GRID[0]}-H10", seed, paper) for seed in locks]
    distinct = {job.name: job for job in planned}.values()
    compiled = re.compile(r"ppo-(minibatches-episodes|to-the-end)|ppo-rnd-dr-all-kept")
    return [job for job in distinct if not smoke or compiled.match(job.setting)]


# One job


def run(job: Job, folder: Path) -> Outcome:
    """Learn in the lock of the job's seed and evaluate."""
    configuration = job.configuration
    env = tasid.make("combination-lock", horizon=configuration["horizon"], eta=ETA, seed=job.seed)
    plan = tasid.robust_dp(env.simulator, eta=ETA)
    value = env.latent.robust_value(plan)
    if configuration["algorithm"] != "tasid":
        return _run_baseline(job, env, value, folder)
    rows: list[dict[str, Any]] = []
    if configuration["method"] == "paper":
        started = time.perf_counter()
        learner = tasid.TasidLearner(tasid.TasidConfig(episodes=configuration["episodes"]))
        learned = learner.run(env, plan, seed=job.seed, run_dir=folder)
        seconds = time.perf_counter() - started
        rows += _training_rows(env, learned, job.seed)
        rows.append(_evaluation(job, env, learned, seconds))
    else:
        for episodes in configuration["episodes"]:
            started = time.perf_counter()
            learned = tasid.learn(env, eta=ETA, episodes=episodes, seed=job.seed)
            rows.append(_evaluation(job, env, learned, time.perf_counter() - started))
            if rows[-1]["mean"] >= SOLVED * value:
                break
        for event in learned.diagnostics.history:
            rows.append(_row(event.episodes, training=getattr(event, "mean_return", None)))
    means = [row["mean"] for row in rows if row["mean"] is not None]
    solved = bool(max(means) >= SOLVED * value)
    result = {
        "robust_value": value,
        "optimal_value": env.latent.optimal_value(),
        "solved": solved,
        "episodes": learned.episodes,
        "best": max(means),
        "last": means[-1],
    }
    return Outcome(result, rows)


def _run_baseline(job: Job, env: tasid.BlockMDP, value: float, folder: Path) -> Outcome:
    names = [field.name for field in fields(BaselineConfig)]
    config = BaselineConfig(**{name: job.configuration[name] for name in names})
    trained = train_baseline(
        config, env, seed=job.seed, threshold=SOLVED * value, checkpoint=folder
    )
    means = [row["mean"] for row in trained.rows if row["mean"] is not None]
    result = {
        "robust_value": value,
        "optimal_value": env.latent.optimal_value(),
        "solved": trained.solved_after is not None,
        "episodes": trained.solved_after or trained.episodes,
        "best": max(means),
        "last": means[-1],
    }
    return Outcome(result, trained.rows)


def _row(episodes: int, **values: Any) -> dict[str, Any]:
    row = {"stage": "target", "episodes": episodes, "training": None, "mean": None}
    return row | {"half": None, "seconds": 0.0} | values


def _evaluation(job: Job, env: tasid.BlockMDP, learned: Any, seconds: float) -> dict[str, Any]:
    number_of_episodes = job.configuration["evaluation_episodes"]
    score = tasid.evaluate(learned.policy, env, episodes=number_of_episodes, seed=job.seed)
    half = (score.ci95[1] - score.ci95[0]) / 2
    return _row(
        learned.episodes,
        mean=round(float(score.mean), 4),
        half=round(float(half), 4),
        seconds=round(seconds, 3),
    )


def _training_rows(env: tasid.BlockMDP, learned: Any, seed: int) -> Iterator[dict[str, Any]]:
    """Mean return of the training episodes of each step of Algorithm 2, from a sample of them.

    They end with the random action of their step, after which nothing is learned; to have a return
    they are completed by uniformly random actions.
    """
    spent = 0
    for event in learned.diagnostics.history:
        sample = min(event.episodes - spent, CURVE_EPISODES)
        spent, keys = event.episodes, episode_keys(seed, event.step, 0, sample)
        overrides = np.full((sample, env.horizon), -1, np.int32)
        random_steps = env.horizon - event.step
        overrides[:, event.step :] = exploration(keys, 1.0, env.num_actions, random_steps)
        episodes = rollout(
            env,
            learned.policy,
            keys,
            overrides=overrides,
            keep_from=env.horizon + 1,
            width=sample,
        )
        mean = round(float(episodes.returns.mean()), 4)
        yield _row(spent, training=mean, seconds=round(event.seconds, 3))
