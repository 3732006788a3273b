"""What the page of the building's experiment says, from its records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tasid.experiments.building.jobs import SIZES, jobs
from tasid.experiments.grid.jobs import ETA
from tasid.experiments.grid.page import Point, spread
from tasid.experiments.records import Records, versions_of
from tasid.maps import robust_dp
from tasid.report.pages.content import Content, Plate, Section, Table, routes_panel
from tasid.report.text.wording import count, seeds_of
from tasid.targets import make

_COLUMNS = (
    "setting",
    "episodes",
    "return, mean",
    "robust plan, pose known",
    "plan for η = 0, pose known",
    "eyes shut",
    "ratio, median (range)",
    "arrived",
    "seconds",
)


def content(records: Records) -> Content:
    """The whole page."""
    size = str(records.description()["size"])
    series = [one for one in records.series() if one.ending is not None]
    settings = dict.fromkeys(job.setting for job in jobs(size))
    groups = [Point(name, tuple(one for one in series if one.setting == name)) for name in settings]
    points = [point for point in groups if point.runs]
    return Content(
        title=str(records.description()["title"]),
        headline=_headline(points),
        state=f"Size {size}: {seeds_of(len(SIZES[size].seeds), 'a random perturbation')}; "
        f"{len(series)} of {len(jobs(size))} runs are complete.",
        sections=(_floor(size), _results(points)),
        command=f"tasid reproduce building --size {size} --out FOLDER",
        table=[_json_row(point) for point in points],
        versions=versions_of(series),
    )


def _ratios(point: Point) -> list[float]:
    return np.divide(point.all_of("mean"), point.all_of("robust")).tolist()


def _headline(points: Sequence[Point]) -> str:
    if not points:
        return "No run is complete yet."
    first, median = points[0], float(np.median(_ratios(points[0])))
    return (
        f"From {count(first.episodes)} episodes ({first.value}) the robot earns {median:.3f} of "
        f"what the robust plan earns that knows its pose (median of {len(first.runs)})."
    )


def _floor(size: str) -> Section:
    env = make("building", eta=ETA, map=SIZES[size].map)
    panel = routes_panel(
        "floor",
        "The floor with the two routes",
        "A floor plan with the way of the robust plan and that of the plan for η = 0.",
        robust_dp(env.simulator, eta=ETA),
    )
    caption = (
        f"The floor in cells of 1 m: {count(env.simulator.num_states)} poses, "
        f"{env.simulator.horizon} steps an episode. The robust plan for η = {ETA:g}, and the one "
        "for η = 0."
    )
    return Section("The floor", plates=(Plate((panel,), caption),))


def _results(points: Sequence[Point]) -> Section:
    rows = tuple(_row(point) for point in points)
    return Section(
        "Results",
        words=(
            "Returns are of evaluation episodes in the very target the policy was learned in, the "
            "plans’ values exact. The robot is told the map and nothing of its sensor.",
        ),
        tables=(Table("values-table", "Every setting.", _COLUMNS, rows),),
    )


def _row(point: Point) -> tuple[str, ...]:
    return (
        str(point.value),
        count(point.episodes),
        *(f"{np.mean(point.all_of(key)):.3f}" for key in ("mean", "robust", "nominal", "blind")),
        spread(_ratios(point)),
        f"{np.mean(point.all_of('arrived')):.1%}",
        f"{np.median(point.all_of('seconds')):.0f}",
    )


def _json_row(point: Point) -> Mapping[str, Any]:
    return {
        "setting": point.value,
        "seeds": [run.seed for run in point.runs],
        "ratio": _ratios(point),
        "ratio_median": float(np.median(_ratios(point))),
        "arrived": point.all_of("arrived"),
        "episodes": point.episodes,
        "seconds": point.all_of("seconds"),
    }
