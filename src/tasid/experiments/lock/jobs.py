"""The paper's Figure 2 and its table of episodes: who solves the lock, and after how many.

Solved means: an evaluation reaches 95 % of the exact value, in that very target, of the robust plan
with latent access. A run of a baseline ends at its first evaluation that does; the belief method
learns from ever more episodes, each time anew, until it does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tasid.baselines.by_name import BASELINES, Baseline, pause_arrays, paused_from, train_baseline
from tasid.baselines.domain_randomization import FINE_TUNING
from tasid.baselines.training import Checkpoint
from tasid.experiments.lock.completed import completed_return
from tasid.experiments.records import ToldLog
from tasid.experiments.sweep import Experiment, Interrupted, Job, JobContext
from tasid.learning.belief.method import BatchEnded
from tasid.learning.paper.tasid import Event, StepEnded
from tasid.maps import robust_dp
from tasid.policies import Policy, Score
from tasid.policies.evaluate import evaluate
from tasid.runs.learn import LearningResult, learn
from tasid.targets import BlockMDP, make

ETA = 0.1
SOLVED = 0.95
"""Of the robust value, with latent access, in that very target."""
_KEEP_SECONDS = 60.0


@dataclass(frozen=True)
class LockSize:
    """What a size of the experiment has."""

    seeds: tuple[int, ...]
    horizons: tuple[int, ...]
    tasid_episodes: Mapping[int, tuple[int, ...]]
    """The grid of n for the paper's method, by horizon."""
    belief_episodes: tuple[int, ...]
    """The grid of n for the belief method, at every horizon."""
    target_episodes: int
    source_episodes: int
    search_horizon: int
    """Where the searches over RND's coefficient and EPOpt's ε are made."""
    coefficients: tuple[float, ...] = (100.0,)
    """Of RND, besides 0, which is plain PPO, and 500, which is the default."""
    epsilons: tuple[float, ...] = (0.1, 0.2, 0.5)
    """Of EPOpt, besides 1, which is the default."""
    evaluation_episodes: int = 2048
    final_episodes: int = 10_000
    """Evaluation episodes of TASID's policies."""
    every: int = 1000
    """Episodes of a baseline between two evaluations."""


_FEW = (16, 32, 48, 64, 96, 128, 192, 256)
_GRID = (10_000, 50_000, 100_000, 400_000)
"""The paper's; what lies above the smallest n that solves tells nothing more and is left out."""
SIZES = {
    "smoke": LockSize((0,), (3,), {3: (300,)}, (16,), 200, 200, 3, (), (), 128, 256, every=100),
    "quick": LockSize(
        (200, 201, 202),
        (5, 10, 20, 40),
        {5: (10_000,), 10: (10_000, 50_000), 20: (10_000, 50_000), 40: (100_000, 400_000)},
        _FEW,
        30_000,
        10_000,
        10,
        evaluation_episodes=1024,
    ),
    "full": LockSize(
        (100, 101, 102, 103, 104),
        (5, 10, 20, 40),
        {5: _GRID[:1], 10: _GRID[:2], 20: _GRID[:2], 40: _GRID},
        _FEW,
        500_000,
        500_000,
        10,
    ),
}


def jobs(size: str) -> list[Job]:
    """Quick and telling ones first, so that a part of the sweep already shows all figures."""
    what = SIZES[size]
    planned = [job for horizon in what.horizons for job in _tasid_jobs(what, horizon)]
    *shorter, longest = what.horizons
    baselines = [_baseline(what, name) for name in BASELINES]
    for horizon in shorter:
        planned += _baseline_jobs(what, horizon, baselines)
    planned += _baseline_jobs(what, what.search_horizon, list(_searched(what)))
    return planned + _baseline_jobs(what, longest, baselines)


def _baseline(what: LockSize, algorithm: str, **changed: Any) -> Baseline:
    return Baseline(
        algorithm,
        target_episodes=what.target_episodes,
        source_episodes=what.source_episodes,
        evaluation_episodes=what.evaluation_episodes,
        every=what.every,
        **changed,
    )


def _searched(what: LockSize) -> Iterator[Baseline]:
    for coefficient in what.coefficients:
        yield _baseline(what, "ppo+rnd", rnd_coefficient=coefficient)
    for algorithm in ("ppo+dr", "ppo+rnd+dr"):
        for epsilon in what.epsilons:
            yield _baseline(what, algorithm, epopt_epsilon=epsilon)


def _baseline_jobs(what: LockSize, horizon: int, baselines: Sequence[Baseline]) -> list[Job]:
    planned = []
    for baseline in baselines:
        name = baseline.algorithm
        if "+rnd" in name and baseline.rnd_coefficient != 500.0:
            name += f"-{baseline.rnd_coefficient:g}"
        if baseline.epopt_epsilon != 1.0:
            name += f"-epopt-{baseline.epopt_epsilon:g}"
        steps = baseline.target_episodes + baseline.source_episodes * baseline.randomized
        cost = 1.5e-5 * steps * horizon * (1.6 if "+rnd" in name else 1.0)
        described = baseline.describe(baseline.config(horizon))
        configuration = {"horizon": horizon, "eta": ETA, **described}
        planned += [Job(f"{name}-H{horizon}", (seed,), configuration, cost) for seed in what.seeds]
    return planned


def _tasid_jobs(what: LockSize, horizon: int) -> list[Job]:
    def one(method: str, episodes: int | list[int], seeds: tuple[int, ...], cost: float) -> Job:
        given = f"-n{episodes}" if method == "paper" else ""
        configuration = {
            "algorithm": "tasid",
            "method": method,
            "episodes": episodes,
            "horizon": horizon,
            "eta": ETA,
            "evaluation_episodes": what.final_episodes,
        }
        return Job(f"tasid-{method}{given}-H{horizon}", seeds, configuration, cost)

    few = list(what.belief_episodes)
    planned = [one("belief", few, (seed,), 0.5 * horizon) for seed in what.seeds]
    for episodes in what.tasid_episodes[horizon]:
        cost = 3e-6 * episodes * horizon * len(what.seeds)
        planned.append(one("paper", episodes, what.seeds, cost))
    return planned


# ---------------------------------------------------------------- one job


def work(job: Job, context: JobContext) -> None:
    """Do one job."""
    if job.configuration["algorithm"] != "tasid":
        _work_baseline(job, context)
    elif job.configuration["method"] == "belief":
        _work_belief(job, context)
    else:
        _work_paper(job, context)


def _world(job: Job, seed: int) -> tuple[BlockMDP, float]:
    """A random lock of its own for every seed, and the value of its robust plan."""
    env = make("combination-lock", horizon=job.configuration["horizon"], eta=ETA, seed=seed)
    return env, env.latent.robust_value(robust_dp(env.simulator, eta=ETA))


@dataclass
class _Recorder:
    """Writes the checkpoints of a baseline down."""

    context: JobContext
    log: ToldLog
    baseline: Baseline
    solved: Callable[[Checkpoint], bool]
    kept: float = field(default_factory=time.monotonic)

    def __call__(self, here: Checkpoint) -> None:
        if not here.returns.size:  # resumed at its very end
            return
        target = here.stage == FINE_TUNING
        earned, stage = float(here.returns.mean(dtype=float)), "target" if target else "source"
        _row(self.log, here.episodes, here.seconds, earned, here.evaluation, stage)
        if self.solved(here):
            return  # it ends here; going on from here would train on, and nobody would ask again
        try:
            if time.monotonic() - self.kept > _KEEP_SECONDS:
                self._keep(here)
            self.context.tell(self._fraction(here.episodes, target))
        except Interrupted:
            self._keep(here)
            raise

    def _keep(self, here: Checkpoint) -> None:
        self.log.keep(pause_arrays(here), stage=here.stage)
        self.kept = time.monotonic()

    def _fraction(self, episodes: int, target: bool) -> float:
        before = self.baseline.source_episodes if self.baseline.randomized else 0
        total = before + self.baseline.target_episodes
        return ((before if target else 0) + episodes) / total


def _work_baseline(job: Job, context: JobContext) -> None:
    (seed,) = job.seeds
    env, value = _world(job, seed)
    names = asdict(Baseline("ppo")).keys()
    baseline = Baseline(**{name: job.configuration[name] for name in names})
    log = context.log(seed, robust_value=value)
    kept = log.resume()
    paused = None
    if kept is not None:
        stage = int(kept.metadata["given"]["stage"])
        paused = paused_from(baseline, env, seed=seed, stage=stage, arrays=kept.arrays)

    def solved(here: Checkpoint) -> bool:
        return here.evaluation is not None and here.evaluation.mean >= SOLVED * value

    trained = train_baseline(
        baseline,
        env,
        seed=seed,
        paused=paused,
        stop=solved,
        callbacks=[_Recorder(context, log, baseline, solved)],
    )
    log.end(solved=trained.stopped, episodes=trained.episodes)


def _work_belief(job: Job, context: JobContext) -> None:
    """Learn from every n of the grid in turn, until the policy solves the lock."""
    (seed,), grid = job.seeds, job.configuration["episodes"]
    env, value = _world(job, seed)
    log = context.log(seed, robust_value=value)
    log.resume()
    spent, solved = 0, False
    for episodes in grid:

        def tell(event: BatchEnded, spent: int = spent) -> None:
            context.tell((spent + event.episodes) / (sum(grid) + 1))

        started = time.perf_counter()
        result = learn(env, eta=ETA, episodes=episodes, seed=seed, callbacks=[tell])
        solved = _evaluated(job, log, env, value, result, seed, time.perf_counter() - started)
        spent += episodes
        if solved:
            break
    for batch in result.diagnostics.batches:  # of the last n: the way there
        _row(log, batch.episodes, 0.0, batch.return_mean)
    log.end(solved=solved, episodes=result.episodes)
    context.tell(1.0)


def _work_paper(job: Job, context: JobContext) -> None:
    seeds = list(job.seeds)
    worlds = [_world(job, seed) for seed in seeds]

    def tell(event: Event) -> None:
        if isinstance(event, StepEnded):
            context.tell(0.8 * (event.step + 1) / event.steps)

    started = time.perf_counter()
    results = learn(
        [env for env, _ in worlds],
        eta=ETA,
        episodes=job.configuration["episodes"],
        seeds=seeds,
        method="paper",
        callbacks=[tell],
    )
    seconds = (time.perf_counter() - started) / len(seeds)
    for (env, value), seed, result in zip(worlds, seeds, results, strict=True):
        log = context.log(seed, robust_value=value)
        log.resume()
        _record_steps(log, env, result, seed)
        solved = _evaluated(job, log, env, value, result, seed, seconds)
        log.end(solved=solved, episodes=result.episodes)
        context.tell(0.8)
    context.tell(1.0)


def _record_steps(log: ToldLog, env: BlockMDP, result: LearningResult, seed: int) -> None:
    """What training episodes of the paper's method earn, step by step."""
    spent, policy = 0, result.policy
    assert isinstance(policy, Policy)
    for step in result.diagnostics.steps:
        spent += step.episodes
        earned = completed_return(
            env.target, policy.decoder, seed=seed, h=step.step, episodes=step.episodes
        )
        _row(log, spent, step.seconds_collecting + step.seconds_fitting, earned)


def _row(
    log: ToldLog,
    episodes: int,
    seconds: float,
    earned: float | None = None,
    score: Score | None = None,
    stage: str = "target",
) -> None:
    """What training episodes earned, what a policy earns, or both."""
    log.row(
        stage=stage,
        episodes=episodes,
        training=None if earned is None else round(earned, 4),
        mean=None if score is None else round(score.mean, 4),
        half=None if score is None else round((score.ci95[1] - score.ci95[0]) / 2, 4),
        seconds=round(seconds, 3),
    )


def _evaluated(
    job: Job,
    log: ToldLog,
    env: BlockMDP,
    value: float,
    result: LearningResult,
    seed: int,
    seconds: float,
) -> bool:
    """A row for a finished policy; does it solve the lock?"""
    number = job.configuration["evaluation_episodes"]
    score = evaluate(result.policy, env, episodes=number, seed=seed)
    _row(log, result.episodes, seconds, score=score)
    return score.mean >= SOLVED * value


EXPERIMENT = Experiment(
    "combination-lock", "Who solves the combination lock, and after how many episodes", jobs, work
)
