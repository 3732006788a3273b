"""A target whose episodes are on record: what was played before is not played again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
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
from tasid.targets.latent import Latent
from tasid.targets.target import State, Target

_REQUEST = "request.json"


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
    """An episode that the target plays."""

    key: bytes
    actions: list[int] = field(default_factory=list)
    observations: list[NDArray[Any]] = field(default_factory=list)
    rewards: list[Any] = field(default_factory=list)
    over: list[bool] = field(default_factory=list)

    def note(self, observation: NDArray[Any], over: Any) -> None:
        self.observations.append(observation)
        self.over.append(bool(over))

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
    num_actions: int
    horizon: int
    observation_shape: tuple[int, ...]
    ends_early: bool
    environment: Mapping[str, Any] | None
    simulator: AbstractSimulator | None
    num_envs: int | None
    retries: int
    elsewhere: Any

    def __init__(self, target: Target, journal: Journal) -> None:
        self._target, self._journal = target, journal

        self.num_actions, self.horizon = target.num_actions, target.horizon
        self.observation_shape = target.observation_shape
        self.ends_early, self.environment = target.ends_early, target.environment
        self.simulator = target.simulator
        self.num_envs, self.retries = target.num_envs, target.retries
        inner = target.elsewhere
        self.elsewhere = None if inner is None else _Elsewhere(target, inner, journal)

    @property
    def observation_dtype(self) -> str:
        """That of the target."""
        return self._target.observation_dtype

    def with_horizon(self, horizon: int) -> Journaled:
        """The same with episodes of so many steps."""
        return Journaled(self._target.with_horizon(horizon), self._journal)

    def latent_on(self, sim: AbstractSimulator) -> Latent | None:
        """What is hidden in the target."""
        return self._target.latent_on(sim)

    def reset(self, keys: jax.Array) -> tuple[_Now, Any]:
        """Start episodes, or find them on record."""
        rows: list[Played | _Live] = []
        for data in np.asarray(jax.random.key_data(keys)):
            played = self._journal.take(data.tobytes())
            rows.append(played or _Live(data.tobytes()))
        live = np.flatnonzero([isinstance(row, _Live) for row in rows])
        inner, seen = self._target.reset(keys[live]) if live.size else (None, ())
        now = _Now(tuple(rows), self._over(rows, live, inner, 0), inner, live)
        return now, self._seen(now, seen, 0)

    def step(self, state: _Now, actions: Any, h: Any, keys: Any) -> tuple[_Now, Any, Any]:
        """Act in the target's episodes; in those on record, compare."""
        step, chosen, live = int(h), np.asarray(actions), state.live
        for row, action in zip(state.rows, chosen, strict=True):
            if isinstance(row, Played):
                _compare(row, step, int(action))
        inner: State = state.inner
        seen: Any = ()
        paid: Any = ()
        if live.size:
            ours: Any = chosen[live]
            inner, seen, paid = self._target.step(inner, ours, h, keys[live])
        now = _Now(state.rows, self._over(state.rows, live, inner, step + 1), inner, live)
        observations = self._seen(now, seen, step + 1)
        rewards = np.zeros(len(state.rows), np.float32)
        rewards[live] = np.asarray(paid)
        for i, row in enumerate(state.rows):
            if isinstance(row, Played):
                rewards[i] = row.rewards[step] if step < len(row.actions) else 0
            elif not state.over[i]:
                row.actions.append(int(chosen[i]))
                row.rewards.append(rewards[i])
        return now, observations, rewards

    def failed(self, state: _Now) -> list[str | None]:
        """What kept episodes from being whole, [n]; None where nothing did."""
        troubles: list[str | None] = [None] * len(state.rows)
        failed = self._target.failed(state.inner) if state.live.size else ()
        if failed:
            for i, trouble in zip(state.live, failed, strict=True):
                troubles[i] = trouble
        return troubles

    def settled(self, state: _Now) -> None:
        """These episodes are over: the whole ones go on record."""
        for row, trouble in zip(state.rows, self.failed(state), strict=True):
            if trouble is None and isinstance(row, _Live):
                self._journal.add(row.whole())
        self._journal.settle()

    def finished(self, state: _Now) -> NDArray[np.bool_]:
        """Which episodes have ended."""
        return state.over

    def _over(self, rows: Any, live: NDArray[np.int64], inner: State, steps: int) -> Any:
        over = np.zeros(len(rows), bool)
        if self._target.ends_early and live.size:
            over[live] = np.asarray(self._target.finished(inner))
        for i, row in enumerate(rows):
            if isinstance(row, Played):
                over[i] = row.over[min(steps, len(row.over) - 1)]
        return over

    def _seen(self, now: _Now, seen: Any, steps: int) -> NDArray[Any]:
        """The observations of all rows; those of the target's episodes are noted."""
        fresh = iter(np.asarray(seen))
        found = []
        for i, row in enumerate(now.rows):
            if isinstance(row, Played):
                table = row.observations
                found.append(table[min(steps, len(table) - 1)])
                continue
            found.append(next(fresh))
            if not row.over or not row.over[-1]:
                row.note(found[-1].copy(), now.over[i])
        return np.stack(found)


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


class _Notebook:
    """A journal of nothing but what is new."""

    def __init__(self) -> None:
        self.added: list[Played] = []

    def take(self, key: bytes) -> None:
        """Nothing is on record here."""

    def add(self, episode: Played) -> None:
        """Remember a whole episode."""
        self.added.append(episode)

    def settle(self) -> None:
        """Whoever asked for it has the disk."""


def noting(target: Target, run: Rollout, *, rows: Sequence[int], width: int) -> Any:
    """Play, and give the episodes besides the tables."""
    book: Any = _Notebook()
    return here(Journaled(target, book), run, rows=rows, width=width), book.added


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
