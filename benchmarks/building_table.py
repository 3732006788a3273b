"""What the belief method reaches as a robot in a building, setting by setting.

    python -m benchmarks building-table --settings dock-lidar kidnapped --seeds 400 401 [--map PATH]

Every episode that touched the target while learning is counted. `docks5` and `anywhere` do not say
where an episode begins. The *informed* filter is the same one, shown 32 observations of every pose
with its name: nearly all there is to know from the sensor. `kidnapped` carries the robot, at a
random step, to a pose that learning has seen five times or more. `amcl` plays the episodes of the
evaluation by Monte Carlo localisation with the true sensor. `door` has a door closed that is open
on the map, `no-door` none; `door-log` and `no-door-log` ask a log for it, of 150 episodes that a
policy learned while the door was open. One Markdown row a setting and a map; with `--out`, one JSON
line a run as well.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import tasid
from benchmarks.followed import follow
from benchmarks.kidnapping import informed, kidnapped
from benchmarks.particles import MonteCarlo
from benchmarks.seeds import spelt
from tasid.learning.surprise import MapFault
from tasid.runs.learn import LearningResult
from tasid.runs.recording import record_episodes
from tasid.targets import BlockMDP

ETA = 0.1
_FOUND_WITHIN = 15
"""Steps after which a robot that was carried away should know its cell again."""
_LOGGED = 150
"""Episodes of a log."""
Row = dict[str, Any]


@dataclass(frozen=True)
class Setting:
    """A building, how many episodes it may take, and what is measured in it."""

    title: str
    episodes: int
    measure: Callable[[BlockMDP, LearningResult, int, int], Row]
    options: dict[str, Any] = field(default_factory=dict)
    later: dict[str, Any] = field(default_factory=dict)
    """What is different when it is measured."""


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


def carried_away(env: BlockMDP, result: LearningResult, seed: int, episodes: int) -> Row:
    """How often the likeliest cell is right again soon after the robot was carried away."""
    found = kidnapped(
        env,
        result,
        lambda one: (one.distance == 0) | ~one.going,
        episodes=episodes,
        seed=seed,
        spare=_FOUND_WITHIN + 2,
        within=_FOUND_WITHIN,
        in_a_row=1,
    )
    return {"ratio": found["found where informed do"], **found}


def beside_amcl(env: BlockMDP, result: LearningResult, seed: int, episodes: int) -> Row:
    """Success and localisation error in the same episodes."""
    plan = result.policy.plan
    actors: dict[str, Any] = {
        "ours": result.policy.actor,
        "amcl500": MonteCarlo.of(env, plan, particles=500),
        "amcl5000": MonteCarlo.of(env, plan, particles=5_000),
        "amcl500 recovering": MonteCarlo.of(env, plan, particles=500, recovers=True),
    }
    row: Row = {}
    for name, actor in actors.items():
        played = follow(env, actor, episodes=episodes, seed=seed)
        row[f"{name} success"] = float(played.arrived.mean())
        row[f"{name} metres"] = float(played.distance[played.going].mean())
    best = max(row[f"{name} success"] for name in actors if name != "ours")
    return {"ratio": row["ours success"] - best, **row}


def named_errors(env: BlockMDP, result: LearningResult, seed: int, episodes: int) -> Row:
    """Map errors that were named, and how many of them are real."""
    del seed, episodes
    return _named(env, result.diagnostics.map_errors)


def named_from_log(env: BlockMDP, result: LearningResult, seed: int, episodes: int) -> Row:
    """The same, by a log of the learned policy in the same building on another day."""
    del episodes
    log = record_episodes(env, result.policy, episodes=_LOGGED, explore=0.05, seed=seed)
    found = tasid.learn_from_episodes(log, env.simulator, eta=ETA)
    return {"logged": _LOGGED} | _named(env, found.diagnostics.map_errors)


def _named(env: BlockMDP, errors: Sequence[MapFault]) -> Row:
    sim, truth = env.simulator, env.latent.world.simulator
    wrong = sim.successor != truth.successor
    index = {label: i for i, label in enumerate(sim.states)}
    right = sum(bool(wrong[index[one.state], one.action]) for one in errors)
    return {"ratio": float(right > 0), "right": right, "false": len(errors) - right}


SETTINGS = {
    "dock-lidar": Setting("one dock: ratio", 200, earnings),
    "dock-camera": Setting("one dock, camera: ratio", 300, earnings, {"sensor": "camera"}),
    "docks5-lidar": Setting(
        "five docks, not told which: ratio", 300, beside_informed, {"starts": 5}
    ),
    "docks5-camera": Setting(
        "five docks, not told which, camera: ratio",
        300,
        beside_informed,
        {"starts": 5, "sensor": "camera"},
    ),
    "anywhere-lidar": Setting(
        "a start anywhere: ratio", 600, beside_informed, {"starts": "anywhere"}
    ),
    "anywhere-camera": Setting(
        "a start anywhere, camera: ratio",
        600,
        beside_informed,
        {"starts": "anywhere", "sensor": "camera"},
    ),
    "kidnapped": Setting("kidnapped: found where the informed filter does", 200, carried_away),
    "amcl": Setting(
        "success, less that of Monte Carlo localisation with the true sensor", 200, beside_amcl
    ),
    "door": Setting("a closed door: named", 200, named_errors, {"closed_doors": 1}),
    "no-door": Setting("no closed door: named all the same", 200, named_errors),
    "door-log": Setting(
        "a closed door, from a log: named", 200, named_from_log, later={"closed_doors": 1}
    ),
    "no-door-log": Setting("no closed door, from a log: named all the same", 200, named_from_log),
}
_HEADER = (
    "| setting | map | seeds | episodes | median | lowest | seconds | each |\n"
    "|---|---|---|---|---|---|---|---|"
)


def run(arguments: Sequence[str]) -> None:
    """Print a Markdown table."""
    options = _parse(arguments)
    if options.read is not None:
        print(brief(options.read) if options.brief else recorded(options.read))
        return
    print(_HEADER, flush=True)
    place = "shipped floor" if options.map is None else Path(options.map).stem
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


def recorded(path: Path) -> str:
    """The table of runs on record."""
    lines = [_line(name, place, rows) for name, place, rows in _on_record(path)]
    return "\n".join([_HEADER, *lines])


def brief(path: Path) -> str:
    """The same in words, without what single runs said."""
    header = "| what | map | poses | episodes | seeds | median | lowest |\n" + "|---" * 7 + "|"
    return "\n".join([header, *(_short_line(*one) for one in _on_record(path))])


def _short_line(name: str, place: str, rows: Sequence[Row]) -> str:
    poses, spent = rows[0]["poses"], max(row["episodes"] for row in rows)
    middle, lowest = (f"{of([row['ratio'] for row in rows]):.3f}" for of in (np.median, min))
    if "false" in rows[0]:
        right, wrong = (sum(row[key] > 0 for row in rows) for key in ("right", "false"))
        middle, lowest = f"{right} of {len(rows)}", f"{wrong} with a false one"
    seeds = f"{len(rows)} ({spelt(rows)})"
    cells = [SETTINGS[name].title, place, f"{poses:,}".replace(",", "\u202f"), str(spent), seeds]
    return "| " + " | ".join([*cells, middle, lowest]) + " |"


def _on_record(path: Path) -> Iterator[tuple[str, str, list[Row]]]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for name in SETTINGS:
        for place in sorted({row["map"] for row in rows}):
            those = [row for row in rows if (row["setting"], row["map"]) == (name, place)]
            if those:
                yield name, place, sorted(those, key=lambda row: row["seed"])


def measured(name: str, seed: int, where: str | None, episodes: int) -> Row:
    """Learn once, or take what was learned in the same building, and measure."""
    setting = SETTINGS[name]
    options = {"map": where, "seed": seed, **setting.options}
    env, result, seconds = _learned(json.dumps(options), setting.episodes)
    if setting.later:
        env = tasid.make("building", eta=ETA, **options, **setting.later)
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
        spelt(rows),
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
    parser.add_argument("--read", type=Path, help="print what such a file holds, run nothing")
    parser.add_argument("--brief", action="store_true", help="with --read, a shorter table")
    parser.add_argument("--out", type=Path, help="append one JSON line a run to this file")
    return parser.parse_args(arguments)
