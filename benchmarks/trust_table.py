"""What `belief-trust` has on record, in words: one row a measure and a world."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.seeds import spelt

Row = dict[str, Any]
_HEADER = "| what | world | episodes | seeds | found |\n|---|---|---|---|---|"


def recorded(path: Path) -> str:
    """The table of a file of runs."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["measure"], row["world"]), []).append(row)
    lines = [line for key in sorted(groups) for line in _lines(*key, groups[key])]
    return "\n".join([_HEADER, *lines])


def _lines(measure: str, world: str, rows: Sequence[Row]) -> Iterator[str]:
    for what, key, found in _MEASURES[measure]:
        those = sorted((row for row in rows if key in row), key=lambda row: row["seed"])
        if those:
            cells = [what, world, f"{those[0]['episodes']}", spelt(those), found(those)]
            yield f"| {' | '.join(cells)} |"


def _on_a_right_map(rows: Sequence[Row]) -> str:
    number = len(rows)
    wrong, eta, warned = (
        sum(bool(row[key]) for row in rows) for key in ("map errors", "eta exceeded", "warnings")
    )
    lost = 100 * np.array([row["lost though right"] for row in rows])
    return (
        f"map errors in {wrong} of {number} runs, η called too small in {eta}, any warning in "
        f"{warned}; lost in {lost.mean():.2g} % of the episodes tracked right, "
        f"{lost.max():.2g} % in the worst run"
    )


def _with_a_wrong_edge(rows: Sequence[Row]) -> str:
    named = sum(row["wrong edge named"] for row in rows)
    besides = sum(bool(row.get("right edges named then", 0)) for row in rows)
    return f"named in {named} of {len(rows)}; a right edge named, too, in {besides}"


def _carried_away(rows: Sequence[Row]) -> str:
    ours, told, raised, seen = (
        np.array([row[key] for row in rows])
        for key in ("found where informed do", "informed", "lost raised", "coverage")
    )
    return (
        f"right again within 10 steps, for 3 in a row, in {ours.mean():.1%} of the episodes "
        f"({ours.min():.1%} in the worst run) in which the informed filter is, which are "
        f"{told.mean():.1%} of all; `lost` raised in {np.median(raised):.0%} "
        f"({raised.min():.0%} in the worst run); "
        f"{seen.mean():.0%} of the states seen five times or more"
    )


def _broken(rows: Sequence[Row]) -> str:
    lost = 100 * np.array([row["lost though right"] for row in rows])
    faults = []
    for fault in ("dark", "blinded", "garbage", "repeating"):
        noticed = np.array([row[fault] for row in rows if row[fault] is not None])
        if noticed.size:
            faults.append(f"{fault} {noticed.mean():.1%} ({noticed.min():.1%})")
    told = ", ".join(faults) or "episodes are too short for it"
    return (
        f"`lost` within 6 steps, mean (worst run): {told}; with a whole sensor in "
        f"{lost.mean():.2g} % of the episodes tracked right, {lost.max():.2g} % in the worst run"
    )


def _at_worst(rows: Sequence[Row]) -> str:
    more = np.array([row["more"] for row in rows])
    return (
        f"costs {more.mean():.4f} of the range of returns more than random slips on average, "
        f"{more.max():.4f} in the worst run"
    )


_MEASURES: dict[str, list[tuple[str, str, Callable[[Sequence[Row]], str]]]] = {
    "alarms": [
        ("right map", "map errors", _on_a_right_map),
        ("one wrong edge on the route", "wrong edge named", _with_a_wrong_edge),
    ],
    "kidnapped": [("carried away", "found", _carried_away)],
    "sensor": [("broken sensor", "dark", _broken)],
    "worst-case": [("the plan's own worst case", "more", _at_worst)],
}
"""What the runs of a measure are told as, by what key of theirs."""
