"""What the records of the lock experiment say, beside what the paper published."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from tasid.experiments.lock.jobs import SOLVED
from tasid.experiments.records import Series
from tasid.theory.budget_table import PAPER_SEEDS

Count = int | None
"""Episodes until solved; None if never."""

NAMES = {
    "tasid-belief": "TASID, belief method",
    "tasid-paper": "TASID, paper's method",
    "ppo": "PPO",
    "ppo+rnd": "PPO+RND",
    "ppo+dr": "PPO+DR",
    "ppo+rnd+dr": "PPO+RND+DR",
}
"""The algorithms of the figures, in their order."""

_NEVER = (None,) * 5
PUBLISHED: dict[tuple[str, int], tuple[Count, ...]] = {
    **{
        ("tasid-paper", horizon): tuple(None if math.isinf(n) else int(n) for n in episodes)
        for horizon, episodes in PAPER_SEEDS.items()
    },
    ("ppo", 5): (8_000, 5_000, 6_000, 7_000, 5_000),
    **{("ppo", horizon): _NEVER for horizon in (10, 20, 40)},
    ("ppo+rnd", 5): (7_000, 7_000, 8_000, 6_000, 5_000),
    ("ppo+rnd", 10): (14_000, 47_000, 10_000, 16_000, 14_000),
    ("ppo+rnd", 20): (121_000, 120_000, 79_000, 79_000, 90_000),
    ("ppo+rnd", 40): _NEVER,
    ("ppo+dr", 5): (2_000, 6_000, 6_000, 7_000, 1_000),
    **{("ppo+dr", horizon): _NEVER for horizon in (10, 20, 40)},
    ("ppo+rnd+dr", 5): (6_000, 2_000, 1_000, 7_000, 3_000),
    ("ppo+rnd+dr", 10): (62_000, 90_000, None, None, 88_000),
    **{("ppo+rnd+dr", horizon): _NEVER for horizon in (20, 40)},
}
"""Episodes needed by each of five seeds: the appendix table "Results for all random seeds to
generate Figure 2(b)" of Liu, Misra, Dudík and Schapire (2022)."""


@dataclass(frozen=True)
class Result:
    """One algorithm at one horizon."""

    algorithm: str
    """As in NAMES, or with the searched value behind it."""
    horizon: int
    seeds: tuple[int, ...]
    episodes: tuple[Count, ...]
    """Until solved, seed by seed; None if not within the budget."""
    best: tuple[float, ...]
    """The highest evaluation of every seed, as a share of the robust value."""
    unfinished: int
    """How many of the seeds are still at work; they count as not solved so far."""
    seconds: float
    """What it took on the clock, all seeds together."""
    undisturbed: float
    """The same, had every row taken as long as the quickest tenth of its kind."""
    series: tuple[Series, ...]

    @property
    def median(self) -> Count:
        """Over seeds, where never is more than any number."""
        return median_of(self.episodes)

    @property
    def published(self) -> tuple[Count, ...] | None:
        """The paper's episodes of this algorithm and horizon, if it has any."""
        return PUBLISHED.get((family(self.algorithm), self.horizon))


def median_of(episodes: Sequence[Count]) -> Count:
    """The median, where never is more than any number."""
    middle = median(math.inf if count is None else count for count in episodes)
    return None if math.isinf(middle) else int(middle)


def results(series: Iterable[Series]) -> list[Result]:
    """One result for every algorithm and horizon on record.

    Of TASID's runs by the paper's method, the smallest n whose median solves stands for the
    horizon, or the largest if none does.
    """
    return sorted(_with_smallest_n(all_results(series)), key=_order)


def all_results(series: Iterable[Series]) -> list[Result]:
    """One result for every setting on record, every n of TASID by the paper's method included."""
    groups: dict[tuple[str, int], list[Series]] = {}
    for one in series:
        algorithm, _, horizon = one.setting.rpartition("-H")
        groups.setdefault((algorithm, int(horizon)), []).append(one)
    found = [_result(*key, members) for key, members in groups.items()]
    return sorted(found, key=_order)


def solved_after(one: Series) -> Count:
    """Episodes at the first evaluation that reaches the threshold.

    A run that has ended says so itself: the means in its rows are rounded.
    """
    if one.ending is not None:
        return int(one.ending["episodes"]) if one.ending["solved"] else None
    threshold = SOLVED * float(one.facts["robust_value"])
    for row in evaluations(one):
        if row[1] >= threshold:
            return row[0]
    return None


def evaluations(one: Series) -> list[tuple[int, float]]:
    """Episodes in the target so far, and the mean return of an evaluation there."""
    return [
        (int(row["episodes"]), float(row["mean"]))
        for row in one.rows
        if row["stage"] == "target" and row["mean"] is not None
    ]


def _result(algorithm: str, horizon: int, members: Sequence[Series]) -> Result:
    members = sorted(members, key=lambda one: one.seed)
    values = [float(one.facts["robust_value"]) for one in members]
    best = [
        max((mean for _, mean in evaluations(one)), default=math.nan) / value
        for one, value in zip(members, values, strict=True)
    ]
    took: dict[str, list[float]] = {}
    for row in (row for one in members for row in _timed(one)):
        took.setdefault(row["stage"], []).append(float(row["seconds"]))
    return Result(
        algorithm=algorithm,
        horizon=horizon,
        seeds=tuple(one.seed for one in members),
        episodes=tuple(solved_after(one) for one in members),
        best=tuple(best),
        unfinished=sum(one.ending is None for one in members),
        seconds=sum(map(sum, took.values())),
        undisturbed=sum(len(rows) * sorted(rows)[len(rows) // 10] for rows in took.values()),
        series=tuple(members),
    )


def _timed(one: Series) -> list[dict[str, Any]]:
    """The rows that add up to the time: TASID's evaluations have that of a whole learning."""
    whole = one.configuration.get("algorithm") == "tasid"
    return [row for row in one.rows if not whole or row["mean"] is not None]


def _with_smallest_n(found: Sequence[Result]) -> list[Result]:
    grid: dict[int, list[Result]] = {}
    others: list[Result] = []
    for one in found:
        if one.algorithm.startswith("tasid-paper-n"):
            grid.setdefault(one.horizon, []).append(one)
        else:
            others.append(one)
    for candidates in grid.values():
        candidates.sort(key=lambda one: int(one.algorithm.rpartition("-n")[2]))
        solving = [one for one in candidates if one.median is not None]
        others.append((solving or candidates[-1:])[0])
    return others


def _order(one: Result) -> tuple[int, int, float]:
    """By algorithm, then by horizon, then by n or what was searched."""
    names, base = list(NAMES), family(one.algorithm)
    number = re.search(r"[\d.]+$", one.algorithm.removeprefix(base))
    place = names.index(base) if base in names else len(names)
    return place, one.horizon, float(number[0]) if number else 0.0


def family(algorithm: str) -> str:
    """The algorithm in NAMES that this is, whatever its n or searched value."""
    fitting = [name for name in NAMES if algorithm == name or algorithm.startswith(f"{name}-")]
    return max(fitting, key=len, default=algorithm)
