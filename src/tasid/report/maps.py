"""Pictures of maps: cells, states, routes and probabilities.

Grid maps are drawn from above. Maps without a layout are drawn as states over steps: column h holds
the states at step h. A layered map, whose labels are (layer, type) with layer h at step h, has one
row for each type; other maps have one row for each state that is drawn.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.markers import MarkerStyle
from matplotlib.patches import Patch
from matplotlib.path import Path as Outline
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray

from tasid.layout import FREE, GOAL, HAZARD, UNKNOWN, WALL, GridLayout
from tasid.planning.robust_dp import RobustPlan, robust_dp
from tasid.report.figures import PALETTE, save_figure, style
from tasid.simulator import AbstractSimulator

_KINDS = {
    WALL: ("wall", "#474c53"),
    HAZARD: ("hazard", "#eb9a72"),
    GOAL: ("goal", "#7fc79a"),
    UNKNOWN: ("unknown", "#dcdad3"),
}
"""Name and colour of each kind of cell that is drawn."""
ROBUST_LINE: dict[str, Any] = {"color": PALETTE["robust"], "linewidth": 3.2, "zorder": 5}
NOMINAL_LINE: dict[str, Any] = {"color": PALETTE["nominal"], "linewidth": 1.8, "zorder": 6}
NOMINAL_LINE |= {"linestyle": (0, (3, 1.5))}

_ARROW_HEAD = Outline([(0.0, 1.0), (0.75, -0.8), (0.0, -0.35), (-0.75, -0.8), (0.0, 1.0)])


@dataclass(frozen=True, eq=False)
class MapView:
    """Where the states of a map are drawn, and on what; `map_view` makes it."""

    points: NDArray[np.float64]
    """x and y of each state, [S, 2]; NaN of states that are not drawn."""
    limits: tuple[tuple[float, float], tuple[float, float]]
    """Ends of the x and of the y axis."""
    row_names: tuple[str, ...] | None = None
    """Names of the rows, if columns are steps: a state is drawn in the column of the step then."""
    extent: tuple[float, float, float, float] | None = None
    """x of the left and right edge, y of the lower and upper edge, of `pictures`."""
    pictures: tuple[NDArray[np.uint8], ...] = ()
    """Kinds of cells (`tasid.layout`), drawn one over the other."""
    in_metres: bool = False
    angles: NDArray[np.float64] | None = None
    """Heading of each state in degrees, clockwise from up."""

    @property
    def aspect(self) -> float:
        """Width of the drawing over its height."""
        wide, high = (abs(end - start) for start, end in self.limits)
        return float(wide / high if self.row_names is None else np.clip(wide / high, 1.0, 2.2))

    def places(self, steps: ArrayLike, states: ArrayLike) -> NDArray[np.float64]:
        """x and y of states at these steps, [n, 2]."""
        places = self.points[np.asarray(states, np.intp)]
        if self.row_names is not None:
            places[:, 0] = steps
        return places

    def draw(self, axes: Axes) -> list[Patch]:
        """Draw the background; returns handles for a legend."""
        kinds = [kind for kind in _KINDS if any((codes == kind).any() for codes in self.pictures)]
        for codes in self.pictures:
            picture = np.zeros((*codes.shape, 4))
            for kind in kinds:
                picture[codes == kind] = to_rgba(_KINDS[kind][1])
            axes.imshow(picture, extent=self.extent, interpolation="nearest", zorder=2)
        axes.set(xlim=self.limits[0], ylim=self.limits[1])
        axes.tick_params(length=0, labelsize=8)
        axes.spines[:].set_visible(False)
        axes.grid(visible=self.row_names is not None)
        if self.row_names is not None:
            axes.set_yticks(range(len(self.row_names)), self.row_names)
            axes.set_xlabel("step h", fontsize=8.5)
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        elif self.in_metres:
            axes.set_xlabel("x (m)", fontsize=8.5)
            axes.set_ylabel("y (m)", fontsize=8.5)
        else:
            axes.set(xticks=[], yticks=[])
        return [Patch(facecolor=_KINDS[kind][1], label=_KINDS[kind][0]) for kind in kinds]

    def marker(self, state: int) -> Any:
        """Marker of a state: an arrow head where it has a heading, else a disc."""
        if self.angles is None:
            return "o"
        return MarkerStyle(_ARROW_HEAD).rotated(deg=-float(self.angles[state]))


def map_view(simulator: AbstractSimulator, states: Iterable[int]) -> MapView:
    """The view of a map; without a layout it has rows for these states."""
    if simulator.layout is None:
        return _step_view(simulator, states)
    return _grid_view(simulator.layout)


def _grid_view(layout: GridLayout) -> MapView:
    """A grid map from above; of maps with wide unknown borders, the part that has states."""
    points = layout.centres(np.arange(len(layout.positions)))
    margin = 1.5 * (1.0 if layout.corner is None else layout.cell_size)
    (left, low), (right, high) = points.min(axis=0) - margin, points.max(axis=0) + margin
    pictures = [layout.cells]
    if layout.backdrop is not None:  # walls may be thinner than a cell
        ends = np.isin(layout.cells, (GOAL, HAZARD))
        pictures = [layout.backdrop, np.where(ends, layout.cells, FREE)]
    return MapView(
        points,
        limits=((left, right), (high, low) if layout.corner is None else (low, high)),
        extent=layout.extent,
        pictures=tuple(pictures),
        in_metres=layout.corner is not None,
        angles=layout.angles,
    )


def _step_view(simulator: AbstractSimulator, states: Iterable[int], max_rows: int = 24) -> MapView:
    """States over steps; `max_rows` bounds the states that get a row, the first ones first."""
    labels: Any = simulator.labels
    rows = np.full(simulator.num_states, np.nan)
    if _layered(simulator):
        kinds = sorted({kind for _, kind in labels})
        names = [f"type {kind}" for kind in kinds]
        rows[:] = [kinds.index(kind) for _, kind in labels]
    else:
        drawn = sorted(list(dict.fromkeys(map(int, states)))[:max_rows])
        names = [state_name(simulator, state) for state in drawn]
        rows[drawn] = np.arange(len(drawn))
    limits = (-0.5, simulator.horizon + 0.5), (len(names) - 0.5, -0.5)
    return MapView(np.stack([rows, rows], axis=-1), limits, tuple(names))


def state_name(simulator: AbstractSimulator, state: int, longest: int = 24) -> str:
    """Label of a state as one short line of text."""
    label = simulator.states[state]
    parts = label if isinstance(label, tuple) else (label,)
    text = ", ".join("".join(c if c.isprintable() else "�" for c in str(part)) for part in parts)
    text = f"({text})" if isinstance(label, tuple) else text
    return text if len(text) <= longest else text[: longest - 1] + "…"


def action_name(simulator: AbstractSimulator | None, action: int) -> str:
    """Name of an action, or its number."""
    if simulator is None or simulator.action_names is None:
        return f"action {action}"
    return simulator.action_names[action]


@style()
def plan_figure(
    plan: RobustPlan,
    nominal: RobustPlan | None = None,
    *,
    starts: int = 4,
) -> Figure:
    """A map with the routes of a robust plan and of the nominal plan (η = 0).

    Parameters
    ----------
    nominal
        Computed if None.
    starts
        Routes from this many starts at most, the most likely first.
    """
    sim = plan.simulator
    nominal = robust_dp(sim, eta=0.0) if nominal is None else nominal
    likely = sim.starts[np.argsort(-sim.start_probabilities, kind="stable")][:starts].tolist()
    robust, direct = ([each.path([s])[:, 0].tolist() for s in likely] for each in (plan, nominal))
    view = map_view(sim, [state for route in (*robust, *direct) for state in route])
    width = float(np.clip((22.0 * view.aspect) ** 0.5, 3.4, 7.2))  # inches
    size = (width, min(width / view.aspect, 7.0) + 0.9)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.add_subplot()
    kinds = view.draw(axes)
    drawn = [(f"plan for η = {plan.eta:g}", robust, ROBUST_LINE)]
    if robust != direct:
        drawn.append(("nominal plan (η = 0)", direct, NOMINAL_LINE))
    handles: list[Any] = []
    for name, routes, look in drawn:
        for route in routes:
            axes.plot(*view.places(range(len(route)), route).T, solid_capstyle="round", **look)
        handles.append(Line2D([], [], label=name, **look))
    mark: dict[str, Any] = {"color": PALETTE["ink"], "markersize": 13, "zorder": 8}
    mark |= {"linestyle": "none", "markeredgecolor": "white"}
    for start in likely:
        axes.plot(*view.places([0], [start]).T, marker=view.marker(start), **mark)
    handles += [Line2D([], [], marker="o", label="start", **mark), *kinds]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, fontsize=8.5)
    return figure


@style()
def graph_figure(sim: AbstractSimulator, confidence: NDArray[np.floating[Any]]) -> Figure:
    """States by their distance from the starts, and arrows coloured by confidence [S, A].

    An arrow has the confidence of the surest action that takes it; actions that stay have none.
    """
    leads, chances = sim.transitions_at(0)
    taken = np.where(chances > 0, confidence[:, :, None], -1.0)
    sure = np.full((sim.num_states, sim.num_states), -1.0)
    np.maximum.at(sure, (np.arange(sim.num_states)[:, None, None], leads), taken)
    np.fill_diagonal(sure, -1.0)
    x, depth = np.full(sim.num_states, -1), 0
    reached = np.bincount(sim.starts, minlength=sim.num_states) > 0
    while reached.any():
        x[reached] = depth
        reached, depth = (sure[reached] >= 0).any(axis=0) & (x < 0), depth + 1
    y = np.zeros(sim.num_states)
    for column in range(-1, depth):  # −1: no known action leads there
        here = np.flatnonzero(x == column)
        y[here] = np.arange(here.size) - (here.size - 1) / 2
    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    axes = figure.add_subplot(xlabel="steps from the start", yticks=[])
    looks = {
        "a guess": (0, "line"),
        "below 0.99": (1e-9, "alarm"),
        "0.99 or more": (0.99, "learned"),
    }
    bounds = [*(low for low, _ in looks.values()), np.inf]
    for (name, (low, color)), high in zip(looks.items(), bounds[1:], strict=True):
        s, to = np.nonzero((sure >= low) & (sure < high))
        ends: dict[str, Any] = {"angles": "xy", "scale_units": "xy", "scale": 1, "width": 0.002}
        axes.quiver(x[s], y[s], x[to] - x[s], y[to] - y[s], color=PALETTE[color], **ends)
        axes.plot([], [], color=PALETTE[color], label=name)
    axes.plot(x, y, "o", color=PALETTE["ink"], markersize=3)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    title = "share of the likeliest outcome" if sim.stochastic else "confidence"
    figure.legend(title=title, fontsize=8.5, loc="outside lower center", ncols=3)
    return figure


@style()
def means_figure(means: NDArray[np.float32], columns: int = 12) -> Figure:
    """Mean observations of states: rows of numbers [S, D], or pictures [S, r, c, channels]."""
    figure = Figure(figsize=(7.2, 3.6), layout="constrained")
    axes = figure.add_subplot(xlabel="number in the observation", ylabel="state")
    axes.grid(visible=False)
    if means.ndim == 4:  # side by side, `columns` in a row
        gaps = (0, -len(means) % columns), (0, 1), (0, 1), (0, 0)
        whole = np.pad(means, gaps, constant_values=1)
        rows = [np.concatenate(row, axis=1) for row in np.split(whole, len(whole) // columns)]
        means = np.clip(np.concatenate(rows), 0, 1)
        axes.axis("off")
    axes.imshow(means, aspect="auto" if means.ndim == 2 else "equal", cmap="gray")
    return figure


def save_plan(plan: RobustPlan, path: str | Path) -> Path:
    """Draw `plan_figure` into a .png, .svg or .pdf file."""
    return save_figure(plan_figure(plan), path)


def _layered(simulator: AbstractSimulator, max_types: int = 12) -> bool:
    """Whether labels are (layer, type), and every action leads from layer h to layer h + 1."""
    labels: Any = simulator.labels or [()]
    if not all(isinstance(x, tuple) and [type(n) for n in x] == [int, int] for x in labels):
        return False
    layer, kind = np.array(labels).T
    inner = layer < min(simulator.horizon, layer.max())
    after = layer[simulator.successor_at(0)[inner].reshape(int(inner.sum()), -1)]
    return len(np.unique(kind)) <= max_types and bool((after == layer[inner][:, None] + 1).all())
