"""Simulators from tables: those of a file, or of a Python function.

The map of a function holds all states that the starts reach within the horizon.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasid.simulator import AbstractSimulator, SimulatorError, label_from_json

Outcome = tuple[float, Hashable, float, bool]
"""Probability, next state, reward, and whether the episode ends."""


MAX_BYTES = 2**31
"""Limit of all tables of a file together."""


def from_tables(path: str | Path, *, horizon: int | None = None) -> AbstractSimulator:
    """Simulator from the arrays of a `.npz` file, as `numpy.savez` writes it.

    `successor` and `reward` are needed; `probabilities`, `start`, `start_probabilities`, `states`
    (labels), `action_names`, `hazards` and `horizon` are as for `AbstractSimulator`. The argument
    `horizon` takes precedence over the array.
    """
    file = Path(path)
    stored: dict[str, Any] = _read(file)
    for name in ("states", "action_names"):
        if name in stored:
            stored[name] = [label_from_json(label) for label in stored[name].tolist()]
    if horizon is None:
        if "horizon" not in stored or stored["horizon"].size != 1:
            raise SimulatorError(f"horizon: {file} has no number of this name; give the argument")
        horizon = stored["horizon"].item()
    try:
        return AbstractSimulator(**(stored | {"horizon": horizon}), source=f"tables {file.name}")
    except TypeError as error:  # an array is missing, or has another name
        raise SimulatorError(f"{file}: {str(error).split('() ')[-1]}") from None


def _read(file: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a file, whose size is checked before they are read."""
    try:
        with zipfile.ZipFile(file) as archive:
            size = sum(member.file_size for member in archive.infolist())
        if size > MAX_BYTES:
            raise ValueError(f"{size} bytes are more than {MAX_BYTES}")
        with np.load(file, allow_pickle=False) as tables:
            return dict(tables)
    except (ValueError, OSError, EOFError, MemoryError, zipfile.BadZipFile) as error:
        raise SimulatorError(f"{file}: not a file of plain numeric tables ({error})") from None


def from_function(
    step: Callable[[Any, Any], Any],
    start: Hashable | list[Hashable],
    actions: int | Sequence[Any],
    *,
    horizon: int,
    start_probabilities: Sequence[float] | None = None,
    max_states: int = 1_000_000,
) -> AbstractSimulator:
    """Simulator of `step(state, action)`.

    Parameters
    ----------
    step
        Returns `(next_state, reward)` or `(next_state, reward, done)`; for stochastic maps a list
        of `(probability, next_state, reward)` or `(probability, next_state, reward, done)`. After
        `done` the state is absorbing without reward. Each call is made twice, and must return the
        same.
    start
        A state, which is any hashable value, or a list of states.
    actions
        Number n of actions, with which `step` is called as 0 … n − 1, or a list of the values to
        call it with.
    max_states
        Limit of the number of states.
    """
    moves: list[Any] = [*range(actions)] if isinstance(actions, int | np.integer) else [*actions]
    if not moves:
        raise SimulatorError("actions: there are none")
    AbstractSimulator([[0]], [[0.0]], horizon=horizon)  # checks the horizon before the work
    starts = start if isinstance(start, list) else [start]
    index: dict[tuple[Hashable, bool], int] = {}  # of (state, whether the episode is over)
    nodes: list[tuple[Hashable, bool]] = []

    def number(state: Hashable, over: bool, where: str) -> int:
        try:
            place = index.setdefault((state, over), len(nodes))
        except TypeError:
            message = f"{where}: the state {state!r:.80} is not hashable, for instance a tuple"
            raise SimulatorError(message) from None
        if place == len(nodes):
            if place >= max_states:
                raise SimulatorError(
                    f"max_states: more than {max_states} states can be reached, the last one was "
                    f"{state!r:.80}; use coarser states, a shorter horizon or a higher limit"
                )
            nodes.append((state, over))
        return place

    first = [number(state, False, "start") for state in starts]
    rows: list[list[list[tuple[float, int, float]]]] = []
    for _ in range(horizon):
        for state, over in nodes[len(rows) :]:
            rows.append([])
            for move in moves:
                outcomes = [] if over else _outcomes(step, state, move)
                where = f"step({state!r:.80}, {move!r:.80})"
                rows[-1].append([(p, number(s, end, where), r) for p, s, r, end in outcomes])
    # No action is ever taken in the states that the last step reaches.
    complete = all(over for _, over in nodes[len(rows) :])
    rows += [[[] for _ in moves] for _ in nodes[len(rows) :]]
    return AbstractSimulator(
        **padded_tables(rows),
        horizon=horizon,
        start=first,
        start_probabilities=start_probabilities,
        states=[
            (state, "done") if over and (state, False) in index else state for state, over in nodes
        ],
        action_names=None
        if isinstance(actions, int | np.integer)
        else [str(move) for move in moves],
        source=f"function {getattr(step, '__name__', type(step).__name__)}",
        explored=None if complete else horizon,
    )


def padded_tables(rows: list[list[list[tuple[float, int, float]]]]) -> dict[str, Any]:
    """Arrays [S, A, B] for `AbstractSimulator` from lists of (p, successor, reward).

    Equal transitions are added up. An empty list means to stay without reward.
    """
    merged: list[list[dict[tuple[int, float], float]]] = [[{} for _ in row] for row in rows]
    for s, row in enumerate(rows):
        for a, outcomes in enumerate(row):
            for p, after, reward in outcomes or [(1.0, s, 0.0)]:
                merged[s][a][after, reward] = merged[s][a].get((after, reward), 0.0) + p
    width = max(len(outcomes) for row in merged for outcomes in row)
    table = np.zeros((3, len(rows), len(rows[0]), width))
    for s, of_state in enumerate(merged):
        for a, of_action in enumerate(of_state):
            for b, ((after, reward), p) in enumerate(of_action.items()):
                table[:, s, a, b] = after, p, reward
    return {"successor": table[0].astype(int), "probabilities": table[1], "reward": table[2]}


def _outcomes(step: Callable[[Any, Any], Any], state: Hashable, move: Any) -> list[Outcome]:
    where = f"step: step({state!r:.80}, {move!r:.80})"
    answer, again = step(state, move), step(state, move)
    outcomes: list[Outcome] = []
    try:
        for p, after, reward, *done in answer if isinstance(answer, list) else [(1.0, *answer)]:
            outcomes.append((float(p), after, float(reward), bool(done[0]) if done else False))
        right = all(math.isfinite(r) and p >= 0 for p, _, r, _ in outcomes)
        right &= abs(sum(p for p, *_ in outcomes) - 1.0) < 1e-6
    except (TypeError, ValueError):
        right = False
    if not right:
        raise SimulatorError(
            f"{where} returned {answer!r:.80}; it should be (next_state, reward[, done]) with a "
            "finite reward, or a list of (probability, next_state, reward[, done]) that sums to 1"
        )
    if answer != again:
        raise SimulatorError(
            f"{where} returned {answer!r:.80} and then {again!r:.80}; return a list of "
            "(probability, next_state, reward) for what is random"
        )
    return outcomes
