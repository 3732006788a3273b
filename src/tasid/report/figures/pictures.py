"""The picture of a plan: lanes for layered maps, grids for grid maps, else states over steps."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from tasid.files import write_bytes_atomically
from tasid.maps import RobustPlan
from tasid.report.figures.drawing import (
    LIGHT,
    axes_inside,
    blank,
    draw_legend,
    house_style,
    label,
    picture_bytes,
)
from tasid.report.figures.grid_picture import draw_grid
from tasid.report.figures.routes import (
    Columns,
    RouteLanes,
    Routes,
    columns_of,
    lanes_of,
    share,
)
from tasid.report.text.wording import shortened

WIDE, NARROW = 700.0, 344.0
_LANE_HEIGHT = 54.0
_PIXELS_PER_COLUMN = 12.0
_MOST_ROWS = 24
_ROBUST: dict[str, Any] = {"color": LIGHT["robust"], "linewidth": 3.6, "solid_capstyle": "round"}
_NOMINAL: dict[str, Any] = {"color": LIGHT["nominal"], "linewidth": 1.9, "dashes": (3.2, 1.6)}
_EDGE: dict[str, Any] = {"color": LIGHT["edge"], "linewidth": 0.7}
_STATE: dict[str, Any] = {
    "color": LIGHT["edge"],
    "linestyle": "none",
    "marker": "o",
    "markersize": 3.4,
    "markeredgewidth": 0,
    "zorder": 2,
}
_DOT: dict[str, Any] = {
    "linestyle": "none",
    "marker": "o",
    "markersize": 6.0,
    "markeredgecolor": LIGHT["paper"],
    "markeredgewidth": 1.2,
}
_FOLDED: dict[str, Any] = {"color": LIGHT["edge"], "linewidth": 1.2, "dashes": (1, 3), "zorder": 1}


def plan_picture(
    plan: RobustPlan | Routes,
    path: str | os.PathLike[str],
    *,
    marks: Sequence[tuple[float, float]] = (),
) -> Path:
    """Draw a plan's route beside those for other η into a .png or .svg file.

    On a grid map, crosses mark the places (x, y) of doors that were lost.
    """
    routes = plan if isinstance(plan, Routes) else Routes.of(plan)
    target = Path(path)
    kind = target.suffix.lower().removeprefix(".")
    if kind not in ("png", "svg"):
        raise ValueError(
            f"path: {str(target)!r} ends in {target.suffix!r}; pictures end in .png or .svg"
        )
    with house_style():
        if routes.simulator.layout is None:
            figure = draw_routes(routes, width=WIDE)
        else:
            figure = draw_grid(routes, width=WIDE, marks=marks)
        data = picture_bytes(figure, kind)
    return write_bytes_atomically(target, data)


def draw_routes(routes: Routes, *, width: float) -> Figure:
    """The routes on a figure so many pixels wide; to be called in the house style.

    Rows are the types of a layered map, else the states met in the order of their indices.
    """
    lanes, legend = lanes_of(routes), _legend(routes)
    if lanes is None:
        walks = routes.walks
        met = sorted({state for walk in (*walks[0], *walks[1]) for state in walk})
        every = -(-len(met) // _MOST_ROWS)
        names = [shortened(routes.label(state), 18) for state in met[::every]]
        left, height = 20.0 + 6.6 * max(map(len, names)), 20.0 * min(max(len(met), 3), _MOST_ROWS)
    else:
        walks = lanes.walks
        met, every, names = list(lanes.kinds), 1, [f"type {kind}" for kind in lanes.kinds]
        left, height = 54.0, _LANE_HEIGHT * (len(met) - 1) + 36
        legend.append((Line2D([], [], **_EDGE), "all moves on the map"))
    row = {one: place for place, one in enumerate(met)}
    right, bottom = 14.0, 42.0
    inner = width - left - right
    columns = columns_of(routes.simulator.horizon, int(inner / _PIXELS_PER_COLUMN))
    top = 26.0 if width >= WIDE else 10.0 + 16.0 * len(legend)
    top += 20 if columns.hidden else 0
    figure = blank(width, top + height + bottom)
    axes = axes_inside(figure, left=left, right=right, top=top, bottom=bottom)
    axes.set_yticks(range(0, len(met), every), names)
    if lanes is None:
        axes.grid(axis="y")
        axes.set_ylim(len(met) - 0.4, -0.6)
    else:
        _draw_map(axes, lanes, columns, row)
        axes.set_ylim(len(met) - 1 + 18 / _LANE_HEIGHT, -18 / _LANE_HEIGHT)
    _draw_walks(axes, "robust", walks[0], columns, row)
    if not routes.same:
        _draw_walks(axes, "nominal", walks[1], columns, row)
    if columns.hidden:
        _draw_fold(axes, lanes, columns, row)
    _draw_axis(axes, columns, inner, "step" if lanes is None else "layer")
    beside = len(legend) if width >= WIDE else 1
    draw_legend(figure, legend, beside, handlelength=2.4, columnspacing=2.0)
    return figure


def _draw_walks(
    axes: Axes,
    plan: str,
    walks: Sequence[Sequence[int]],
    columns: Columns,
    row: Mapping[int, int],
) -> None:
    """The routes of the robust or the nominal plan; where both meet, the robust one's dots win."""
    style, order = (_ROBUST, 3) if plan == "robust" else (_NOMINAL, 4)
    for walk, layers in product(walks, _stretches(columns)):
        places = [columns.place[layer] for layer in layers]
        rows = [row[walk[layer]] for layer in layers]
        axes.plot(places, rows, zorder=order, **style)
        axes.plot(places, rows, color=LIGHT[plan], zorder=8 - order, **_DOT)


def _stretches(columns: Columns) -> list[list[int]]:
    """The layers shown, in one piece, or in two around a fold."""
    layers = list(columns.place)
    if not columns.hidden:
        return [layers]
    cut = layers.index(columns.hidden.stop)
    return [layers[:cut], layers[cut:]]


def _draw_map(axes: Axes, lanes: RouteLanes, columns: Columns, row: dict[int, int]) -> None:
    """Every transition of the map, faint."""
    place = columns.place
    segments = [
        [(place[h], row[before]), (place[h + 1], row[after])]
        for layers in _stretches(columns)
        for h in layers[:-1]
        for before, after in sorted(lanes.edges[h])
    ]
    axes.add_collection(
        LineCollection(segments, colors=_EDGE["color"], linewidths=_EDGE["linewidth"], zorder=1)
    )
    for lane in row.values():
        axes.plot(list(place.values()), [lane] * len(place), **_STATE)


def _draw_fold(axes: Axes, lanes: RouteLanes | None, columns: Columns, row: dict[int, int]) -> None:
    """In place of the hidden layers, how much of them each route spends in each lane."""
    hidden = columns.hidden
    ends = [columns.place[hidden.start - 1], columns.place[hidden.stop]]
    middle, name = sum(ends) / 2, f"{len(hidden)} steps more"
    if lanes is not None:
        name = f"share of {len(hidden)} layers"
        both = list(zip(lanes.walks, ("robust", "nominal"), (3, -3), strict=True))
        for kind, lane in row.items():
            axes.plot([ends[0] + 0.5, ends[1] - 0.5], [lane, lane], **_FOLDED)
            for walks, colour, rise in both[: len(set(lanes.walks))]:
                label(axes, _percent(share(walks, kind, hidden)), (middle, lane), rise, colour)
    label(axes, name, (middle, 1), 4, "muted", xycoords=axes.get_xaxis_transform())


def _percent(part: float) -> str:
    if 0 < part < 0.005 or 0.995 <= part < 1:  # 0 % and 100 % are said of none and all
        return "< 1 %" if part < 0.5 else "> 99 %"
    return f"{100 * part:.0f} %" if part else ""


def _draw_axis(axes: Axes, columns: Columns, pixels: float, unit: str) -> None:
    """Tick labels at the ends, at a fold, and at round numbers as far as there is room."""
    room = 30.0 * max(columns.width, 1.0) / pixels
    layers = list(columns.place)
    hidden = columns.hidden
    ends = [layers[0], layers[-1], *((hidden.start - 1, hidden.stop) if hidden else ())]
    step = next((s for s in (1, 2, 5, 10, 20, 50, 100, 200, 500) if s >= room), 1000)
    chosen: list[int] = []
    for layer in [*ends, *(layer for layer in layers if layer % step == 0)]:
        if all(abs(columns.place[layer] - columns.place[other]) >= room for other in chosen):
            chosen.append(layer)
    axes.set_xticks([columns.place[layer] for layer in chosen], [str(layer) for layer in chosen])
    margin = 9 * max(columns.width, 1.0) / pixels
    axes.set_xlim(-margin, columns.width + margin)
    axes.set_xlabel(unit)


def _legend(routes: Routes) -> list[tuple[Line2D, str]]:
    robust, nominal = Line2D([], [], **_ROBUST), Line2D([], [], **_NOMINAL)
    eta = f"{routes.plan.eta:g}"
    if routes.same:
        name = "plan for η = 0" if eta == "0" else f"robust plan, η = {eta}, and plan for η = 0"
        return [(robust, name)]
    return [(robust, f"robust plan, η = {eta}"), (nominal, "plan for η = 0, which trusts the map")]
