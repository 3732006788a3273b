"""What the page of the building's experiment says, from its records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tasid.experiments.building.jobs import SIZES, jobs
from tasid.experiments.grid.jobs import ETA
from tasid.experiments.records import Records, Series, versions_of
from tasid.maps import robust_dp
from tasid.report.pages.content import Content, Plate, Section, Table, routes_panel
from tasid.report.text.wording import count
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
    groups: dict[str, list[Series]] = {job.setting: [] for job in jobs(size)}
    for one in series:
        groups[one.setting].append(one)
    done = {name: runs for name, runs in groups.items() if runs}
    return Content(
        title=str(records.description()["title"]),
        headline=_headline(done),
        state=f"Size {size}: {len(SIZES[size].seeds)} seeds, each a random perturbation of its "
        f"own; {len(series)} of {len(jobs(size))} runs are complete.",
        sections=(_floor(size), _results(done)),
        command=f"tasid reproduce building --size {size} --out FOLDER",
        table=[_json_row(name, runs) for name, runs in done.items()],
        versions=versions_of(series),
    )


def _all(runs: Sequence[Series], name: str) -> list[float]:
    return [float((run.ending or {})[name]) for run in runs]


def _ratios(runs: Sequence[Series]) -> list[float]:
    pairs = zip(_all(runs, "mean"), _all(runs, "robust"), strict=True)
    return [mean / robust for mean, robust in pairs]


def _headline(done: Mapping[str, Sequence[Series]]) -> str:
    if not done:
        return "No run is complete yet."
    name, runs = next(iter(done.items()))
    median = float(np.median(_ratios(runs)))
    episodes = count(int(max(_all(runs, "episodes"))))
    return (
        f"From {episodes} episodes ({name}) the robot earns {median:.3f} of what the robust plan "
        f"earns that knows its pose (median of {len(runs)})."
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


def _results(done: Mapping[str, Sequence[Series]]) -> Section:
    return Section(
        "Results",
        words=(
            "Returns are of evaluation episodes in the very target the policy was learned in, the "
            "plans’ values exact. The robot is told the map and nothing of its sensor.",
        ),
        tables=(
            Table(
                "values-table",
                "Every setting.",
                _COLUMNS,
                tuple(_row(name, runs) for name, runs in done.items()),
            ),
        ),
    )


def _row(name: str, runs: Sequence[Series]) -> tuple[str, ...]:
    ratios = _ratios(runs)
    means = (np.mean(_all(runs, key)) for key in ("mean", "robust", "nominal", "blind"))
    return (
        name,
        count(int(max(_all(runs, "episodes")))),
        *(f"{mean:.3f}" for mean in means),
        f"{np.median(ratios):.3f} ({min(ratios):.3f} … {max(ratios):.3f})",
        f"{np.mean(_all(runs, 'arrived')):.1%}",
        f"{np.median(_all(runs, 'seconds')):.0f}",
    )


def _json_row(name: str, runs: Sequence[Series]) -> Mapping[str, Any]:
    return {
        "setting": name,
        "seeds": [run.seed for run in runs],
        "ratio": _ratios(runs),
        "ratio_median": float(np.median(_ratios(runs))),
        "arrived": _all(runs, "arrived"),
        "episodes": int(max(_all(runs, "episodes"))),
        "seconds": _all(runs, "seconds"),
    }
