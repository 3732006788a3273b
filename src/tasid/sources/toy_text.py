"""Simulators from Gymnasium toy-text environments, by their tables `P`.

P[s][a] lists (probability, next state, reward, done). States keep their numbers. A state in which
episodes end is absorbing without reward. A state that episodes both end in and pass through gets a
second, absorbing copy after all others.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tasid.layout import FREE, GOAL, HAZARD, GridLayout
from tasid.simulator import AbstractSimulator, SimulatorError
from tasid.sources.tables import padded_tables

Outcomes = list[tuple[float, int, float]]
"""(probability, next state, reward) of a state and action, as listed."""


def from_toy_text(
    env: Any, *, horizon: int | None = None, deterministic: str | None = None, **options: Any
) -> AbstractSimulator:
    """Simulator of a toy-text environment (FrozenLake, CliffWalking, Taxi, …).

    Parameters
    ----------
    env
        An environment, or the id of one, which is made with `options`.
    horizon
        Steps of an episode; the environment's own limit if None.
    deterministic
        None keeps the table as it is. "most-likely" gives the deterministic map of the most likely
        entries; among equal ones that in the middle of the list, because Gymnasium lists slips to
        either side around the intended move.
    """
    if isinstance(env, str):
        import gymnasium

        try:
            env = gymnasium.make(env.removeprefix("gym:"), **options)
        except Exception as error:  # code of the environment's author runs here
            raise SimulatorError(
                f"env: {env} cannot be made: {type(error).__name__}: {error}"
            ) from error
    if deterministic not in (None, "most-likely"):
        raise SimulatorError(f"deterministic: {deterministic!r} is neither None nor 'most-likely'")
    if horizon is None:
        horizon = getattr(getattr(env, "spec", None), "max_episode_steps", None)
        if horizon is None:
            raise SimulatorError("horizon: None, and the environment has no limit of its own")
    base = getattr(env, "unwrapped", env)
    name = type(base).__name__
    try:
        table = [
            [
                [(float(p), int(s), float(r), bool(end)) for p, s, r, end in base.P[state][action]]
                for action in range(len(base.P[state]))
            ]
            for state in range(len(base.P))
        ]
        mu = np.asarray(base.initial_state_distrib, np.float64).ravel()
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise SimulatorError(
            f"env: {name} has no table P[state][action] of (probability, next state, reward, done) "
            f"with initial_state_distrib ({error}); for other environments use from_function"
        ) from None
    starts = np.flatnonzero(mu)
    rows, copied = _absorbing(table, starts.tolist())
    if deterministic is not None:
        rows = [[[_likeliest(outcomes)] if outcomes else [] for outcomes in row] for row in rows]
    return AbstractSimulator(
        **padded_tables(rows),
        horizon=horizon,
        start=starts,
        start_probabilities=mu[starts] / mu[starts].sum(),
        states=[*range(len(table)), *((s, "done") for s in copied)] if copied else None,
        layout=_layout(base, rows, [*range(len(table)), *copied]),
        source=f"toy text {name}",
    )


def _absorbing(table: list[Any], starts: list[int]) -> tuple[list[list[Outcomes]], list[int]]:
    """Absorbing states instead of `done`, and the states that have an absorbing copy."""
    passed, ended, waiting = set(starts), set[int](), list(starts)
    while waiting:
        outcomes = [outcome for row in table[waiting.pop()] for outcome in row if outcome[0] > 0]
        ended.update(s for _, s, _, end in outcomes if end)
        new = {s for _, s, _, end in outcomes if not end} - passed
        passed |= new
        waiting.extend(new)
    stays = {s for s in ended if all(o[1] == s and o[2] == 0 for row in table[s] for o in row)}
    copied = sorted((passed & ended) - stays)
    copy = {s: len(table) + i for i, s in enumerate(copied)}
    rows = [
        [
            []  # stays without reward
            if s in ended and s not in copy
            else [(p, copy.get(t, t) if end else t, r) for p, t, r, end in outcomes if p > 0]
            for outcomes in row
        ]
        for s, row in enumerate(table)
    ]
    return rows + [[[] for _ in table[0]] for _ in copied], copied


def _likeliest(outcomes: Outcomes) -> tuple[float, int, float]:
    """The likeliest entry, as a certain one."""

    def rank(i: int) -> tuple[float, float]:
        return -round(outcomes[i][0], 9), abs(i - (len(outcomes) - 1) / 2)

    _, after, reward = outcomes[min(range(len(outcomes)), key=rank)]
    return 1.0, after, reward


def _layout(base: Any, rows: list[list[Outcomes]], places: list[int]) -> GridLayout | None:
    """FrozenLake draws its map in `desc`; CliffWalking has a `shape` and a cliff."""
    letters, shape = getattr(base, "desc", None), getattr(base, "shape", None)
    size = len(base.P)
    if isinstance(letters, np.ndarray) and letters.ndim == 2 and letters.size == size:
        cells = np.select([letters == b"G", letters == b"H"], [GOAL, HAZARD], FREE)
    elif isinstance(shape, tuple) and len(shape) == 2 and shape[0] * shape[1] == size:
        final = np.array([not any(row) for row in rows[:size]]).reshape(shape)
        cliff = np.asarray(getattr(base, "_cliff", np.zeros(shape, bool)))
        cells = np.select([final, cliff], [GOAL, HAZARD], FREE)
    else:
        return None
    return GridLayout(cells.astype(np.uint8), np.stack(np.divmod(places, cells.shape[1]), axis=1))
