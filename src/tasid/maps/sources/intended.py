"""The deterministic map behind a table of chances, and the table as a perturbation of it.

Actions of one state that lead to one successor form an outcome. A row T'(·|s, a), R'(s, a) is
within η = 1 − k of the map if k of the mass can be the commanded action's own and the rest can be
spread over actions so that every outcome gets its mass and the rewards add up. k is bounded by the
mass of the own outcome and, linearly, by R'; so the largest k has a closed form.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tasid.maps.planning.perturbation import PerturbedMDP, pay_range
from tasid.maps.simulator import AbstractSimulator

Outcomes = list[tuple[float, int, float, bool]]
"""(probability, next state, reward, unused)."""
_SAME = 1e-9


def intended(rows: list[list[Outcomes]]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Where each action is meant to lead and what it should pay: successor and reward, [S, A].

    The likeliest successor. Slips that happen to lead to the same place can outweigh the intended
    one; where the likeliest single entry explains the whole state better (with a smaller η), it
    is taken instead. Between equals the entry listed nearest the middle wins: Gymnasium lists
    the slips to either side around the intended move.
    """
    successor = np.zeros((len(rows), len(rows[0])), dtype=np.int64)
    reward = np.zeros(successor.shape)
    for s, row in enumerate(rows):
        readings = [[_likeliest(o, together) for o in row] for together in (True, False)]
        chosen = readings[0]
        if readings[0] != readings[1]:
            chosen = min(readings, key=lambda reading: _state_eta(row, reading))
        successor[s] = [after for after, _ in chosen]
        reward[s] = [pay for _, pay in chosen]
    return successor, reward


def _likeliest(outcomes: Outcomes, together: bool) -> tuple[int, float]:
    """(successor, reward) of the likeliest successor, or of the likeliest entry."""
    mass = _mass(outcomes)
    middle = (len(outcomes) - 1) / 2

    def rank(place: int) -> tuple[float, float, float]:
        p, after, _, _ = outcomes[place]
        # Rounded, or 0.33333333333333337 would beat 0.3333333333333333.
        return (round(-mass[after], 9) if together else 0.0, round(-p, 9), abs(place - middle))

    _, after, pay, _ = outcomes[min(range(len(outcomes)), key=rank)]
    return after, pay


def _state_eta(row: list[Outcomes], reading: list[tuple[int, float]]) -> float:
    """The smallest η of a state under a reading; infinite if there is none."""
    successor = np.array([after for after, _ in reading])
    reward = np.array([pay for _, pay in reading])
    kept = [_kept(o, a, successor, reward)[0] for a, o in enumerate(row)]
    return float("inf") if min(kept) < 0 else 1.0 - min(kept)


def world_of(rows: list[list[Outcomes]], sim: AbstractSimulator) -> tuple[PerturbedMDP | None, str]:
    """The table as a perturbation of the map with the smallest η; else the first row that is not.

    Only the table at one step is looked at: the map has to be the same at all steps.
    """
    xi = np.zeros((sim.num_states, sim.num_actions, sim.num_actions))
    for s, row in enumerate(rows):
        successor, reward = sim.successor_at(0)[s], sim.reward_at(0)[s]
        for a, outcomes in enumerate(row):
            kept, why = _kept(outcomes, a, successor, reward)
            if kept < 0:
                return None, f"at state {s}, action {a}, {why}"
            xi[s, a] = _spread(outcomes, a, successor, reward, kept)
    return PerturbedMDP(sim, xi), ""


def _kept(
    outcomes: Outcomes, a: int, successor: NDArray[np.integer], reward: NDArray[np.float64]
) -> tuple[float, str]:
    """The most mass the commanded action can have itself; −1 and the reason if none will do."""
    mass, pay = _mass(outcomes), sum(p * r for p, _, r, _ in outcomes)
    strangers = set(mass) - set(successor.tolist())
    if strangers:
        return -1.0, f"it may lead to state {min(strangers)}, where no action of the map leads"
    low, high = pay_range(mass, successor, reward)
    slack = _SAME * max(1.0, float(np.abs(reward).max()))
    if not low - slack <= pay <= high + slack:
        return (
            -1.0,
            f"it pays {pay:.6g} on average, outside what the map can, {low:.6g} … {high:.6g}",
        )
    own = reward[successor == successor[a]]
    most = mass.get(int(successor[a]), 0.0)
    for room, excess in ((pay - low, reward[a] - own.min()), (high - pay, own.max() - reward[a])):
        if excess > slack:
            most = min(most, max(room, 0.0) / float(excess))
    return most, ""


def _spread(
    outcomes: Outcomes,
    a: int,
    successor: NDArray[np.integer],
    reward: NDArray[np.float64],
    kept: float,
) -> NDArray[np.float64]:
    """A row of ξ with ξ(a) ≥ `kept`: the rest on each outcome's worst and best paid actions."""
    mass, pay = _mass(outcomes), sum(p * r for p, _, r, _ in outcomes)
    mass[int(successor[a])] = mass.get(int(successor[a]), 0.0) - kept
    low, high = pay_range(mass, successor, reward)
    rest = pay - kept * reward[a]
    share = np.clip((rest - low) / (high - low), 0.0, 1.0) if high - low > _SAME else 0.0
    xi = np.zeros(len(successor))
    for after, part in mass.items():
        members = np.flatnonzero(successor == after)
        xi[members[reward[members].argmin()]] += (1.0 - share) * max(part, 0.0)
        xi[members[reward[members].argmax()]] += share * max(part, 0.0)
    xi[a] += kept
    return xi / xi.sum()


def _mass(outcomes: Outcomes) -> dict[int, float]:
    mass: dict[int, float] = {}
    for p, after, _, _ in outcomes:
        mass[after] = mass.get(after, 0.0) + p
    return mass
