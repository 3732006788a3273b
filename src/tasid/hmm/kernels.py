"""Compiled sums over the edges of a transition graph.

One row of a batch is one episode. States without probability are skipped, so sharp beliefs on large
maps are cheap. The functions release the GIL and may run in several threads.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
from numpy.typing import NDArray

_compiled = numba.njit(nogil=True, cache=True, error_model="numpy")


class Edges(NamedTuple):
    """The edges (s, k) of one step: the tables of `TransitionGraph` without their first axis."""

    successor: NDArray[Any]
    """[M, K]."""
    probability: NDArray[Any]
    """[M, A, K]."""
    share: NDArray[Any]
    """[M, K]."""
    reward_bits: NDArray[Any]
    """[M, K]."""
    terminal: NDArray[Any]
    """Of the successors, [M]."""
    edge_class: NDArray[Any]
    """[M, K], or [0, 0] where classes are states."""


@_compiled
def _may_give(bits: int, reward: int) -> bool:
    """Is the reward in the bit set? −1 always is."""
    return reward < 0 or (bits >> reward) & 1 == 1


@_compiled
def predict(edges: Any, step: Any, belief: Any, predicted: Any) -> None:
    """predicted[n, s'] += Σ belief[n, s] · weight(s, k, n)."""
    successor, probability, share, reward_bits, terminal, edge_class = edges
    commands, eta, reward_ids, ended, ends_known, contradiction, class_likelihoods = step
    for n in range(belief.shape[0]):
        a = commands[n]
        for s in range(belief.shape[1]):
            mass = belief[n, s]
            if mass == 0.0:
                continue
            for k in range(successor.shape[1]):
                if share[s, k] == 0.0:
                    continue
                t = successor[s, k]
                p = (1.0 - eta) * probability[s, a, k] + eta * share[s, k]
                ends = not ends_known[n] or terminal[t] == ended[n]
                agrees = ends and _may_give(reward_bits[s, k], reward_ids[n])
                if not agrees:
                    p *= contradiction
                if edge_class.size > 0:
                    p *= class_likelihoods[n, edge_class[s, k]]
                predicted[n, t] += mass * p


@_compiled
def backward(
    edges: Any, step: Any, belief: Any, message: Any, earlier: Any, agreeing: Any, of_class: Any
) -> None:
    """earlier[n, s] = Σ_k weight · message[n, s'] where belief is positive.

    Adds up belief · weight · message over the edges that agree with reward and end, agreeing [n],
    and over the edges of each class, of_class [n, L].
    """
    successor, probability, share, reward_bits, terminal, edge_class = edges
    commands, eta, reward_ids, ended, ends_known, contradiction, class_likelihoods = step
    for n in range(belief.shape[0]):
        a = commands[n]
        for s in range(belief.shape[1]):
            mass = belief[n, s]
            if mass == 0.0:
                continue
            total, agreed = 0.0, 0.0
            for k in range(successor.shape[1]):
                if share[s, k] == 0.0:
                    continue
                t = successor[s, k]
                p = (1.0 - eta) * probability[s, a, k] + eta * share[s, k]
                ends = not ends_known[n] or terminal[t] == ended[n]
                agrees = ends and _may_give(reward_bits[s, k], reward_ids[n])
                if not agrees:
                    p *= contradiction
                if edge_class.size > 0:
                    p *= class_likelihoods[n, edge_class[s, k]]
                p *= message[n, t]
                total += p
                if agrees:
                    agreed += p
                if edge_class.size > 0:
                    of_class[n, edge_class[s, k]] += mass * p
            earlier[n, s] = total
            agreeing[n] += mass * agreed


@_compiled
def expected_counts(edges: Any, step: Any, belief: Any, message: Any, counts: Any) -> None:
    """counts[s, a, k] += belief[n, s] · weight · message[n, s']."""
    successor, probability, share, reward_bits, terminal, edge_class = edges
    commands, eta, reward_ids, ended, ends_known, contradiction, class_likelihoods = step
    for n in range(belief.shape[0]):
        a = commands[n]
        for s in range(belief.shape[1]):
            mass = belief[n, s]
            if mass == 0.0:
                continue
            for k in range(successor.shape[1]):
                if share[s, k] == 0.0:
                    continue
                t = successor[s, k]
                p = (1.0 - eta) * probability[s, a, k] + eta * share[s, k]
                ends = not ends_known[n] or terminal[t] == ended[n]
                agrees = ends and _may_give(reward_bits[s, k], reward_ids[n])
                if not agrees:
                    p *= contradiction
                if edge_class.size > 0:
                    p *= class_likelihoods[n, edge_class[s, k]]
                counts[s, a, k] += mass * p * message[n, t]


@_compiled
def normalise(mass: Any, likelihood: Any, floor: float, totals: Any) -> None:
    """mass[n] ← mass[n] · likelihood[n] / totals[n], with entries below `floor` set to 0."""
    for n in range(mass.shape[0]):
        total = 1e-300
        for s in range(mass.shape[1]):
            if mass[n, s] != 0.0:
                mass[n, s] *= likelihood[n, s]
                total += mass[n, s]
        totals[n] = total
        scale = 1.0 / total
        for s in range(mass.shape[1]):
            if mass[n, s] != 0.0:
                share = mass[n, s] * scale
                mass[n, s] = share if share > floor else 0.0
