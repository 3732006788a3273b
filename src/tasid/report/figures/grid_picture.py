"""The picture of a plan on a grid map: walls, hazards, goal, values, and the routes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from tasid.maps.layout import GOAL, HAZARD, UNKNOWN, WALL, GridLayout
from tasid.maps.planning.flips import LARGEST_ETA, Place, Span, Way, in_words, spans_of, way_of
from tasid.report.figures.drawing import LIGHT, axes_inside, blank, draw_legend
from tasid.report.figures.grid_heat import (
    Heat,
    arrival_heat,
    centre,
    draw_heat,
    draw_patch,
    side,
    window,
)
from tasid.report.figures.routes import Routes

_NAMES = {GOAL: "goal", WALL: "wall", UNKNOWN: "unknown", HAZARD: "hazard"}
_COLOURS = {
    WALL: LIGHT["wall"],
    UNKNOWN: LIGHT["line"],
    HAZARD: LIGHT["hazard"],
    GOAL: LIGHT["goal"],
}
_ROBUST: dict[str, Any] = {"color": LIGHT["robust"], "linewidth": 3.4, "zorder": 5}
_NOMINAL: dict[str, Any] = {
    "color": LIGHT["nominal"],
    "linewidth": 2.0,
    "dashes": (3.2, 1.6),
    "zorder": 6,
}
_OTHER: dict[str, Any] = {"linewidth": 1.6, "zorder": 4}
_OTHER_COLOURS = (LIGHT["blind"], "#a8507a", "#8a7420", "#3f7fa8")
_MOVE: dict[str, Any] = {"colors": LIGHT["edge"], "linewidths": 0.6, "zorder": 3}
_DOOR: dict[str, Any] = {
    "color": LIGHT["nominal"],
    "linestyle": "none",
    "marker": "X",
    "markersize": 8.0,
    "markeredgecolor": LIGHT["paper"],
    "zorder": 9,
}
_APART = 0.075
"""Parts of a cell between routes through the same cells: more, and they seem to cross walls."""
_FEW_CELLS = 48
_TALLEST = 760.0


def draw_grid(
    routes: Routes,
    *,
    width: float,
    heat: Heat | None = None,
    flips: bool = True,
    marks: Sequence[tuple[float, float]] = (),
) -> Figure:
    """The map and the routes on a figure so many pixels wide; to be called in the house style.

    Cells are coloured by `heat`, which is the plan's values if not given. With `flips`, the ways
    for other η are drawn too, and told in a note below. `marks` are places, x and y, where the map
    lost a door.
    """
    layout = routes.simulator.layout
    if layout is None:
        raise ValueError("simulator: has no layout; only grid maps can be drawn as grids")
    lines = _lines(routes, flips=flips)
    keys = [(Line2D([], [], **line.style), line.name) for line in lines]
    legend: list[tuple[Any, str]] = [*keys, *_legend(layout)]
    if marks:
        legend.append((Line2D([], [], **_DOOR), "door lost"))
    note = fill(in_words(routes.changes, routes.plan.eta), int(width / 6.4)) if flips else ""
    left, right = 52.0, 92.0
    columns_of_names = _columns([name for _, name in legend], width)
    top = 10.0 + 19.0 * -(-len(legend) // columns_of_names)
    bottom = 42.0 + (16.0 + 15.0 * note.count("\n") if note else 0.0)
    low, high = window(layout)
    rows, columns = high - low
    scale = min((width - left - right) / columns, _TALLEST / rows, 44.0)
    figure = blank(width, top + bottom + scale * rows)
    spare = width - left - right - scale * columns
    axes = axes_inside(figure, left=left, right=right + spare, top=top, bottom=bottom)
    draw_heat(figure, axes, arrival_heat(routes.plan, layout) if heat is None else heat, layout)
    _draw_cells(axes, layout)
    if layout.backdrop is not None:
        axes.add_collection(_moves(routes, layout))
    if marks:
        axes.plot(*zip(*marks, strict=True), **_DOOR)
    for line in lines:
        _draw_line(axes, line, layout)
    _draw_ends(axes, routes, layout, scale)
    _draw_frame(axes, layout, low, high)
    look = {"handlelength": 2.2, "columnspacing": 1.6, "fontsize": 10.5}
    draw_legend(figure, legend, columns_of_names, **look)
    figure.text(0, 0, note, va="bottom", ha="left", fontsize=10.5, color=LIGHT["ink"])
    return figure


def _columns(names: list[str], width: float) -> int:
    """How many columns of a legend surely fit side by side."""
    widest = 48.0 + 6.4 * max(map(len, names))
    return int(np.clip(width // widest, 1, 3))


def coloured(kinds: NDArray[Any]) -> NDArray[np.float64]:
    """Kinds of cells as a picture; what is free stays transparent."""
    picture = np.zeros((*kinds.shape, 4))
    for kind, colour in _COLOURS.items():
        picture[kinds == kind] = to_rgba(colour)
    return picture


def _draw_cells(axes: Axes, layout: GridLayout) -> None:
    kinds = tuple(_COLOURS)
    if layout.backdrop is not None:
        picture = coloured(layout.backdrop)
        axes.imshow(picture, extent=layout.extent, interpolation="nearest", aspect="auto", zorder=2)
        kinds = (GOAL, HAZARD)
    for kind in kinds:
        hatch = "//" if kind == HAZARD and layout.cells.shape[1] <= _FEW_CELLS else None
        draw_patch(axes, layout, layout.cells == kind, _COLOURS[kind], hatch=hatch, zorder=2)


def _moves(routes: Routes, layout: GridLayout) -> LineCollection:
    """Between which places the robot can drive: what was made of the map behind it."""
    after = routes.simulator.successor_at(0)
    ends = np.stack([np.repeat(layout.positions, after.shape[1], axis=0),
                     layout.positions[after.ravel()]], axis=1)  # fmt: skip
    moved = np.unique(np.sort(ends[(ends[:, 0] != ends[:, 1]).any(axis=1)], axis=1), axis=0)
    places = [[centre(layout, (int(r), int(c))) for r, c in pair] for pair in moved]
    return LineCollection(places, **_MOVE)


@dataclass(frozen=True, eq=False)
class _Line:
    """A way to draw."""

    cells: tuple[tuple[Place, ...], ...]
    name: str
    style: dict[str, Any]
    aside: float = 0.0
    """Parts of a cell along x and y, so that ways through the same cells can be told apart."""


def _lines(routes: Routes, *, flips: bool) -> list[_Line]:
    """The plan's way, that for η = 0, and those for other η, widest range of η first."""
    eta = routes.plan.eta
    robust = way_of(routes.plan, routes.starts)
    nominal = way_of(routes.nominal, routes.starts)
    same = nominal.cells == robust.cells
    name = f"plan for η = {eta:g}, and for η = 0" if same and eta else f"robust plan, η = {eta:g}"
    lines = [_Line(robust.cells, f"{name}: {robust.told}", _ROBUST)]
    if not same:
        lines.append(_Line(nominal.cells, f"plan for η = 0: {nominal.told}", _NOMINAL))
    for place, span in enumerate(_other_spans(routes, robust, nominal) if flips else ()):
        name = f"η = {span.low:.3g}" + (f" … {span.high:.3g}" if span.high > span.low else "")
        style = {**_OTHER, "color": _OTHER_COLOURS[place]}
        aside = _APART * (place // 2 + 1) * (-1 if place % 2 else 1)
        lines.append(_Line(span.way.cells, f"{name}: {span.way.told}", style, aside))
    return lines


def _other_spans(routes: Routes, robust: Way, nominal: Way) -> list[Span]:
    """The ways beside these two that are worth a line: of many, one for every other length.

    Where one of the two arrives, those that do not are worth none: they lead nowhere.
    """
    spans = spans_of(routes.changes, robust, max(routes.plan.eta, LARGEST_ETA))
    shown, lengths = {robust.cells, nominal.cells}, {robust.steps, nominal.steps}
    others = [span for span in spans if span.way.cells not in shown]
    if not (robust.trouble and nominal.trouble):
        others = [span for span in others if not span.way.trouble]
    widest = sorted(others, key=lambda span: span.low - span.high)
    if len(others) > len(_OTHER_COLOURS):
        first = {span.way.steps: span for span in reversed(widest)}
        widest = [span for steps, span in first.items() if steps not in lengths]
    return sorted(widest[: len(_OTHER_COLOURS)], key=lambda span: span.low)


def _draw_line(axes: Axes, line: _Line, layout: GridLayout) -> None:
    for cells in line.cells:
        places = np.array([centre(layout, cell) for cell in cells]) + line.aside * side(layout)
        axes.plot(*places.T, solid_joinstyle="round", solid_capstyle="round", **line.style)


def _draw_ends(axes: Axes, routes: Routes, layout: GridLayout, scale: float) -> None:
    """A mark on every start, turned to where the robot looks, and a star on the goals shown."""
    size = float(np.clip(0.5 * scale, 7.0, 15.0))
    mark: dict[str, Any] = {"color": LIGHT["ink"], "markersize": size, "zorder": 8}
    mark |= {"linestyle": "none", "markeredgecolor": LIGHT["paper"], "markeredgewidth": 1.0}
    for start in routes.starts:
        marker: Any = "o" if layout.angles is None else (3, 0, -float(layout.angles[start]))
        axes.plot(*layout.centres([start])[0], marker=marker, **mark)
    for cell in np.argwhere(layout.cells == GOAL)[:64]:
        axes.plot(*centre(layout, (int(cell[0]), int(cell[1]))), marker="*", **mark)


def _draw_frame(
    axes: Axes, layout: GridLayout, low: NDArray[np.int64], high: NDArray[np.int64]
) -> None:
    half = side(layout) / 2
    left, upper = centre(layout, (int(low[0]), int(low[1])))
    right, lower = centre(layout, (int(high[0]) - 1, int(high[1]) - 1))
    down = layout.corner is None
    axes.set_xlim(left - half, right + half)
    axes.set_ylim(lower + half if down else lower - half, upper - half if down else upper + half)
    axes.set_xlabel("x" if down else "x (m)")
    axes.set_ylabel("y" if down else "y (m)")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(8, integer=down, min_n_ticks=1))
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _legend(layout: GridLayout) -> list[tuple[Patch, str]]:
    low, high = window(layout)
    shown = layout.cells[low[0] : high[0], low[1] : high[1]]
    return [
        (Patch(facecolor=_COLOURS[kind], edgecolor="none"), name)
        for kind, name in _NAMES.items()
        if (shown == kind).any()
    ]
