"""What the belief method reaches, setting by setting, over seeds that nothing was tuned on.

    python -m benchmarks belief-table --settings lock-H40 lava-eta0.1 --seeds 300 … 309 [--auto]

Every episode that touched the target is counted. Evaluations take as many episodes as a standard
error of 0.5 % of the robust value asks for. One Markdown row a setting; with `--out`, one JSON line
a run as well, of which `--read` prints the rows again and `--brief` a shorter table.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
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


@dataclass(frozen=True)
class Group:
    """Settings that make one row of the short table."""

    title: str
    settings: tuple[str, ...]
    paper: str = "–"
    """Episodes in the paper's tables."""


def _named(beginning: str) -> tuple[str, ...]:
    return tuple(name for name in SETTINGS if name.startswith(beginning))


GROUPS = (
    Group("lock, 10 steps", ("lock-H10",), "11 000"),
    Group("lock, 20 steps", ("lock-H20",), "48 000"),
    Group("lock, 40 steps", ("lock-H40",), "393 000"),
    Group("lock, 100 steps", ("lock-H100",)),
    Group("lock, 400 steps, η = 0.02", ("lock-H400",)),
    Group(
        "lock: 4 or 25 actions, η = 0.3, Bernoulli observations, two more layers",
        ("lock-A4", "lock-A25", "lock-eta0.3", "lock-bernoulli", "lock-depth2"),
    ),
    Group("lock, 2 to 8 starts in one room", _named("lock-layer0")),
    Group("lock, 2 to 8 starts, a copy each", _named("lock-copies")),
    Group("lava crossing in noisy pictures", ("lava-eta0.1",), "500 000"),
    Group("lava crossing, η = 0.2", ("lava-eta0.2",)),
    Group("lava crossing, η = 0.3", ("lava-eta0.3",)),
    Group("lava crossing, η = 0.4", ("lava-eta0.4",)),
    Group("lava crossing, 10 to 100 rows or 16 columns", (*_named("lava-height"), "lava-width16")),
    Group("lava crossing, one of four docks", ("lava-docks4",)),
    Group("coloured maps, 37 to 15 600 states", tuple(f"coloured-{3 * 10**k}" for k in range(4))),
    Group("coloured map, 48 600 states", ("coloured-12000",)),
    Group("FrozenLake 4×4, success 0.8, pictures", ("lake-4x4-pictures",)),
    Group("FrozenLake 8×8, success 0.8, numbers of states", ("lake-8x8-numbers",)),
)
_HEADER = (
    "| setting | episodes | ratio median | lowest | ≥ 0.95 | skill median | seconds | ratios |\n"
    "|---|---|---|---|---|---|---|---|"
)


def run(arguments: Sequence[str]) -> None:
    """Print a Markdown table."""
    options = _parse(arguments)
    if options.read is not None:
        text = brief(options.read) if options.brief else recorded(options.read)
        print(text)
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


def recorded(path: Path) -> str:
    """The tables of runs on record: first with given numbers of episodes, then with `--auto`."""
    rows = _rows(path)
    tables = []
    for auto in (False, True):
        those = {one: [row for row in rows if _is(row, one, auto)] for one in SETTINGS}
        lines = [_line(one, found) for one, found in those.items() if found]
        tables.append("\n".join([_HEADER, *lines]))
    return "\n\n".join(tables)


def brief(path: Path) -> str:
    """Runs on record in one table, settings that are alike in one row."""
    rows = _rows(path)
    header = (
        "| setting | the paper's episodes | episodes | ratio | ≥ 0.95 | skill "
        "| episodes by `auto` | ratio | ≥ 0.95 |\n|---|---|---|---|---|---|---|---|---|"
    )
    lines = [header, *(_group_line(group, rows) for group in GROUPS)]
    return "\n".join([*lines, "", f"{_failures(rows, auto=False)} {_failures(rows, auto=True)}"])


def _failures(rows: Sequence[dict[str, Any]], *, auto: bool) -> str:
    """How many runs fell short of 0.95, and how far."""
    ratios = [row["ratio"] for row in rows if row["auto"] == auto]
    short = [ratio for ratio in ratios if ratio < 0.95]
    how = "by `auto`" if auto else "with given numbers of episodes"
    lowest = f", the lowest at {min(ratios):.3f}" if short else ""
    return f"Of {len(ratios)} runs {how}, {len(short) or 'none'} ended below 0.95{lowest}."


def _group_line(group: Group, rows: Sequence[dict[str, Any]]) -> str:
    cells = [group.title, group.paper]
    for auto in (False, True):
        those = [[row for row in rows if _is(row, one, auto)] for one in group.settings]
        ran = [found for found in those if found]
        if not ran:
            cells += ["–"] * (3 if auto else 4)
            continue
        flat = [row for found in ran for row in found]
        spent = sorted(row["episodes"] for row in flat)
        middle = f"{np.median(spent):,.0f} ({spent[0]:,} … {spent[-1]:,})" if auto else ""
        given = _range(f"{n:,}" for n in (spent[0], spent[-1]))
        cells.append((middle or given).replace(",", "\u202f"))
        medians = sorted(np.median([row["ratio"] for row in found]) for found in ran)
        lowest = min(row["ratio"] for row in flat)
        cells.append(f"{_range(f'{one:.3f}' for one in (medians[0], medians[-1]))} ({lowest:.3f})")
        solved = f"{sum(row['ratio'] >= 0.95 for row in flat)} of {len(flat)}"
        if len(ran) < len(those):
            solved += f" ({len(ran)} of {len(those)} settings)"
        cells.append(solved)
        if not auto:
            skills = sorted(np.median([row["skill"] for row in found]) for found in ran)
            cells.append(_range(f"{one:.3f}" for one in (skills[0], skills[-1])))
    return "| " + " | ".join(cells) + " |"


def _range(ends: Iterable[str]) -> str:
    """From the first to the last, or one of them if they are the same."""
    return " … ".join(dict.fromkeys(ends))


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


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
    parser.add_argument(
        "--brief", action="store_true", help="with --read, like settings in one row"
    )
    parser.add_argument("--out", type=Path, help="append one JSON line a run to this file")
    return parser.parse_args(arguments)
