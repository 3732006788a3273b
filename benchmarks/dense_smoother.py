"""Forward and backward over a map as one would write it with NumPy: dense matrices."""

from __future__ import annotations

import numpy as np

import tasid


def some_episodes(
    side: int = 12, number: int = 64, horizon: int = 40
) -> tuple[tasid.AbstractSimulator, np.ndarray, np.ndarray]:
    """An open square, random commands [N, H] and random ln p(x | s), [N, H+1, S]."""
    rows = ["." * side for _ in range(side)]
    rows[0], rows[-1] = "S" + rows[0][1:], rows[-1][1:] + "G"
    sim = tasid.AbstractSimulator.from_text_map("\n".join(rows), horizon=horizon)
    rng = np.random.default_rng(0)
    commands = rng.integers(sim.num_actions, size=(number, horizon))
    return sim, commands, rng.normal(size=(number, horizon + 1, sim.num_states))


def dense_smoother(
    sim: tasid.AbstractSimulator, commands: np.ndarray, scores: np.ndarray, eta: float
) -> np.ndarray:
    """p(state at step h | everything), [N, H+1, S]."""
    states, actions = sim.successor.shape
    moves = np.zeros((actions, states, states))
    for a in range(actions):
        moves[a, np.arange(states), sim.successor[:, a]] = 1
    moves = (1 - eta) * moves + eta * moves.mean(axis=0)
    look = np.exp(scores - scores.max(axis=-1, keepdims=True))
    steps = commands.shape[1]
    forward, backward = np.zeros_like(look), np.ones_like(look)
    forward[:, 0] = look[:, 0] * (np.arange(states) == sim.start)
    for h in range(steps):
        mass = np.einsum("ns,nst->nt", forward[:, h], moves[commands[:, h]]) * look[:, h + 1]
        forward[:, h + 1] = mass / mass.sum(axis=1, keepdims=True)
    for h in reversed(range(steps)):
        ahead = backward[:, h + 1] * look[:, h + 1]
        mass = np.einsum("nst,nt->ns", moves[commands[:, h]], ahead)
        backward[:, h] = mass / mass.sum(axis=1, keepdims=True)
    both = forward * backward
    return both / both.sum(axis=-1, keepdims=True)
