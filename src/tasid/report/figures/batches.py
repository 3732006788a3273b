"""The figures of a run by the belief method: what new episodes earned, and what was still lost."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from tasid.report.figures.drawing import LIGHT, panel
from tasid.report.figures.labels import Mark
from tasid.report.figures.learning import HEIGHT, level, padded, series
from tasid.report.pages.beliefs import BeliefBatches

_LEAST_REGRET = 0.02
"""Of the returns: what the axis of regrets shows at least."""
_APART = 0.16
"""Of the height: lines closer than this get one name."""


def returns_panel(beliefs: BeliefBatches, marks: tuple[Mark, ...]) -> Figure:
    """The mean return of the new episodes of every batch, beside exact values as lines."""
    figure, axes = _panel("return of new episodes", beliefs)
    values = beliefs.column("return_mean")
    starts, colour = beliefs.ends - beliefs.sizes, LIGHT["learned"]
    # A dash over the episodes of every batch, and the way from one to the next.
    axes.plot(starts + beliefs.sizes / 2, values, color=colour, linewidth=1.0, alpha=0.5)
    axes.hlines(values, starts, beliefs.ends, color=colour, linewidth=3.2)
    levels = [*values[np.isfinite(values)], *(mark.value for mark in marks)]
    low, high = padded(levels, 0.16)
    axes.set_ylim(low, high)
    for mark, rise in zip(_named(marks, high - low), (3, -3), strict=False):
        level(axes, mark.value, mark.text, mark.colour, rise=rise)
    return figure


def regret_panel(beliefs: BeliefBatches) -> Figure:
    """What an episode loses to not knowing where one is, with two standard errors."""
    figure, axes = _panel("estimated regret of an episode", beliefs)
    values, error = beliefs.column("regret"), beliefs.column("regret_error")
    for end, value, off in zip(beliefs.ends, values, error, strict=True):
        if np.isfinite(value) and np.isfinite(off):
            bounds = [max(value - 2 * off, 0.0), value + 2 * off]
            axes.plot([end, end], bounds, color=LIGHT["nominal"], linewidth=1.4, alpha=0.6)
    series(axes, beliefs.ends, values, "nominal")
    highest = np.nanmax(values + 2 * np.nan_to_num(error), initial=0.0)
    # What is nothing beside the returns looks like nothing.
    top = max(
        1.12 * highest, _LEAST_REGRET * np.nanmax(np.abs(beliefs.column("return_mean"))), 1e-6
    )
    axes.set_ylim(-0.03 * top, top)
    return figure


def _panel(title: str, beliefs: BeliefBatches) -> tuple[Figure, Axes]:
    figure, axes = panel(title, HEIGHT, left=54, right=12)
    axes.set_xlabel("episodes")
    axes.set_xlim(0, 1.03 * float(beliefs.ends[-1]))
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
    axes.yaxis.set_major_locator(MaxNLocator(4))
    return figure, axes


def _named(marks: tuple[Mark, ...], height: float) -> list[Mark]:
    """The first mark, and the second if there is room for its name."""
    kept = list(marks[:2])
    if len(kept) == 2 and abs(kept[0].value - kept[1].value) < _APART * height:
        return kept[:1]
    return sorted(kept, key=lambda mark: -mark.value)
