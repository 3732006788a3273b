"""Robust dynamic programming (Algorithm 1): plan against the worst η-perturbation.

    Q̃_h(s, a) = R°_h(s, a) + E[Ṽ_{h+1}(s') | s, a],   Ṽ_H = 0
    Ṽ_h(s)    = (1−η) max_a Q̃_h(s, a) + η min_a Q̃_h(s, a)
    ρ_h(s)    = argmax_a Q̃_h(s, a), ties to the lowest action

Theorem 1: ρ attains max_ψ min_M V^ψ_M over policies ψ and η-perturbations M of the simulator, and
Ṽ at the start is that value.

On a map with hazards the maximum is over the permitted actions (`AbstractSimulator.permitted`):
ρ never enters a hazard on purpose where it can be avoided, whatever the rewards. Nature's minimum
stays over all actions, and the theorem holds among policies with the same restriction.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tasid.planning.perturbation import check_eta
from tasid.planning.sweep import start_value, sweep
from tasid.simulator import AbstractSimulator, is_integer


class RouteStep(NamedTuple):
    """One step of a plan without perturbation."""

    step: int
    state: Hashable
    """Label of the state."""
    action: int
    reward: float
    """Expected reward of the action."""


@dataclass(frozen=True, eq=False)
class RobustPlan:
    """The robust policy ρ of a simulator and its worst-case value."""

    simulator: AbstractSimulator
    eta: float
    actions: NDArray[np.unsignedinteger[Any]] = field(repr=False)
    """ρ [H, S], in the smallest unsigned integer type; 0 at pairs that were not swept."""
    start_value: float
    """Ṽ at the start: the value of ρ in its worst η-perturbation."""
    values: NDArray[np.float64] | None = field(repr=False)
    """Ṽ [H+1, S] if kept; NaN at pairs that were not swept."""

    def action(self, h: int, s: int) -> int:
        """ρ_h(s)."""
        for name, index, size in (("h", h, self.actions.shape[0]), ("s", s, self.actions.shape[1])):
            if not (is_integer(index) and 0 <= index < size):
                raise ValueError(f"{name}: {index!r} is not in 0 … {size - 1}")
        return int(self.actions[h, s])

    def q_values(self, h: int) -> NDArray[np.float64]:
        """Q̃_h [S, A] of a plan made with `keep_values=True`."""
        if self.values is None:
            raise ValueError("values: this plan has none; make it with keep_values=True")
        successor, probabilities = self.simulator.transitions_at(h)
        expected = (probabilities * self.values[h + 1][successor]).sum(axis=-1)
        return self.simulator.reward_at(h) + expected

    def route(self, start: int | None = None) -> tuple[RouteStep, ...]:
        """States and actions from the start (or a given state) if every action succeeds.

        On stochastic maps each action leads to its most likely successor.
        """
        sim, steps = self.simulator, []
        states = self.path([sim.start if start is None else start])[:-1, 0].tolist()
        for h, state in enumerate(states):
            action = self.action(h, state)
            reward = float(sim.reward_at(h)[state, action])
            steps.append(RouteStep(h, sim.states[state], action, reward))
        return tuple(steps)

    def path(self, states: ArrayLike, h: int = 0) -> NDArray[np.int32]:
        """States at steps h … H, [H−h+1, n], from these [n] if every action succeeds."""
        path = [np.asarray(states, np.int32)]
        for step in range(h, self.simulator.horizon):
            actions = self.actions[step, path[-1]]
            path.append(self.simulator.intended(step)[path[-1], actions])
        return np.stack(path)


def robust_dp(
    simulator: AbstractSimulator,
    *,
    eta: float,
    keep_values: bool = False,
    reachable_only: bool = False,
) -> RobustPlan:
    """Algorithm 1 for any η in [0, 1].

    Parameters
    ----------
    simulator:
        The map, deterministic or stochastic.
    eta:
        Probability with which nature replaces an action.
    keep_values:
        Keep Ṽ of all steps and states as `plan.values`.
    reachable_only:
        Plan only for states that the starts can ever reach. An agent that is moved to another
        state needs the complete plan.
    """
    if not isinstance(simulator, AbstractSimulator):
        raise TypeError(f"simulator: {type(simulator).__name__} is not a tasid.AbstractSimulator")
    eta, shape = check_eta(eta), (simulator.horizon, simulator.num_states)
    if not reachable_only:
        keep, avoid = ["actions", *["values"] * keep_values], simulator.hazards is not None
        result = sweep(simulator, eta=eta, avoid_hazards=avoid, keep=keep)
        worst_case = start_value(simulator, result.value)
        return RobustPlan(simulator, eta, result.actions, worst_case, result.values)

    states = _reachable(simulator)
    part = robust_dp(_renumbered(simulator, states), eta=eta, keep_values=keep_values)
    actions, values = np.zeros(shape, part.actions.dtype), None
    actions[:, states] = part.actions
    if part.values is not None:
        values = np.full((shape[0] + 1, shape[1]), np.nan)
        values[:, states] = part.values
    return RobustPlan(simulator, eta, actions, part.start_value, values)


def _reachable(sim: AbstractSimulator) -> NDArray[np.intp]:
    """States that the starts can ever reach, in index order."""
    reached, frontier = np.zeros(sim.num_states, bool), sim.starts
    while frontier.size:
        reached[frontier] = True
        after = np.unique(sim.successor.take(frontier, axis=-3 if sim.stochastic else -2))
        frontier = after[~reached[after]]
    return np.flatnonzero(reached)


def _renumbered(sim: AbstractSimulator, order: NDArray[np.intp]) -> AbstractSimulator:
    """The part of a map with these states, in this order, from which no action leads away."""
    new_index = np.zeros(sim.num_states, np.int32)
    new_index[order] = np.arange(order.size)
    axis = -3 if sim.stochastic else -2
    return AbstractSimulator(
        new_index[sim.successor.take(order, axis)],
        sim.reward.take(order, -3 if sim.reward_per_transition else -2),
        probabilities=None if sim.probabilities is None else sim.probabilities.take(order, axis),
        horizon=sim.horizon,
        start=new_index[sim.starts],
        start_probabilities=sim.start_probabilities,
        hazards=None if sim.hazards is None else sim.hazards[order],
    )
