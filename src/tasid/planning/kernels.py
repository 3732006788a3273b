"""The backward step compiled by Numba.

One source, several specialisations: Numba compiles it anew for each combination of argument types
and drops the branches that do not concern them. So a deterministic map pays nothing for stochastic
ones. Importing this module imports Numba; `tasid.planning.sweep` does so for large maps only.

The kernel releases the GIL, and `sweep` runs it on blocks of states in a thread pool. Numba's own
`prange` was several times slower on a busy machine: its OpenMP threads wait actively, and its
default layer aborts if two threads enter at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import config, njit
from numpy.typing import NDArray

THREADS: int = vars(config)["NUMBA_NUM_THREADS"]
"""Number of threads, by default that of the available cores."""


def numba_step(value: NDArray[np.float64], successor: NDArray[np.int32], *others: Any) -> None:
    """Same contract as `tasid.planning.sweep.numpy_step`; `policy` holds actions, no mixture."""
    # Unsigned indices are not checked for counting from the end, which saves a sixth of the time.
    _step(value, successor.view(np.uint32), *others)


@njit(cache=True, nogil=True)
def _q_value(successor: Any, probabilities: Any, reward: Any, after: Any, s: int, a: int) -> Any:
    """Q(s, a) = R(s, a) + E[V(s')]."""
    if successor.ndim == 2:  # known at compile time, unlike `probabilities is None`
        return reward[s, a] + after[successor[s, a]]
    expected = 0.0
    for b in range(successor.shape[2]):
        expected += probabilities[s, a, b] * after[successor[s, a, b]]
    return reward[s, a] + expected


@njit(cache=True, nogil=True)
def _step(
    value: Any,
    successor: Any,
    probabilities: Any,
    reward: Any,
    permitted: Any,
    after: Any,
    eta: float,
    policy: Any,
    actions: Any,
    nature: Any,
    responses: Any,
) -> None:
    for s in range(value.size):
        best, worst, choice, response = -np.inf, np.inf, 0, 0
        for a in range(reward.shape[1]):
            q = _q_value(successor, probabilities, reward, after, s, a)
            # Selections instead of branches, which a processor would often predict wrongly.
            better = q > best
            if permitted is not None:
                better = better and permitted[s, a]
            choice, best = (a if better else choice), (q if better else best)
            response, worst = (a if q < worst else response), (q if q < worst else worst)
        if actions is not None:
            actions[s] = choice
        if responses is not None:
            responses[s] = response
        if policy is not None:
            best = _q_value(successor, probabilities, reward, after, s, policy[s])
        if nature is not None:
            worst = _q_value(successor, probabilities, reward, after, s, nature[s])
        value[s] = (1.0 - eta) * best + eta * worst
