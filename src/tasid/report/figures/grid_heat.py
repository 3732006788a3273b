"""Numbers on the cells of a grid map: values of a plan, or visits; drawn as areas, not as pixels.

Areas take the page's colours, light or dark, where a picture made of pixels could not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from tasid.maps import RobustPlan
from tasid.maps.layout import GOAL, HAZARD, GridLayout
from tasid.maps.planning.backward import Rows, backward, reachable
from tasid.maps.planning.flips import Place
from tasid.report.figures.drawing import LIGHT

_LEVELS = 14
_FAINTEST, _FULLEST = 0.1, 0.95


@dataclass(frozen=True, eq=False)
class Heat:
    """A number for every cell, [rows, columns]; NaN where there is none."""

    cells: NDArray[np.float64]
    name: str

    @property
    def range(self) -> tuple[float, float]:
        """The smallest and the largest."""
        low, high = float(np.nanmin(self.cells)), float(np.nanmax(self.cells))
        return (low, high) if high > low else (low - 0.5, high + 0.5)


def arrival_heat(plan: RobustPlan, layout: GridLayout) -> Heat:
    """The best heading's worst-case value in every cell."""
    values = arrival_values(plan)
    decided = np.isfinite(values)
    cells = np.full(layout.cells.shape, -np.inf)
    row, column = layout.positions[decided].T
    np.maximum.at(cells, (row, column), values[decided])
    cells[~np.isfinite(cells) | np.isin(layout.cells, (GOAL, HAZARD))] = np.nan
    return Heat(cells, "worst-case value on arrival")


def arrival_values(plan: RobustPlan) -> NDArray[np.float64]:
    """Ṽ of every state at the first step one can be there [S]; NaN where no decision is made.

    At that step all that can still happen is on the map, however short the horizon it was
    explored for.
    """
    sim, eta = plan.simulator, plan.eta
    values = np.full(sim.num_states, np.nan)

    def max_min(h: int, rows: Rows, q: NDArray[np.float64]) -> NDArray[np.float64]:
        best, worst = q[0].copy(), q[0].copy()
        for row in q[1:]:  # faster than along the axis
            np.maximum(best, row, out=best)
            np.minimum(worst, row, out=worst)
        new: NDArray[np.float64] = (1.0 - eta) * best + eta * worst
        values[rows] = new  # the sweep goes backward: the earliest step writes last
        return new

    backward(sim, max_min, frontier=reachable(sim))
    return values


def visit_heat(layout: GridLayout, visits: NDArray[np.float64]) -> Heat:
    """How often each cell was visited, all headings together; none below half a visit.

    Where nobody leaves, time is waited out: that is no visit.
    """
    cells = np.zeros(layout.cells.shape)
    row, column = layout.positions.T
    np.add.at(cells, (row, column), visits)
    cells[(cells < 0.5) | np.isin(layout.cells, (GOAL, HAZARD))] = np.nan
    return Heat(cells, "visits")


def draw_heat(figure: Figure, axes: Axes, heat: Heat, layout: GridLayout) -> None:
    """Cells in shades of one colour, and a scale beside them."""
    if np.isnan(heat.cells).all():
        return
    low, high = heat.range
    level = np.clip((heat.cells - low) / (high - low) * _LEVELS, 0, _LEVELS - 1)
    level[np.isnan(level)] = -1
    shades = np.linspace(_FAINTEST, _FULLEST, _LEVELS)
    for number, shade in enumerate(shades.tolist()):
        draw_patch(axes, layout, level.astype(int) == number, LIGHT["heat"], alpha=shade, zorder=1)
    place = axes.get_position()
    pixels = figure.get_size_inches()[0] * figure.dpi
    bar = figure.add_axes((place.x1 + 14 / pixels, place.y0, 12 / pixels, place.height))
    step = (high - low) / _LEVELS
    for number, shade in enumerate(shades.tolist()):
        bar.bar(0.5, step, 1.0, low + number * step, color=LIGHT["heat"], alpha=shade, linewidth=0)
    bar.set_xlim(0, 1)
    bar.set_ylim(low, high)
    bar.set_xticks([])
    bar.yaxis.tick_right()
    bar.yaxis.set_label_position("right")
    bar.yaxis.set_major_locator(MaxNLocator(5 if place.height * pixels > 120 else 3))
    bar.tick_params(length=0)
    bar.set_ylabel(heat.name, labelpad=8)
    bar.spines[:].set_visible(False)


def draw_patch(
    axes: Axes, layout: GridLayout, cells: NDArray[np.bool_], colour: str, **style: Any
) -> None:
    """All these cells as one area."""
    if not cells.any():
        return
    hatch = style.pop("hatch", None)
    area = Path.make_compound_path(*(_rectangle(layout, *run) for run in _runs(cells)))
    axes.add_patch(PathPatch(area, facecolor=colour, edgecolor="none", linewidth=0, **style))
    if hatch:
        style["zorder"] += 1
        lines = PathPatch(area, facecolor="none", edgecolor=LIGHT["paper"], hatch=hatch, **style)
        lines.set_linewidth(0)
        axes.add_patch(lines)


def _runs(cells: NDArray[np.bool_]) -> list[tuple[int, int, int]]:
    """Neighbours in a row together: row, first column, column after the last."""
    runs = []
    for row in np.flatnonzero(cells.any(axis=1)).tolist():
        turns = np.flatnonzero(np.diff(cells[row].astype(np.int8), prepend=0, append=0))
        runs += [(row, int(a), int(b)) for a, b in turns.reshape(-1, 2)]
    return runs


def _rectangle(layout: GridLayout, row: int, first: int, after: int) -> Path:
    half = side(layout) / 2
    (x0, y), (x1, _) = centre(layout, (row, first)), centre(layout, (row, after - 1))
    corners = [(x0 - half, y - half), (x1 + half, y - half), (x1 + half, y + half)]
    return Path([*corners, (x0 - half, y + half), corners[0]], closed=True)


def window(layout: GridLayout) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First and last+1 row and column worth showing: all states and what surrounds them."""
    shape = np.array(layout.cells.shape)
    low = np.maximum(layout.positions.min(axis=0).astype(np.int64) - 1, 0)
    return low, np.minimum(layout.positions.max(axis=0).astype(np.int64) + 2, shape)


def centre(layout: GridLayout, cell: Place) -> tuple[float, float]:
    """x and y of a cell's middle, in the units of the layout's extent."""
    row, column = cell
    if layout.corner is None:
        return float(column), float(row)
    x, y = layout.corner
    rows = layout.cells.shape[0]
    return x + (column + 0.5) * layout.cell_size, y + (rows - row - 0.5) * layout.cell_size


def side(layout: GridLayout) -> float:
    """The side of a cell, in the same units."""
    return 1.0 if layout.corner is None else layout.cell_size
