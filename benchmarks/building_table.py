"""What the belief method reaches as a robot in a building, setting by setting.

    python -m benchmarks building-table --settings dock-lidar kidnapped --seeds 400 401 [--map PATH]

Every episode that touched the target while learning is counted. `docks5` and `anywhere` do not say
where an episode begins. The *informed* filter is the same one, shown 32 observations of every pose
with its name: what there is to know from the sensor. `kidnapped` carries the robot, after a third
of its route, to another pose of the route. `amcl` plays the episodes of the evaluation by Monte
Carlo localisation with the true sensor. `door` has a door closed that is open on the map, `no-door`
none. One Markdown row a setting and a map; with `--out`, one JSON line a run as well.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tasid
from benchmarks.building_episodes import Followed, follow
from benchmarks.particles import MonteCarlo
from tasid.algorithms.belief_method import Fit, actor_of, setting_for
from tasid.beliefs.actor import BeliefActor
from tasid.beliefs.classes import Classes
from tasid.beliefs.gaussian import Moments, fit_gaussians
from tasid.beliefs.looks import fit_looks
from tasid.envs import BlockMDP
from tasid.envs.target import seed_key
from tasid.mdp import RobustPlan
from tasid.runs.learn import LearningResult

ETA = 0.1
_SHOWN = 32
"""Observations of every pose that the informed filter is shown."""
_FOUND_WITHIN = 15
"""Steps after which a robot that was carried away should know its cell again."""
Row = dict[str, Any]


@dataclass(frozen=True)
class Setting:
    """A building, how many episodes it may take, and what is measured in it."""

    episodes: int
    measure: Callable[[BlockMDP, LearningResult, int, int], Row]
    options: dict[str, Any] = field(default_factory=dict)


def earnings(env: BlockMDP, result: LearningResult, seed: int, episodes: int) -> Row:
    """Return beside the robust plan's with the true pose."""
    plan = result.policy.plan
    score = tasid.evaluate(result.policy, env, episodes=episodes, seed=seed)
    robust = env.latent.robust_value(plan)
    error = float(score.returns.std() / np.sqrt(score.returns.size) / robust)
    return {"ratio": score.mean / robust, "error": error}


def beside_informed(env: BlockMDP, result: LearningResult, seed: int, episodes: int) -> Row:
    """The same, and what the informed filter earns."""
    robust = env.latent.robust_value(result.policy.plan)
    told = follow(env, informed(env, result.policy.plan), episodes=episodes, seed=seed)
    limit = float(told.returns.mean() / robust)
    return earnings(env, result, seed, episodes) | {"informed": limit}


def kidnapped(env: BlockMDP, result: LearningResult, seed: int, episodes: int) -> Row:
    """How often the likeliest cell is right again soon after the robot was carried away."""
    plan = result.policy.plan
    index = {label: i for i, label in enumerate(env.simulator.states)}
    route = list(dict.fromkeys(index[step.state] for step in plan.route()))
    step = len(route) // 3
    carried = (step, np.array(route[1:-1]))
    ours, told = (
        follow(env, actor, episodes=episodes, seed=seed, carried=carried)
        for actor in (result.policy.actor, informed(env, plan))
    )
    found, possible = _found(ours, step), _found(told, step)
    both = float(found[possible].mean()) if possible.any() else float("nan")
    return {"ratio": both, "found": float(found.mean()), "informed": float(possible.mean())}


def _found(episodes: Followed, step: int) -> np.ndarray:
    after = slice(step, step + _FOUND_WITHIN)
    right: np.ndarray = (episodes.distance[after] == 0).any(axis=0)
    return right


def beside_amcl(env: BlockMDP, result: LearningResult, seed: int, episodes: int) -> Row:
    """Success and localisation error in the same episodes."""
    plan = result.policy.plan
    actors: dict[str, Any] = {
        "ours": result.policy.actor,
        **{f"amcl{n}": MonteCarlo.of(env, plan, particles=n) for n in (500, 5_000)},
    }
    row: Row = {}
    for name, actor in actors.items():
        played = follow(env, actor, episodes=episodes, seed=seed)
        row[f"{name} success"] = float(played.arrived.mean())
        row[f"{name} metres"] = float(played.distance[played.going].mean())
    best = max(row["amcl500 success"], row["amcl5000 success"])
    return {"ratio": row["ours success"] - best, **row}


def named_errors(env: BlockMDP, result: LearningResult, seed: int, episodes: int) -> Row:
    """Map errors that were named, and how many of them are real."""
    del seed, episodes
    sim, truth = env.simulator, env.latent.world.simulator
    wrong = sim.successor != truth.successor
    index = {label: i for i, label in enumerate(sim.states)}
    errors = result.diagnostics.map_errors
    right = sum(bool(wrong[index[one.state], one.action]) for one in errors)
    return {"ratio": float(right > 0), "right": right, "false": len(errors) - right}


SETTINGS = {
    "dock-lidar": Setting(200, earnings),
    "dock-camera": Setting(300, earnings, {"sensor": "camera"}),
    "docks5-lidar": Setting(300, beside_informed, {"starts": 5}),
    "docks5-camera": Setting(300, beside_informed, {"starts": 5, "sensor": "camera"}),
    "anywhere-lidar": Setting(600, beside_informed, {"starts": "anywhere"}),
    "anywhere-camera": Setting(600, beside_informed, {"starts": "anywhere", "sensor": "camera"}),
    "kidnapped": Setting(200, kidnapped),
    "amcl": Setting(200, beside_amcl),
    "door": Setting(200, named_errors, {"closed_doors": 1}),
    "no-door": Setting(200, named_errors),
}


def informed(env: BlockMDP, plan: RobustPlan) -> BeliefActor:
    """The policy that was shown every pose, so many times."""
    setting = setting_for(plan)
    classes = Classes.of(setting.chain, "place", plan.simulator)
    states = np.asarray(setting.chain.states[0])
    shown = [_shown(env.target, jnp.asarray(states), number) for number in range(_SHOWN)]
    looks = fit_looks(np.concatenate(shown[:2]))
    features = [np.asarray(looks(jnp.asarray(x), jnp.int32(0)), np.float64) for x in shown]
    counts = np.full(classes.number, float(_SHOWN))
    rows = np.concatenate(features)
    moments = Moments(
        counts, np.sum(features, axis=0), float(len(rows)), rows.sum(0), rows.T @ rows
    )
    emission = fit_gaussians(moments, dimensions=setting.dimensions)
    return actor_of(setting, Fit("informed", classes, looks, emission, counts))


def _shown(target: Any, states: jax.Array, number: int) -> np.ndarray:
    keys = jax.random.split(jax.random.fold_in(seed_key(2), number), states.size)
    return np.asarray(_look(target, keys, states))


@jax.jit
def _look(target: Any, keys: jax.Array, states: jax.Array) -> jax.Array:
    seen: jax.Array = target._seen(states, keys, 1, target._episodes(keys))
    return seen


def run(arguments: Sequence[str]) -> None:
    """Print a Markdown table."""
    options = _parse(arguments)
    place = "shipped floor" if options.map is None else Path(options.map).stem
    print("| setting | map | seeds | episodes | median | lowest | seconds | each |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for name in options.settings:
        rows = []
        for seed in options.seeds:
            row = {"setting": name, "map": place, "seed": seed}
            row |= measured(name, seed, options.map, options.episodes)
            rows.append(row)
            if options.out is not None:
                with options.out.open("a") as file:
                    file.write(json.dumps(row) + "\n")
        print(_line(name, place, rows), flush=True)


def measured(name: str, seed: int, where: str | None, episodes: int) -> Row:
    """Learn once, or take what was learned in the same building, and measure."""
    setting = SETTINGS[name]
    given = json.dumps({"map": where, "seed": seed, **setting.options})
    env, result, seconds = _learned(given, setting.episodes)
    found = setting.measure(env, result, seed, episodes)
    shape = {"poses": env.simulator.num_states, "horizon": env.simulator.horizon}
    return {"episodes": result.episodes, "seconds": seconds, **shape, **found}


@cache
def _learned(given: str, episodes: int) -> tuple[BlockMDP, LearningResult, float]:
    options = json.loads(given)
    env = tasid.make("building", eta=ETA, **options)
    started = time.perf_counter()
    result = tasid.learn(env, eta=ETA, episodes=episodes, seed=options["seed"])
    return env, result, time.perf_counter() - started


def _line(name: str, place: str, rows: Sequence[Row]) -> str:
    ratios = [row["ratio"] for row in rows]
    skipped = {"setting", "map", "seed", "episodes", "seconds", "poses", "horizon"}
    each = [", ".join(f"{key} {row[key]:.3f}" for key in row if key not in skipped) for row in rows]
    cells = [
        name,
        place,
        f"{rows[0]['seed']} … {rows[-1]['seed']}" if len(rows) > 1 else str(rows[0]["seed"]),
        str(max(row["episodes"] for row in rows)),
        f"{np.median(ratios):.3f}",
        f"{min(ratios):.3f}",
        f"{np.median([row['seconds'] for row in rows]):.0f}",
        "; ".join(each),
    ]
    return "| " + " | ".join(cells) + " |"


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks building-table",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(400, 410)))
    parser.add_argument("--map", default=None, help="a ROS map (.yaml); our own floor if not given")
    parser.add_argument("--episodes", type=int, default=1_024, help="to evaluate on")
    parser.add_argument("--out", type=Path, help="append one JSON line a run to this file")
    return parser.parse_args(arguments)
