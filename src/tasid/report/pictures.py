"""The picture of a plan: lanes for layered maps, states over steps for all others."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from tasid.mdp import RobustPlan
from tasid.report.drawing import LIGHT, axes_inside, blank, house_style, picture_bytes
from tasid.report.routes import Columns, Fold, Lanes, Routes, columns_of, lanes_of, share
from tasid.storage import write_bytes_atomically

WIDE, NARROW = 700.0, 344.0
_LANE_HEIGHT = 54.0
_PIXELS_PER_COLUMN = 12.0
_MOST_ROWS = 24
_ROBUST: dict[str, Any] = {"color": LIGHT["robust"], "linewidth": 3.6, "solid_capstyle": "round"}
_NOMINAL: dict[str, Any] = {"color": LIGHT["nominal"], "linewidth": 1.9, "dashes": (3.2, 1.6)}
_EDGE: dict[str, Any] = {"color": LIGHT["edge"], "linewidth": 0.7}
_FOLDED: dict[str, Any] = {"color": LIGHT["edge"], "linewidth": 1.2, "dashes": (1, 3), "zorder": 1}


def plan_picture(plan: RobustPlan, path: str | os.PathLike[str]) -> Path:
    """Draw a plan's route beside the nominal plan's into a .png or .svg file."""
    target = Path(path)
    kind = target.suffix.lower().removeprefix(".")
    if kind not in ("png", "svg"):
        raise ValueError(
            f"path: {str(target)!r} ends in {target.suffix!r}; pictures end in .png or .svg"
        )
    with house_style():
        data = picture_bytes(draw_routes(Routes.of(plan), width=WIDE), kind)
    return write_bytes_atomically(target, data)


def draw_routes(routes: Routes, *, width: float) -> Figure:
    """The routes on a figure so many pixels wide; to be called in the house style."""
    lanes = lanes_of(routes)
    return _draw_states(routes, width) if lanes is None else _draw_lanes(routes, lanes, width)


def _draw_lanes(routes: Routes, lanes: Lanes, width: float) -> Figure:
    left, right, bottom = 54.0, 14.0, 42.0
    inner = width - left - right
    columns = columns_of(lanes.horizon, int(inner / _PIXELS_PER_COLUMN))
    top = _legend_height(width) + (0 if columns.fold is None else 20)
    height = _LANE_HEIGHT * (len(lanes.kinds) - 1) + 36
    figure = blank(width, top + height + bottom)
    axes = axes_inside(figure, left=left, right=right, top=top, bottom=bottom)
    row = {kind: place for place, kind in enumerate(lanes.kinds)}
    _draw_map(axes, lanes, columns, row)
    for walks, style in ((lanes.robust, _ROBUST), (lanes.nominal, _NOMINAL)):
        for walk, layers in product(walks, _stretches(columns)):
            axes.plot(
                [columns.place[layer] for layer in layers],
                [row[walk[layer]] for layer in layers],
                zorder=3 if style is _ROBUST else 4,
                **style,
            )
    _draw_nodes(axes, lanes, columns, row)
    if columns.fold is not None:
        _draw_fold(axes, lanes, columns, columns.fold, row)
    _number(axes, columns, inner)
    axes.set_yticks(list(row.values()), [f"type {kind}" for kind in lanes.kinds])
    axes.set_ylim(len(row) - 1 + 18 / _LANE_HEIGHT, -18 / _LANE_HEIGHT)
    margin = 9 * max(columns.width, 1.0) / inner
    axes.set_xlim(-margin, columns.width + margin)
    axes.set_xlabel("layer")
    _legend(figure, routes, width, transitions=True)
    return figure


def _stretches(columns: Columns) -> list[list[int]]:
    """The layers shown, in one piece, or in two around a fold."""
    layers = list(columns.place)
    if columns.fold is None:
        return [layers]
    cut = layers.index(columns.fold.last)
    return [layers[:cut], layers[cut:]]


def _draw_map(axes: Axes, lanes: Lanes, columns: Columns, row: dict[int, int]) -> None:
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


def _draw_fold(axes: Axes, lanes: Lanes, columns: Columns, fold: Fold, row: dict[int, int]) -> None:
    """In place of the hidden layers, how much of them each route spends in each lane."""
    ends = [columns.place[fold.first], columns.place[fold.last]]
    middle = sum(ends) / 2
    for kind, lane in row.items():
        axes.plot([ends[0] + 0.5, ends[1] - 0.5], [lane, lane], **_FOLDED)
        for walks, colour, side in (
            (lanes.robust, "robust", "bottom"),
            (lanes.nominal, "nominal", "top"),
        ):
            part = share(walks, kind, fold.hidden)
            axes.annotate(
                _percent(part),
                (middle, lane),
                (0, 3 if side == "bottom" else -3),
                textcoords="offset points",
                ha="center",
                va=side,
                color=LIGHT[colour],
                fontsize=10.5,
            )
    axes.annotate(
        f"share of {len(fold.hidden)} layers",
        (middle, 0),
        (0, 22),
        textcoords="offset points",
        ha="center",
        va="bottom",
        color=LIGHT["muted"],
        fontsize=10.5,
    )


def _percent(part: float) -> str:
    if 0 < part < 0.005:
        return "< 1 %"
    return f"{100 * part:.0f} %" if part else ""


def _draw_nodes(axes: Axes, lanes: Lanes, columns: Columns, row: dict[int, int]) -> None:
    for kind, lane in row.items():
        axes.plot(
            list(columns.place.values()),
            [lane] * len(columns.place),
            linestyle="none",
            marker="o",
            markersize=3.4,
            markerfacecolor=LIGHT["edge"],
            markeredgecolor="none",
            zorder=2,
        )
        for walks, colour in ((lanes.nominal, "nominal"), (lanes.robust, "robust")):
            met = [x for h, x in columns.place.items() if any(walk[h] == kind for walk in walks)]
            axes.plot(
                met,
                [lane] * len(met),
                linestyle="none",
                marker="o",
                markersize=6.0,
                markerfacecolor=LIGHT[colour],
                markeredgecolor=LIGHT["paper"],
                markeredgewidth=1.2,
                zorder=5,
            )


def _number(axes: Axes, columns: Columns, pixels: float) -> None:
    """Tick labels at the ends, at a fold, and at round numbers as far as there is room."""
    room = 30.0 * max(columns.width, 1.0) / pixels
    layers = list(columns.place)
    fold = columns.fold
    ends = [layers[0], layers[-1], *((fold.first, fold.last) if fold else ())]
    step = next((s for s in (1, 2, 5, 10, 20, 50, 100, 200, 500) if s >= room), 1000)
    chosen: list[int] = []
    for layer in [*ends, *(layer for layer in layers if layer % step == 0)]:
        if all(abs(columns.place[layer] - columns.place[other]) >= room for other in chosen):
            chosen.append(layer)
    axes.set_xticks([columns.place[layer] for layer in chosen], [str(layer) for layer in chosen])


def _draw_states(routes: Routes, width: float) -> Figure:
    """States over steps: the rows are the states met, in the order of their indices."""
    names = routes.simulator.states
    met = sorted({s for walk in (*routes.robust_walks, *routes.nominal_walks) for s in walk})
    row = {state: place for place, state in enumerate(met)}
    every = -(-len(met) // _MOST_ROWS)
    labels = [_shortened(str(names[state])) for state in met[::every]]
    left = 20.0 + 6.6 * max(map(len, labels))
    top, right, bottom = _legend_height(width), 14.0, 40.0
    height = min(max(20.0 * len(met), 60.0), 20.0 * _MOST_ROWS)
    figure = blank(width, top + height + bottom)
    axes = axes_inside(figure, left=left, right=right, top=top, bottom=bottom)
    axes.set_yticks(range(0, len(met), every), labels)
    axes.grid(axis="y")
    horizon = routes.simulator.horizon
    dots = "o" if horizon <= (width - left - right) / 12 else ""
    for walks, style in ((routes.robust_walks, _ROBUST), (routes.nominal_walks, _NOMINAL)):
        for walk in walks:
            axes.plot(
                range(horizon + 1),
                [row[state] for state in walk],
                marker=dots,
                markersize=6,
                markeredgecolor=LIGHT["paper"],
                zorder=3 if style is _ROBUST else 4,
                **style,
            )
    _number(axes, columns_of(horizon, horizon), width - left - right)
    axes.set_ylim(len(met) - 0.4, -0.6)
    axes.set_xlabel("step")
    _legend(figure, routes, width, transitions=False)
    return figure


def _shortened(name: str, most: int = 18) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"


def _legend_height(width: float) -> float:
    return 26.0 if width >= WIDE else 58.0


def _legend(figure: Figure, routes: Routes, width: float, *, transitions: bool) -> None:
    entries: Sequence[tuple[Line2D, str]] = [
        (Line2D([], [], **_ROBUST), f"robust plan, η = {routes.plan.eta:g}"),
        (Line2D([], [], **_NOMINAL), "plan for η = 0, which trusts the map"),
        (Line2D([], [], **_EDGE), "all moves on the map"),
    ]
    handles, names = zip(*(entries if transitions else entries[:2]), strict=True)
    figure.legend(
        handles,
        names,
        loc="upper left",
        bbox_to_anchor=(0, 1),
        borderaxespad=0.2,
        ncols=len(names) if width >= WIDE else 1,
        handlelength=2.4,
        columnspacing=2.0,
        labelspacing=0.4,
        borderpad=0,
    )
