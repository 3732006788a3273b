"""The paper's two figures of the visual grid world: against η, and against the map's height.

Both are the same runs of the belief method on the lava crossing, and differ in what varies.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tasid.checks.diagnosis import diagnose
from tasid.checks.scoring import score
from tasid.experiments.records import ToldLog
from tasid.experiments.sweep import Experiment, Job, JobContext
from tasid.learning.belief.method import BatchEnded
from tasid.maps import RobustPlan, policy_value, robust_dp
from tasid.runs.learn import LearningResult, learn
from tasid.targets import BlockMDP, make

ETA, HEIGHT = 0.1, 11
_MOST_PLANNED = 0.49
"""At η = ½ nothing can be decoded in principle: there, the plan and the learner assume this."""
_LEFT = 1


@dataclass(frozen=True)
class GridSize:
    """What a size of the experiments has."""

    seeds: tuple[int, ...]
    etas: Mapping[float, int]
    """How many episodes every η has: the larger it is, the less an episode tells."""
    heights: Mapping[int, int]
    """How many episodes every height has."""
    evaluation_episodes: int = 10_000
    horizon: int | None = None
    """The paper's rule, if not given."""


_ETAS = {0.1: 250, 0.2: 400, 0.3: 500, 0.4: 1_000, 0.5: 1_000}
SIZES = {
    "smoke": GridSize((0,), {0.1: 24}, {11: 24}, 128, horizon=3),
    "quick": GridSize(
        (200, 201),
        {eta: min(episodes, 400) for eta, episodes in _ETAS.items()},
        dict.fromkeys((10, 20, 100), 250),
        4_096,
    ),
    "full": GridSize((110, 111, 112, 113, 114), _ETAS, dict.fromkeys((10, 20, 50, 100), 400)),
}


def jobs(size: str, *, against: str) -> list[Job]:
    """One job per value of what varies and seed; a seed of each first."""
    what = SIZES[size]
    values: Mapping[Any, int] = what.etas if against == "eta" else what.heights
    return [
        Job(
            f"{against}-{value:g}",
            (seed,),
            {
                "eta": value if against == "eta" else ETA,
                "height": value if against == "height" else HEIGHT,
                "horizon": what.horizon,
                "episodes": episodes,
                "evaluation_episodes": what.evaluation_episodes,
                "method": "belief",
            },
            1.0,
        )
        for seed in what.seeds
        for value, episodes in values.items()
    ]


def work(job: Job, context: JobContext) -> None:
    """Learn, score, and put it beside what others earn in that very target."""
    asked, (seed,) = job.configuration, job.seeds
    options: dict[str, Any] = {name: asked[name] for name in ("eta", "height", "horizon")}
    env = make("lava-crossing", seed=seed, **options)
    log, result, seconds = learned(job, context, env, eta=min(asked["eta"], _MOST_PLANNED))
    scored, known = score(result.policy, env, episodes=asked["evaluation_episodes"], seed=seed)
    accuracy = diagnose(result.policy, env, seed=seed).decoder_accuracy
    log.end(
        episodes=result.episodes,
        mean=scored.mean,
        half=(scored.ci95[1] - scored.ci95[0]) / 2,
        ratio=known["ratio"],
        **peers(env, result.policy.plan),
        decoder_accuracy=float(accuracy.mean()),
        model=result.diagnostics.model,
        seconds=seconds,
    )


def learned(
    job: Job, context: JobContext, env: BlockMDP, *, eta: float
) -> tuple[ToldLog, LearningResult, float]:
    """What a job with one seed learns in its target, the log for it, and the seconds it took."""
    episodes, (seed,) = job.configuration["episodes"], job.seeds
    log = context.log(seed, planned_eta=eta)
    log.resume()

    def tell(event: BatchEnded) -> None:
        context.tell(0.9 * event.episodes / episodes)

    started = time.perf_counter()
    result = learn(env, eta=eta, episodes=episodes, seed=seed, callbacks=[tell])
    return log, result, round(time.perf_counter() - started, 2)


def peers(env: BlockMDP, plan: RobustPlan) -> dict[str, float]:
    """Exact values in this very target of what one may compare with."""
    world, sim = env.latent.world, env.simulator
    nominal = robust_dp(sim, eta=0.0)
    shape = (1, 1, sim.num_actions)
    open_loop = np.array([[step.action] for step in plan.route()])
    values: dict[str, Any] = {
        "robust": plan,
        "nominal": nominal,
        "random_walk": np.full(shape, 1 / sim.num_actions),
        "turning": np.full((1, 1), _LEFT),
        "open_loop": open_loop,
    }
    return {name: policy_value(world, policy) for name, policy in values.items()}


BY_ETA = Experiment(
    "minigrid-eta",
    "The visual grid world against η",
    partial(jobs, against="eta"),
    work,
)
BY_HEIGHT = Experiment(
    "minigrid-height",
    "The visual grid world against its height",
    partial(jobs, against="height"),
    work,
)
