"""Plans that fit into memory where the policy does not: Ṽ at some steps, actions when asked for.

A policy for a million states and thousands of steps takes gigabytes, and whoever wants to know
where it leads reads one action of each step. Here Ṽ is kept at about √H steps. The actions between
two of them are worked out again, only at states that can be reached from the one asked about.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from tasid.maps.planning.backward import frontier_when_cheaper, start_value, swept
from tasid.maps.planning.fused import Programme, fused_backward, max_min_step
from tasid.maps.planning.perturbation import checked_eta
from tasid.maps.planning.robust_dp import RobustPlan, RouteStep, route_along
from tasid.maps.planning.window import windowed
from tasid.maps.simulator import AbstractSimulator

_HUGE = 200_000_000
"""Bytes; below, a policy is written sooner than Ṽ is read again."""


def policy_is_huge(sim: AbstractSimulator) -> bool:
    """Whether a policy [H, S] for this map takes so much memory that one should do without."""
    return sim.horizon * sim.num_states > _HUGE


@dataclass(frozen=True, eq=False)
class ThriftyPlan:
    """The plan of `robust_dp` in little memory, quick along routes."""

    simulator: AbstractSimulator
    eta: float
    start_value: float
    marks: dict[int, NDArray[np.float64]]
    """Ṽ_h [S] at some h, H among them."""
    states_swept: int
    """As in `tasid.maps.planning.robust_dp.RobustPlan`."""
    _known: dict[tuple[int, int], int] = field(default_factory=dict)
    """The actions between the last two marks that were asked about."""
    _asked: dict[tuple[int, int], int] = field(default_factory=dict)
    """The actions that were asked about: a route is often walked again."""

    def action(self, h: int, s: int) -> int:
        """ρ_h(s) at a state that the start may lead to."""
        self.simulator.check_pair(h, s)
        if (h, s) not in self._asked:
            if (h, s) not in self._known:
                self._known.clear()
                self._known.update(self._actions_from(h, s))
            self._asked[h, s] = self._known[h, s]
        return self._asked[h, s]

    def route(self, start: int | None = None) -> tuple[RouteStep, ...]:
        """Where the plan leads if every action comes out as asked."""
        return route_along(self.simulator, self.action, start)

    def nominal_value(self) -> float:
        """What it earns if every action comes out as asked; as many routes as there are starts."""
        sim, values = self.simulator, []
        for start in sim.starts.tolist():
            value = 0.0
            for step in reversed(self.route(start)):  # the order in which a backward sweep adds
                value = step.reward + value
            values.append(value)
        return float(sim.start_probabilities @ np.array(values))

    def _actions_from(self, h: int, s: int) -> dict[tuple[int, int], int]:
        """ρ at s and at all that can follow until the next mark."""
        sim, end = self.simulator, min(mark for mark in self.marks if mark > h)
        layers = [np.array([s])]
        for step in range(h, end - 1):
            layers.append(np.unique(sim.successor_at(step)[layers[-1]]))
        known: dict[tuple[int, int], int] = {}
        value = self.marks[end].copy()
        for step, rows in zip(reversed(range(h, end)), reversed(layers), strict=True):
            q = sim.reward_at(step)[rows] + value[sim.successor_at(step)[rows]]
            value[rows] = (1.0 - self.eta) * q.max(axis=1) + self.eta * q.min(axis=1)
            chosen = q.argmax(axis=1).tolist()
            known |= {(step, row): a for row, a in zip(rows.tolist(), chosen, strict=True)}
        return known


Plan = RobustPlan | ThriftyPlan
"""What says where to go: ρ_h(s) on a map."""


def thrifty_plan(sim: AbstractSimulator, *, eta: float) -> ThriftyPlan:
    """Algorithm 1, its values kept at about √H steps."""
    eta = checked_eta(eta)
    reached = frontier_when_cheaper(sim)
    frontier = windowed(sim, reached)
    unread = np.empty(sim.num_states, dtype=np.min_scalar_type(sim.num_actions - 1))
    programme = Programme(max_min_step(sim.num_actions), lambda h: (eta, unread))
    every = isqrt(sim.horizon - 1) + 1
    marks = {sim.horizon: np.zeros(sim.num_states)}
    for first in reversed(range(0, sim.horizon, every)):
        steps = range(first, min(first + every, sim.horizon))
        final = [marks[steps.stop]]
        [(marks[first], _)] = fused_backward(
            sim, [programme], frontier=frontier, steps=steps, final=final
        )
    return ThriftyPlan(sim, eta, start_value(sim, marks[0]), marks, swept(sim, reached))
