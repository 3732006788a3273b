"""The paper's running example, a robot in a building: sensors and docks.

A delivery on the floor plan that comes with the package, observed by a laser or a camera.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tasid
from reproduction.pages import Page, editions, spread
from reproduction.records import Experiment, Job, Outcome, Record
from tasid.keys import Phase, episode_keys
from tasid.layout import FREE
from tasid.policies.evaluate import yardsticks
from tasid.report.maps import plan_figure
from tasid.report.page import Section, Table, number
from tasid.report.watch import KidnappedTarget
from tasid.targets.rollout import rollout

ETA = 0.1
CORRIDOR = "########\n#S.....#\n#.####.#\n#.....G#\n########"
"""The map of the smallest size."""


@dataclass(frozen=True)
class BuildingSize:
    """What a size of the experiment has."""

    seeds: tuple[int, ...]
    settings: tuple[str, ...]
    evaluation_episodes: int = 2_048
    map: str | None = None
    """None: the floor plan of the package."""


SETTINGS: dict[str, tuple[int, dict[str, Any]]] = {
    "dock-lidar": (200, {"sensor": "lidar"}),
    "dock-camera": (300, {"sensor": "camera"}),
    "docks5-lidar": (300, {"sensor": "lidar", "starts": 5}),
    "docks5-camera": (300, {"sensor": "camera", "starts": 5}),
    "anywhere-lidar": (600, {"sensor": "lidar", "starts": "anywhere"}),
    "door": (200, {"sensor": "lidar", "closed_doors": [[57.5, 7.0]]}),
}
"""Episodes and options of the building: one dock, five docks or any pose to start from without
knowing which, and a door that is closed in the building but open on the map."""
SIZES = {
    "smoke": BuildingSize((0,), ("dock-lidar",), 64, CORRIDOR),
    "quick": BuildingSize((210, 211), ("dock-lidar", "dock-camera"), 1_024),
    "full": BuildingSize(tuple(range(400, 410)), tuple(SETTINGS)),
}
SMOKE_EPISODES = 24


def jobs(size: str) -> list[Job]:
    """One job per setting and seed."""
    what = SIZES[size]
    return [
        Job(
            name,
            seed,
            {
                "method": "belief",
                "options": {"map": what.map, **SETTINGS[name][1]},
                "episodes": SMOKE_EPISODES if size == "smoke" else SETTINGS[name][0],
                "evaluation_episodes": what.evaluation_episodes,
            },
        )
        for name in what.settings
        for seed in what.seeds
    ]


def run(job: Job, folder: Path) -> Outcome:
    """Learn, evaluate, compare with exact values and look for map errors."""
    asked = job.configuration
    env = tasid.make("building", eta=ETA, seed=job.seed, **asked["options"])
    started = time.perf_counter()
    learned = tasid.learn(env, eta=ETA, episodes=asked["episodes"], seed=job.seed)
    seconds = time.perf_counter() - started
    score = tasid.evaluate(
        learned.policy, env, episodes=asked["evaluation_episodes"], seed=job.seed
    )
    exact = yardsticks(learned.policy, env)
    assert exact is not None
    map_, true = env.simulator, env.latent.world.simulator
    wrong = map_.successor != true.successor
    index = {label: s for s, label in enumerate(map_.states)}
    errors = [bool(wrong[index[e.state], e.action]) for e in learned.diagnostics.map_errors]
    return Outcome(
        {
            "episodes": learned.episodes,
            "mean": score.mean,
            "half": (score.ci95[1] - score.ci95[0]) / 2,
            "arrived": float((score.returns > 0).mean()),
            "ratio": score.mean / exact.robust_value,
            "robust": exact.robust_value,
            "optimal": exact.optimal_value,
            "nominal": exact.nominal_plan_value,
            "open_loop": exact.open_loop_value,
            "states": map_.num_states,
            "horizon": env.horizon,
            "right": sum(errors),
            "false": len(errors) - sum(errors),
            "seconds": round(seconds, 2),
            **kidnapped(learned.policy, env, asked["evaluation_episodes"], job.seed),
        }
    )


def kidnapped(policy: Any, env: Any, episodes: int, seed: int) -> dict[str, float]:
    """What follows after the robot was carried to any pose of the map.

    It is carried after a sixth of the steps to a pose drawn from all that are neither goal nor
    hazard. Returned are the mean return from then on and the shares of episodes that reach the goal
    or a hazard; `informed` is the robust plan, carried to the same poses, for an oracle that sees
    the true pose.
    """
    sim, at = env.simulator, max(env.horizon // 6, 1)
    kinds = sim.layout.kinds
    to = np.random.default_rng(seed).choice(np.flatnonzero(kinds == FREE), episodes)
    keys = episode_keys(seed, Phase.DIAGNOSIS, 0, episodes)
    oracle = env.latent.robust_policy(policy.plan)
    result = {}
    for name, target, robot in (
        ("kidnapped", env, policy),
        ("informed", env.latent.oracle_target(), oracle),
    ):
        carried = KidnappedTarget(target, at, to)
        played = rollout(carried, robot, keys, keep_from=env.horizon + 1, width=episodes)
        rewards = played.rewards[:, at:]
        result[f"{name}_return"] = float(rewards.sum(axis=1).mean())
        result[f"{name}_goal"] = float((rewards > 0.5).any(axis=1).mean())
        result[f"{name}_hazard"] = float((rewards < -0.5).any(axis=1).mean())
    return result


def page(size: str, records: list[Record]) -> Page:
    """The floor plan and the tables of settings."""
    shown = Page()
    env = tasid.make("building", eta=ETA, map=SIZES[size].map)
    plan = tasid.robust_dp(env.simulator, eta=ETA)
    routes = plan_figure(plan, tasid.robust_dp(env.simulator, eta=0.0))
    caption = (
        f"{number(env.simulator.num_states)} poses, {env.horizon} steps per episode: routes of the "
        f"plans for η = {ETA:g} and for η = 0."
    )
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(record.setting, []).append(record)
    measured = {
        "ratio": "ratio", "mean": "return", "arrived": "arrived", "right": "map errors",
        "false": "false ones", "seconds": "seconds",
    }  # fmt: skip
    exact = ("robust", "optimal", "nominal", "open_loop")
    carried = [f"{robot}_{what}" for what in ("return", "goal", "hazard")
               for robot in ("kidnapped", "informed")]  # fmt: skip
    rows, values_of_plans, kidnappings, others = [], [], [], []
    for setting, members in sorted(groups.items(), key=lambda group: _place(group[0])):
        values = {name: [float(r.result[name]) for r in members] for name in members[0].result}
        seeds = [record.seed for record in members]
        shown.table.append({"setting": setting, "seeds": seeds, **values})
        head = (setting, str(len(members)), number(int(max(values["episodes"]))))
        if setting in SETTINGS:
            cells = [spread(values.get(name, ())) for name in measured]
            rows.append((*head, *cells, editions(members)))
            values_of_plans.append((setting, *(spread(values.get(name, ())) for name in exact)))
            if carried[0] in values:
                kidnappings.append((setting, *(spread(values[name]) for name in carried)))
        else:
            known = {"episodes", "seconds", "horizon", "error"}
            text = "; ".join(f"{name} {spread(values[name])}" for name in sorted({*values} - known))
            others.append((*head, editions(members), text))
    texts = (
        "Returns are of evaluation episodes in the target that the policy was learned in. Medians "
        "over seeds.",
        "Exact values, for an oracle that sees the pose.",
        "After the robot was carried to any pose of the map: return from then on, and shares of "
        "episodes that reach the goal or a hazard. The informed robot sees its pose.",
    )
    columns = ("setting", "seeds", "episodes", *measured.values(), "tasid")
    tables = [Table(columns, rows, texts[0]), Table(("setting", *exact), values_of_plans, texts[1])]
    if kidnappings:
        columns = ("setting", *(name.replace("_", ": ") for name in carried))
        tables.append(Table(columns, kidnappings, texts[2]))
    shown.sections = [Section("The floor", figures=[shown.draw("floor", routes, caption)])]
    if rows:
        shown.sections.append(Section("Results", tables=tables))
    if others:
        text = (
            "These measurements have no code in this edition, or are of other floors: gdc-3ne is "
            "another floor plan, and the first edition read the package's own as 3 744 poses."
        )
        columns = ("setting", "seeds", "episodes", "tasid", "measured")
        table = Table(columns, others)
        shown.sections.append(Section("First edition only", paragraphs=(text,), tables=[table]))
    return shown


def _place(setting: str) -> tuple[int, str]:
    """Settings in their order, then others by name."""
    order = list(SETTINGS)
    return (order.index(setting) if setting in order else len(order)), setting


EXPERIMENT = Experiment("building", "The robot in the building", jobs, run, page)
