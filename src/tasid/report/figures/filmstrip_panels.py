"""The two panels of a frame: what the policy sees, and where on the map it believes it is.

A panel is drawn once and then moved from step to step with `show`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from tasid.maps.layout import FREE, GOAL, HAZARD, GridLayout
from tasid.report.figures.drawing import LIGHT
from tasid.report.figures.filmstrip_beliefs import Clouds, Likeliest, grid_clouds, lane_clouds
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


class FramePanel(Protocol):
    """Part of a frame."""

    @property
    def aspect(self) -> float:
        """Width over height at which it looks right."""

    def draw(self, axes: Axes) -> None:
        """Put everything on the axes that does not change from step to step."""

    def show(self, h: int) -> None:
        """Bring the axes to step h."""


def observation_panel(episode: Episode) -> FramePanel:
    """Images as they are, short vectors as bars, anything else as a heat map."""
    x = episode.observations
    if x.ndim in (3, 4) and min(x.shape[1:3]) > 1 and (x.ndim == 3 or x.shape[3] in (1, 3, 4)):
        return _Picture(_as_picture(x))
    flat = x.reshape(len(x), -1).astype(np.float64)
    if flat.shape[1] <= _MOST_BARS:
        return _Bars(flat)
    rows = -(-flat.shape[1] // _HEAT_WIDTH)
    padded = np.full((len(flat), rows * _HEAT_WIDTH), np.nan)
    padded[:, : flat.shape[1]] = flat
    return _Picture(padded.reshape(len(flat), rows, _HEAT_WIDTH))


def map_panel(episode: Episode) -> FramePanel:
    """Grid maps from above; layered ones as lanes; of others the likeliest states, or the way."""
    plan = episode.policy.plan
    if plan.simulator.layout is not None:
        return _Grid(episode, plan.simulator.layout)
    if episode.beliefs is not None and lanes_of(Routes(plan, plan)) is None:
        return Likeliest(episode, episode.beliefs)
    return _Timeline(episode)


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


class _Picture:
    def __init__(self, pictures: NDArray[Any]) -> None:
        self._pictures = pictures

    @property
    def aspect(self) -> float:
        rows, columns = self._pictures.shape[1:3]
        return float(np.clip(columns / rows, 0.5, 2.0))

    def draw(self, axes: Axes) -> None:
        scale: dict[str, Any] = {}
        if self._pictures.ndim == 3:
            low, high = np.nanmin(self._pictures), np.nanmax(self._pictures)
            scale = {"cmap": "gray", "vmin": low, "vmax": max(high, low + 1e-12)}
        self._image = axes.imshow(
            self._pictures[0], interpolation="nearest", aspect="equal", **scale
        )
        axes.set_axis_off()

    def show(self, h: int) -> None:
        self._image.set_data(self._pictures[h])


class _Bars:
    aspect = 1.0

    def __init__(self, numbers: NDArray[np.float64]) -> None:
        self._numbers = numbers

    def draw(self, axes: Axes) -> None:
        size = self._numbers.shape[1]
        self._bars = axes.bar(range(size), self._numbers[0], width=0.8, color=LIGHT["muted"])
        low, high = min(self._numbers.min(), 0.0), max(self._numbers.max(), 0.0)
        room = 0.05 * max(high - low, 1e-12)
        axes.set_ylim(low - room, high + room)
        axes.set_xlim(-0.8, size - 0.2)
        axes.axhline(0, color=LIGHT["edge"], linewidth=0.8)
        axes.set_xticks([])
        axes.tick_params(labelsize=8.5)

    def show(self, h: int) -> None:
        for bar, height in zip(self._bars, self._numbers[h], strict=True):
            bar.set_height(height)


class _Moved:
    """The belief, the truth where it is known, and the ways of both so far."""

    def __init__(
        self,
        axes: Axes,
        episode: Episode,
        places: Callable[[NDArray[np.int64]], NDArray[np.float64]],
        clouds: Clouds | None,
        size: float,
    ) -> None:
        self._clouds, self._ways = clouds, []
        for states, trail, mark in (
            (episode.states, _TRAIL, {"markersize": size, **BELIEF}),
            (episode.truth, _TRUE_TRAIL, {"markersize": 1.6 * size, **TRUTH}),
        ):
            if states is not None:
                (line,), (dot,) = axes.plot([], [], **trail), axes.plot([], [], **mark)
                self._ways.append((states, _trail(episode, states, places(states)), line, dot))

    def show(self, h: int, angles: NDArray[np.float64] | None = None) -> None:
        """Bring them to step h, the marks turned by degrees clockwise from north."""
        if self._clouds is not None:
            self._clouds.show(h)
        for states, trail, line, dot in self._ways:
            line.set_data(*trail[: 2 * h + 1].T)
            dot.set_data(*trail[2 * h : 2 * h + 1].T)
            if angles is not None:
                arrow: Any = (3, 0, -float(angles[states[h]]))
                dot.set_marker(arrow)


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


class _Grid:
    """The map from above, cut to what matters if it is large."""

    def __init__(self, episode: Episode, layout: GridLayout) -> None:
        self._episode, self._layout = episode, layout
        met = [*episode.states, *([] if episode.truth is None else episode.truth)]
        for belief in episode.beliefs or ():
            met += belief.states[belief.probabilities >= _SHOWN].tolist()
        rows, columns = layout.cells.shape
        low, high = np.zeros(2, int), np.array([rows, columns])
        if max(rows, columns) > _WHOLE:
            places = layout.positions[np.array(met)]
            low = np.maximum(places.min(axis=0) - _MARGIN, 0)
            high = np.minimum(places.max(axis=0) + _MARGIN + 1, high)
        self._low, self._high = low, high

    @property
    def aspect(self) -> float:
        rows, columns = self._high - self._low
        return float(np.clip(columns / rows, 0.45, 2.2))

    def draw(self, axes: Axes) -> None:
        rows, columns = self._layout.cells.shape
        for kinds in _floors(self._layout):
            axes.imshow(
                coloured(kinds),
                extent=(-0.5, columns - 0.5, rows - 0.5, -0.5),
                interpolation="nearest",
                aspect="equal",
                zorder=2,
            )
        axes.set_xlim(self._low[1] - 0.5, self._high[1] - 0.5)
        axes.set_ylim(self._high[0] - 0.5, self._low[0] - 0.5)
        axes.set_axis_off()
        if max(self._high - self._low) <= _WHOLE:
            for place in range(rows + 1):
                axes.axhline(place - 0.5, color=LIGHT["line"], linewidth=0.6, zorder=1)
            for place in range(columns + 1):
                axes.axvline(place - 0.5, color=LIGHT["line"], linewidth=0.6, zorder=1)
        route = walk(self._episode.policy.plan, int(self._episode.states[0]))
        axes.plot(*self._cells(np.array(route)).T, **_PLAN)
        beliefs = self._episode.beliefs
        clouds = None if beliefs is None else grid_clouds(axes, beliefs, self._layout)
        size = float(np.clip(140.0 / max(self._high - self._low), 5.0, 13.0))
        self._moved = _Moved(axes, self._episode, self._cells, clouds, size)

    def _cells(self, states: NDArray[np.int64]) -> NDArray[np.float64]:
        return self._layout.positions[states][:, ::-1].astype(np.float64)

    def show(self, h: int) -> None:
        self._moved.show(h, self._layout.angles)


def _floors(layout: GridLayout) -> list[NDArray[Any]]:
    """What is drawn of a map, one over the other: walls may be thinner than a cell."""
    if layout.backdrop is None:
        return [layout.cells]
    ends = np.isin(layout.cells, (GOAL, HAZARD))
    return [layout.backdrop, np.where(ends, layout.cells, FREE)]


class _Timeline:
    """States over steps: types of a layered map, or the states met in the order of their index."""

    aspect = 1.6

    def __init__(self, episode: Episode) -> None:
        self._episode = episode
        plan = episode.policy.plan
        self._route = np.array(walk(plan, int(episode.states[0]))[:-1])
        routes = Routes(plan, plan)
        lanes = lanes_of(routes)
        met = np.unique(
            [
                *episode.states,
                *self._route,
                *([] if episode.truth is None else episode.truth),
                *(state for belief in episode.beliefs or () for state in belief.states),
            ]
        )
        if lanes is None:
            self._row = {int(state): place for place, state in enumerate(met)}
            self._names = [routes.label(int(state)) for state in met]
        else:
            kinds = {kind: place for place, kind in enumerate(lanes.kinds)}
            labels: Any = plan.simulator.states
            self._row = {int(state): kinds[labels[state][1]] for state in met}
            self._names = [f"type {kind}" for kind in lanes.kinds]

    def draw(self, axes: Axes) -> None:
        every = -(-len(self._names) // _MOST_LABELS)
        shown = [shortened(name, 14) for name in self._names[::every]]
        axes.set_yticks(range(0, len(self._names), every), shown)
        axes.tick_params(labelsize=8.5)
        axes.grid(axis="y")
        axes.set_ylim(len(self._names) - 0.5, -0.5)
        axes.set_xlim(-0.6, len(self._route) - 0.4)
        axes.plot(*self._places(self._route).T, **_PLAN)
        beliefs = self._episode.beliefs
        clouds = None if beliefs is None else lane_clouds(axes, beliefs, self._row)
        self._moved = _Moved(axes, self._episode, self._places, clouds, 7.0)

    def _places(self, states: NDArray[np.int64]) -> NDArray[np.float64]:
        rows = [self._row[int(state)] for state in states]
        return np.column_stack([np.arange(len(rows)), rows]).astype(np.float64)

    def show(self, h: int) -> None:
        self._moved.show(h)
