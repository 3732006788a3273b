"""The two panels of a frame: what the policy sees, and where on the map it believes it is.

A panel is drawn once and then moved from step to step.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from tasid.maps.layout import FREE, GOAL, HAZARD, GridLayout
from tasid.report.figures.drawing import LIGHT
from tasid.report.figures.filmstrip_beliefs import (
    FramePanel,
    Show,
    grid_clouds,
    lane_clouds,
    likeliest,
    together,
)
from tasid.report.figures.grid_picture import coloured
from tasid.report.figures.routes import Routes, lanes_of, walk
from tasid.report.text.wording import shortened
from tasid.runs.watch import Episode

_MOST_BARS = 64
_HEAT_WIDTH = 32
_MARGIN = 2
"""Cells shown around all that happened, on maps too large to be shown whole."""
_WHOLE = 40
_SHOWN = 0.05
"""Beliefs that the cut has room for."""
_MOST_LABELS = 14
BELIEF: dict[str, Any] = {
    "color": LIGHT["learned"],
    "linestyle": "none",
    "marker": "o",
    "markeredgecolor": LIGHT["paper"],
    "markeredgewidth": 0.8,
    "zorder": 8,
}
TRUTH: dict[str, Any] = {
    "color": "none",
    "linestyle": "none",
    "marker": "o",
    "markeredgecolor": LIGHT["nominal"],
    "markeredgewidth": 2.0,
    "zorder": 9,
}
_TRAIL: dict[str, Any] = {"color": LIGHT["learned"], "linewidth": 1.8, "zorder": 6}
_TRUE_TRAIL: dict[str, Any] = {"color": "#e9bfa5", "linewidth": 5.0, "zorder": 5}
_PLAN: dict[str, Any] = {"color": LIGHT["edge"], "linewidth": 1.6, "zorder": 4}


def observation_panel(episode: Episode) -> FramePanel:
    """Images as they are, short vectors as bars, anything else as a heat map."""
    x = episode.observations
    if x.ndim in (3, 4) and min(x.shape[1:3]) > 1 and (x.ndim == 3 or x.shape[3] in (1, 3, 4)):
        return _picture(_as_picture(x))
    flat = x.reshape(len(x), -1).astype(np.float64)
    if flat.shape[1] <= _MOST_BARS:
        return _bars(flat)
    rows = -(-flat.shape[1] // _HEAT_WIDTH)
    padded = np.full((len(flat), rows * _HEAT_WIDTH), np.nan)
    padded[:, : flat.shape[1]] = flat
    return _picture(padded.reshape(len(flat), rows, _HEAT_WIDTH))


def map_panel(episode: Episode) -> FramePanel:
    """Grid maps from above; layered ones as lanes; of others the likeliest states, or the way."""
    plan = episode.policy.plan
    if plan.simulator.layout is not None:
        return _grid(episode, plan.simulator.layout)
    if episode.beliefs is not None and lanes_of(Routes(plan, plan)) is None:
        return likeliest(episode, episode.beliefs)
    return _timeline(episode)


def _as_picture(x: NDArray[Any]) -> NDArray[Any]:
    """Ready for `imshow`: uint8 colours, or numbers in one channel."""
    if x.ndim == 4 and x.shape[3] == 1:
        x = x[..., 0]
    if x.ndim == 3 or x.dtype == np.uint8:
        return x
    x = x.astype(np.float64)
    low, high = float(x.min()), float(x.max())
    if low >= 0 and high <= 1:
        return x
    return (x - low) / max(high - low, 1e-12)


def _picture(pictures: NDArray[Any]) -> FramePanel:
    rows, columns = pictures.shape[1:3]

    def draw(axes: Axes) -> Show:
        scale: dict[str, Any] = {}
        if pictures.ndim == 3:
            low, high = np.nanmin(pictures), np.nanmax(pictures)
            scale = {"cmap": "gray", "vmin": low, "vmax": max(high, low + 1e-12)}
        image = axes.imshow(pictures[0], interpolation="nearest", aspect="equal", **scale)
        axes.set_axis_off()
        return lambda h: image.set_data(pictures[h])

    return FramePanel(float(np.clip(columns / rows, 0.5, 2.0)), draw)


def _bars(numbers: NDArray[np.float64]) -> FramePanel:
    size = numbers.shape[1]

    def draw(axes: Axes) -> Show:
        bars = axes.bar(range(size), numbers[0], width=0.8, color=LIGHT["muted"])
        low, high = min(numbers.min(), 0.0), max(numbers.max(), 0.0)
        room = 0.05 * max(high - low, 1e-12)
        axes.set_ylim(low - room, high + room)
        axes.set_xlim(-0.8, size - 0.2)
        axes.axhline(0, color=LIGHT["edge"], linewidth=0.8)
        axes.set_xticks([])
        axes.tick_params(labelsize=8.5)

        def show(h: int) -> None:
            for bar, height in zip(bars, numbers[h], strict=True):
                bar.set_height(height)

        return show

    return FramePanel(1.0, draw)


def _moved(
    axes: Axes,
    episode: Episode,
    places: Callable[[NDArray[np.int64]], NDArray[np.float64]],
    size: float,
    angles: NDArray[np.float64] | None = None,
) -> Show:
    """Where it believes to be, the truth where it is known, and the ways of both so far.

    Marks are turned by degrees clockwise from north.
    """
    ways = []
    for states, trail, mark in (
        (episode.states, _TRAIL, {"markersize": size, **BELIEF}),
        (episode.truth, _TRUE_TRAIL, {"markersize": 1.6 * size, **TRUTH}),
    ):
        if states is not None:
            (line,), (dot,) = axes.plot([], [], **trail), axes.plot([], [], **mark)
            ways.append((states, _trail(episode, states, places(states)), line, dot))

    def show(h: int) -> None:
        for states, way, line, dot in ways:
            line.set_data(*way[: 2 * h + 1].T)
            dot.set_data(*way[2 * h : 2 * h + 1].T)
            if angles is not None:
                arrow: Any = (3, 0, -float(angles[states[h]]))
                dot.set_marker(arrow)

    return show


def _trail(
    episode: Episode, states: NDArray[np.int64], way: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Every place twice, or once and a gap where the map has no move to the next [2 H, 2].

    Who is carried away leaves no line through the walls.
    """
    sim, trail = episode.policy.simulator, way.repeat(2, axis=0)
    for h, (state, after) in enumerate(pairwise(states.tolist())):
        if after not in sim.successor_at(h)[state]:
            trail[2 * h + 1] = np.nan
    return trail


def _grid(episode: Episode, layout: GridLayout) -> FramePanel:
    """The map from above, cut to what matters if it is large."""
    shape = rows, columns = layout.cells.shape
    low, high = np.zeros(2, int), np.array(shape)
    if max(shape) > _WHOLE:
        met = [*episode.states, *([] if episode.truth is None else episode.truth)]
        for belief in episode.beliefs or ():
            met += belief.states[belief.probabilities >= _SHOWN].tolist()
        places = layout.positions[np.array(met)]
        low = np.maximum(places.min(axis=0) - _MARGIN, 0)
        high = np.minimum(places.max(axis=0) + _MARGIN + 1, high)

    def cells(states: NDArray[np.int64]) -> NDArray[np.float64]:
        return layout.positions[states][:, ::-1].astype(np.float64)

    def draw(axes: Axes) -> Show:
        for kinds in _floors(layout):
            axes.imshow(
                coloured(kinds),
                extent=(-0.5, columns - 0.5, rows - 0.5, -0.5),
                interpolation="nearest",
                aspect="equal",
                zorder=2,
            )
        axes.set_xlim(low[1] - 0.5, high[1] - 0.5)
        axes.set_ylim(high[0] - 0.5, low[0] - 0.5)
        axes.set_axis_off()
        if max(high - low) <= _WHOLE:
            for place in range(rows + 1):
                axes.axhline(place - 0.5, color=LIGHT["line"], linewidth=0.6, zorder=1)
            for place in range(columns + 1):
                axes.axvline(place - 0.5, color=LIGHT["line"], linewidth=0.6, zorder=1)
        route = walk(episode.policy.plan, int(episode.states[0]))
        axes.plot(*cells(np.array(route)).T, **_PLAN)
        beliefs = episode.beliefs
        clouds = [] if beliefs is None else [grid_clouds(axes, beliefs, layout)]
        size = float(np.clip(140.0 / max(high - low), 5.0, 13.0))
        return together(*clouds, _moved(axes, episode, cells, size, layout.angles))

    tall, wide = high - low
    return FramePanel(float(np.clip(wide / tall, 0.45, 2.2)), draw)


def _floors(layout: GridLayout) -> list[NDArray[Any]]:
    """What is drawn of a map, one over the other: walls may be thinner than a cell."""
    if layout.backdrop is None:
        return [layout.cells]
    ends = np.isin(layout.cells, (GOAL, HAZARD))
    return [layout.backdrop, np.where(ends, layout.cells, FREE)]


def _timeline(episode: Episode) -> FramePanel:
    """States over steps: types of a layered map, or the states met in the order of their index."""
    plan = episode.policy.plan
    route = np.array(walk(plan, int(episode.states[0]))[:-1])
    row, names = _rows(episode, Routes(plan, plan), route)

    def places(states: NDArray[np.int64]) -> NDArray[np.float64]:
        rows = [row[int(state)] for state in states]
        return np.column_stack([np.arange(len(rows)), rows]).astype(np.float64)

    def draw(axes: Axes) -> Show:
        every = -(-len(names) // _MOST_LABELS)
        axes.set_yticks(
            range(0, len(names), every), [shortened(name, 14) for name in names[::every]]
        )
        axes.tick_params(labelsize=8.5)
        axes.grid(axis="y")
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_xlim(-0.6, len(route) - 0.4)
        axes.plot(*places(route).T, **_PLAN)
        beliefs = episode.beliefs
        clouds = [] if beliefs is None else [lane_clouds(axes, beliefs, row)]
        return together(*clouds, _moved(axes, episode, places, 7.0))

    return FramePanel(1.6, draw)


def _rows(
    episode: Episode, routes: Routes, route: NDArray[np.int64]
) -> tuple[dict[int, int], list[str]]:
    """The row of every state that is drawn, and the names of the rows."""
    believed = (state for belief in episode.beliefs or () for state in belief.states)
    truth: Any = () if episode.truth is None else episode.truth
    met = np.unique([*episode.states, *route, *truth, *believed]).tolist()
    lanes = lanes_of(routes)
    if lanes is None:
        return {state: row for row, state in enumerate(met)}, [routes.label(s) for s in met]
    labels: Any = routes.simulator.states
    row = {state: lanes.kinds.index(labels[state][1]) for state in met}
    return row, [f"type {kind}" for kind in lanes.kinds]
