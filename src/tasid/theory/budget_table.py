"""The theory's episode counts in one table, beside the counts that practice needed.

The guarantees are worst cases over all perturbations and all models that explain the data, and pay
for both with constants; the measured counts are of one family of environments. Nothing is
interpolated between them: where nothing was measured, the table says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from itertools import pairwise
from statistics import median
from typing import Any, get_args

from tasid.theory import (
    Exploration,
    Reading,
    Setting,
    StartReading,
    StartSetting,
    decoding_budget,
    start_budget,
)
from tasid.theory.setting import as_float

PAPER_SEEDS: dict[int, tuple[float, ...]] = {
    5: (10_000, 9_000, 12_000, 10_000, 11_000),
    10: (10_000, 11_000, math.inf, 11_000, math.inf),
    20: (50_000, 48_000, 48_000, 48_000, 49_000),
    40: (393_000, 391_000, 391_000, 393_000, 395_000),
}
"""Episodes until 0.95 of the robust value, by horizon, for the paper's five seeds (its appendix D,
table of all random seeds, TASID); ∞ where a seed did not get there with its n."""
# At most these, by `python -m benchmarks belief-table`.
BELIEF_METHOD: dict[int, int] = {10: 64, 20: 96, 40: 128, 100: 400}
"""Episodes of our belief method with which the median seed has 0.95 of the robust value."""
MEASURED_ACTIONS, MEASURED_ETA = 10, 0.1
LOCK_OUTCOMES = 3
"""k on the combination lock."""
ROLL_INS = 0.5
"""w, where nothing was said: half of the roll-ins may be by any other policy."""
_HIDDEN = (56, 56)
_BITS = 32


def budget_table(
    *,
    horizon: int,
    actions: int,
    eta: float,
    epsilon: float,
    delta: float,
    log_class_size: float | None = None,
    return_range: float | None = None,
    outcomes: int | None = None,
    weight: float | None = None,
    starts: int | None = None,
    min_probability: float | None = None,
    margin: float | None = None,
    complexity: float | None = None,
) -> dict[str, Any]:
    """All counts, ready for JSON; `n_decode` and `n_total` are Algorithm 2's as printed.

    The lock's k and ln|F|, w = ½ and equal starts stand in where nothing was said.
    """
    size = lock_class_size(horizon, actions) if log_class_size is None else log_class_size
    setting = Setting(
        horizon=horizon,
        actions=actions,
        eta=eta,
        log_class_size=size,
        delta=delta,
        return_range=return_range,
    )
    explored = None
    if outcomes is not None or actions > 1:
        explored = Exploration(
            outcomes=min(LOCK_OUTCOMES, actions) if outcomes is None else outcomes,
            weight=ROLL_INS if weight is None else weight,
        )
    start = _several(setting, starts, min_probability, margin, complexity)
    printed = decoding_budget(setting, epsilon=epsilon)
    return {
        "horizon": horizon,
        "actions": actions,
        "eta": eta,
        "epsilon": epsilon,
        "delta": delta,
        "log_class_size": size,
        "return_range": float(setting.range),
        "n_decode": printed.n_decode,
        "n_total": printed.n_total,
        "readings": list(_readings(setting, epsilon)),
        "outcome": [] if explored is None else list(_outcomes(setting, epsilon, explored)),
        "starts": [] if start is None else list(_starts(start, epsilon)),
        "practice": practice(setting),
    }


def _several(
    setting: Setting,
    starts: int | None,
    min_probability: float | None,
    margin: float | None,
    complexity: float | None,
) -> StartSetting | None:
    if starts is None:
        given = {"min_probability": min_probability, "margin": margin, "complexity": complexity}
        for name, value in given.items():
            if value is not None:
                raise ValueError(f"{name}: {value} says nothing without the number of starts")
        return None
    if starts < 2:
        raise ValueError(f"starts: {starts} is below 2; leave it out where there is one start")
    if margin is None or complexity is None:
        raise ValueError(f"starts: {starts} start states need a margin and a complexity, too")
    return StartSetting(
        setting=setting,
        starts=starts,
        min_probability=1 / starts if min_probability is None else min_probability,
        margin=margin,
        complexity=complexity,
    )


def lock_class_size(horizon: int, actions: int) -> float:
    """ln|F| of the paper's network on the lock, with 32 bits for every parameter."""
    inputs = 2 * (1 << (horizon + 3).bit_length())
    sizes = (inputs, *_HIDDEN, actions)
    parameters = sum((a + 1) * b for a, b in pairwise(sizes))
    return parameters * _BITS * math.log(2)


def practice(setting: Setting) -> dict[str, Any]:
    """Measured counts for this very setting of the lock, null where there are none, and why."""
    horizon = setting.horizon
    same = setting.actions == MEASURED_ACTIONS and setting.eta == MEASURED_ETA
    paper = PAPER_SEEDS.get(horizon) if same else None
    ours = BELIEF_METHOD.get(horizon) if same else None
    notes = []
    if not same:
        notes.append(
            f"measured with {MEASURED_ACTIONS} actions and η = {MEASURED_ETA:g} only, "
            f"not with {setting.actions} and {setting.eta:g}"
        )
    else:
        for name, known, found in (
            ("the paper's method", PAPER_SEEDS, paper),
            ("the belief method", BELIEF_METHOD, ours),
        ):
            if found is None:
                horizons = ", ".join(map(str, known))
                notes.append(f"{name} was not measured at H = {horizon}, but at {horizons}")
    return {
        "environment": "combination-lock",
        "criterion": "median return at least 0.95 of the robust value",
        "paper": None if paper is None else int(median(paper)),
        "paper_seeds": None if paper is None else [_finite(count) for count in paper],
        "belief": ours,
        "notes": notes,
    }


def _readings(setting: Setting, epsilon: float) -> Iterator[dict[str, Any]]:
    for reading in get_args(Reading):
        for union in (False, True):
            found = decoding_budget(setting, epsilon=epsilon, reading=reading, union=union)
            stated = union == (reading == "coupling")
            yield {"reading": reading, "union": union, "stated": stated, **asdict(found)}


def _outcomes(setting: Setting, epsilon: float, explored: Exploration) -> Iterator[dict[str, Any]]:
    factor = explored.factor(setting.eta)
    for union in (False, True):
        found = decoding_budget(
            setting, epsilon=epsilon, reading="coupling", union=union, exploration=explored
        )
        yield {
            **asdict(explored),
            "factor": as_float(factor),
            "union": union,
            "n_decode": found.n_decode,
            "n_total": found.n_total,
            "ratio": as_float(factor / setting.actions**3),
        }


def _starts(start: StartSetting, epsilon: float) -> Iterator[dict[str, Any]]:
    promised = {"suboptimality": 4 * epsilon, "failure": 3 * start.setting.delta}
    for reading in get_args(StartReading):
        found = start_budget(start, epsilon=epsilon, reading=reading)
        yield {"reading": reading, **asdict(found), **promised}


def _finite(count: float) -> int | None:
    return int(count) if math.isfinite(count) else None


_READINGS = {
    "algorithm": "Algorithm 2 and Theorem 2",
    "appendix": "proof in appendix B",
    "coupling": "coupling (ours)",
}


def in_words(table: dict[str, Any]) -> Iterator[str]:
    """The table as lines of text."""
    yield (
        f"H = {table['horizon']}, |A| = {table['actions']}, η = {table['eta']:g}, "
        f"ε = {table['epsilon']:g}, δ = {table['delta']:g}, return range "
        f"{table['return_range']:g}, ln|F| = {table['log_class_size']:,.6g}"
    )
    yield ""
    yield _row("theory: enough for a loss of ε with probability 1−δ", "n_D per step", "in all")
    for row in table["readings"]:
        stated = ", as stated" if row["stated"] else ""
        name = f"{_READINGS[row['reading']]}, {_union(row)}{stated}"
        yield _row(name, row["n_decode"], row["n_total"])
    for row in table["outcome"]:
        name = f"outcome classes, k = {row['outcomes']}, w = {row['weight']:g}, {_union(row)}"
        yield _row(name, row["n_decode"], row["n_total"])
    if table["starts"]:
        yield _row("several starts: a loss of 4ε with probability 1−3δ", "n_l per hypothesis", "")
    for row in table["starts"]:
        yield _row(f"Algorithms 3 and 4, {row['reading']}", row["n_learn"], row["n_total"])
    yield ""
    yield "practice: combination lock, median of the seeds at 0.95 of the robust value"
    measured = table["practice"]
    for name, key in (("paper, its own table", "paper"), ("belief method, measured", "belief")):
        known = measured[key]
        yield _row(name, "", "not measured" if known is None else known)
    seeds = measured["paper_seeds"]
    if seeds is not None and None in seeds:
        yield f"  {seeds.count(None)} of the paper's {len(seeds)} seeds did not get there"
    for note in measured["notes"]:
        yield f"  {note}"


def _union(row: dict[str, Any]) -> str:
    return "union over steps" if row["union"] else "no union"


def _row(name: str, each: int | str, total: int | str) -> str:
    first, second = (n if isinstance(n, str) else f"{n:,}" for n in (each, total))
    return f"{name:<55} {first:>26} {second:>28}".rstrip()
