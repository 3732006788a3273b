"""η-perturbations (Definition 1): worlds in which an action sometimes comes out as another.

ξ_h(a'|s, a) is the probability that the commanded a comes out as a'. An MDP M' = ⟨T', R'⟩ is an
η-perturbation of M° if T'_h(s'|s,a) = Σ_a' ξ_h(a'|s,a) 1[T°_h(s,a') = s'],
R'_h(s,a) = Σ_a' ξ_h(a'|s,a) R°_h(s,a'), with ξ_h(a|s,a) ≥ 1−η everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tasid.maps.simulator import AbstractSimulator, check_map
from tasid.maps.size import check_seed, refuse_entries, refuse_larger


class PerturbationError(ValueError):
    """A ξ that is not a family of distributions over actions, or an η outside [0, 1]."""


def checked_eta(eta: float) -> float:
    """η as a float, or a clear error."""
    _check_number(eta)
    if not 0.0 <= eta <= 1.0:
        raise PerturbationError(f"eta: {eta} is outside [0, 1]")
    return float(eta)


def check_decodable(eta: float) -> None:
    """Refuse an η at which a command is not the likeliest of all actions."""
    _check_number(eta)
    if not 0.0 <= eta < 0.5:
        raise PerturbationError(f"eta: {eta} is outside [0, 0.5), where actions can be decoded")


def _check_number(eta: float) -> None:
    if isinstance(eta, bool) or not isinstance(eta, (int, float, np.integer, np.floating)):
        raise PerturbationError(f"eta: {eta!r} is not a number")


@dataclass(frozen=True, eq=False)
class PerturbedMDP:
    """The latent MDP of a target: a simulator seen through ξ ([S, A, A] or [H, S, A, A])."""

    simulator: AbstractSimulator
    xi: NDArray[np.float64]

    def __post_init__(self) -> None:
        try:
            table = np.array(self.xi, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise PerturbationError(f"xi: not an array of numbers ({error})") from None
        _check_xi(self.simulator, table)
        table.setflags(write=False)
        object.__setattr__(self, "xi", table)

    @property
    def eta(self) -> float:
        """The smallest η for which this ξ is an η-perturbation."""
        return float(np.clip(1.0 - np.einsum("...aa->...a", self.xi).min(), 0.0, 1.0))

    def xi_at(self, h: int) -> NDArray[np.float64]:
        """ξ_h as [S, A, A]."""
        return self.xi if self.xi.ndim == 3 else self.xi[h]

    def transition_at(self, h: int) -> NDArray[np.float64]:
        """T'_h as a dense [S, A, S]; for small worlds and tests."""
        size, actions = self.simulator.num_states, self.simulator.num_actions
        dense = np.zeros((size, actions, size))
        rows = np.arange(size)[:, None]
        successor = self.simulator.successor_at(h)
        for a in range(actions):
            np.add.at(dense[:, a], (rows, successor), self.xi_at(h)[:, a])
        return dense

    def reward_at(self, h: int) -> NDArray[np.float64]:
        """R'_h as [S, A]."""
        expected: NDArray[np.float64] = np.einsum(
            "sab,sb->sa", self.xi_at(h), self.simulator.reward_at(h)
        )
        return expected


def perturb(
    simulator: AbstractSimulator, *, eta: float, seed: int = 0, per_step: bool = False
) -> PerturbedMDP:
    """A random η-perturbation as in the paper's experiments.

    ξ(a'|s,a) = η p(a') + (1−η) 1[a' = a], with p(·) of every (s, a) uniform in [0, 1] and
    normalised (appendix, "Domain details").

    Args:
        simulator: The map.
        eta: How often actions slip at most, in [0, 1].
        seed: Draws p.
        per_step: Draw one for every (h, s, a) instead.
    """
    check_map(simulator)
    eta = checked_eta(eta)
    check_seed(seed)
    rng = np.random.default_rng(np.random.SeedSequence([0x7E71, seed]))
    shape = (simulator.num_states, simulator.num_actions, simulator.num_actions)
    if per_step:
        shape = (simulator.horizon, *shape)  # type: ignore[assignment]
    refuse_larger("simulator", shape, 8, "perturb a smaller one, or a shorter horizon")
    p = rng.random(shape)
    p /= p.sum(axis=-1, keepdims=True)
    xi = eta * p + (1.0 - eta) * np.eye(simulator.num_actions)
    return PerturbedMDP(simulator, xi / xi.sum(axis=-1, keepdims=True))


def tremble(
    simulator: AbstractSimulator, *, eta: float, towards: NDArray[np.integer[Any]]
) -> PerturbedMDP:
    """The extreme perturbation that sends η of every command at (h, s) to `towards` [H, S]."""
    eta = checked_eta(eta)
    towards = np.asarray(towards)
    identity = np.eye(simulator.num_actions)
    return PerturbedMDP(simulator, (1.0 - eta) * identity + eta * identity[towards][:, :, None, :])


@dataclass(frozen=True)
class Membership:
    """Is it an η-perturbation? If not, the first (h, s, a) where it is not, and why."""

    ok: bool
    where: tuple[int, int, int] | None = None
    why: str = ""

    def __bool__(self) -> bool:
        return self.ok


def is_perturbation(
    world: PerturbedMDP | tuple[ArrayLike, ArrayLike],
    simulator: AbstractSimulator,
    *,
    eta: float,
    atol: float = 1e-9,
) -> Membership:
    """Is this ξ, or this MDP given as (T' [H,S,A,S], R' [H,S,A]), an η-perturbation?

    For an MDP a ξ has to exist. Actions with one successor form an outcome whose mass T' fixes;
    the own action keeps at least 1−η and the rest of each outcome's mass may lie on any of its
    actions, so R' has to lie between the sums of the outcomes' smallest and largest rewards.

    Args:
        world: What is asked about.
        simulator: The map.
        eta: How often actions may slip, in [0, 1].
        atol: What rounding may cost.
    """
    eta = checked_eta(eta)
    if isinstance(world, PerturbedMDP) and not _same_tables(world.simulator, simulator):
        # ξ speaks of another map's actions; what counts here is the MDP it makes.
        steps = range(world.simulator.horizon)
        world = (
            np.stack([world.transition_at(h) for h in steps]),
            np.stack([world.reward_at(h) for h in steps]),
        )
    if isinstance(world, PerturbedMDP):
        diagonal = np.einsum("...aa->...a", world.xi)
        short = diagonal < 1.0 - eta - atol
        if not short.any():
            return Membership(True)
        place = np.unravel_index(int(short.argmax()), short.shape)
        h, s, a = (0, *place) if len(place) == 2 else place
        return Membership(
            False,
            (int(h), int(s), int(a)),
            f"ξ keeps the action with probability {diagonal[place]:.6g} < 1 − η = {1 - eta:.6g}",
        )
    return _mdp_membership(world, simulator, eta, atol)


def _mdp_membership(
    world: tuple[ArrayLike, ArrayLike], sim: AbstractSimulator, eta: float, atol: float
) -> Membership:
    shape = (sim.horizon, sim.num_states, sim.num_actions)
    transition = _at_every_step("T'", world[0], (*shape, sim.num_states))
    reward = _at_every_step("R'", world[1], shape)
    for h, s, a in np.ndindex(shape):
        row, known = transition[h, s, a], (sim.successor_at(h)[s], sim.reward_at(h)[s])
        why = _row_problem(row, float(reward[h, s, a]), a, *known, eta, atol)
        if why:
            return Membership(False, (h, s, a), why)
    return Membership(True)


def _row_problem(
    row: NDArray[np.float64],
    paid: float,
    a: int,
    successor: NDArray[np.integer],
    reward: NDArray[np.float64],
    eta: float,
    atol: float,
) -> str:
    """What is wrong with T' and R' of a command, where the map has these successors and rewards."""
    mass = {int(after): float(row[after]) for after in np.unique(successor)}
    own, kept = int(successor[a]), 1.0 - eta
    if not ((row >= -atol).all() and abs(row.sum() - 1.0) <= atol):
        return "T' is not a probability distribution"
    if abs(sum(mass.values()) - 1.0) > atol:
        return "T' reaches a state that no action of the simulator reaches"
    if mass[own] < kept - atol:
        return f"the intended outcome has probability {mass[own]:.6g} < 1 − η = {1 - eta:.6g}"
    mass[own] = max(mass[own] - kept, 0.0)
    least, most = (kept * reward[a] + part for part in pay_range(mass, successor, reward))
    slack = atol * max(1.0, np.abs(reward).max())
    if not least - slack <= paid <= most + slack:
        return f"R' = {paid:.6g} is outside [{least:.6g}, {most:.6g}], what ξ can pay"
    return ""


def pay_range(
    mass: Mapping[int, float], successor: NDArray[np.integer], reward: NDArray[np.float64]
) -> tuple[float, float]:
    """The least and the most that mass on successors can pay, on any actions that lead there."""
    pays = {after: reward[successor == after] for after in mass}
    return (
        float(sum(part * pays[after].min() for after, part in mass.items())),
        float(sum(part * pays[after].max() for after, part in mass.items())),
    )


def _same_tables(one: AbstractSimulator, other: AbstractSimulator) -> bool:
    return one is other or (
        one.horizon == other.horizon
        and np.array_equal(one.successor, other.successor)
        and np.array_equal(one.reward, other.reward)
    )


def _at_every_step(name: str, table: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.float64]:
    given = np.asarray(table, dtype=np.float64)
    if given.shape not in (shape, shape[1:]):
        raise PerturbationError(
            f"world: {name} has shape {given.shape}; the simulator's is {shape}, or {shape[1:]} "
            "for all steps alike"
        )
    return np.broadcast_to(given, shape)


def _check_xi(sim: AbstractSimulator, xi: NDArray[np.float64]) -> None:
    row = (sim.num_states, sim.num_actions, sim.num_actions)
    if xi.shape not in (row, (sim.horizon, *row)):
        raise PerturbationError(
            f"xi: shape {xi.shape} is neither [S, A, A] = {row} nor [H, S, A, A] with "
            f"H = {sim.horizon}"
        )
    bad = ~np.isfinite(xi).all(axis=-1) | (xi < 0).any(axis=-1)
    with np.errstate(invalid="ignore"):  # ∞ − ∞; such rows are bad already
        bad |= np.abs(xi.sum(axis=-1) - 1.0) > 1e-9
    refuse_entries(PerturbationError, "xi", xi, bad, "a probability distribution")
