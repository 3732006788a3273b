"""Beliefs in a frame: shades on the cells of a grid or the lanes of a layered map, else bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgba
from numpy.typing import NDArray

from tasid.maps.layout import GridLayout
from tasid.report.figures.drawing import LIGHT
from tasid.report.text.wording import printable
from tasid.runs.watch import Belief, Episode

HEAT = LIGHT["heat"]
_LEAST = 0.002
"""Less probable states are not drawn."""
_ROWS = 6
_CORNERS = np.array([[-0.5, -0.5], [0.5, -0.5], [0.5, 0.5], [-0.5, 0.5]])
"""Of a cell, clockwise from the upper left; y points down."""

Shape = NDArray[np.float64]
Shades = dict[int, float]
"""How likely each shape is."""


def shade(probability: NDArray[np.float64]) -> NDArray[np.float64]:
    """How opaque a probability is drawn: the root, so that small ones can be seen."""
    return 0.9 * np.sqrt(np.clip(probability, 0.0, 1.0))


class Clouds:
    """Shapes on a map, each as opaque as it is believed in."""

    def __init__(self, axes: Axes, shapes: Sequence[Shape], steps: Sequence[Shades]) -> None:
        self._steps = steps
        self._rgba = np.tile(to_rgba(HEAT, 0.0), (len(shapes), 1))
        self._drawn = PolyCollection(
            list(shapes), facecolors=self._rgba, edgecolors="none", linewidths=0, zorder=3
        )
        axes.add_collection(self._drawn)

    def show(self, h: int) -> None:
        """Bring the shapes to step h."""
        likely = np.zeros(len(self._rgba))
        for shape, probability in self._steps[h].items():
            likely[shape] = probability
        self._rgba[:, 3] = shade(likely)
        self._drawn.set_facecolor([tuple(row) for row in self._rgba.tolist()])


def grid_clouds(axes: Axes, beliefs: Sequence[Belief], layout: GridLayout) -> Clouds:
    """A cell for every state; where states look somewhere, the quarter of it on that side."""
    steps = [_likely(belief) for belief in beliefs]
    drawn = {state: place for place, state in enumerate(sorted(set().union(*steps)))}
    shapes = [_on_grid(layout, state) for state in drawn]
    return Clouds(axes, shapes, [{drawn[s]: p for s, p in step.items()} for step in steps])


def lane_clouds(axes: Axes, beliefs: Sequence[Belief], rows: Mapping[int, int]) -> Clouds:
    """A field for every step and lane; those of earlier steps stay."""
    shapes: list[Shape] = []
    so_far: Shades = {}
    steps: list[Shades] = []
    for h, belief in enumerate(beliefs):
        lanes: dict[int, float] = {}
        for state, probability in _likely(belief).items():
            lanes[rows[state]] = lanes.get(rows[state], 0.0) + probability
        for lane, probability in sorted(lanes.items()):
            so_far = so_far | {len(shapes): probability}
            shapes.append(_CORNERS * [1.0, 0.8] + [h, lane])
        steps.append(so_far)
    return Clouds(axes, shapes, steps)


def _likely(belief: Belief) -> Shades:
    pairs = zip(belief.states.tolist(), belief.probabilities.tolist(), strict=True)
    return {state: probability for state, probability in pairs if probability >= _LEAST}


def _on_grid(layout: GridLayout, state: int) -> Shape:
    middle = layout.positions[state][::-1].astype(np.float64)
    if layout.headings is None:
        return _CORNERS + middle
    heading = int(layout.headings[state])
    return np.vstack([_CORNERS[[heading, (heading + 1) % 4]], [0.0, 0.0]]) + middle


class Likeliest:
    """The few likeliest states of a step as bars; the true one, where it is known, is framed."""

    aspect = 1.3

    def __init__(self, episode: Episode, beliefs: Sequence[Belief]) -> None:
        self._episode, self._beliefs = episode, beliefs

    def draw(self, axes: Axes) -> None:
        """Empty bars, and room for their names."""
        axes.set_xlim(0, 1)
        axes.set_ylim(_ROWS - 0.35, -0.65)
        axes.set_xticks([0, 0.5, 1])
        axes.set_yticks([])
        axes.tick_params(labelsize=8.5)
        axes.grid(axis="x")
        self._bars = axes.barh(np.arange(_ROWS) + 0.12, np.zeros(_ROWS), 0.4, color=HEAT)
        self._names = [
            axes.text(0.0, row - 0.14, "", fontsize=9.0, va="bottom", color=LIGHT["ink"])
            for row in range(_ROWS)
        ]

    def show(self, h: int) -> None:
        """Bring the bars to step h."""
        likely = list(_likely(self._beliefs[h]).items())[:_ROWS]
        likely += [(-1, 0.0)] * (_ROWS - len(likely))
        truth = self._episode.truth
        states = self._episode.policy.simulator.states
        for bar, name, (state, probability) in zip(self._bars, self._names, likely, strict=True):
            bar.set_width(probability)
            true = truth is not None and state == int(truth[h])
            bar.set_edgecolor(LIGHT["nominal"] if true else "none")
            bar.set_linewidth(2.0 if true else 0.0)
            text = "" if state < 0 else f"{states[state]!s:.28}  {probability:.2f}"
            name.set_text(printable(text))
