"""The robot in the building: what it learns from a laser and from a camera, where it begins.

The paper's running example, on the floor that comes with the package.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tasid.checks.scoring import yardsticks
from tasid.experiments.grid.jobs import ETA, learned
from tasid.experiments.sweep import Experiment, Job, JobContext
from tasid.policies.evaluate import evaluate
from tasid.targets import make

CORRIDOR = "########\n#S.....#\n#.####.#\n#.....G#\n########"
"""What the smallest size drives through instead of the floor."""


@dataclass(frozen=True)
class BuildingSetting:
    """How a robot sees, where it begins, and how many episodes it learns from."""

    sensor: str
    starts: int | str
    episodes: int

    @property
    def name(self) -> str:
        """For files and tables."""
        begins = {1: "dock", "anywhere": "anywhere"}.get(self.starts, f"docks{self.starts}")
        return f"{begins}-{self.sensor}"


@dataclass(frozen=True)
class BuildingSize:
    """What a size of the experiment has."""

    seeds: tuple[int, ...]
    settings: tuple[BuildingSetting, ...]
    evaluation_episodes: int = 2_048
    map: str | None = None


_DOCK = BuildingSetting("lidar", 1, 200), BuildingSetting("camera", 1, 300)
SIZES = {
    "smoke": BuildingSize((0,), (BuildingSetting("lidar", 1, 24),), 64, map=CORRIDOR),
    "quick": BuildingSize((210, 211), _DOCK, 1_024),
    "full": BuildingSize(
        tuple(range(120, 130)),
        (*_DOCK, BuildingSetting("lidar", 5, 300), BuildingSetting("camera", 5, 300)),
    ),
}


def jobs(size: str) -> list[Job]:
    """One job per setting and seed; a seed of each first."""
    what = SIZES[size]
    return [
        Job(
            setting.name,
            (seed,),
            {
                "sensor": setting.sensor,
                "starts": setting.starts,
                "map": what.map,
                "episodes": setting.episodes,
                "evaluation_episodes": what.evaluation_episodes,
            },
            1.0,
        )
        for seed in what.seeds
        for setting in what.settings
    ]


def work(job: Job, context: JobContext) -> None:
    """Learn, score, and put it beside the plans that know where they are."""
    asked, (seed,) = job.configuration, job.seeds
    options: dict[str, Any] = {name: asked[name] for name in ("sensor", "starts", "map")}
    env = make("building", eta=ETA, seed=seed, **options)
    log, result, seconds = learned(job, context, env, eta=ETA)
    score = evaluate(result.policy, env, episodes=asked["evaluation_episodes"], seed=seed)
    known = yardsticks(result.policy, env)
    assert known is not None
    log.end(
        episodes=result.episodes,
        mean=score.mean,
        half=(score.ci95[1] - score.ci95[0]) / 2,
        arrived=float((score.returns > 0).mean()),
        robust=known.robust_value,
        nominal=known.nominal_plan_value,
        blind=known.blind_value,
        poses=env.simulator.num_states,
        horizon=env.simulator.horizon,
        map_errors=len(result.diagnostics.map_errors),
        seconds=seconds,
    )


EXPERIMENT = Experiment("building", "The robot in the building", jobs, work)
