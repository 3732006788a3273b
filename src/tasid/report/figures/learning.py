"""The figures of a run: how every step was learned, and what the policy earns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from tasid.report.figures.drawing import LIGHT, axes_inside, blank
from tasid.report.figures.labels import Mark, draw_marks, height

PANEL = (336.0, 196.0)
_MOST_DOTS = 40
_MOST_CURVES = 60
_HISTOGRAM_HEIGHT = 210.0
DOT: dict[str, Any] = {
    "marker": "o",
    "markersize": 5.0,
    "markeredgecolor": LIGHT["paper"],
    "markeredgewidth": 0.8,
    "zorder": 3,
}


@dataclass(frozen=True, eq=False)
class Learning:
    """What was recorded about learning, step by step; None where nobody could know."""

    validation_loss: NDArray[np.float64]
    """Of the parameters kept, [steps]."""
    curves: tuple[NDArray[np.float64], ...]
    """Validation loss after every epoch, for each step."""
    epochs: NDArray[np.int64]
    episodes: NDArray[np.int64]
    """Spent on each step, [steps]."""
    decoder_accuracy: NDArray[np.float64] | None
    tracking_accuracy: NDArray[np.float64] | None
    guessing_loss: float | None
    """The loss of a model that guesses, if labels are actions."""

    @property
    def by_epochs(self) -> bool:
        """Were models trained epoch by epoch? If not, they were solved for at once."""
        return self.has_curves or bool((self.epochs > 1).any())

    @property
    def has_curves(self) -> bool:
        """Was every epoch written down? Not where many models were trained together."""
        return any(curve.size for curve in self.curves)


def loss_panel(learning: Learning) -> Figure:
    """Validation loss: epoch by epoch within a step where there is room, and what was kept."""
    figure, axes = _panel("validation loss", len(learning.validation_loss))
    steps = np.arange(len(learning.validation_loss))
    if learning.has_curves and len(steps) <= _MOST_CURVES:
        for step, curve, kept in zip(steps, learning.curves, learning.validation_loss, strict=True):
            _draw_descent(axes, int(step), curve, kept)
    else:
        _series(axes, learning.validation_loss, "learned")
    if learning.guessing_loss is not None:
        level = learning.guessing_loss
        axes.axhline(level, color=LIGHT["muted"], linewidth=1.0, dashes=(2, 2))
        axes.annotate(
            "guessing",
            (1, level),
            (0, 3),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            ha="right",
            va="bottom",
            color=LIGHT["muted"],
            fontsize=10.5,
            zorder=4,
            bbox={"facecolor": LIGHT["paper"], "edgecolor": "none", "alpha": 0.85, "pad": 1},
        )
    axes.margins(y=0.16)
    axes.yaxis.set_major_locator(MaxNLocator(4))
    return figure


def _draw_descent(axes: Axes, step: int, curve: NDArray[np.float64], kept: float) -> None:
    """One step's epochs as a line within its slot, and a dot where the parameters were kept."""
    epochs = step + np.linspace(-0.36, 0.36, len(curve)) if len(curve) > 1 else np.array([step])
    axes.plot(epochs[: len(curve)], curve, color=LIGHT["learned"], linewidth=1.0, alpha=0.55)
    if np.isfinite(kept):
        best = np.nanargmin(curve) if np.isfinite(curve).any() else 0
        axes.plot([epochs[best]], [kept], color=LIGHT["learned"], **DOT)


def epochs_panel(learning: Learning) -> Figure:
    """How many epochs each step's model trained for."""
    return _bars("epochs until the loss stopped falling", learning.epochs)


def episodes_panel(learning: Learning) -> Figure:
    """How many episodes each step was given."""
    return _bars("episodes", learning.episodes)


def accuracy_panel(title: str, accuracy: NDArray[np.float64], colour: str) -> Figure:
    """An accuracy per step, on a scale that ends at 100 %."""
    figure, axes = _panel(title, len(accuracy))
    _series(axes, accuracy, colour)
    floor = min(0.9, math.floor(10 * float(accuracy.min())) / 10)
    axes.set_ylim(floor - 0.04 * (1 - floor), 1 + 0.06 * (1 - floor))
    axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.4g} %"))
    return figure


def _bars(title: str, numbers: NDArray[np.int64]) -> Figure:
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
    figure = blank(*PANEL)
    axes = axes_inside(figure, left=46, right=8, top=32, bottom=40)
    axes.set_title(title, loc="left", fontsize=11.5, color=LIGHT["ink"], x=-46 / (PANEL[0] - 54))
    axes.grid(axis="y")
    axes.set_xlabel("step")
    axes.set_xlim(-0.6, max(steps, 1) - 0.4)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
    return figure, axes


def _series(axes: Axes, values: NDArray[np.float64], colour: str) -> None:
    dots = DOT if len(values) <= _MOST_DOTS else {}
    axes.plot(range(len(values)), values, color=LIGHT[colour], linewidth=1.6, **dots)


def returns_figure(returns: NDArray[np.float64], marks: Sequence[Mark], *, width: float) -> Figure:
    """How often the policy earned how much, and where the yardsticks stand."""
    left, right, bottom, top = 46.0, 14.0, 40.0, height(marks)
    figure = blank(width, top + _HISTOGRAM_HEIGHT + bottom)
    axes = axes_inside(figure, left=left, right=right, top=top, bottom=bottom)
    low, high = _range([float(returns.min()), float(returns.max()), *(m.value for m in marks)])
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


def _range(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    pad = 0.03 * (high - low) if high > low else max(0.5, 0.05 * abs(low))
    return low - pad, high + pad
