"""What a picture of a grid map shows besides routes: the layout, and the values of the plan."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tasid.maps import AbstractSimulator, RobustPlan
from tasid.maps.layout import GridLayout
from tasid.maps.planning.backward import Rows, backward, reachable


def layout_of(sim: AbstractSimulator) -> GridLayout:
    """The layout of a map that has one."""
    if sim.layout is None:
        raise ValueError("simulator: has no layout; only grid maps can be drawn as grids")
    return sim.layout


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
