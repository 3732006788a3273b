"""What the pages of the two grid-world experiments say, from their records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from tasid.experiments.grid.jobs import ETA, SIZES, GridSize, jobs
from tasid.experiments.records import Records, Series, versions_of
from tasid.maps import robust_dp
from tasid.report.figures.drawing import LIGHT, axes_inside, blank
from tasid.report.figures.pictures import WIDE
from tasid.report.pages.content import (
    Content,
    Panel,
    Plate,
    Section,
    Table,
    routes_panel,
    twin_panel,
)
from tasid.report.text.wording import count, seeds_of
from tasid.targets import make
from tasid.targets.target import seed_key

_PEERS = {
    "robust": "robust plan, latent state in view",
    "nominal": "plan for η = 0, latent state in view",
    "open_loop": "robust route, eyes shut",
    "turning": "turning in place",
    "random_walk": "random walk",
}

_LINES: dict[str, tuple[str, dict[str, Any]]] = {
    "robust": ("robust plan, latent", {"color": LIGHT["robust"], "linewidth": 2.0}),
    "mean": ("TASID", {"color": LIGHT["learned"], "linewidth": 2.4, "marker": "o"}),
    "nominal": ("plan for η = 0, latent", {"color": LIGHT["nominal"], "dashes": (3, 1.5)}),
    "random_walk": ("random walk", {"color": LIGHT["muted"], "linewidth": 1.2}),
}


@dataclass(frozen=True)
class Point:
    """All finished seeds of one value of what varies."""

    value: Any
    runs: tuple[Series, ...]

    def all_of(self, name: str) -> list[float]:
        """One figure of every seed."""
        return [float((run.ending or {})[name]) for run in self.runs]

    @property
    def episodes(self) -> int:
        """The most that a seed learned from."""
        return int(max(self.all_of("episodes")))

    @property
    def ratios(self) -> list[float]:
        """Return over robust value, of every seed; empty where that is a part of nothing."""
        found = [(run.ending or {}).get("ratio") for run in self.runs]
        known = [float(ratio) for ratio in found if ratio is not None]
        return known if len(known) == len(found) else []


def spread(ratios: Sequence[float]) -> str:
    """Median and range."""
    return f"{np.median(ratios):.3f} ({min(ratios):.3f} … {max(ratios):.3f})"


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
        f"{seeds_of(len(what.seeds), 'a random perturbation')}; {done} of {planned} runs are "
        "complete.",
        sections=(_map_section(), _results(points, against), _cost(points)),
        command=f"tasid reproduce minigrid-{against} --size {size} --out FOLDER",
        table=[_json_row(point, against) for point in points],
        versions=versions_of(series),
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
    plan = robust_dp(env.simulator, eta=ETA)
    index = {label: i for i, label in enumerate(env.simulator.states)}
    shown = [index[step.state] for step in plan.route()[:12:2]]
    keys = jax.random.split(seed_key(0), len(shown))
    images = np.asarray(jax.vmap(env.target.emission)(keys, np.array(shown)))
    on_map = routes_panel(
        "map",
        "The map with the two routes",
        "A grid with lava in the middle: the plan for η = 0 takes the short route above it, the "
        "robust plan the long one below.",
        plan,
    )
    looks = Panel(
        "looks",
        "Observations along the robust route",
        "Six pictures of 56 by 56 pixels: walls, lava and goal among noise.",
        lambda: _looks_figure(images),
    )
    return Section(
        "The map and what the agent sees",
        plates=(
            Plate(
                (on_map,),
                "The lava crossing at height 11; the paper's own map is lost. The robust plan for "
                f"η = {ETA:g}, and the one for η = 0.",
            ),
            Plate(
                (looks,),
                "What the agent sees at the start and along the robust route: the 7 × 7 cells in "
                "front of it, with noise wherever a cell is empty or out of sight.",
            ),
        ),
    )


def _results(points: Sequence[Point], against: str) -> Section:
    name = "η" if against == "eta" else "height"
    panel = twin_panel(
        "values",
        f"Value against {name}",
        "; ".join(
            f"{name} {point.value:g}: learned {np.mean(point.all_of('mean')):.3f}, robust "
            f"{np.mean(point.all_of('robust')):.3f}"
            for point in points
        ),
        lambda width: _against_figure(points, against, width=width),
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
    rows = tuple(_row(point) for point in points)
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


def _row(point: Point) -> tuple[str, ...]:
    eta = float(point.runs[0].configuration["eta"])
    return (
        f"{point.value:g}",
        f"{np.mean(point.all_of('mean')):.3f} ± {np.std(point.all_of('mean')):.3f}",
        *(f"{np.mean(point.all_of(name)):.3f}" for name in _PEERS),
        spread(point.ratios) if point.ratios else "–",
        f"{np.mean(np.subtract(point.all_of('robust'), point.all_of('mean'))):.3f}",
        f"{0.05 / (1 - 2 * eta):.3f}" if eta < 0.5 else "–",
        count(point.episodes),
    )


def _json_row(point: Point, against: str) -> Mapping[str, Any]:
    return {
        against: point.value,
        "seeds": [run.seed for run in point.runs],
        "return": point.all_of("mean"),
        **{name: point.all_of(name) for name in _PEERS},
        "ratio_median": float(np.median(point.ratios)) if point.ratios else None,
        "episodes": point.episodes,
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


def _against_figure(points: Sequence[Point], against: str, *, width: float) -> Figure:
    """Value of the learned policy and of its peers, mean ± one standard deviation."""
    columns = 4 if width >= WIDE else 1
    figure = blank(width, 330.0)
    axes = axes_inside(figure, left=52, right=14, top=20 + 17 * 4 / columns, bottom=44)
    where = np.array([point.value for point in points])
    for name, (label, look) in _LINES.items():
        values = [point.all_of(name) for point in points]
        mean, spread = ([float(f(v)) for v in values] for f in (np.mean, np.std))
        axes.errorbar(where, mean, yerr=spread, label=label, capsize=3, elinewidth=1.0, **look)
    axes.set_xlabel("η" if against == "eta" else "height of the map")
    axes.set_ylabel("value")
    if against == "height" and where.size > 1:
        axes.set_xscale("log")
        axes.minorticks_off()
    axes.set_xticks(where, [f"{value:g}" for value in where])
    axes.grid(axis="y")
    figure.legend(loc="upper left", ncols=columns, columnspacing=1.6, borderaxespad=0.2)
    return figure


def _looks_figure(images: NDArray[np.uint8]) -> Figure:
    """Pictures side by side."""
    size, gap = 96.0, 8.0
    figure = blank(len(images) * (size + gap), size + 2 * gap)
    for number, image in enumerate(images):
        left = number * (size + gap) + gap / 2
        right = (len(images) - 1 - number) * (size + gap) + gap / 2
        axes = axes_inside(figure, left=left, right=right, top=gap, bottom=gap)
        axes.imshow(image, interpolation="nearest")
        axes.axis("off")
    return figure
