"""The one backward sweep behind robust plans, policy values, optimal values and certificates.

All of them are dynamic programs on Q_h(s, a) = R°_h(s, a) + E[V_{h+1}(s') | s, a] with
V_H = 0 and

    V_h(s) = (1−η) Q_h(s, agent) + η Q_h(s, nature).

The agent follows a given policy, or maximises Q; nature follows given choices, or minimises Q.
η = 0 leaves the agent alone, η = 1 nature.

The sweep runs in NumPy on small maps and in Numba on large ones, on several threads if a step is
long enough. Every state is computed on its own, so the result does not depend on the threads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tasid.simulator import AbstractSimulator, check_entries, check_size

COMPILE_ABOVE = 20_000
"""Transitions per step above which the sweep uses Numba, which takes long to import."""
PARALLEL_ABOVE = 300_000
"""Transitions per step above which several threads share a step."""

Floats = NDArray[np.float64]


class Sweep(NamedTuple):
    """Result of a backward sweep; the tables after `value` are None unless they are kept."""

    value: Floats
    """V_0 [S]."""
    actions: Any
    """The agent's maximising actions [H, S], in the smallest unsigned integer type."""
    nature: Any
    """Nature's minimising actions [H, S]."""
    values: Any
    """V [H+1, S]."""


def sweep(
    sim: AbstractSimulator,
    *,
    eta: float = 0.0,
    policy: NDArray[Any] | None = None,
    nature: NDArray[Any] | None = None,
    avoid_hazards: bool = False,
    keep: Collection[str] = (),
) -> Sweep:
    """Sweep h = H−1 … 0.

    Parameters
    ----------
    eta:
        Share of nature.
    policy:
        The agent's actions [H, S], or probabilities [H, S, A]; None: it maximises, with ties to
        the lowest action.
    nature:
        Nature's actions [H, S]; None: it minimises.
    avoid_hazards:
        The agent maximises over `sim.permitted(h)` only.
    keep:
        Which of "actions", "nature" and "values" to return.
    """
    shape = horizon, num_states = sim.horizon, sim.num_states
    dtype = np.min_scalar_type(sim.num_actions - 1)
    for name, itemsize in (("actions", dtype.itemsize), ("nature", dtype.itemsize), ("values", 8)):
        if name in keep:
            check_size(name, shape, itemsize, "plan for fewer steps or fewer states")
    actions = np.zeros(shape, dtype) if "actions" in keep else None
    responses = np.zeros(shape, dtype) if "nature" in keep else None
    values = np.full((horizon + 1, num_states), np.nan) if "values" in keep else None
    value, after = np.zeros(num_states), np.zeros(num_states)
    if values is not None:
        values[horizon] = 0.0
    step: Callable[..., None] = numpy_step
    size, workers = sim.successor_at(0).size, 1
    if size >= COMPILE_ABOVE and (policy is None or policy.ndim == 2):
        from tasid.planning.kernels import THREADS, numba_step

        step, workers = numba_step, THREADS if size >= PARALLEL_ABOVE else 1
    if policy is not None and policy.ndim == 2:
        policy = policy.astype(dtype)

    def sweep_rows(h: int, rows: slice, value: Floats, after: Floats) -> None:
        probabilities = sim.probabilities_at(h)
        permitted = sim.permitted(h) if avoid_hazards else None
        step(
            value[rows],
            sim.successor_at(h)[rows],
            None if probabilities is None else probabilities[rows],
            sim.reward_at(h)[rows],
            None if permitted is None else permitted[rows],
            after,
            eta,
            *(None if x is None else x[h, rows] for x in (policy, actions, nature, responses)),
        )

    cuts = [num_states * i // workers for i in range(workers + 1)]
    with ThreadPoolExecutor(workers) as pool:
        for h in reversed(range(horizon)):
            value, after = after, value
            blocks = map(slice, cuts[:-1], cuts[1:])
            in_turn = map if workers == 1 else pool.map
            list(in_turn(sweep_rows, repeat(h), blocks, repeat(value), repeat(after)))
            if values is not None:
                values[h] = value
    return Sweep(value, actions, responses, values)


def numpy_step(
    value: Floats,
    successor: NDArray[np.int32],
    probabilities: Floats | None,
    reward: Floats,
    permitted: NDArray[np.bool_] | None,
    after: Floats,
    eta: float,
    policy: NDArray[Any] | None,
    actions: NDArray[Any] | None,
    nature: NDArray[Any] | None,
    responses: NDArray[Any] | None,
) -> None:
    """One step of the sweep on n states: write V_h into `value` [n].

    Without a `policy` [n] or [n, A] the agent maximises Q, without `nature` [n] nature minimises
    it. Their choices are written into `actions` [n] and `responses` [n] unless these are None.
    """
    expected = after[successor]
    if probabilities is not None:
        expected = (probabilities * expected).sum(axis=-1)
    q = reward + expected
    choice = (q if permitted is None else np.where(permitted, q, -np.inf)).argmax(axis=1)
    response = q.argmin(axis=1)
    if actions is not None:
        actions[:] = choice
    if responses is not None:
        responses[:] = response
    policy = choice if policy is None else policy
    own = _choose(q, policy) if policy.ndim == 1 else (policy * q).sum(axis=1)
    value[:] = (1.0 - eta) * own + eta * _choose(q, response if nature is None else nature)


def _choose(q: Floats, actions: NDArray[Any]) -> Floats:
    return np.take_along_axis(q, actions[:, None].astype(np.intp), axis=1)[:, 0]


def start_value(sim: AbstractSimulator, value: Floats) -> float:
    """Expectation of V_0 over the start distribution."""
    return float(sim.start_probabilities @ value[sim.starts])


def policy_table(sim: AbstractSimulator, policy: ArrayLike | Any) -> NDArray[Any]:
    """A policy as actions [H, S] or probabilities [H, S, A], validated.

    `policy` is a plan (an object with `actions`) or an array that broadcasts to either shape.
    """
    table = np.asarray(getattr(policy, "actions", policy))
    shape: tuple[int, ...] = (sim.horizon, sim.num_states)
    if table.dtype.kind == "f" and table.ndim == 3:
        shape = (*shape, sim.num_actions)
        bad = ~((table >= 0).all(axis=-1) & (np.abs(table.sum(axis=-1) - 1.0) <= 1e-5))
        right = "a distribution over actions"
    elif table.dtype.kind in "iu":
        bad, right = (table < 0) | (table >= sim.num_actions), f"in 0 … {sim.num_actions - 1}"
    else:
        raise TypeError(
            f"policy: {table.dtype} of shape {table.shape} is neither integer actions [H, S] nor "
            "float probabilities [H, S, A]"
        )
    check_entries(ValueError, "policy", table, bad, right)
    try:
        return np.broadcast_to(table, shape)
    except ValueError:
        raise ValueError(
            f"policy: shape {table.shape} does not broadcast to [H, S{', A' * (len(shape) - 2)}] "
            f"= {shape}"
        ) from None
