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
from numpy.typing import ArrayLike, NDArray

from tasid.report.figures.drawing import LIGHT, axes_inside, blank, label, panel
from tasid.report.figures.labels import Mark, draw_marks, height

HEIGHT = 196.0
"""Of a panel."""
_MOST_DOTS = 40
_MOST_CURVES = 60
_HISTOGRAM_HEIGHT = 210.0
_DOT: dict[str, Any] = {
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
    guessing_loss: float
    """The loss of a model that guesses the action."""

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
        series(axes, steps, learning.validation_loss, "learned")
    level(axes, learning.guessing_loss, "guessing", "muted", dashes=(2, 2))
    axes.margins(y=0.16)
    axes.yaxis.set_major_locator(MaxNLocator(4))
    return figure


def _draw_descent(axes: Axes, step: int, curve: NDArray[np.float64], kept: float) -> None:
    """One step's epochs as a line within its slot, and a dot where the parameters were kept."""
    epochs = step + np.linspace(-0.36, 0.36, len(curve)) if len(curve) > 1 else np.array([step])
    axes.plot(epochs[: len(curve)], curve, color=LIGHT["learned"], linewidth=1.0, alpha=0.55)
    if np.isfinite(kept):
        best = np.nanargmin(curve) if np.isfinite(curve).any() else 0
        axes.plot([epochs[best]], [kept], color=LIGHT["learned"], **_DOT)


def accuracy_panel(title: str, accuracy: NDArray[np.float64]) -> Figure:
    """An accuracy per step, on a scale that ends at 100 %."""
    figure, axes = _panel(title, len(accuracy))
    series(axes, range(len(accuracy)), accuracy, "robust")
    floor = min(0.9, math.floor(10 * float(accuracy.min())) / 10)
    axes.set_ylim(floor - 0.04 * (1 - floor), 1 + 0.06 * (1 - floor))
    axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.4g} %"))
    return figure


def bars_panel(title: str, numbers: NDArray[np.int64]) -> Figure:
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
    figure, axes = panel(title, HEIGHT, left=46, right=8)
    axes.set_xlabel("step")
    axes.set_xlim(-0.6, max(steps, 1) - 0.4)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
    return figure, axes


def series(axes: Axes, places: ArrayLike, values: NDArray[np.float64], colour: str) -> None:
    """A line, with dots as long as they are few."""
    dots = _DOT if len(values) <= _MOST_DOTS else {}
    axes.plot(places, values, color=LIGHT[colour], linewidth=1.6, **dots)


def level(
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


def returns_figure(returns: NDArray[np.float64], marks: Sequence[Mark], *, width: float) -> Figure:
    """How often the policy earned how much, and where the yardsticks stand."""
    left, right, bottom, top = 46.0, 14.0, 40.0, height(marks)
    figure = blank(width, top + _HISTOGRAM_HEIGHT + bottom)
    axes = axes_inside(figure, left=left, right=right, top=top, bottom=bottom)
    low, high = padded(
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


def padded(values: Sequence[float], part: float) -> tuple[float, float]:
    """The range of some values, and a part of it more at both ends."""
    low, high = min(values), max(values)
    pad = part * (high - low) if high > low else max(0.5, 0.05 * abs(low))
    return low - pad, high + pad
