"""Episodes by the batch: compiled, or on a target that JAX cannot trace none but those wanted.

Policies run at one fixed width, but an episode may cost money, and a target may have room for a
single one. So batches of the full width have real rows and padding, and padding acts nowhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tasid.targets.target import Collateral, EpisodeFailed, State, Target


def episode_tables(
    target: Target, run: Callable[..., Any], *arguments: Any, episodes: int, width: int
) -> Any:
    """Tables [episodes, …] of `run(target, *arguments, first)`, which gives `width` of them.

    `run` is a function of a module: it is compiled once for all targets of a kind.
    """
    chunks = [(first, range(min(width, episodes - first))) for first in range(0, episodes, width)]
    if not target.traceable:  # all at once, for targets that have more than a batch to hand out
        groups = [(partial(_play, run, (*arguments, first)), rows) for first, rows in chunks]
        return joined(in_groups(target, groups, width=width))

    def one(chunk: tuple[int, range]) -> Any:
        first, rows = chunk
        return batch_tables(target, run, *arguments, first, rows=rows, width=width)

    # Batches are pure: two threads change the time and nothing else. The first one compiles.
    found = [one(chunks[0])]
    if len(chunks) > 1:
        with ThreadPoolExecutor(2) as pool:
            found += pool.map(one, chunks[1:])
    return joined(found)


def batch_tables(
    target: Target, run: Callable[..., Any], *arguments: Any, rows: range, width: int
) -> Any:
    """Some rows of the tables [width, …] that `run(target, *arguments)` gives."""
    if not target.traceable:
        return in_batches(target, partial(_play, run, arguments), rows=rows, width=width)
    whole = _compiled(run)(target, *arguments)
    return jax.tree.map(lambda table: np.asarray(table)[rows.start : rows.stop], whole)


def _play(run: Callable[..., Any], arguments: Sequence[Any], target: Target) -> Any:
    """With names of its own, not a closure: it may be sent to another process."""
    return run(target, *arguments)


@cache
def _compiled(run: Callable[..., Any]) -> Callable[..., Any]:
    return jax.jit(run)


class Seats(Target):
    """A target of full width in which only some rows are real; the others never touch it."""

    traceable = False
    num_actions: int
    horizon: int
    observation_shape: tuple[int, ...]
    ends_early: bool

    def __init__(self, target: Target, rows: Sequence[int], width: int) -> None:
        self._target, self._rows, self._width = target, np.asarray(rows), width
        self._keys: Any = None
        self._state: State = None
        self.num_actions, self.horizon = target.num_actions, target.horizon
        self.observation_shape = target.observation_shape
        self.ends_early = target.ends_early

    def reset(self, keys: jax.Array) -> tuple[State, jax.Array]:
        self._keys = keys[self._rows]
        self._state, observations = self._target.reset(self._keys)
        return self._state, self._spread(observations)

    def step(
        self, state: State, actions: jax.Array, h: jax.Array, keys: jax.Array
    ) -> tuple[State, jax.Array, jax.Array]:
        chosen = np.asarray(actions)[self._rows]
        self._state, observations, rewards = self._target.step(state, chosen, h, self._keys)
        return self._state, self._spread(observations), self._spread(rewards)

    def finished(self, state: State) -> jax.Array:
        """Which real rows' episodes have ended; the others have not begun."""
        return self._spread(self._target.finished(state))

    def troubles(self) -> Sequence[str | None]:
        """What went wrong with the real rows' episodes up to now."""
        return self._target.failed(self._state) or [None] * self._rows.size

    def settle(self) -> None:
        """Tell the target that these episodes are over."""
        self._target.settled(self._state)

    def _spread(self, rows: Any) -> jax.Array:
        table = np.asarray(rows)
        full = np.zeros((self._width, *table.shape[1:]), table.dtype)
        full[self._rows] = table
        return jnp.asarray(full)


Rollout = Callable[[Target], Any]
"""Plays episodes of the full width in a target it is given, and gives tables [width, …]."""


def in_batches(target: Target, run: Rollout, *, rows: Iterable[int], width: int) -> Any:
    """Tables [rows, …] of `run`, on a target that JAX cannot trace.

    `run` sees a target of the full width and gives tables [width, …], of which only the rows of the
    episodes that really ran are kept. As many run at a time as the target has room for; an episode
    that failed is run again, so that no table holds part of one.
    """
    return in_groups(target, [(run, rows)], width=width)[0]


def in_groups(
    target: Target, groups: Sequence[tuple[Rollout, Iterable[int]]], *, width: int
) -> list[Any]:
    """As `in_batches`, for several at once: a target that plays elsewhere has more to hand out."""
    if target.elsewhere is None:
        return [here(target, run, rows=rows, width=width) for run, rows in groups]
    played = target.elsewhere.play(target, [(run, list(rows)) for run, rows in groups], width)
    return [joined(parts) for parts in played]


def joined(parts: Sequence[Any]) -> Any:
    """Tables of some rows each, one after the other."""
    return jax.tree.map(lambda *tables: np.concatenate(tables), *parts)


def here(target: Target, run: Rollout, *, rows: Iterable[int], width: int) -> Any:
    """`in_batches` by this very process."""
    wanted = list(rows)
    waiting, attempts = list(wanted), Counter[int]()
    room = target.num_envs or width
    kept: dict[int, list[NDArray[Any]]] = {}
    shape: Any = None
    while waiting:
        wave, waiting = waiting[:room], waiting[room:]
        seats = Seats(target, wave, width)
        leaves, shape = jax.tree.flatten(run(seats))
        tables = [np.asarray(leaf) for leaf in leaves]
        seats.settle()
        for row, trouble in zip(wave, seats.troubles(), strict=True):
            if trouble is None:
                kept[row] = [table[row].copy() for table in tables]
                continue
            attempts[row] += not isinstance(trouble, Collateral)
            if attempts[row] > target.retries:
                raise EpisodeFailed(f"env: an episode failed {attempts[row]} times, last {trouble}")
            waiting.insert(0, row)
    columns = zip(*(kept[row] for row in wanted), strict=True)
    return jax.tree.unflatten(shape, [np.stack(column) for column in columns])


class _Asked(Exception):
    """What a run would have begun with: its keys."""


class _Probe(Seats):
    """A target that is asked once, and tells what for."""

    def reset(self, keys: jax.Array) -> tuple[State, jax.Array]:
        raise _Asked(keys)


def keys_of(target: Target, run: Rollout, width: int) -> jax.Array:
    """The keys of the episodes that `run` would play, [width]; nothing is played."""
    try:
        run(_Probe(target, [], width))
    except _Asked as asked:
        return asked.args[0]
    raise RuntimeError("a run that begins no episodes has no keys")
