"""Robust dynamic programming (Algorithm 1): plan against the worst η-perturbation.

Definitions. Q̃_h(s, a) = R°_h(s, a) + Ṽ_{h+1}(T°_h(s, a)), Ṽ_{H+1} = 0, and
Ṽ_h(s) = (1−η) max_a Q̃_h(s, a) + η min_a Q̃_h(s, a); the plan is ρ_h(s) = argmax_a Q̃_h(s, a).

Guarantee (Theorem 1): ρ attains max_ψ min_M V^ψ_M over the η-perturbations M of the simulator,
and Ṽ at the start is that max–min value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasid.maps.planning.backward import (
    Combine,
    Frontier,
    Rows,
    backward,
    frontier_when_cheaper,
    start_value,
    swept,
)
from tasid.maps.planning.fused import (
    Programme,
    far_max_min_steps,
    fused_backward,
    max_min_step,
    max_min_steps,
    worth_compiling,
)
from tasid.maps.planning.perturbation import checked_eta
from tasid.maps.planning.window import windowed
from tasid.maps.simulator import AbstractSimulator, check_map
from tasid.maps.size import refuse_larger

_Found = tuple[NDArray[np.float64], NDArray[np.float64] | None]
"""Ṽ_0 and, if kept, Ṽ for all h."""

_LARGE = 500_000
"""With so many states, fetching what they need takes longer than using it: several η share it."""
_NEAR = 16_384
"""Values of states so near to each other, for a few η, are in the cache together."""


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
        self.simulator.check_pair(h, s)
        return int(self.actions[h, s])

    def route(self, start: int | None = None) -> tuple[RouteStep, ...]:
        """Where the plan leads if every action comes out as asked."""
        return route_along(self.simulator, self.action, start)


def route_along(
    sim: AbstractSimulator, action_at: Callable[[int, int], int], start: int | None
) -> tuple[RouteStep, ...]:
    """Where actions (h, s) → a lead from the start, or from a state given, if all come out."""
    state = sim.start if start is None else start
    steps = []
    for h in range(sim.horizon):
        action = action_at(h, state)
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

    Args:
        simulator: The map.
        eta: How often actions may slip.
        keep_values: Keep Ṽ of all steps and states, as `plan.values`.
        reachable_only: Compute only states that can be reached from the start within the horizon;
            if not given, where that is cheaper.
    """
    return robust_plans(
        simulator, etas=[eta], keep_values=keep_values, reachable_only=reachable_only
    )[0]


def robust_plans(
    simulator: AbstractSimulator,
    *,
    etas: Sequence[float],
    keep_values: bool = False,
    reachable_only: bool | None = None,
) -> tuple[RobustPlan, ...]:
    """Algorithm 1 for several η: the plans that `robust_dp` makes of each, in less time.

    On large maps they share one sweep. All policies are in memory together, H·S
    bytes each.
    """
    check_map(simulator)
    levels = [checked_eta(eta) for eta in etas]
    shape = (len(levels), simulator.horizon, simulator.num_states)
    kind = np.min_scalar_type(simulator.num_actions - 1)
    each = kind.itemsize * len(levels)
    refuse_larger("horizon", shape[1:], each, "plan for fewer steps, or on fewer states")
    actions = np.zeros(shape, dtype=kind)
    frontier = reached = frontier_when_cheaper(simulator, force=reachable_only)
    together = len(levels) > 1 and simulator.num_states >= _LARGE
    step = max_min_steps if together else max_min_step
    if not worth_compiling(step, simulator, frontier, len(levels)):
        found = [
            backward(simulator, _max_min(eta, plan), frontier=frontier, keep=keep_values)
            for eta, plan in zip(levels, actions, strict=True)
        ]
    else:
        if not (keep_values or reachable_only):
            frontier = windowed(simulator, reached)
        programmes = _programmes(simulator, levels, actions, together)
        found = _compiled(simulator, programmes, frontier, keep_values)
    pairs = swept(simulator, reached)
    return tuple(
        RobustPlan(simulator, eta, plan, start_value(simulator, first), values, pairs)
        for eta, plan, (first, values) in zip(levels, actions, found, strict=True)
    )


def _leads_far(sim: AbstractSimulator) -> bool:
    """Do states lead to others whose values, for a few η, are not in the cache together?"""
    some = np.arange(0, sim.num_states, max(1, sim.num_states // 1_000))
    distance = np.abs(sim.successor_at(0)[some] - some[:, None])
    return bool(np.median(distance) > _NEAR)


def _programmes(
    sim: AbstractSimulator, etas: list[float], actions: NDArray[Any], together: bool
) -> list[Programme]:
    """Algorithm 1 for each η, or for all η `together`; they write ρ into `actions`."""
    if together:
        steps, levels = far_max_min_steps if _leads_far(sim) else max_min_steps, np.array(etas)
        return [Programme(steps(sim.num_actions), lambda h: (levels, actions[:, h]), (len(etas),))]

    def alone(eta: float, plan: NDArray[Any]) -> Programme:
        return Programme(max_min_step(sim.num_actions), lambda h: (eta, plan[h]))

    return list(map(alone, etas, actions))


def _compiled(
    sim: AbstractSimulator, programmes: list[Programme], frontier: Frontier | None, keep: bool
) -> list[_Found]:
    """What compiled sweeps of these find, one after the other, for every η."""
    found: list[_Found] = []
    for programme in programmes:
        [(first, kept)] = fused_backward(sim, [programme], frontier=frontier, keep=keep)
        for k in np.ndindex(programme.shape):
            found.append((first[:, *k], None if kept is None else kept[:, :, *k]))
    return found


def _max_min(eta: float, actions: NDArray[Any]) -> Combine:
    """One step of Algorithm 1, given Q; writes ρ_h into `actions`."""
    number = actions.dtype.type

    def max_min(h: int, rows: Rows, q: NDArray[np.float64]) -> NDArray[np.float64]:
        best, worst = q[0].copy(), q[0].copy()
        choice = np.zeros(best.shape, dtype=actions.dtype)
        for a in range(1, len(q)):
            # Actions ascend, so the larger of the old choice and a where a is better is the choice.
            np.maximum(choice, np.multiply(q[a] > best, number(a)), out=choice)
            np.maximum(best, q[a], out=best)
            np.minimum(worst, q[a], out=worst)
        actions[h, rows] = choice
        best *= 1.0 - eta
        worst *= eta
        best += worst
        return best

    return max_min
