"""Episodes on a target that JAX cannot trace: a few at a time, and none but those wanted.

Policies run at one fixed width, but an episode may cost money, and a target may have room for a
single one. So batches of the full width have real rows and padding, and padding acts nowhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tasid.envs.target import Collateral, EpisodeFailed, State, Target


class Seats:
    """A target of full width in which only some rows are real; the others never touch it."""

    traceable = False

    def __init__(self, target: Target, rows: Sequence[int], width: int) -> None:
        self._target, self._rows, self._width = target, np.asarray(rows), width
        self._keys: Any = None
        self._state: State = None
        self.num_actions, self.horizon = target.num_actions, target.horizon
        self.observation_shape = target.observation_shape

    def reset(self, keys: jax.Array) -> tuple[State, jax.Array]:
        """Start the real rows' episodes."""
        self._keys = keys[self._rows]
        self._state, observations = self._target.reset(self._keys)
        return self._state, self._spread(observations)

    def step(
        self, state: State, actions: jax.Array, h: jax.Array, keys: jax.Array
    ) -> tuple[State, jax.Array, jax.Array]:
        """Act in the real rows."""
        chosen = np.asarray(actions)[self._rows]
        self._state, observations, rewards = self._target.step(state, chosen, h, self._keys)
        return self._state, self._spread(observations), self._spread(rewards)

    def finished(self, state: State) -> jax.Array:
        """Which real rows' episodes have ended; the others have not begun."""
        finished = getattr(self._target, "finished", None)
        over = np.zeros(self._rows.size, bool) if finished is None else finished(state)
        return self._spread(over)

    def troubles(self) -> Sequence[str | None]:
        """What went wrong with the real rows' episodes up to now."""
        failed = getattr(self._target, "failed", None)
        return [None] * self._rows.size if failed is None else failed(self._state)

    def settle(self) -> None:
        """Tell the target that these episodes are over, if it wants to know."""
        settled = getattr(self._target, "settled", None)
        if settled is not None:
            settled(self._state)

    def _spread(self, rows: Any) -> jax.Array:
        table = np.asarray(rows)
        full = np.zeros((self._width, *table.shape[1:]), table.dtype)
        full[self._rows] = table
        return jnp.asarray(full)


def in_waves(
    target: Target, run: Callable[[Target], Any], *, rows: Iterable[int], width: int
) -> Any:
    """Tables [rows, …] of `run`, on a target that JAX cannot trace.

    `run` sees a target of the full width and gives tables [width, …], of which only the rows of the
    episodes that really ran are kept. As many run at a time as the target has room for; an episode
    that failed is run again, so that no table holds part of one.
    """
    wanted = list(rows)
    waiting, attempts = list(wanted), Counter[int]()
    room, retries = getattr(target, "num_envs", width), getattr(target, "retries", 0)
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
            if attempts[row] > retries:
                raise EpisodeFailed(f"env: an episode failed {attempts[row]} times, last {trouble}")
            waiting.insert(0, row)
    columns = zip(*(kept[row] for row in wanted), strict=True)
    return jax.tree.unflatten(shape, [np.stack(column) for column in columns])
