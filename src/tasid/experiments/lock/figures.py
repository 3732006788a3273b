"""The figures of the lock experiment: the latent MDP, what is solved when, and reward curves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
from numpy.typing import NDArray

from tasid.experiments.lock.scores import Count, Result
from tasid.experiments.records import Series
from tasid.report.figures.drawing import DOT, LIGHT, axes_inside, blank, draw_legend
from tasid.report.text.wording import count

WIDTH, HEIGHT = 336.0, 262.0
_LEGEND = 44.0
LOOKS: dict[str, tuple[str, dict[str, Any]]] = {
    "tasid-belief": ("TASID belief", {"color": LIGHT["learned"], "linewidth": 2.4}),
    "tasid-paper": ("TASID paper", {"color": LIGHT["robust"], "linewidth": 2.4}),
    "ppo": ("PPO", {"color": LIGHT["muted"]}),
    "ppo+rnd": ("PPO+RND", {"color": LIGHT["nominal"]}),
    "ppo+dr": ("PPO+DR", {"color": LIGHT["muted"], "dashes": (3, 1.5)}),
    "ppo+rnd+dr": ("PPO+RND+DR", {"color": LIGHT["nominal"], "dashes": (3, 1.5)}),
}
_POINTS = 200
_LEAST = 10
"""Where the axes of episodes begin."""


def lock_picture() -> Figure:
    """Figure 2(a): types over layers, what leads where and what it pays."""
    figure = blank(WIDTH, HEIGHT)
    axes = axes_inside(figure, left=6, right=6, top=44, bottom=30)
    axes.set_xlim(-0.4, 4.0)
    axes.set_ylim(3.4, 0.5)
    axes.axis("off")
    columns = {0.0: "layer 0", 1.0: "1", 2.0: "H−1", 3.0: "H"}
    for x, name in columns.items():
        axes.text(x, 0.5, name, ha="center", va="bottom", fontsize=10.5, color=LIGHT["muted"])
        for kind in (1, 2, 3) if x else (1,):
            shade = LIGHT["fill"] if kind < 3 else LIGHT["line"]
            axes.plot([x], [kind], "o", markersize=21, color=shade, markeredgecolor=LIGHT["edge"])
            axes.text(x, kind, str(kind), ha="center", va="center", fontsize=10.5)
    for x in (0.0, 2.0):
        for begin, end in ((1, 1), (1, 2), (2, 2), (2, 1), (2, 3), (3, 3)):
            if x or begin == 1:
                _arrow(axes, (x, begin), (x + 1, end), good=(begin, end) in {(1, 1), (2, 2)})
    for kind in (1, 2, 3):
        axes.text(1.5, kind, "…", ha="center", va="center", color=LIGHT["muted"])
    for kind, pay in ((1, "9.5"), (2, "10"), (3, "0")):
        axes.text(3.3, kind, f"pays {pay}", va="center", fontsize=10.5, color=LIGHT["robust"])
    axes.text(0.5, 0.86, "−1/H", ha="center", fontsize=10.5, color=LIGHT["nominal"])
    axes.text(
        1.0, 3.62, "falling from 2 to 3 pays 1", ha="left", fontsize=10.5, color=LIGHT["nominal"]
    )
    _title(figure, "the lock's latent states")
    return figure


def _arrow(axes: Axes, begin: tuple[float, int], end: tuple[float, int], *, good: bool) -> None:
    bend = 0.12 if begin[1] > end[1] else -0.12 if begin[1] + 1 == end[1] == 2 else 0.0
    axes.add_patch(
        FancyArrowPatch(
            begin,
            end,
            arrowstyle="-|>",
            mutation_scale=9,
            shrinkA=11,
            shrinkB=11,
            linewidth=1.6 if good else 1.0,
            color=LIGHT["robust"] if good else LIGHT["muted"],
            connectionstyle=f"arc3,rad={bend}",
        )
    )


def solved_figure(
    title: str, medians: Mapping[tuple[str, int], Count], horizons: Sequence[int], cap: int
) -> Figure:
    """Figure 2(b): the largest horizon solved within a number of episodes, by the median seed."""
    figure, axes = _episode_axes(title, cap)
    shown = []
    for place, (name, (_, look)) in enumerate(LOOKS.items()):
        shift = 0.085 * (place - (len(LOOKS) - 1) / 2)
        reached = [
            (episodes, row - shift)
            for row, horizon in enumerate(horizons)
            if (episodes := medians.get((name, horizon))) is not None
        ]
        if not any(name == known for known, _ in medians):
            continue
        shown.append(name)
        if reached:
            _steps(axes, reached, cap, look)
    axes.set_yticks(range(len(horizons)), [f"H = {horizon}" for horizon in horizons])
    axes.set_ylim(-0.6, len(horizons) - 0.4)
    _legend(figure, shown)
    return figure


def _steps(
    axes: Axes, reached: Sequence[tuple[int, float]], cap: int, look: Mapping[str, Any]
) -> None:
    """A stair through the medians; a longer horizon solved earlier makes a shorter one needless."""
    ordered = sorted(reached)
    dots: dict[str, Any] = {"linestyle": "none", "markersize": 5, **DOT}
    axes.plot(*zip(*ordered, strict=True), color=look["color"], **dots)
    xs, ys, best = [], [], -math.inf
    for episodes, row in ordered:
        if row > best:
            xs.append(float(episodes))
            ys.append(row)
            best = row
    axes.step([*xs, float(cap)], [*ys, ys[-1]], where="post", **{"linewidth": 1.5, **look})


def curves_figure(horizon: int, results: Sequence[Result], cap: int) -> Figure:
    """Figure 2(c): the return of training episodes, and of the finished policy after that."""
    figure, axes = _episode_axes(f"H = {horizon}", cap)
    axes.set_ylabel("return of an episode")
    grid = np.geomspace(_LEAST, cap, _POINTS)
    shown = []
    for name, (_, look) in LOOKS.items():
        for result in results:
            if result.algorithm == name or result.algorithm.startswith(f"{name}-n"):
                curves = np.stack([curve(one, grid) for one in result.series])
                axes.plot(grid, curves.mean(axis=0), **{"linewidth": 1.5, **look})
                shown.append(name)
    values = [float(one.facts["robust_value"]) for result in results for one in result.series]
    if values:
        level = float(np.mean(values))
        axes.axhline(level, color=LIGHT["ink"], linewidth=0.9, dashes=(1, 2))
        place = 1.1 * _LEAST, level + 0.15
        axes.text(*place, "robust value", fontsize=10.5, color=LIGHT["ink"], va="bottom")
    axes.set_ylim(-0.6, 11.2)
    _legend(figure, shown)
    return figure


def curve(one: Series, grid: NDArray[np.float64]) -> NDArray[np.float64]:
    """A seed's return at every number of episodes: in training, then that of its policy."""
    rows = [row for row in one.rows if row["stage"] == "target"]
    trained = [row for row in rows if row["training"] is not None]
    scored = [row["mean"] for row in rows if row["mean"] is not None]
    if not trained:
        return np.full(grid.shape, np.nan)
    place = np.searchsorted([row["episodes"] for row in trained], grid)
    after = scored[-1] if scored and one.ending is not None else np.nan
    returns = np.array([*(row["training"] for row in trained), after], np.float64)
    return returns[place]


def _episode_axes(title: str, cap: int) -> tuple[Figure, Axes]:
    figure = blank(WIDTH, HEIGHT)
    axes = axes_inside(figure, left=48, right=12, top=26 + _LEGEND, bottom=40)
    axes.set_xscale("log")
    axes.set_xlim(_LEAST, cap * 1.1)
    axes.xaxis.set_major_locator(LogLocator(10.0))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: count(value)))
    axes.set_xlabel("episodes in the target")
    axes.grid(axis="y")
    _title(figure, title)
    return figure, axes


def _title(figure: Figure, title: str) -> None:
    figure.text(0.0, 1 - 4 / HEIGHT, title, va="top", fontsize=11.5, color=LIGHT["ink"])


def _legend(figure: Figure, names: Sequence[str]) -> None:
    entries = [(Line2D([], [], **{"linewidth": 1.5, **LOOKS[n][1]}), LOOKS[n][0]) for n in names]
    place: dict[str, Any] = {"bbox_to_anchor": (0, 1 - 22 / HEIGHT), "borderaxespad": 0}
    small = {"fontsize": 10.0, "handlelength": 1.5, "handletextpad": 0.5}
    if entries:
        draw_legend(figure, entries, 3, columnspacing=1.1, labelspacing=0.35, **small, **place)
