"""The figures of the grid-world experiments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from tasid.report.figures.drawing import LIGHT, axes_inside, blank
from tasid.report.figures.pictures import WIDE

_LINES: dict[str, tuple[str, dict[str, Any]]] = {
    "robust": ("robust plan, latent", {"color": LIGHT["robust"], "linewidth": 2.0}),
    "mean": ("TASID", {"color": LIGHT["learned"], "linewidth": 2.4, "marker": "o"}),
    "nominal": ("plan for η = 0, latent", {"color": LIGHT["nominal"], "dashes": (3, 1.5)}),
    "random_walk": ("random walk", {"color": LIGHT["muted"], "linewidth": 1.2}),
}


class Values(Protocol):
    """Figures of all seeds at one place of the axis."""

    @property
    def value(self) -> float:
        """The place."""

    def all_of(self, name: str) -> list[float]:
        """One figure of every seed."""


def against_figure(points: Sequence[Values], against: str, *, width: float) -> Figure:
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


def looks_figure(images: NDArray[np.uint8]) -> Figure:
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
