"""η-perturbations (Definition 1): MDPs in which an action is sometimes replaced by another.

ξ_h(a' | s, a) is the probability that the commanded action a is replaced by a'. An MDP M' is an
η-perturbation of the simulator M° if it has the same start distribution and some ξ satisfies

    T'_h(s' | s, a) = Σ_a' ξ_h(a' | s, a) T°_h(s' | s, a')
    R'_h(s, a)      = Σ_a' ξ_h(a' | s, a) R°_h(s, a')
    ξ_h(a | s, a)   ≥ 1−η.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tasid.keys import seed_key
from tasid.planning.sweep import policy_table, start_value, sweep
from tasid.simulator import AbstractSimulator, check_entries, check_size, is_integer

COPIES = 4
"""Making ξ needs as many arrays of its size, and `PerturbedMDP.mdp` twice as many."""


class PerturbationError(ValueError):
    """A ξ that is not a family of distributions over actions, or an η outside its range."""


def check_eta(eta: float, *, decodable: bool = False) -> float:
    """η as a float in [0, 1]; in [0, 0.5) if actions must be `decodable` from transitions."""
    number = isinstance(eta, (float, np.floating)) or is_integer(eta)
    if not number or not 0.0 <= eta <= 1.0 or (decodable and eta >= 0.5):
        raise PerturbationError(
            f"eta: {eta!r} is not a number in {'[0, 0.5)' if decodable else '[0, 1]'}"
        )
    return float(eta)


@dataclass(frozen=True, eq=False)
class PerturbedMDP:
    """A simulator whose actions are replaced according to ξ."""

    simulator: AbstractSimulator
    xi: NDArray[np.float64] = field(repr=False)
    """ξ(a' | s, a) as [S, A, A] or ξ_h(a' | s, a) as [H, S, A, A]."""

    def __post_init__(self) -> None:
        sim, xi = self.simulator, np.array(self.xi, dtype=np.float64)
        row = (sim.num_states, sim.num_actions, sim.num_actions)
        if xi.shape not in (row, (sim.horizon, *row)):
            raise PerturbationError(
                f"xi: shape {xi.shape} is neither [S, A, A] = {row} nor [H, S, A, A] with "
                f"H = {sim.horizon}"
            )
        bad = ~((xi >= 0).all(axis=-1) & (np.abs(xi.sum(axis=-1) - 1.0) <= 1e-9))
        check_entries(PerturbationError, "xi", xi, bad, "a probability distribution")
        xi.setflags(write=False)
        object.__setattr__(self, "xi", xi)

    @property
    def eta(self) -> float:
        """Smallest η for which this ξ satisfies Definition 1."""
        return float(np.clip(1.0 - np.einsum("...aa->...a", self.xi).min(), 0.0, 1.0))

    def xi_at(self, h: int) -> NDArray[np.float64]:
        """ξ_h as [S, A, A]."""
        return self.xi if self.xi.ndim == 3 else self.xi[h]

    def reward_at(self, h: int) -> NDArray[np.float64]:
        """R'_h as [S, A]."""
        return np.einsum("sab,sb->sa", self.xi_at(h), self.simulator.reward_at(h))

    @cached_property
    def mdp(self) -> AbstractSimulator:
        """T' and R' as a stochastic simulator: command a has A·B possible transitions."""
        sim, chance = self.simulator, self.simulator.probabilities
        check_size("xi", self.xi.shape, 2 * COPIES * 8, "use a smaller map or a shorter horizon")
        successor = sim.successor if sim.stochastic else sim.successor[..., None]
        reward = sim.reward if sim.reward_per_transition else sim.reward[..., None]
        probability = self.xi[..., None] * (1.0 if chance is None else chance[..., None, :, :])
        by_command = successor[..., None, :, :], reward[..., None, :, :], probability
        tables = [x.reshape(*x.shape[:-2], -1) for x in np.broadcast_arrays(*by_command)]
        return sim.replace(successor=tables[0], reward=tables[1], probabilities=tables[2])


def perturb(
    simulator: AbstractSimulator, *, eta: float, seed: int = 0, per_step: bool = False
) -> PerturbedMDP:
    """A random η-perturbation as in the paper's experiments (appendix, "Domain details").

    ξ(a' | s, a) = η p(a') + (1−η) 1[a' = a], where p of every (s, a) has entries uniform in [0, 1],
    normalised.

    Parameters
    ----------
    eta:
        η in [0, 1].
    seed:
        Seed of p, in 0 … 2³²−1.
    per_step:
        Draw p for every (h, s, a).
    """
    eta = check_eta(eta)
    seed_key(seed)  # refuses what is no seed
    shape: tuple[int, ...] = (simulator.num_states, simulator.num_actions, simulator.num_actions)
    if per_step:
        shape = (simulator.horizon, *shape)
    check_size("xi", shape, COPIES * 8, "perturb a smaller map or a shorter horizon")
    rng = np.random.default_rng(np.random.SeedSequence([0x7E71, seed]))
    p = rng.random(shape)
    p /= p.sum(axis=-1, keepdims=True)
    xi = eta * p + (1.0 - eta) * np.eye(simulator.num_actions)
    return PerturbedMDP(simulator, xi / xi.sum(axis=-1, keepdims=True))


def worst_case(sim: AbstractSimulator, policy: ArrayLike | Any, *, eta: float) -> PerturbedMDP:
    """The η-perturbation that minimises the value of a policy.

    It replaces every command at (h, s) with probability η by nature's choice argmin_a Q_h(s, a).
    `policy` is a plan, actions [H, S], or probabilities [H, S, A].
    """
    eta, identity = check_eta(eta), np.eye(sim.num_actions)
    shape = (sim.horizon, sim.num_states, sim.num_actions, sim.num_actions)
    check_size("xi", shape, COPIES * 8, "use a smaller map or a shorter horizon")
    nature = sweep(sim, eta=eta, policy=policy_table(sim, policy), keep=["nature"]).nature
    return PerturbedMDP(sim, (1.0 - eta) * identity + eta * identity[nature][:, :, None, :])


def worst_case_value(sim: AbstractSimulator, policy: ArrayLike | Any, *, eta: float) -> float:
    """min_M V^ψ_M over the η-perturbations M of the simulator, exact.

    `policy` is a plan, actions [H, S], or probabilities [H, S, A].
    """
    result = sweep(sim, eta=check_eta(eta), policy=policy_table(sim, policy))
    return start_value(sim, result.value)


@dataclass(frozen=True)
class Membership:
    """Whether an MDP is an η-perturbation; true and false in conditions accordingly."""

    ok: bool
    where: tuple[int, int, int] | None = None
    """First (h, s, a) that violates Definition 1."""
    why: str = ""

    def __bool__(self) -> bool:
        return self.ok


def is_perturbation(
    world: PerturbedMDP | AbstractSimulator | tuple[ArrayLike, ArrayLike],
    simulator: AbstractSimulator,
    *,
    eta: float,
    atol: float = 1e-9,
) -> Membership:
    """Whether an MDP is an η-perturbation of a simulator (Definition 1).

    The MDP is judged by its tables: a `PerturbedMDP` may satisfy the definition through another ξ
    than its own, for instance if two actions of the simulator are identical.

    For every (h, s, a), ξ = (1−η) e_a + x with x ≥ 0 must reproduce T', R' and the total mass.
    These are linear equations in x; non-negative least squares decides whether they are solvable.

    Parameters
    ----------
    world:
        The MDP, or its tables (T' [H, S, A, S] or [S, A, S], R' [H, S, A] or [S, A]).
    simulator:
        The map.
    eta:
        η in [0, 1].
    atol:
        Tolerance of the equations; that of rewards is relative to the largest reward.
    """
    eta = check_eta(eta)
    if isinstance(world, tuple):
        transition, reward = (np.asarray(table, np.float64) for table in world)
        world = simulator.replace(successor=transition, probabilities=None, reward=reward)
    mdp = world.mdp
    for name in ("horizon", "num_states", "num_actions"):
        ours, theirs = getattr(simulator, name), getattr(mdp, name)
        if ours != theirs:
            return Membership(False, None, f"{name} is {theirs}, the simulator's is {ours}")
    mu, mu_world = np.zeros((2, simulator.num_states))
    mu[simulator.starts], mu_world[mdp.starts] = (
        simulator.start_probabilities,
        mdp.start_probabilities,
    )
    if np.abs(mu - mu_world).max() > atol:
        return Membership(False, None, "the start distribution differs from the simulator's")
    by_step = simulator.time_varying or mdp.time_varying
    for h in range(simulator.horizon if by_step else 1):
        for s, a, residual in _residuals(simulator, mdp, h, eta):
            if residual > atol:
                why = (
                    f"no ξ with ξ(a | s, a) ≥ {1 - eta:.6g} gives T' and R' (off by {residual:.3g})"
                )
                return Membership(False, (h, s, a), why)
    return Membership(True)


def _residuals(
    sim: AbstractSimulator, mdp: AbstractSimulator, h: int, eta: float
) -> Iterator[tuple[int, int, float]]:
    """How far the equations of Definition 1 are from solvable, for every (s, a) at step h."""
    from scipy.optimize import nnls

    successor, chance = sim.transitions_at(h)
    mdp_successor, mdp_chance = mdp.transitions_at(h)
    reward, mdp_reward = sim.reward_at(h), mdp.reward_at(h)
    scale = max(1.0, float(np.abs(reward).max()))
    for s in range(sim.num_states):
        support = np.unique(np.concatenate([successor[s].ravel(), mdp_successor[s].ravel()]))

        def column(to: NDArray[Any], p: NDArray[Any], r: float, at: Any = support) -> Any:
            mass = np.bincount(np.searchsorted(at, to), p, minlength=at.size)
            return np.concatenate([mass, [r / scale, 1.0]])

        actions = range(sim.num_actions)
        system = np.stack([column(successor[s, a], chance[s, a], reward[s, a]) for a in actions], 1)
        for a in actions:
            target = column(mdp_successor[s, a], mdp_chance[s, a], mdp_reward[s, a])
            yield s, a, float(nnls(system, target - (1.0 - eta) * system[:, a])[1])
