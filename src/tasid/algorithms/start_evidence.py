"""What wandering episodes say about where they started, without any policy being learned.

Two witnesses. The rewards: under the hypothesis "start s" the map says what each sequence of
commands should have paid; its likelihood is exact but for the perturbation, taken as uniform. The
first transition: under the right hypothesis x' tells which outcome of s was commanded, under a
wrong one it tells less; the likelihood is that of a classifier, on held-out episodes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from tasid.learning.contrastive import principal
from tasid.mdp import AbstractSimulator
from tasid.mdp.backward import layers
from tasid.mdp.outcomes import outcomes

Table = NDArray[np.float64]
_LEAST_ETA = 0.02
_FLOOR = 1e-3
"""The likelihood of a reward that the map does not know: targets may pay what it does not say."""
_FEATURES = 8
_FOLDS = 4
_SHRINKAGE = 0.1


def reward_evidence(
    sim: AbstractSimulator, actions: NDArray[np.int32], rewards: NDArray[np.float32], *, eta: float
) -> Table:
    """ln P(rewards | commands, start s) of every episode under every start, [n, N]."""
    found = [
        _reward_likelihood(sim.with_start(int(start)), actions, rewards, max(eta, _LEAST_ETA))
        for start in sim.starts
    ]
    return np.stack(found, axis=1)


def _reward_likelihood(
    sim: AbstractSimulator, actions: NDArray[np.int32], rewards: NDArray[np.float32], eta: float
) -> Table:
    """The forward filter over latent states, one start and all episodes [n]."""
    reach = layers(sim)
    belief, total = np.ones((actions.shape[0], 1)), np.zeros(actions.shape[0])
    close = 1e-4 * max(1.0, float(np.abs(sim.reward).max()))
    for h in range(actions.shape[1]):
        here = reach[h]
        # After the last step it does not matter where one is.
        there = reach[h + 1] if h + 1 < len(reach) else None
        after = np.zeros((actions.shape[0], 1 if there is None else there.size))
        for action in range(sim.num_actions):
            chance = (1 - eta) * (actions[:, h] == action) + eta / sim.num_actions
            pays = sim.reward_at(h)[here, action]
            fits = np.where(np.abs(rewards[:, h, None] - pays[None]) <= close, 1.0, _FLOOR)
            moved = belief * fits * chance[:, None]
            if there is None:
                after[:, 0] += moved.sum(axis=1)
                continue
            leads = np.searchsorted(there, sim.successor_at(h)[here, action])
            every = np.arange(here.size)
            to = csr_array((np.ones(here.size), (every, leads)), (here.size, there.size))
            after += moved @ to
        size = after.sum(axis=1)
        total += np.log(size)
        belief = after / size[:, None]
    return total


def transition_evidence(
    sim: AbstractSimulator,
    x_next: NDArray[np.float32],
    actions: NDArray[np.int32],
    group: NDArray[np.int64],
    groups: int,
) -> Table:
    """ln P(first commands | x', start s) of every group under every start, [groups, N].

    Given x' the outcome of s is predicted; all its actions are equally likely.
    """
    of_action = outcomes(sim).of_action
    first = of_action[0] if of_action.ndim == 3 else of_action
    table = np.zeros((groups, sim.starts.size))
    for k in range(groups):
        rows = group == k
        if rows.sum() < 2 * _FOLDS:
            continue
        seen = principal(x_next[rows], min(_FEATURES, int(rows.sum()) // 4))
        for j, start in enumerate(sim.starts):
            table[k, j] = _command_likelihood(seen, actions[rows], first[start])
    return table


def _command_likelihood(
    seen: NDArray[np.float32], actions: NDArray[np.int32], outcome: NDArray[np.int32]
) -> float:
    """Σ ln P(a | x'): the outcome by linear discriminants of the other folds, the action in it."""
    _, which, size = np.unique(outcome, return_inverse=True, return_counts=True)
    label, total = which[actions], 0.0
    share = size / size.sum()
    for fold in range(_FOLDS):
        judged = np.arange(actions.size) % _FOLDS == fold
        log_p = _discriminants(seen[~judged], label[~judged], share, seen[judged])
        right = log_p[np.arange(log_p.shape[0]), label[judged]]
        total += float((right - np.log(size[label[judged]])).sum())
    return total


def _discriminants(
    x: NDArray[np.float32], label: NDArray[np.intp], prior: Table, asked: NDArray[np.float32]
) -> Table:
    """ln P(label | x) by Gaussians with a common covariance; unseen labels are where all are."""
    everywhere = x.mean(axis=0)
    means = np.stack(
        [
            (x[label == c].sum(axis=0) + everywhere) / (np.sum(label == c) + 1)
            for c in range(prior.size)
        ]
    )
    rest = x - means[label]
    spread = rest.T @ rest / max(1, x.shape[0])
    width = np.trace(spread) / spread.shape[0]
    spread = (1 - _SHRINKAGE) * spread + _SHRINKAGE * width * np.eye(spread.shape[0])
    whiten = np.linalg.inv(np.linalg.cholesky(spread + 1e-9 * np.eye(spread.shape[0])))
    far = (((asked[:, None] - means[None]) @ whiten.T) ** 2).sum(axis=-1)
    score = np.log(prior)[None] - 0.5 * far
    score -= score.max(axis=1, keepdims=True)
    # A few outliers must not outweigh everything.
    chance = np.exp(score) / np.exp(score).sum(axis=1, keepdims=True)
    return np.log(0.95 * chance + 0.05 * prior[None])
