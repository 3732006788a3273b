"""Beliefs in a frame: shades on the cells of a grid or the lanes of a layered map, else bars."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

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
Show = Callable[[int], None]
"""Brings what was drawn to step h."""


def together(*shows: Show) -> Show:
    """All of them at once."""

    def show(h: int) -> None:
        for one in shows:
            one(h)

    return show


class FramePanel(NamedTuple):
    """Part of a frame."""

    aspect: float
    """Width over height at which it looks right."""
    draw: Callable[[Axes], Show]
    """Puts everything on the axes that does not change from step to step."""


def _clouds(axes: Axes, shapes: Sequence[Shape], steps: Sequence[Shades]) -> Show:
    """Shapes on a map, each as opaque as it is believed in."""
    rgba = np.tile(to_rgba(HEAT, 0.0), (len(shapes), 1))
    drawn = PolyCollection(list(shapes), facecolors=rgba, edgecolors="none", linewidths=0, zorder=3)
    axes.add_collection(drawn)

    def show(h: int) -> None:
        likely = np.zeros(len(rgba))
        for shape, probability in steps[h].items():
            likely[shape] = probability
        # The root, so that small probabilities can be seen.
        rgba[:, 3] = 0.9 * np.sqrt(np.clip(likely, 0.0, 1.0))
        drawn.set_facecolor([tuple(row) for row in rgba.tolist()])

    return show


def grid_clouds(axes: Axes, beliefs: Sequence[Belief], layout: GridLayout) -> Show:
    """A cell for every state; where states look somewhere, the quarter of it on that side."""
    steps = [_likely(belief) for belief in beliefs]
    drawn = {state: place for place, state in enumerate(sorted(set().union(*steps)))}
    shapes = [_on_grid(layout, state) for state in drawn]
    return _clouds(axes, shapes, [{drawn[s]: p for s, p in step.items()} for step in steps])


def lane_clouds(axes: Axes, beliefs: Sequence[Belief], rows: Mapping[int, int]) -> Show:
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
    return _clouds(axes, shapes, steps)


def _likely(belief: Belief) -> Shades:
    pairs = zip(belief.states.tolist(), belief.probabilities.tolist(), strict=True)
    return {state: probability for state, probability in pairs if probability >= _LEAST}


def _on_grid(layout: GridLayout, state: int) -> Shape:
    middle = layout.positions[state][::-1].astype(np.float64)
    if layout.headings is None:
        return _CORNERS + middle
    heading = int(layout.headings[state])
    return np.vstack([_CORNERS[[heading, (heading + 1) % 4]], [0.0, 0.0]]) + middle


def likeliest(episode: Episode, beliefs: Sequence[Belief]) -> FramePanel:
    """The few likeliest states of a step as bars; the true one, where it is known, is framed."""
    truth, states = episode.truth, episode.policy.simulator.states

    def draw(axes: Axes) -> Show:
        axes.set_xlim(0, 1)
        axes.set_ylim(_ROWS - 0.35, -0.65)
        axes.set_xticks([0, 0.5, 1])
        axes.set_yticks([])
        axes.tick_params(labelsize=8.5)
        axes.grid(axis="x")
        bars = axes.barh(np.arange(_ROWS) + 0.12, np.zeros(_ROWS), 0.4, color=HEAT)
        names = [
            axes.text(0.0, row - 0.14, "", fontsize=9.0, va="bottom", color=LIGHT["ink"])
            for row in range(_ROWS)
        ]

        def show(h: int) -> None:
            likely = list(_likely(beliefs[h]).items())[:_ROWS]
            likely += [(-1, 0.0)] * (_ROWS - len(likely))
            for bar, name, (state, probability) in zip(bars, names, likely, strict=True):
                bar.set_width(probability)
                true = truth is not None and state == int(truth[h])
                bar.set_edgecolor(LIGHT["nominal"] if true else "none")
                bar.set_linewidth(2.0 if true else 0.0)
                text = "" if state < 0 else f"{states[state]!s:.28}  {probability:.2f}"
                name.set_text(printable(text))

        return show

    return FramePanel(1.3, draw)
