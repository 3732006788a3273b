"""Exact values of abstract policies: nominal, in a given perturbation, in the worst or best one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tasid.maps.planning.backward import (
    Combine,
    Frontier,
    Rows,
    backward,
    frontier_when_cheaper,
    start_value,
)
from tasid.maps.planning.fused import (
    Programme,
    best_response_step,
    fused_backward,
    max_min_step,
    nature_step,
    worth_compiling,
)
from tasid.maps.planning.perturbation import PerturbedMDP, checked_eta, tremble
from tasid.maps.planning.robust_dp import RobustPlan, robust_dp
from tasid.maps.planning.thrifty import Plan, ThriftyPlan
from tasid.maps.planning.window import windowed
from tasid.maps.simulator import AbstractSimulator
from tasid.maps.size import refuse_entries

AbstractPolicy = RobustPlan | ArrayLike
"""A plan, actions [H, S] (or [S], [H, 1], … broadcast to it), or probabilities [H, S, A]."""


def policy_value(mdp: AbstractSimulator | PerturbedMDP, policy: AbstractPolicy) -> float:
    """V^ψ_M, exactly: in the simulator itself, or in a perturbation of it.

    Args:
        mdp: Where the policy acts.
        policy: A plan, actions [H, S], or probabilities [H, S, A].
    """
    sim = mdp if isinstance(mdp, AbstractSimulator) else mdp.simulator
    table = policy_table(sim, policy)
    if isinstance(mdp, AbstractSimulator) and table.ndim == 2:
        return _along_routes(sim, table)

    def follow(h: int, rows: Rows, q: NDArray[np.float64]) -> NDArray[np.float64]:
        if isinstance(mdp, PerturbedMDP):  # E[Q(s, a') | command a]
            q = np.einsum("sab,bs->as", mdp.xi_at(h)[rows], q)
        return _chosen(table[h][rows], q)

    return _swept_value(sim, follow)


def _swept_value(sim: AbstractSimulator, combine: Combine) -> float:
    return start_value(sim, backward(sim, combine, frontier=frontier_when_cheaper(sim))[0])


def _along_routes(sim: AbstractSimulator, actions: NDArray[Any]) -> float:
    """Nothing is left to chance: only what lies on the way from each start counts."""
    state, rewards = sim.starts, []
    for h in range(sim.horizon):
        action = actions[h, state]
        rewards.append(sim.reward_at(h)[state, action])
        state = sim.successor_at(h)[state, action]
    value = np.zeros(sim.starts.size)
    for reward in reversed(rewards):  # the order in which a backward sweep adds
        value = reward + value
    return float(sim.start_probabilities @ value)


def worst_case_value(sim: AbstractSimulator, policy: AbstractPolicy, *, eta: float) -> float:
    """min_M V^ψ_M over all η-perturbations M of the simulator.

    Args:
        sim: The map.
        policy: A plan, actions [H, S], or probabilities [H, S, A].
        eta: How often actions may slip, in [0, 1].
    """
    return _against_nature(sim, policy_table(sim, policy), checked_eta(eta))[0]


def best_case_value(sim: AbstractSimulator, policy: AbstractPolicy, *, eta: float) -> float:
    """max_M V^ψ_M over all η-perturbations M of the simulator.

    U_h(s) = (1−η) Q_h(s, ψ_h(s)) + η max_a Q_h(s, a) with Q_h = R°_h + U_{h+1} ∘ T°_h: what a
    perturbation may move it moves, in every state, to the action that pays most.
    """
    table, eta = policy_table(sim, policy), checked_eta(eta)
    return _swept_value(
        sim,
        lambda h, rows, q: (1.0 - eta) * _chosen(table[h][rows], q) + eta * q.max(axis=0),
    )


def return_range(sim: AbstractSimulator) -> tuple[float, float]:
    """The smallest and the largest return of any episode: any actions, from any start."""
    frontier = frontier_when_cheaper(sim)
    least, _ = backward(sim, lambda h, rows, q: q.min(axis=0), frontier=frontier)
    most, _ = backward(sim, lambda h, rows, q: q.max(axis=0), frontier=frontier)
    return float(least[sim.starts].min()), float(most[sim.starts].max())


def worst_case(sim: AbstractSimulator, policy: AbstractPolicy, *, eta: float) -> PerturbedMDP:
    """The η-perturbation in which this policy earns least.

    Args:
        sim: The map.
        policy: A plan, actions [H, S], or probabilities [H, S, A].
        eta: How often actions may slip, in [0, 1].
    """
    _, nature = _against_nature(sim, policy_table(sim, policy), checked_eta(eta))
    return tremble(sim, eta=eta, towards=nature)


def blind_value(world: PerturbedMDP | Sequence[tuple[float, PerturbedMDP]]) -> float:
    """What needs no eyes: the better of the best constant action and the open-loop nominal plan.

    Of several worlds with their probabilities, the first one's plan is tried on the mixture. With
    several starts so is the plan's route from each of them, up to 32 that differ.
    """
    worlds = [(1.0, world)] if isinstance(world, PerturbedMDP) else list(world)
    sim = worlds[0][1].simulator
    plan = robust_dp(sim, eta=0.0)
    nominal = {
        tuple(step.action for step in plan.route(int(start))) for start in sim.starts[:_MOST_ROUTES]
    }
    blind = [np.array(actions)[:, None] for actions in sorted(nominal)]
    blind += [np.array([[a]]) for a in range(sim.num_actions)]
    return max(sum(chance * policy_value(one, b) for chance, one in worlds) for b in blind)


_MOST_ROUTES = 32
"""Starts whose routes are tried blind; of thousands all would take minutes."""


@dataclass(frozen=True)
class Certificate:
    """A saddle point, checked: nature's best response to the plan and the agent's to nature's.

    `lower` is the plan's worst-case value, `upper` what the best agent earns against that very
    nature; max–min lies between them, so a gap of 0 proves the plan optimal.
    """

    lower: float
    upper: float

    @property
    def gap(self) -> float:
        """How much better than the plan any policy could possibly be in the worst case."""
        return self.upper - self.lower


def certify(plan: Plan) -> Certificate:
    """Two more sweeps, no enumeration: see `Certificate`.

    Args:
        plan: What `robust_dp` gave.
    """
    sim, eta = plan.simulator, plan.eta
    frontier = frontier_when_cheaper(sim)
    if isinstance(plan, ThriftyPlan):
        return _fused_certificate(sim, None, eta, windowed(sim, frontier))
    table = policy_table(sim, plan)
    if worth_compiling(nature_step, sim, frontier):
        return _fused_certificate(sim, table, eta, windowed(sim, frontier))
    lower, nature = _against_nature(sim, table, eta)
    upper, _ = backward(
        sim,
        lambda h, rows, q: (1.0 - eta) * q.max(axis=0) + eta * _chosen(nature[h][rows], q),
        frontier=frontier,
    )
    return Certificate(lower, start_value(sim, upper))


def _fused_certificate(
    sim: AbstractSimulator, table: NDArray[Any] | None, eta: float, frontier: Frontier | None
) -> Certificate:
    """All sweeps in one: choices at a step are needed at that step alone.

    So are those of a plan without a table, which is then made again.
    """
    nature, own = (np.zeros(sim.num_states, dtype=_action_type(sim)) for _ in range(2))
    planner = Programme(max_min_step(sim.num_actions), lambda h: (eta, own))
    policy = Programme(
        nature_step(sim.num_actions), lambda h: (eta, own if table is None else table[h], nature)
    )
    agent = Programme(best_response_step(sim.num_actions), lambda h: (eta, nature))
    programmes = [*([planner] if table is None else []), policy, agent]
    *_, (lower, _), (upper, _) = fused_backward(sim, programmes, frontier=frontier)
    return Certificate(start_value(sim, lower), start_value(sim, upper))


def policy_table(sim: AbstractSimulator, policy: AbstractPolicy) -> NDArray[Any]:
    """The policy as actions [H, S] or probabilities [H, S, A], checked."""
    shape = (sim.horizon, sim.num_states)
    if isinstance(policy, RobustPlan) and policy.actions.shape != shape:
        raise ValueError(
            f"policy: the plan is for [H, S] = {policy.actions.shape}, the world has {shape}"
        )
    table = np.asarray(policy.actions if isinstance(policy, RobustPlan) else policy)
    if table.dtype.kind == "f" and table.ndim == 3:
        probabilities = _spread(table, (*shape, sim.num_actions))
        fine = (table >= 0).all(axis=-1) & (np.abs(table.sum(axis=-1) - 1.0) <= 1e-5)
        bad = np.broadcast_to(~fine, shape)
        refuse_entries(
            ValueError, "policy", probabilities, bad, "a distribution over actions", "hs"
        )
        return probabilities
    if table.dtype.kind not in "iu":
        raise TypeError(
            f"policy: dtype {table.dtype} and shape {table.shape} are neither whole-number "
            "actions [H, S] nor probabilities [H, S, A]"
        )
    actions = _spread(table, shape)
    if table.size and not 0 <= table.min() <= table.max() < sim.num_actions:
        bad = np.broadcast_to((table < 0) | (table >= sim.num_actions), shape)
        refuse_entries(ValueError, "policy", actions, bad, f"in 0 … {sim.num_actions - 1}", "hs")
    return actions


def _spread(table: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    try:
        return np.broadcast_to(table, shape)
    except ValueError:
        meaning = "[H, S]" if len(shape) == 2 else "[H, S, A]"
        raise ValueError(
            f"policy: shape {table.shape} does not broadcast to {meaning} = {shape}"
        ) from None


def _chosen(step: NDArray[Any], q: NDArray[np.float64]) -> NDArray[np.float64]:
    """Q [A, n] under one step of a policy: actions [n] or probabilities [n, A]."""
    if step.ndim == 2:
        mixed: NDArray[np.float64] = np.einsum("na,an->n", step, q)
        return mixed
    return np.take_along_axis(q, step[None].astype(np.intp), axis=0)[0]


def _against_nature(
    sim: AbstractSimulator, table: NDArray[Any], eta: float
) -> tuple[float, NDArray[Any]]:
    """The policy's worst-case value and nature's choices [H, S]: where she sends η of the mass."""
    nature = np.zeros((sim.horizon, sim.num_states), dtype=_action_type(sim))
    frontier = frontier_when_cheaper(sim)
    if table.ndim == 2 and worth_compiling(nature_step, sim, frontier):
        step = nature_step(sim.num_actions)
        programme = Programme(step, lambda h: (eta, table[h], nature[h]))
        [(first, _)] = fused_backward(sim, [programme], frontier=frontier)
        return start_value(sim, first), nature

    def respond(h: int, rows: Rows, q: NDArray[np.float64]) -> NDArray[np.float64]:
        nature[h, rows] = q.argmin(axis=0)
        value: NDArray[np.float64] = (1.0 - eta) * _chosen(table[h][rows], q) + eta * q.min(axis=0)
        return value

    first, _ = backward(sim, respond, frontier=frontier)
    return start_value(sim, first), nature


def _action_type(sim: AbstractSimulator) -> np.dtype[Any]:
    return np.min_scalar_type(sim.num_actions - 1)
