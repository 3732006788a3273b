"""A target whose episodes are on record: what was played before is not played again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from tasid.files import write_bytes_atomically
from tasid.files.sole_writer import sole_writer
from tasid.maps import AbstractSimulator
from tasid.runs.journal import Journal, Played
from tasid.runs.unfinished import RECORD
from tasid.targets.batches import Rollout, here, keys_of
from tasid.targets.block import Latent
from tasid.targets.target import State, Target

_REQUEST = "request.json"
_THE_TARGETS = (
    "num_actions horizon observation_shape ends_early environment simulator num_envs retries"
).split()
"""What a target says of itself, on record or not."""


class RunDiffers(ValueError):
    """A run that goes on commands something else than it did before."""


class _Now(NamedTuple):
    """A batch of episodes under way."""

    rows: tuple[Played | _Live, ...]
    """Those on record, and those that the target plays."""
    over: NDArray[np.bool_]
    inner: State
    """Of the target itself, for the rows that it plays."""
    live: NDArray[np.int64]
    """Which rows those are."""


@dataclass
class _Live:
    """An episode that the target plays, as far as it is; read as `Played` is."""

    key: bytes
    actions: list[int] = field(default_factory=list)
    observations: list[NDArray[Any]] = field(default_factory=list)
    rewards: list[Any] = field(default_factory=list)
    over: list[bool] = field(default_factory=list)

    def whole(self) -> Played:
        return Played(
            self.key,
            np.array(self.actions, np.int32),
            np.stack(self.observations),
            np.array(self.rewards, np.float32),
            np.array(self.over, bool),
        )


class Journaled(Target):
    """Oracle access that asks a journal first, and the target for what is not in it.

    Commands are compared with those on record: if one differs, so does the run, and that is an
    error. An episode goes on record when whoever plays it says that it is whole (`settled`).
    """

    traceable = False
    elsewhere: Any

    def __init__(self, target: Target, journal: Journal) -> None:
        self._target, self._journal = target, journal
        for name in _THE_TARGETS:
            setattr(self, name, getattr(target, name))
        inner = target.elsewhere
        self.elsewhere = None if inner is None else _Elsewhere(target, inner, journal)

    @property
    def observation_dtype(self) -> str:
        return self._target.observation_dtype

    def with_horizon(self, horizon: int) -> Journaled:
        return Journaled(self._target.with_horizon(horizon), self._journal)

    def latent_on(self, sim: AbstractSimulator) -> Latent | None:
        return self._target.latent_on(sim)

    def reset(self, keys: jax.Array) -> tuple[_Now, Any]:
        """Start episodes, or find them on record."""
        rows: list[Played | _Live] = []
        for data in np.asarray(jax.random.key_data(keys)):
            played = self._journal.take(data.tobytes())
            rows.append(played or _Live(data.tobytes()))
        live = np.flatnonzero([isinstance(row, _Live) for row in rows])
        inner, seen = self._target.reset(keys[live]) if live.size else (None, ())
        return self._arrived(tuple(rows), live, inner, seen, 0)

    def step(self, state: _Now, actions: Any, h: Any, keys: Any) -> tuple[_Now, Any, Any]:
        """Act in the target's episodes; in those on record, compare."""
        step, rows, live = int(h), state.rows, state.live
        chosen: Any = np.asarray(actions)
        for row, action in zip(rows, chosen, strict=True):
            if isinstance(row, Played):
                _compare(row, step, int(action))
        inner: State = state.inner
        seen: Any = ()
        paid: Any = ()
        if live.size:
            inner, seen, paid = self._target.step(inner, chosen[live], h, keys[live])
        rewards = np.zeros(len(rows), np.float32)
        rewards[live] = np.asarray(paid)
        for i, row in enumerate(rows):
            if isinstance(row, Played):
                rewards[i] = row.rewards[step] if step < len(row.actions) else 0
            elif not state.over[i]:
                row.actions.append(int(chosen[i]))
                row.rewards.append(rewards[i])
        return *self._arrived(rows, live, inner, seen, step + 1), rewards

    def failed(self, state: _Now) -> list[str | None]:
        """What kept episodes from being whole, [n]; None where nothing did."""
        failed = self._target.failed(state.inner) if state.live.size else ()
        troubles = dict(zip(state.live.tolist(), failed, strict=False))
        return [troubles.get(i) for i in range(len(state.rows))]

    def settled(self, state: _Now) -> None:
        """These episodes are over: the whole ones go on record."""
        for row, trouble in zip(state.rows, self.failed(state), strict=True):
            if trouble is None and isinstance(row, _Live):
                self._journal.add(row.whole())
        self._journal.settle()

    def finished(self, state: _Now) -> NDArray[np.bool_]:
        return state.over

    def _arrived(
        self, rows: Any, live: NDArray[np.int64], inner: State, seen: Any, steps: int
    ) -> tuple[_Now, NDArray[Any]]:
        """Where all rows are after so many steps: what the target shows is noted, then all read."""
        ended = np.zeros(live.size, bool)
        if self._target.ends_early and live.size:
            ended = np.asarray(self._target.finished(inner))
        for i, observation, over in zip(live, np.asarray(seen), ended, strict=True):
            if not any(rows[i].over[-1:]):
                rows[i].observations.append(observation.copy())
                rows[i].over.append(bool(over))
        places = [min(steps, len(row.over) - 1) for row in rows]
        over = np.array([row.over[h] for row, h in zip(rows, places, strict=True)])
        shown = [row.observations[h] for row, h in zip(rows, places, strict=True)]
        return _Now(rows, over, inner, live), np.stack(shown)


class _Elsewhere:
    """Plays elsewhere what is not on record; what comes back goes on record as it comes."""

    def __init__(self, target: Target, inner: Any, journal: Journal) -> None:
        self._target, self._inner, self._journal = target, inner, journal

    def play(
        self, target: Target, groups: Sequence[tuple[Rollout, Sequence[int]]], width: int
    ) -> list[list[Any]]:
        """One table per row of every group."""
        taken = [self._on_record(run, rows, width) for run, rows in groups]
        left = [
            (run, [row for row in rows if row not in known])
            for (run, rows), known in zip(groups, taken, strict=True)
        ]
        if any(rows for _, rows in left):
            played = self._inner.play(self._target, left, width, noting, self._note)
            for (_, rows), known, parts in zip(left, taken, played, strict=True):
                known.update((row, table) for row, (table, _) in zip(rows, parts, strict=True))
        return [
            [known[row] for row in rows] for (_, rows), known in zip(groups, taken, strict=True)
        ]

    def _note(self, played: tuple[Any, list[Played]]) -> None:
        for episode in played[1]:
            self._journal.add(episode)
        self._journal.settle()

    def _on_record(self, run: Rollout, rows: Sequence[int], width: int) -> dict[int, Any]:
        """The tables of those rows whose episodes are on record."""
        keys = np.asarray(jax.random.key_data(keys_of(self._target, run, width)))
        found: dict[int, Any] = {}
        for row in rows:
            if self._journal.has(keys[row].tobytes()):
                replayed = Journaled(self._target, self._journal)
                found[row] = here(replayed, run, rows=[row], width=width)
        return found


def noting(target: Target, run: Rollout, *, rows: Sequence[int], width: int) -> Any:
    """Play, and give the episodes besides the tables: whoever asked for them has the disk."""
    added: list[Played] = []
    book: Any = SimpleNamespace(take=lambda key: None, add=added.append, settle=lambda: None)
    return here(Journaled(target, book), run, rows=rows, width=width), added


@contextmanager
def on_record(world: Target, folder: Path) -> Iterator[Any]:
    """The same world, its episodes kept in a folder as they come, for the length of a block.

    Those of compiled targets are not: they are made again faster than they are read.
    """
    if world.traceable:
        yield world
        return
    journal = Journal(folder)
    try:
        yield Journaled(world, journal)
    except BaseException:
        journal.flush()
        raise


@contextmanager
def learning_on_record(
    target: Target, folder: Path | None, request: Mapping[str, Any]
) -> Iterator[Target]:
    """The target while something is learned for a folder, which the same request goes on with."""
    if folder is None:
        yield target
        return
    record = folder / RECORD
    asked = json.dumps(request, sort_keys=True, default=str).encode()
    with sole_writer(folder):
        before = record / _REQUEST
        if before.exists() and before.read_bytes() != asked:
            raise ValueError(
                f"run_dir: {folder} holds an unfinished run of another order; repeat that, remove "
                f"{record}, or choose another folder"
            )
        write_bytes_atomically(record / _REQUEST, asked)
        with on_record(target, record) as one:
            yield one
        shutil.rmtree(record)


def _compare(played: Played, step: int, action: int) -> None:
    if step < len(played.actions):
        before = int(played.actions[step])
        if before == action:
            return
        what = f"action {before} is on record, now it is {action}"
    elif played.over[-1]:
        return
    else:
        what = f"only {len(played.actions)} steps are on record"
    raise RunDiffers(
        f"step {step} of an episode: {what}, so this is not the run that stopped (the map, the "
        "machine or a library changed); pass --overwrite to begin anew"
    )
