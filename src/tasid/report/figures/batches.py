"""The figures of a run by the belief method: what new episodes earned, and what was still lost."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from tasid.report.figures.drawing import LIGHT, axes_inside, blank
from tasid.report.figures.labels import Mark
from tasid.report.figures.learning import DOT, PANEL
from tasid.report.pages.beliefs import BeliefBatches

_LEFT = 54.0
_MOST_DOTS = 40
_LEAST_REGRET = 0.02
"""Of the returns: what the axis of regrets shows at least."""
_APART = 0.16
"""Of the height: lines closer than this get one name."""


def returns_panel(beliefs: BeliefBatches, marks: tuple[Mark, ...]) -> Figure:
    """The mean return of the new episodes of every batch, beside exact values as lines."""
    figure, axes = _panel("return of new episodes", beliefs)
    values = beliefs.column("return_mean")
    _batches(axes, beliefs, values, "learned")
    levels = [*values[np.isfinite(values)], *(mark.value for mark in marks)]
    low, high = min(levels), max(levels)
    room = 0.16 * (high - low) or max(0.5, 0.05 * abs(low))
    axes.set_ylim(low - room, high + room)
    for mark, side in zip(_named(marks, high - low + 2 * room), ("bottom", "top"), strict=False):
        _level(axes, mark, side)
    return figure


def regret_panel(beliefs: BeliefBatches) -> Figure:
    """What an episode loses to not knowing where one is, with two standard errors."""
    figure, axes = _panel("estimated regret of an episode", beliefs)
    values, error = beliefs.column("regret"), beliefs.column("regret_error")
    for end, value, off in zip(beliefs.ends, values, error, strict=True):
        if np.isfinite(value) and np.isfinite(off):
            bounds = [max(value - 2 * off, 0.0), value + 2 * off]
            axes.plot([end, end], bounds, color=LIGHT["nominal"], linewidth=1.4, alpha=0.6)
    _series(axes, beliefs.ends, values, "nominal")
    highest = np.nanmax(values + 2 * np.nan_to_num(error), initial=0.0)
    # What is nothing beside the returns looks like nothing.
    top = max(
        1.12 * highest, _LEAST_REGRET * np.nanmax(np.abs(beliefs.column("return_mean"))), 1e-6
    )
    axes.set_ylim(-0.03 * top, top)
    return figure


def _panel(title: str, beliefs: BeliefBatches) -> tuple[Figure, Axes]:
    figure = blank(*PANEL)
    axes = axes_inside(figure, left=_LEFT, right=12, top=32, bottom=40)
    inner = PANEL[0] - _LEFT - 12
    axes.set_title(title, loc="left", fontsize=11.5, color=LIGHT["ink"], x=-_LEFT / inner)
    axes.grid(axis="y")
    axes.set_xlabel("episodes")
    axes.set_xlim(0, 1.03 * float(beliefs.ends[-1]))
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
    axes.yaxis.set_major_locator(MaxNLocator(4))
    return figure, axes


def _batches(axes: Axes, beliefs: BeliefBatches, values: NDArray[np.float64], colour: str) -> None:
    """A dash over the episodes of every batch, and the way from one to the next."""
    starts = beliefs.ends - beliefs.sizes
    axes.plot(starts + beliefs.sizes / 2, values, color=LIGHT[colour], linewidth=1.0, alpha=0.5)
    axes.hlines(values, starts, beliefs.ends, color=LIGHT[colour], linewidth=3.2)


def _series(
    axes: Axes, places: NDArray[np.int64], values: NDArray[np.float64], colour: str
) -> None:
    dots = DOT if len(values) <= _MOST_DOTS else {}
    axes.plot(places, values, color=LIGHT[colour], linewidth=1.6, **dots)


def _named(marks: tuple[Mark, ...], height: float) -> list[Mark]:
    """The first mark, and the second if there is room for its name."""
    kept = list(marks[:2])
    if len(kept) == 2 and abs(kept[0].value - kept[1].value) < _APART * height:
        return kept[:1]
    return sorted(kept, key=lambda mark: -mark.value)


def _level(axes: Axes, mark: Mark, side: str) -> None:
    colour = LIGHT[mark.colour]
    axes.axhline(mark.value, color=colour, linewidth=1.0, dashes=(4, 2))
    axes.annotate(
        mark.text,
        (1, mark.value),
        (0, 3 if side == "bottom" else -3),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        ha="right",
        va=side,
        color=colour,
        fontsize=10.5,
        zorder=4,
        bbox={"facecolor": LIGHT["paper"], "edgecolor": "none", "alpha": 0.85, "pad": 1},
    )
