"""Robust dynamic programming (Algorithm 1): plan against the worst η-perturbation.

Definitions. Q̃_h(s, a) = R°_h(s, a) + Ṽ_{h+1}(T°_h(s, a)), Ṽ_{H+1} = 0, and
Ṽ_h(s) = (1−η) max_a Q̃_h(s, a) + η min_a Q̃_h(s, a); the plan is ρ_h(s) = argmax_a Q̃_h(s, a).

Guarantee (Theorem 1): ρ attains max_ψ min_M V^ψ_M over the η-perturbations M of the simulator,
and Ṽ at the start is that max–min value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasid.mdp.backward import Rows, backward, frontier_when_cheaper, swept
from tasid.mdp.perturbation import checked_eta
from tasid.mdp.simulator import AbstractSimulator
from tasid.mdp.size import refuse_larger


@dataclass(frozen=True)
class RouteStep:
    """One step of a plan executed without perturbation."""

    step: int
    state: Any
    action: int
    reward: float


@dataclass(frozen=True, eq=False)
class RobustPlan:
    """The robust abstract policy ρ, its worst-case value, and the simulator it was made for."""

    simulator: AbstractSimulator
    eta: float
    actions: NDArray[np.unsignedinteger[Any]]
    """ρ as [H, S], in the smallest integer type; 0 at states the sweep did not need."""
    start_value: float
    """Ṽ at the start: what ρ earns in the worst η-perturbation."""
    values: NDArray[np.float64] | None
    """Ṽ as [H+1, S] if asked for; NaN at states the sweep did not need."""
    states_swept: int
    """How many (h, s) pairs were computed; H·S unless only the reachable ones were."""

    def action(self, h: int, s: int) -> int:
        """ρ_h(s), 0-based h."""
        if not 0 <= h < self.simulator.horizon:
            raise ValueError(f"h: {h} is not a step; steps run 0 … {self.simulator.horizon - 1}")
        if not 0 <= s < self.simulator.num_states:
            raise ValueError(
                f"s: {s} is not a state; states run 0 … {self.simulator.num_states - 1}"
            )
        return int(self.actions[h, s])

    def route(self, start: int | None = None) -> tuple[RouteStep, ...]:
        """Where the plan leads if every action comes out as asked."""
        sim = self.simulator
        state = sim.start if start is None else start
        steps = []
        for h in range(sim.horizon):
            action = self.action(h, state)
            reward = float(sim.reward_at(h)[state, action])
            steps.append(RouteStep(h, sim.states[state], action, reward))
            state = int(sim.successor_at(h)[state, action])
        return tuple(steps)


def robust_dp(
    simulator: AbstractSimulator,
    *,
    eta: float,
    keep_values: bool = False,
    reachable_only: bool | None = None,
) -> RobustPlan:
    """Algorithm 1 for any η in [0, 1]; ties go to the lowest action index.

    Only states reachable from the start within the horizon are computed when that is cheaper;
    `reachable_only` forces either way.
    """
    eta = checked_eta(eta)
    shape = (simulator.horizon, simulator.num_states)
    kind = np.min_scalar_type(simulator.num_actions - 1)
    refuse_larger("horizon", shape, kind.itemsize, "plan for fewer steps, or on fewer states")
    actions = np.zeros(shape, dtype=kind)
    numbers = np.arange(simulator.num_actions, dtype=actions.dtype)

    def max_min(h: int, rows: Rows, q: NDArray[np.float64]) -> NDArray[np.float64]:
        best, worst = q[0].copy(), q[0].copy()
        choice = np.zeros(best.shape, dtype=actions.dtype)
        for a in range(1, len(q)):
            # Actions ascend, so the larger of the old choice and a where a is better is the choice.
            np.maximum(choice, np.multiply(q[a] > best, numbers[a]), out=choice)
            np.maximum(best, q[a], out=best)
            np.minimum(worst, q[a], out=worst)
        actions[h, rows] = choice
        best *= 1.0 - eta
        worst *= eta
        best += worst
        return best

    frontier = frontier_when_cheaper(simulator, force=reachable_only)
    start_value, values = backward(simulator, max_min, frontier=frontier, keep=keep_values)
    pairs = actions.size if frontier is None else swept(frontier)
    return RobustPlan(simulator, eta, actions, start_value, values, pairs)
