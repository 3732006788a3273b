"""The routes of the robust and the nominal plan, and how to lay them out; nothing is drawn here.

A layered map, whose labels are (layer, type) and whose every action leads to the next layer, has
lanes: x is the layer, y the type. Of very many layers the middle is folded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

import numpy as np

from tasid.maps import AbstractSimulator, RobustPlan, robust_dp
from tasid.maps.planning.flips import Change, changes_of, likeliest_starts
from tasid.maps.planning.thrifty import Plan
from tasid.report.text.wording import printable

MAX_LANES = 12
FOLD_WIDTH = 8
"""In columns."""

Ways = tuple[tuple[int, ...], ...]
Pair = tuple[Ways, Ways]
"""Of the robust and of the nominal plan."""


@dataclass(frozen=True, eq=False)
class Routes:
    """Where two plans lead if every action comes out as asked, from every start."""

    plan: RobustPlan
    nominal: Plan

    @classmethod
    def of(cls, plan: RobustPlan) -> Routes:
        """The plan beside the one for η = 0 on the same map."""
        return cls(plan, robust_dp(plan.simulator, eta=0.0))

    @property
    def simulator(self) -> AbstractSimulator:
        """The map."""
        return self.plan.simulator

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """The start states drawn, likeliest first; of very many only some."""
        return likeliest_starts(self.simulator)

    @cached_property
    def walks(self) -> Pair:
        """The states at layers 0 … H, from each start: by the robust plan, by the nominal one."""
        robust, nominal = (
            tuple(walk(plan, start) for start in self.starts) for plan in (self.plan, self.nominal)
        )
        return robust, nominal

    def label(self, state: int) -> str:
        """A state's label as one line of printable text."""
        return printable(self.simulator.states[state])

    @cached_property
    def changes(self) -> tuple[Change, ...]:
        """Where the way flips as η grows."""
        return changes_of(self.plan, self.nominal, self.starts)

    @property
    def same(self) -> bool:
        """Whether both plans take the same way through the states."""
        return self.walks[0] == self.walks[1]


def walk(plan: Plan, start: int) -> tuple[int, ...]:
    """The states at layers 0 … H if every action comes out as asked."""
    states = [start]
    for h in range(plan.simulator.horizon):
        state = states[-1]
        states.append(int(plan.simulator.successor_at(h)[state, plan.action(h, state)]))
    return tuple(states)


@dataclass(frozen=True, eq=False)
class RouteLanes:
    """A layered map as lanes."""

    kinds: tuple[int, ...]
    """The lanes' types, top to bottom."""
    edges: tuple[frozenset[tuple[int, int]], ...]
    """The moves (type, next type) that some action makes, for each of the H layers."""
    walks: Pair
    """The types that routes pass through at layers 0 … H."""


def lanes_of(routes: Routes) -> RouteLanes | None:
    """The lanes of a layered map, or None if this map is not one."""
    sim = routes.simulator
    labels = sim.labels
    if labels is None or not all(_is_layer_and_type(label) for label in labels):
        return None
    pairs = np.array(labels, dtype=np.int64)
    layer, kind = pairs[:, 0], pairs[:, 1]
    kinds = tuple(sorted({int(k) for k in kind}))
    if len(kinds) > MAX_LANES or (layer[list(sim.starts)] != 0).any():
        return None
    edges = []
    for h in range(sim.horizon):
        here = np.flatnonzero(layer == h)
        after = sim.successor_at(h)[here]
        if here.size == 0 or (layer[after] != h + 1).any():
            return None
        edges.append(
            frozenset(
                (int(kind[s]), int(k))
                for s, row in zip(here, after, strict=True)
                for k in kind[row]
            )
        )

    robust, nominal = (
        tuple(tuple(kind[list(walk)].tolist()) for walk in walks) for walks in routes.walks
    )
    return RouteLanes(kinds, tuple(edges), (robust, nominal))


def _is_layer_and_type(label: object) -> bool:
    return isinstance(label, tuple) and len(label) == 2 and all(type(part) is int for part in label)


@dataclass(frozen=True, eq=False)
class Columns:
    """Which layers are shown, and where."""

    place: dict[int, float]
    hidden: range = range(0)
    """The layers folded away."""

    @property
    def width(self) -> float:
        """The last column's place."""
        return max(self.place.values())


def columns_of(horizon: int, limit: int) -> Columns:
    """Columns for layers 0 … H; beyond `limit` of them the middle is folded."""
    if horizon <= limit:
        return Columns({layer: float(layer) for layer in range(horizon + 1)})
    kept = max((limit - FOLD_WIDTH) // 2, 1)
    last = horizon - kept
    tail = kept + FOLD_WIDTH - last
    head = {layer: float(layer) for layer in range(kept + 1)}
    shown = head | {n: float(n + tail) for n in range(last, horizon + 1)}
    return Columns(shown, range(kept + 1, last))


def share(walks: Sequence[Sequence[int]], kind: int, layers: range) -> float:
    """How much of these layers the routes spend on one type."""
    met = [walk[layer] == kind for walk in walks for layer in layers]
    return sum(met) / len(met)


def in_words(routes: Routes) -> str:
    """The routes as a sentence each, for those who do not see the picture."""
    lanes = lanes_of(routes)
    if lanes is None:
        said, unit = "it passes ", "step"
        names = [[routes.label(state) for state in walks[0]] for walks in routes.walks]
    else:
        said, unit = "it is on ", "layer"
        names = [[f"type {kind}" for kind in walks[0]] for walks in lanes.walks]
    robust, nominal = (said + ", ".join(_runs(one, unit)) for one in names)
    start = "" if len(routes.starts) == 1 else " from the likeliest start"
    if routes.same:
        return f"Both plans take the same route{start}: {robust}."
    return (
        f"The robust plan’s route{start}: {robust}. "
        f"The route of the plan for η = 0{start}: {nominal}."
    )


def _runs(names: list[str], unit: str, most: int = 12) -> list[str]:
    """Run lengths in words: 'type 1 in layers 0–9', 'type 2 in layer 10'."""
    runs: list[str] = []
    first = 0
    for name, group in groupby(names):
        last = first + len(list(group)) - 1
        where = f"{unit} {first}" if first == last else f"{unit}s {first}–{last}"
        runs.append(f"{name} in {where}" if unit == "layer" else f"{name} at {where}")
        first = last + 1
    return runs if len(runs) <= most else [*runs[:most], f"and so on to {unit} {len(names) - 1}"]
