"""`tasid train --seeds`: the same order for many seeds, on this machine or a cluster."""

from __future__ import annotations

import statistics
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tasid.cli.answers import answer
from tasid.cli.arguments import MOST_SEED, executor_of, refuse_given, run_folder
from tasid.cli.imports import import_all
from tasid.cli.train import order_of

if TYPE_CHECKING:
    from tasid.runs.train import AnyOrder

_MOST = 100_000
_SUMMARISED = ("return_mean", "ratio", "skill", "episodes")


def train_seeds(context: typer.Context, text: str) -> None:
    """A run for every seed, in one folder, and one answer about all of them."""
    from tasid.experiments.progress import SweepProgress
    from tasid.runs.seeds import train_seeds as carry_out

    given = context.params
    refuse_given(context, ["seed"], "with --seeds; name it in --seeds")
    refuse_given(context, ["resume"], "with --seeds; a sweep goes on by itself")
    seeds = seeds_in(text)
    orders = _orders(context, seeds)
    parts = given["algorithm"], f"seeds{text.replace(',', '+')}"
    folder = given["out"] or run_folder(given["env"], *parts)
    setup = partial(import_all, [_absolute(one) for one in given["imports"] or ()])
    executor = executor_of(given["workers"], given["cluster"])
    with SweepProgress() as progress:
        results = carry_out(
            orders,
            folder,
            executor,
            setup=setup,
            overwrite=given["overwrite"],
            watchers=[progress],
        )
    runs = [{"seed": seed, **result} for seed, result in zip(seeds, results, strict=True)]
    told = {"out": str(folder), "summary": _summary(results), "runs": runs}
    answer(told, _print, as_json=given["as_json"])


def seeds_in(text: str) -> list[int]:
    """Seeds written 100-199, or 3,5,8-10."""
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ValueError(f"--seeds: {text!r:.80} should be seeds such as 100-199 or 3,5,8-10")
        low, high = int(first), int(last) if dash else int(first)
        if not low <= high <= MOST_SEED:
            raise ValueError(f"--seeds: {part!r:.80} is no range in 0 … {MOST_SEED}")
        if high - low >= _MOST:
            raise ValueError(f"--seeds: {part!r:.80} are more than {_MOST}")
        seeds += range(low, high + 1)
    if len(set(seeds)) != len(seeds):
        raise ValueError(f"--seeds: {text!r:.80} names a seed twice")
    return seeds


def _orders(context: typer.Context, seeds: list[int]) -> list[AnyOrder]:
    """In environments of ours every seed has an instance; elsewhere it draws episodes alone."""
    if str(context.params["env"]).startswith("gym:"):
        first = order_of(context, seeds[0])
        return [replace(first, seed=seed) for seed in seeds]
    return [order_of(context, seed) for seed in seeds]


def _absolute(module: str) -> str:
    return str(Path(module).resolve()) if module.endswith(".py") else module


def _summary(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Of every figure over seeds: the mean, the median, the extremes; null where it is unknown."""
    summary: dict[str, Any] = {"runs": len(results)}
    for name in _SUMMARISED:
        known = [float(one[name]) for one in results if one.get(name) is not None]
        summary[name] = (
            {
                "mean": statistics.fmean(known),
                "median": statistics.median(known),
                "least": min(known),
                "most": max(known),
            }
            if known
            else None
        )
    return summary


def _print(told: dict[str, Any]) -> None:
    summary = told["summary"]
    print(f"{summary['runs']} runs in {told['out']}")
    print(f"{'':<14}{'mean':>12}{'median':>12}{'least':>12}{'most':>12}")
    for name in _SUMMARISED:
        if summary[name] is not None:
            row = "".join(f"{value:>12.4f}" for value in summary[name].values())
            print(f"{name:<14}{row}")
