"""How a run learned, step by step or batch by batch, and what its policy earns, as figures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import ArrayLike, NDArray

from tasid.learning.belief.method import BatchEnded
from tasid.learning.paper.tasid import StepEnded
from tasid.report.figures.drawing import DOT, LIGHT, axes_inside, blank, label, panel
from tasid.report.figures.labels import Mark, draw_marks, height

Floats = NDArray[np.float64]
_HEIGHT = 196.0
"""Of a panel."""
_MOST_DOTS = 40
_MOST_CURVES = 60
_HISTOGRAM_HEIGHT = 210.0
_LEAST_REGRET = 0.02
"""Of the returns: what the axis of regrets shows at least."""
_APART = 0.16
"""Of the height: lines closer than this get one name."""
_DOT = {"markersize": 5.0, **DOT}


def _column(rows: Sequence[StepEnded] | Sequence[BatchEnded], name: str) -> Floats:
    """A number of every row; NaN where it was not finite."""
    return np.array([getattr(row, name) for row in rows], dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Learning:
    """What was recorded about learning, step by step; None where nobody could know."""

    steps: tuple[StepEnded, ...]
    curves: tuple[Floats, ...]
    """Validation loss after every epoch, for each step."""
    decoder_accuracy: Floats | None
    tracking_accuracy: Floats | None
    guessing_loss: float
    """The loss of a model that guesses the action."""

    def column(self, name: str) -> Floats:
        """A number of every step."""
        return _column(self.steps, name)

    @property
    def by_epochs(self) -> bool:
        """Were models trained epoch by epoch? If not, they were solved for at once."""
        return self.has_curves or any(step.epochs > 1 for step in self.steps)

    @property
    def has_curves(self) -> bool:
        """Was every epoch written down? Not where many models were trained together."""
        return any(curve.size for curve in self.curves)


@dataclass(frozen=True, eq=False)
class BeliefBatches:
    """What was recorded about learning, batch by batch; None where nobody could know."""

    batches: tuple[BatchEnded, ...]
    stopped: str | None
    """Why no more episodes were played."""
    tracking_accuracy: Floats | None
    """How often the likeliest state was the true one, [H]."""
    visits: Floats | None
    """How often the learning episodes were believed to be in each state, [S]."""

    @property
    def ends(self) -> NDArray[np.int64]:
        """Episodes so far at the end of every batch."""
        return np.array([batch.episodes for batch in self.batches], dtype=np.int64)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """New episodes of every batch."""
        return np.diff(self.ends, prepend=0)

    @property
    def has_regret(self) -> bool:
        """Could it be told what is lost? Not by a single batch, which has no new episodes."""
        return bool(np.isfinite(self.column("regret")).any())

    def column(self, name: str) -> Floats:
        """A number of every batch."""
        return _column(self.batches, name)


def loss_panel(learning: Learning) -> Figure:
    """Validation loss: epoch by epoch within a step where there is room, and what was kept."""
    losses = learning.column("validation_loss")
    figure, axes = _panel("validation loss", len(losses))
    if learning.has_curves and len(losses) <= _MOST_CURVES:
        for step, (curve, kept) in enumerate(zip(learning.curves, losses, strict=True)):
            _draw_descent(axes, step, curve, kept)
    else:
        _series(axes, range(len(losses)), losses, "learned")
    _level(axes, learning.guessing_loss, "guessing", "muted", dashes=(2, 2))
    axes.margins(y=0.16)
    axes.yaxis.set_major_locator(MaxNLocator(4))
    return figure


def _draw_descent(axes: Axes, step: int, curve: Floats, kept: float) -> None:
    """One step's epochs as a line within its slot, and a dot where the parameters were kept."""
    epochs = step + np.linspace(-0.36, 0.36, len(curve)) if len(curve) > 1 else np.array([step])
    axes.plot(epochs[: len(curve)], curve, color=LIGHT["learned"], linewidth=1.0, alpha=0.55)
    if np.isfinite(kept):
        best = np.nanargmin(curve) if np.isfinite(curve).any() else 0
        axes.plot([epochs[best]], [kept], color=LIGHT["learned"], **_DOT)


def accuracy_panel(title: str, accuracy: Floats) -> Figure:
    """An accuracy per step, on a scale that ends at 100 %."""
    figure, axes = _panel(title, len(accuracy))
    _series(axes, range(len(accuracy)), accuracy, "robust")
    floor = min(0.9, math.floor(10 * float(accuracy.min())) / 10)
    axes.set_ylim(floor - 0.04 * (1 - floor), 1 + 0.06 * (1 - floor))
    axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.4g} %"))
    return figure


def bars_panel(title: str, numbers: Floats) -> Figure:
    """A number per step."""
    figure, axes = _panel(title, len(numbers))
    steps = range(len(numbers))
    if len(steps) <= _MOST_CURVES:
        axes.bar(steps, numbers, width=0.62, color=LIGHT["fill"])
    else:  # bars thinner than a pixel would fade
        axes.fill_between(steps, numbers, step="mid", color=LIGHT["fill"], linewidth=0)
    axes.set_ylim(0, max(1.0, 1.1 * float(numbers.max(initial=0))))
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    return figure


def _panel(title: str, steps: int) -> tuple[Figure, Axes]:
    figure, axes = panel(title, _HEIGHT, left=46, right=8)
    axes.set_xlabel("step")
    axes.set_xlim(-0.6, max(steps, 1) - 0.4)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
    return figure, axes


def _series(axes: Axes, places: ArrayLike, values: Floats, colour: str) -> None:
    """A line, with dots as long as they are few."""
    dots = _DOT if len(values) <= _MOST_DOTS else {}
    axes.plot(places, values, color=LIGHT[colour], linewidth=1.6, **dots)


def _level(
    axes: Axes,
    value: float,
    text: str,
    colour: str,
    *,
    rise: float = 3,
    dashes: tuple[float, float] = (4, 2),
) -> None:
    """A line across, named above or below its right end."""
    axes.axhline(value, color=LIGHT[colour], linewidth=1.0, dashes=dashes)
    label(
        axes,
        text,
        (1, value),
        rise,
        colour,
        xycoords=("axes fraction", "data"),
        ha="right",
        zorder=4,
        bbox={"facecolor": LIGHT["paper"], "edgecolor": "none", "alpha": 0.85, "pad": 1},
    )


def returns_panel(beliefs: BeliefBatches, marks: tuple[Mark, ...]) -> Figure:
    """The mean return of the new episodes of every batch, beside exact values as lines."""
    figure, axes = _batch_panel("return of new episodes", beliefs)
    values = beliefs.column("return_mean")
    starts, colour = beliefs.ends - beliefs.sizes, LIGHT["learned"]
    # A dash over the episodes of every batch, and the way from one to the next.
    axes.plot(starts + beliefs.sizes / 2, values, color=colour, linewidth=1.0, alpha=0.5)
    axes.hlines(values, starts, beliefs.ends, color=colour, linewidth=3.2)
    levels = [*values[np.isfinite(values)], *(mark.value for mark in marks)]
    low, high = _padded(levels, 0.16)
    axes.set_ylim(low, high)
    for mark, rise in zip(_named(marks, high - low), (3, -3), strict=False):
        _level(axes, mark.value, mark.text, mark.colour, rise=rise)
    return figure


def regret_panel(beliefs: BeliefBatches) -> Figure:
    """What an episode loses to not knowing where one is, with two standard errors."""
    figure, axes = _batch_panel("estimated regret of an episode", beliefs)
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


def _batch_panel(title: str, beliefs: BeliefBatches) -> tuple[Figure, Axes]:
    figure, axes = panel(title, _HEIGHT, left=54, right=12)
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


def returns_figure(returns: Floats, marks: Sequence[Mark], *, width: float) -> Figure:
    """How often the policy earned how much, and where the yardsticks stand."""
    left, right, bottom, top = 46.0, 14.0, 40.0, height(marks)
    figure = blank(width, top + _HISTOGRAM_HEIGHT + bottom)
    axes = axes_inside(figure, left=left, right=right, top=top, bottom=bottom)
    low, high = _padded(
        [float(returns.min()), float(returns.max()), *(m.value for m in marks)], 0.03
    )
    axes.hist(
        returns,
        bins=np.linspace(low, high, (56 if width > 500 else 40) + 1).tolist(),
        weights=np.full(returns.size, 1 / returns.size),
        color=LIGHT["fill"],
        edgecolor=LIGHT["paper"],
        linewidth=0.6,
    )
    axes.set_xlim(low, high)
    axes.grid(axis="y")
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.3g} %"))
    axes.set_xlabel("return of an episode")
    draw_marks(axes, marks, width=width - left - right, tall=_HISTOGRAM_HEIGHT)
    return figure


def _padded(values: Sequence[float], part: float) -> tuple[float, float]:
    """The range of some values, and a part of it more at both ends."""
    low, high = min(values), max(values)
    pad = part * (high - low) if high > low else max(0.5, 0.05 * abs(low))
    return low - pad, high + pad
