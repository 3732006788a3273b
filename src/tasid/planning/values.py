"""Exact values of policies in a simulator or in a perturbation of it, and certificates of plans.

A world is an `AbstractSimulator` or a `PerturbedMDP`.

A saddle-point certificate proves by two more sweeps that a plan is max–min optimal. Nature's best
response to the plan gives the plan's worst-case value, a lower bound of max_ψ min_M V^ψ_M. The
agent's best response to that very perturbation gives an upper bound. If both are equal, plan and
perturbation are a saddle point and the plan is optimal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tasid.layout import GOAL
from tasid.planning.perturbation import PerturbedMDP, check_eta, worst_case_value
from tasid.planning.robust_dp import RobustPlan, robust_dp
from tasid.planning.sweep import policy_table, start_value, sweep
from tasid.simulator import AbstractSimulator

World = AbstractSimulator | PerturbedMDP


def policy_value(world: World, policy: ArrayLike | Any) -> float:
    """V^ψ, the expected return of a policy on states, exact.

    Parameters
    ----------
    world:
        The MDP in which the policy acts.
    policy:
        A plan, actions that broadcast to [H, S], or probabilities [H, S, A].
    """
    result = sweep(world.mdp, policy=policy_table(world.mdp, policy))
    return start_value(world.mdp, result.value)


def optimal_value(world: World) -> float:
    """max_ψ V^ψ: the largest expected return of an oracle that sees the true state.

    Hazards are not masked.
    """
    return start_value(world.mdp, sweep(world.mdp).value)


def blind_value(world: World, *, max_starts: int = 32) -> float:
    """Best open-loop value: that of the best constant action or of the open-loop nominal plan.

    The nominal plan is `robust_dp` with η = 0 on the simulator of the world; its action
    sequence is executed regardless of the state. With several starts the sequences from the first
    `max_starts` of them are tried. All values are exact.
    """
    sim = world.simulator if isinstance(world, PerturbedMDP) else world
    plan = robust_dp(sim, eta=0.0)
    nominal = {
        tuple(step.action for step in plan.route(int(start))) for start in sim.starts[:max_starts]
    }
    sequences = [*nominal, *((a,) for a in range(sim.num_actions))]
    return max(policy_value(world, np.array(actions)[:, None]) for actions in sequences)


def best_case_value(sim: AbstractSimulator, policy: ArrayLike | Any, *, eta: float) -> float:
    """max_M V^ψ_M over the η-perturbations M of the simulator: the worst case for rewards −R."""
    return -worst_case_value(sim.replace(reward=-sim.reward), policy, eta=check_eta(eta))


def return_range(sim: AbstractSimulator) -> tuple[float, float]:
    """Smallest and largest return that any episode can have, over all actions and starts.

    On stochastic maps also over the outcomes: every possible transition counts as an action.
    """
    if sim.stochastic:
        successor, reward = sim.successor, sim.reward
        if not sim.reward_per_transition:
            reward = np.repeat(reward[..., None], successor.shape[-1], axis=-1)
        tables = [table.reshape(*table.shape[:-2], -1) for table in (successor, reward)]
        sim = AbstractSimulator(*tables, horizon=sim.horizon, start=sim.starts)
    low, high = (sweep(sim, eta=eta).value[sim.starts] for eta in (1.0, 0.0))
    return float(low.min()), float(high.max())


@dataclass(frozen=True)
class Certificate:
    """Bounds of the max–min value."""

    lower: float
    """Worst-case value of the plan."""
    upper: float
    """Value of the best policy against the plan's worst perturbation."""

    @property
    def gap(self) -> float:
        """How much more than the plan any policy could have in the worst case."""
        return self.upper - self.lower


def certify(plan: RobustPlan) -> Certificate:
    """Certificate of a plan; the gap of `robust_dp`'s plans is 0 up to rounding.

    On maps with hazards the agent's best response is restricted to permitted actions, too.
    """
    sim, avoid = plan.simulator, plan.simulator.hazards is not None
    worst = sweep(sim, eta=plan.eta, policy=policy_table(sim, plan), keep=["nature"])
    best = sweep(sim, eta=plan.eta, nature=worst.nature, avoid_hazards=avoid)
    return Certificate(start_value(sim, worst.value), start_value(sim, best.value))


def simulator_problems(simulator: AbstractSimulator) -> list[str]:
    """What makes a map useless for planning, in short sentences; empty for a good map.

    The return must depend on the actions, and on a grid map some goal must be within reach.
    """
    problems = []
    best, worst = (sweep(simulator, eta=eta).value[simulator.starts] for eta in (0.0, 1.0))
    if (best - worst <= 1e-9 * np.maximum(1.0, np.abs(best))).all():
        problems.append(
            f"every plan earns {best.mean():g} on this map: no action changes the return"
        )
    layout = simulator.layout
    if layout is not None and (layout.cells == GOAL).any():
        goal = layout.kinds == GOAL
        near = goal  # a goal can be reached from these states in the steps that are left
        for h in reversed(range(simulator.horizon)):
            near = goal | near[simulator.successor_at(h)].reshape(len(goal), -1).any(axis=1)
        if not near[simulator.starts].any():
            problems.append(f"no goal can be reached within {simulator.horizon} steps")
    return problems
