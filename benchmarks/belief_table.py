"""What the belief method reaches, setting by setting, over seeds that nothing was tuned on.

    python -m benchmarks belief-table --settings lock-H40 lava-eta0.1 --seeds 300 … 309 [--auto]

Every episode that touched the target is counted. Evaluations take as many episodes as a standard
error of 0.5 % of the robust value asks for. One Markdown row a setting; with `--out`, one JSON line
a run as well.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

import tasid
from benchmarks.state_space import coloured_map
from tasid.checks.scoring import yardsticks
from tasid.maps import AbstractSimulator, return_range

ERROR = 0.005
"""The standard error of the ratio that evaluations aim for."""
_LEAST, _MOST = 2_048, 65_536


@dataclass(frozen=True)
class Setting:
    """An environment by seed, its η, and how many episodes it may take."""

    make: Callable[[int], tuple[Any, AbstractSimulator | None]]
    eta: float
    episodes: int


def _ours(name: str, seed: int, **options: Any) -> tuple[Any, None]:
    return tasid.make(name, seed=seed, **options), None


def _coloured(width: int, seed: int) -> tuple[Any, None]:
    return coloured_map(width, eta=0.1, seed=seed), None


def _lake(seed: int, *, horizon: int, observe: str, **options: Any) -> tuple[Any, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sim = AbstractSimulator.from_toy_text(
            gymnasium.make("FrozenLake-v1", **options),
            horizon=horizon,
            deterministic="most-likely",
        )
        target = tasid.wrap("FrozenLake-v1", num_envs=32, observe=observe, **options)
    return target, sim


def _settings() -> dict[str, Setting]:
    lock = partial(partial, _ours, "combination-lock")
    lava = partial(partial, _ours, "lava-crossing")
    found = {
        f"lock-H{h}": Setting(lock(horizon=h), 0.1, n)
        for h, n in ((10, 64), (20, 96), (40, 128), (100, 400))
    }
    found["lock-H400"] = Setting(lock(horizon=400, eta=0.02), 0.02, 1_000)
    found["lock-A4"] = Setting(lock(horizon=40, num_actions=4), 0.1, 192)
    found["lock-A25"] = Setting(lock(horizon=40, num_actions=25), 0.1, 192)
    found["lock-eta0.3"] = Setting(lock(horizon=20, eta=0.3), 0.3, 192)
    found["lock-bernoulli"] = Setting(lock(horizon=40, bernoulli=True), 0.1, 192)
    found["lock-depth2"] = Setting(lock(horizon=20, depth=2), 0.1, 192)
    for starts in (2, 4, 8):
        for h in (10, 20):
            for layout, n in (("layer0", 256), ("copies", 128 * starts)):
                name = f"lock-{layout}-N{starts}-H{h}"
                found[name] = Setting(lock(horizon=h, starts=starts, layout=layout), 0.1, n)
    for eta, n in ((0.1, 250), (0.2, 400), (0.3, 500), (0.4, 1_000)):
        found[f"lava-eta{eta}"] = Setting(lava(eta=eta), eta, n)
    for height in (10, 20, 50, 100):
        found[f"lava-height{height}"] = Setting(lava(height=height), 0.1, 400)
    found["lava-width16"] = Setting(lava(width=16), 0.1, 400)
    found["lava-docks4"] = Setting(lava(starts=4), 0.1, 400)
    for width in (3, 30, 300, 3_000, 12_000):
        found[f"coloured-{width}"] = Setting(partial(_coloured, width), 0.1, 150)
    lake = partial(partial, _lake)
    found["lake-4x4-pictures"] = Setting(
        lake(horizon=20, observe="render", success_rate=0.8), 0.2, 400
    )
    found["lake-8x8-numbers"] = Setting(
        lake(horizon=40, observe="observation", success_rate=0.8, map_name="8x8"), 0.2, 400
    )
    return found


SETTINGS = _settings()
_HEADER = (
    "| setting | episodes | ratio median | lowest | ≥ 0.95 | skill median | seconds | ratios |\n"
    "|---|---|---|---|---|---|---|---|"
)


def run(arguments: Sequence[str]) -> None:
    """Print a Markdown table."""
    options = _parse(arguments)
    if options.read is not None:
        _print_recorded(options.read)
        return
    print(_HEADER, flush=True)
    for name in options.settings:
        rows = []
        for seed in options.seeds:
            row = {"setting": name, "seed": seed, "auto": options.auto}
            row |= measure(SETTINGS[name], seed, auto=options.auto)
            rows.append(row)
            if options.out is not None:
                with options.out.open("a") as file:
                    file.write(json.dumps(row) + "\n")
        print(_line(name, rows), flush=True)


def _print_recorded(path: Path) -> None:
    """The tables of runs on record: first with given numbers of episodes, then with `--auto`."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for auto in (False, True):
        named = [one for one in SETTINGS if any(_is(row, one, auto) for row in rows)]
        if named:
            print(_HEADER)
        for one in named:
            print(_line(one, [row for row in rows if _is(row, one, auto)]))
        print()


def _is(row: dict[str, Any], setting: str, auto: bool) -> bool:
    return row["setting"] == setting and row["auto"] == auto


def measure(setting: Setting, seed: int, *, auto: bool) -> dict[str, Any]:
    """Learn once and evaluate."""
    env, sim = setting.make(seed)
    started = time.perf_counter()
    result = tasid.learn(
        env, sim, eta=setting.eta, episodes="auto" if auto else setting.episodes, seed=seed
    )
    seconds = time.perf_counter() - started
    policy = result.policy
    exact = yardsticks(policy, env)
    assert exact is not None, "all these settings have exact values"
    score = tasid.evaluate(policy, env, episodes=_LEAST, seed=seed)
    error = score.returns.std() / exact.robust_value
    needed = math.ceil((error / ERROR) ** 2 / _LEAST) * _LEAST
    if needed > _LEAST:
        score = tasid.evaluate(policy, env, episodes=min(needed, _MOST), seed=seed)
    low, high = return_range(policy.simulator)
    lead = exact.robust_value - exact.blind_value
    return {
        "episodes": result.episodes,
        "ratio": score.mean / exact.robust_value,
        "error": float(score.returns.std() / math.sqrt(score.returns.size) / exact.robust_value),
        "skill": (score.mean - exact.blind_value) / lead if lead > 0 else None,
        "regret": (exact.robust_value - score.mean) / (high - low),
        "seconds": seconds,
        "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "stopped": result.diagnostics.stopped,
        "map_errors": len(result.diagnostics.map_errors),
        "warnings": list(result.diagnostics.warnings),
    }


def _line(name: str, rows: Sequence[dict[str, Any]]) -> str:
    ratios = [row["ratio"] for row in rows]
    skills = [row["skill"] for row in rows if row["skill"] is not None]
    episodes = sorted({row["episodes"] for row in rows})
    median = np.median([row["episodes"] for row in rows])
    spent = f"{episodes[0]}"
    if len(episodes) > 1:
        spent += f" … {episodes[-1]}, median {median:.0f}"
    cells = [
        name,
        spent,
        f"{np.median(ratios):.3f}",
        f"{min(ratios):.3f}",
        f"{sum(ratio >= 0.95 for ratio in ratios)} of {len(rows)}",
        f"{np.median(skills):.3f}" if skills else "–",
        f"{np.median([row['seconds'] for row in rows]):.0f}",
        " ".join(f"{ratio:.3f}" for ratio in ratios),
    ]
    return "| " + " | ".join(cells) + " |"


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks belief-table",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(300, 310)))
    parser.add_argument("--auto", action="store_true", help="let evidence decide the episodes")
    parser.add_argument("--read", type=Path, help="print what such a file holds, run nothing")
    parser.add_argument("--out", type=Path, help="append one JSON line a run to this file")
    return parser.parse_args(arguments)
