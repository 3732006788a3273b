"""What the pages of the two grid-world experiments say, from their records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from tasid.experiments.grid.figures import against_figure, looks_figure
from tasid.experiments.grid.jobs import ETA, SIZES, GridSize, jobs
from tasid.experiments.records import Records, Series
from tasid.maps import robust_dp
from tasid.report.figures.grid_picture import draw_grid
from tasid.report.figures.pictures import NARROW, WIDE
from tasid.report.figures.routes import Routes
from tasid.report.pages.content import Content, Panel, Plate, Section, Table
from tasid.report.text.wording import count
from tasid.targets import BlockMDP, make
from tasid.targets.target import seed_key

_PEERS = {
    "robust": "robust plan, latent state in view",
    "nominal": "plan for η = 0, latent state in view",
    "open_loop": "robust route, eyes shut",
    "turning": "turning in place",
    "random_walk": "random walk",
}


@dataclass(frozen=True)
class Point:
    """All finished seeds of one value of what varies."""

    value: float
    runs: tuple[Series, ...]

    def all_of(self, name: str) -> list[float]:
        """One figure of every seed."""
        return [float((run.ending or {})[name]) for run in self.runs]

    @property
    def shortfall(self) -> list[float]:
        """Robust value minus return, of every seed."""
        return [
            robust - mean
            for robust, mean in zip(self.all_of("robust"), self.all_of("mean"), strict=True)
        ]

    @property
    def ratios(self) -> list[float]:
        """Return over robust value, of every seed; empty where that is a part of nothing."""
        found = [(run.ending or {}).get("ratio") for run in self.runs]
        known = [float(ratio) for ratio in found if ratio is not None]
        return known if len(known) == len(found) else []


def content(records: Records) -> Content:
    """The whole page."""
    described = records.description()
    against, size = str(described["name"]).removeprefix("minigrid-"), str(described["size"])
    series = list(records.series())
    points = _points(series, against)
    planned = len(jobs(size, against=against))
    done = sum(len(point.runs) for point in points)
    what = SIZES[size]
    return Content(
        title=str(described["title"]),
        headline=_headline(points, against),
        state=f"Size {size}: {_episodes(what, against)} a run, "
        f"{len(what.seeds)} seeds, each a random perturbation of its own; {done} of {planned} runs "
        "are complete.",
        sections=(_map_section(), _results(points, against), _cost(points)),
        command=f"tasid reproduce minigrid-{against} --size {size} --out FOLDER",
        table=[_json_row(point, against) for point in points],
        versions=tuple(dict.fromkeys(v for one in series for v in one.versions)),
    )


def _episodes(what: GridSize, against: str) -> str:
    found = sorted(set((what.etas if against == "eta" else what.heights).values()))
    return f"{' to '.join(count(n) for n in dict.fromkeys((found[0], found[-1])))} episodes"


def _points(series: Sequence[Series], against: str) -> list[Point]:
    found: dict[float, list[Series]] = {}
    for one in series:
        if one.ending is not None:
            found.setdefault(float(one.configuration[against]), []).append(one)
    return [Point(value, tuple(found[value])) for value in sorted(found)]


def _headline(points: Sequence[Point], against: str) -> str:
    if not points:
        return "No run is complete yet."
    medians = [float(np.median(point.ratios)) for point in points if point.ratios]
    if not medians:
        return "The robust value is next to nothing in every setting: read differences."
    if against == "height":
        return (
            f"From height {points[0].value:g} to {points[-1].value:g} the policy earns "
            f"{min(medians):.3f} to {max(medians):.3f} of the robust value (medians)."
        )
    first = next(point for point in points if point.ratios)
    return (
        f"At η = {first.value:g} the policy earns {medians[0]:.3f} of the robust value (median of "
        f"{len(first.runs)})."
    )


def _map_section() -> Section:
    env = make("lava-crossing", eta=ETA)
    routes = Routes.of(robust_dp(env.simulator, eta=ETA))
    shown = _poses(env)
    keys = jax.random.split(seed_key(0), len(shown))
    images = np.asarray(jax.vmap(env.target.emission)(keys, np.array(shown)))
    return Section(
        "The map and what the agent sees",
        plates=(
            Plate(
                (
                    Panel(
                        "map",
                        "The map with the two routes",
                        "A grid with lava in the middle: the plan for η = 0 takes the short route "
                        "above it, the robust plan the long one below.",
                        lambda: draw_grid(routes, width=WIDE),
                        lambda: draw_grid(routes, width=NARROW),
                    ),
                ),
                "The lava crossing at height 11; the paper's own map is lost. The robust plan for "
                f"η = {ETA:g}, and the one for η = 0.",
            ),
            Plate(
                (
                    Panel(
                        "looks",
                        "Observations along the robust route",
                        "Six pictures of 56 by 56 pixels: walls, lava and goal among noise.",
                        lambda: looks_figure(images),
                    ),
                ),
                "What the agent sees at the start and along the robust route: the 7 × 7 cells in "
                "front of it, with noise wherever a cell is empty or out of sight.",
            ),
        ),
    )


def _poses(env: BlockMDP) -> list[int]:
    """States along the robust route, a few of them."""
    index = {label: i for i, label in enumerate(env.simulator.states)}
    return [index[step.state] for step in robust_dp(env.simulator, eta=ETA).route()[:12:2]]


def _results(points: Sequence[Point], against: str) -> Section:
    name = "η" if against == "eta" else "height"
    panel = Panel(
        "values",
        f"Value against {name}",
        "; ".join(
            f"{name} {point.value:g}: learned {np.mean(point.all_of('mean')):.3f}, robust "
            f"{np.mean(point.all_of('robust')):.3f}"
            for point in points
        ),
        lambda: against_figure(points, against, width=WIDE),
        lambda: against_figure(points, against, width=NARROW),
    )
    columns = (
        name,
        "return, mean ± std",
        *_PEERS.values(),
        "ratio, median (range)",
        "robust − return, mean",
        "allowed",
        "episodes",
    )
    rows = tuple(_row(point, against) for point in points)
    return Section(
        "Results",
        words=(
            "All values are of the very target the policy was learned in: returns over evaluation "
            "episodes, the others exact. Where the robust value is next to nothing there is no "
            "ratio: read differences. "
            "“Allowed” is 0.05/(1−2η), the shape of the paper's bound. At η = ½ decoding is "
            "impossible in principle; plan and learner assume 0.49 there.",
        ),
        plates=(Plate((panel,), "Mean over seeds; bars are one standard deviation."),),
        tables=(Table("values-table", "Every setting.", columns, rows),),
        points=tuple(
            f"{name} {point.value:g}: "
            + ", ".join(
                f"seed {run.seed} {mean:.3f}{ratio}"
                for run, mean, ratio in zip(
                    point.runs, point.all_of("mean"), _in_brackets(point), strict=True
                )
            )
            for point in points
        ),
    )


def _in_brackets(point: Point) -> list[str]:
    """The ratio of every seed, or nothing."""
    return [f" ({ratio:.3f})" for ratio in point.ratios] or [""] * len(point.runs)


def _row(point: Point, against: str) -> tuple[str, ...]:
    ratios, eta = point.ratios, float(point.runs[0].configuration["eta"])
    allowed = f"{0.05 / (1 - 2 * eta):.3f}" if eta < 0.5 else "–"
    return (
        f"{point.value:g}",
        f"{np.mean(point.all_of('mean')):.3f} ± {np.std(point.all_of('mean')):.3f}",
        *(f"{np.mean(point.all_of(name)):.3f}" for name in _PEERS),
        f"{np.median(ratios):.3f} ({min(ratios):.3f} … {max(ratios):.3f})" if ratios else "–",
        f"{np.mean(point.shortfall):.3f}",
        allowed,
        count(int(max(point.all_of("episodes")))),
    )


def _json_row(point: Point, against: str) -> Mapping[str, Any]:
    return {
        against: point.value,
        "seeds": [run.seed for run in point.runs],
        "return": point.all_of("mean"),
        **{name: point.all_of(name) for name in _PEERS},
        "ratio_median": float(np.median(point.ratios)) if point.ratios else None,
        "episodes": int(max(point.all_of("episodes"))),
        "seconds": point.all_of("seconds"),
    }


def _cost(points: Sequence[Point]) -> Section:
    seconds = [value for point in points for value in point.all_of("seconds")]
    if not seconds:
        return Section("What it cost", words=("Nothing yet.",))
    return Section(
        "What it cost",
        words=(
            f"A run took {np.median(seconds):.0f} seconds (median; {min(seconds):.0f} to "
            f"{max(seconds):.0f}), learning alone, with whatever else the machine was doing. The "
            "paper reports 500\u202f000 episodes and two to six hours on a P100 for a run.",
        ),
    )
