"""The picture of a plan on a grid map: walls, hazards, goal, values, and the routes."""

from __future__ import annotations

from collections.abc import Iterable
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from tasid.mdp.layout import GOAL, HAZARD, UNKNOWN, WALL, GridLayout
from tasid.report.drawing import LIGHT, axes_inside, blank
from tasid.report.grid_routes import (
    Cell,
    Change,
    arrival_values,
    changes_in_words,
    changes_of,
    layout_of,
    way_of,
)
from tasid.report.routes import Routes

_COLOURS = {WALL: "#474c53", UNKNOWN: LIGHT["line"], HAZARD: "#e59a76", GOAL: "#8cc7a0"}
_VALUES = LinearSegmentedColormap.from_list("values", ["#f4f1ea", "#b9cbe3", "#6f93c3"])
_ROBUST: dict[str, Any] = {"color": LIGHT["robust"], "linewidth": 3.4, "zorder": 5}
_NOMINAL: dict[str, Any] = {
    "color": LIGHT["nominal"],
    "linewidth": 2.0,
    "dashes": (3.2, 1.6),
    "zorder": 6,
}
_BETWEEN: dict[str, Any] = {"color": LIGHT["blind"], "linewidth": 1.4, "zorder": 4}
_FEW_CELLS = 48
_TALLEST = 760.0
_MOST_BETWEEN = 4


def draw_grid(routes: Routes, *, width: float) -> Figure:
    """The map and the routes on a figure so many pixels wide; to be called in the house style."""
    layout = layout_of(routes.simulator)
    changes = changes_of(routes)
    legend = _legend(routes, layout, changes)
    note = fill(changes_in_words(changes, routes.plan.eta), int(width / 6.4))
    left, right = 52.0, 92.0
    top, bottom = 10.0 + 19.0 * -(-len(legend) // 3), 58.0 + 15.0 * note.count("\n")
    low, high = _window(layout)
    rows, columns = high - low
    scale = min((width - left - right) / columns, _TALLEST / rows, 44.0)
    wide = left + right + scale * columns
    figure = blank(max(wide, 420.0), top + bottom + scale * rows)
    spare = max(wide, 420.0) - wide
    axes = axes_inside(figure, left=left, right=right + spare, top=top, bottom=bottom)
    _draw_values(figure, axes, routes, layout)
    _draw_cells(axes, layout)
    _draw_ways(axes, routes, layout, changes)
    _draw_ends(axes, routes, layout, scale)
    _draw_frame(axes, layout, low, high)
    handles, names = zip(*legend, strict=True)
    figure.legend(handles, names, loc="upper left", bbox_to_anchor=(0, 1), ncols=3,
                  borderaxespad=0.2, borderpad=0, handlelength=2.2, labelspacing=0.4,
                  columnspacing=1.6, fontsize=10.5)  # fmt: skip
    figure.text(0, 0, note, va="bottom", ha="left", fontsize=10.5, color=LIGHT["ink"])
    return figure


def _window(layout: GridLayout) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First and last+1 row and column worth showing: all states and what surrounds them."""
    shape = np.array(layout.cells.shape)
    low = np.maximum(layout.positions.min(axis=0).astype(np.int64) - 1, 0)
    return low, np.minimum(layout.positions.max(axis=0).astype(np.int64) + 2, shape)


def _draw_values(figure: Figure, axes: Axes, routes: Routes, layout: GridLayout) -> None:
    """The best heading's value in every cell."""
    values = arrival_values(routes.plan)
    decided = np.isfinite(values)
    heat = np.full(layout.cells.shape, -np.inf)
    row, column = layout.positions[decided].T
    np.maximum.at(heat, (row, column), values[decided])
    heat[~np.isfinite(heat) | np.isin(layout.cells, (GOAL, HAZARD))] = np.nan
    if np.isnan(heat).all():
        return
    image = axes.imshow(
        heat, cmap=_VALUES, extent=layout.extent, interpolation="nearest", aspect="auto", zorder=1
    )
    place = axes.get_position()
    pixels = figure.get_size_inches()[0] * figure.dpi
    bar = figure.add_axes((place.x1 + 14 / pixels, place.y0, 12 / pixels, place.height))
    figure.colorbar(image, cax=bar, ticks=MaxNLocator(5))
    bar.tick_params(length=0)
    bar.set_ylabel("worst-case value on arrival", labelpad=8)
    for side in bar.spines.values():
        side.set_visible(False)


def _draw_cells(axes: Axes, layout: GridLayout) -> None:
    picture = np.zeros((*layout.cells.shape, 4))
    for kind, colour in _COLOURS.items():
        picture[layout.cells == kind] = to_rgba(colour)
    axes.imshow(picture, extent=layout.extent, interpolation="nearest", aspect="auto", zorder=2)
    if layout.cells.shape[1] > _FEW_CELLS:
        return
    for cell in np.argwhere(layout.cells == HAZARD):
        x, y = _centre(layout, (int(cell[0]), int(cell[1])))
        half = _side(layout) / 2
        axes.add_patch(
            Rectangle(
                (x - half, y - half),
                2 * half,
                2 * half,
                facecolor="none",
                hatch="//",
                edgecolor=LIGHT["paper"],
                linewidth=0,
                zorder=3,
            )
        )


def _draw_ways(axes: Axes, routes: Routes, layout: GridLayout, changes: tuple[Change, ...]) -> None:
    robust, nominal = way_of(routes.plan, routes.starts), way_of(routes.nominal, routes.starts)
    for way in _between(changes, routes.plan.eta):
        _draw_paths(axes, way, layout, _BETWEEN)
    _draw_paths(axes, robust.cells, layout, {**_ROBUST, "solid_capstyle": "round"})
    if nominal.cells != robust.cells:
        _draw_paths(axes, nominal.cells, layout, _NOMINAL)


def _between(changes: tuple[Change, ...], eta: float) -> list[tuple[tuple[Cell, ...], ...]]:
    """Ways that are neither the first nor the last."""
    if not changes or changes[0].low >= eta:
        return []
    ends = {changes[0].before.cells, changes[-1].after.cells}
    ways = dict.fromkeys(change.after.cells for change in changes)
    return [way for way in ways if way not in ends][:_MOST_BETWEEN]


def _draw_paths(
    axes: Axes, paths: Iterable[tuple[Cell, ...]], layout: GridLayout, style: dict[str, Any]
) -> None:
    for cells in paths:
        x, y = zip(*(_centre(layout, cell) for cell in cells), strict=True)
        axes.plot(x, y, solid_joinstyle="round", **style)


def _draw_ends(axes: Axes, routes: Routes, layout: GridLayout, scale: float) -> None:
    """A mark on every start, turned to where the robot looks, and a star on the goals shown."""
    size = float(np.clip(0.5 * scale, 7.0, 15.0))
    mark: dict[str, Any] = {"color": LIGHT["ink"], "markersize": size, "zorder": 8}
    mark |= {"linestyle": "none", "markeredgecolor": LIGHT["paper"], "markeredgewidth": 1.0}
    for start in routes.starts:
        heading = None if layout.headings is None else int(layout.headings[start])
        marker: Any = "o" if heading is None else (3, 0, -90 * heading)
        axes.plot(*layout.centres([start])[0], marker=marker, **mark)
    for cell in np.argwhere(layout.cells == GOAL)[:64]:
        axes.plot(*_centre(layout, (int(cell[0]), int(cell[1]))), marker="*", **mark)


def _draw_frame(
    axes: Axes, layout: GridLayout, low: NDArray[np.int64], high: NDArray[np.int64]
) -> None:
    half = _side(layout) / 2
    left, upper = _centre(layout, (int(low[0]), int(low[1])))
    right, lower = _centre(layout, (int(high[0]) - 1, int(high[1]) - 1))
    down = layout.corner is None
    axes.set_xlim(left - half, right + half)
    axes.set_ylim(lower + half if down else lower - half, upper - half if down else upper + half)
    axes.set_xlabel("x" if down else "x (m)")
    axes.set_ylabel("y" if down else "y (m)")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(8, integer=down, min_n_ticks=1))
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _centre(layout: GridLayout, cell: Cell) -> tuple[float, float]:
    row, column = cell
    if layout.corner is None:
        return float(column), float(row)
    x, y = layout.corner
    rows = layout.cells.shape[0]
    return x + (column + 0.5) * layout.cell_size, y + (rows - row - 0.5) * layout.cell_size


def _side(layout: GridLayout) -> float:
    return 1.0 if layout.corner is None else layout.cell_size


def _legend(
    routes: Routes, layout: GridLayout, changes: tuple[Change, ...]
) -> list[tuple[Line2D | Patch, str]]:
    eta = routes.plan.eta
    same = way_of(routes.plan, routes.starts).cells == way_of(routes.nominal, routes.starts).cells
    robust = Line2D([], [], **_ROBUST)
    items: list[tuple[Line2D | Patch, str]] = [
        (robust, f"plan for η = {eta:g}, and for η = 0" if same else f"robust plan, η = {eta:g}")
    ]
    if not same:
        items.append((Line2D([], [], **_NOMINAL), "plan for η = 0"))
    if _between(changes, eta):
        items.append((Line2D([], [], **_BETWEEN), "plans for η in between"))
    names = {GOAL: "goal", WALL: "wall", UNKNOWN: "unknown", HAZARD: "hazard"}
    low, high = _window(layout)
    shown = layout.cells[low[0] : high[0], low[1] : high[1]]
    for kind, name in names.items():
        if (shown == kind).any():
            items.append((Patch(facecolor=_COLOURS[kind], edgecolor="none"), name))
    return items
