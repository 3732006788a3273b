"""The robust plan's way to the goal on a map with poses, and how long episodes are for its sake."""

from __future__ import annotations

import numpy as np

from tasid.maps import AbstractSimulator, RobustPlan, robust_dp
from tasid.maps.layout import GOAL, GridLayout

ROUTE_ETA = 0.1
_ROUTES = 3
"""Episodes last this many times the route of the robust plan for η = ROUTE_ETA."""


def robust_horizon(sim: AbstractSimulator, *, first: int, longest: int) -> int | None:
    """Three times the longest route of the robust plan, made for an agent that has that long.

    Horizons are doubled from the `first` to the `longest`; None if none is enough.
    """
    horizon = first
    while horizon <= longest:
        plan = robust_dp(sim.with_horizon(min(horizon, sim.horizon)), eta=ROUTE_ETA)
        steps = route_steps(plan)
        if steps is not None and _ROUTES * steps <= horizon:
            return _ROUTES * steps
        horizon *= 2
    return None


def route_steps(plan: RobustPlan) -> int | None:
    """Steps to a goal if nothing goes wrong, from the worst start; None if one does not arrive."""
    sim = plan.simulator
    layout = layout_of(sim)
    goal = layout.cells[tuple(layout.positions.T)] == GOAL
    states = np.asarray(sim.starts)
    for step in range(sim.horizon + 1):
        if goal[states].all():
            return step
        if step < sim.horizon:
            states = sim.successor_at(step)[states, plan.actions[step][states]]
    return None


def route_states(plan: RobustPlan) -> list[int]:
    """The states that the plan leads through from the first start, one for every step."""
    sim, met = plan.simulator, [int(plan.simulator.starts[0])]
    for step in range(sim.horizon - 1):
        met.append(int(sim.successor_at(step)[met[-1], plan.actions[step, met[-1]]]))
    return met


def layout_of(sim: AbstractSimulator) -> GridLayout:
    """Where the poses lie."""
    if sim.layout is None or sim.layout.headings is None:
        raise ValueError("simulator: it has no poses, so there is nothing to see from them")
    return sim.layout
