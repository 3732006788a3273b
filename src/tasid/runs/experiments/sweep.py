"""Experiments as named sweeps: jobs in an order, done by a few threads, resumed by records.

An experiment says which jobs a size has and how one is done; everything else is here. A job that
has its ending on record is skipped, so the same command continues an interrupted sweep and does
nothing to a complete one.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasid import __version__
from tasid.runs.experiments.records import Log, Records

SIZES = ("smoke", "quick", "full")
"""Seconds, minutes, hours."""


@dataclass(frozen=True)
class Job:
    """One setting for one seed, or for several that train together."""

    setting: str
    """The name of its folder of records."""
    seeds: tuple[int, ...]
    configuration: Mapping[str, Any]
    """All that decides the rows apart from the seed, ready for JSON."""
    cost: float
    """How much work it is at most, in a unit that all jobs of the experiment share."""


class Interrupted(Exception):
    """Raised in a job when the sweep is to end."""


@dataclass(frozen=True)
class Desk:
    """What a job gets to work with."""

    job: Job
    records: Records
    told: Callable[[Job, float], None]

    def log(self, seed: int, **facts: Any) -> Log:
        """The log of one seed; facts about it go into the heading."""
        heading = {
            "setting": self.job.setting,
            "seed": seed,
            "version": __version__,
            "configuration": dict(self.job.configuration),
            **facts,
        }
        return self.records.log(self.job.setting, seed, heading)

    def tell(self, fraction: float) -> None:
        """How far it is, of 1; the place where a sweep that is to end interrupts it."""
        self.told(self.job, fraction)


@dataclass(frozen=True)
class Experiment:
    """A named sweep. Its figures and tables are made from records alone, in `tasid.report`."""

    name: str
    title: str
    jobs: Callable[[str], Sequence[Job]]
    """The jobs of a size, in the order in which to do them."""
    work: Callable[[Job, Desk], None]
    """Does one job: rows and an ending into the log of every seed."""


@dataclass(frozen=True)
class State:
    """How far a sweep is."""

    done: int
    total: int
    running: tuple[tuple[str, float], ...]
    """Settings under way, and how far they are."""
    seconds: float
    left: float | None
    """Seconds left at the speed so far; None before there is one."""


Watcher = Callable[[State], None]


def sweep(
    experiment: Experiment,
    folder: str | Path,
    *,
    size: str = "quick",
    workers: int | None = None,
    watchers: Sequence[Watcher] = (),
) -> Records:
    """Do what is left of an experiment; the folder holds everything."""
    if size not in SIZES:
        raise ValueError(f"size: {size!r} is none of {', '.join(SIZES)}")
    if workers is not None and workers < 1:
        raise ValueError(f"workers: {workers} is below 1")
    if Path(folder).exists() and not Path(folder).is_dir():
        raise ValueError(f"{folder}: is a file; an experiment needs a folder")
    jobs = experiment.jobs(size)
    records = Records(folder)
    with records.writing():
        records.describe({"name": experiment.name, "title": experiment.title, "size": size})
        open_jobs = [job for job in jobs if not _finished(records, job)]
        board = _Board(len(jobs), open_jobs, watchers)
        _work_off(experiment, open_jobs, records, board, workers or os.cpu_count() or 1)
    return records


def _work_off(
    experiment: Experiment, jobs: Sequence[Job], records: Records, board: _Board, workers: int
) -> None:
    """All jobs, so many at a time; the first error ends the others, and is raised."""

    def one(job: Job) -> None:
        board.tell(job, 0.0)
        try:
            experiment.work(job, Desk(job, records, board.tell))
        except BaseException:
            board.halt.set()  # before this thread takes the next job
            raise
        board.finish(job)

    with ThreadPoolExecutor(max_workers=workers) as pool:
        futures = [pool.submit(one, job) for job in jobs]
        try:
            wait(futures, return_when=FIRST_EXCEPTION)
        finally:  # after Ctrl-C, jobs end where they tell how far they are
            board.halt.set()
            for future in futures:
                future.cancel()
    for future in futures:
        if not future.cancelled() and not isinstance(future.exception(), Interrupted):
            future.result()


def _finished(records: Records, job: Job) -> bool:
    return all(records.finished(job.setting, seed, job.configuration) for seed in job.seeds)


class _Board:
    """Who works on what, and how long the rest will take."""

    def __init__(self, total: int, jobs: Sequence[Job], watchers: Sequence[Watcher]) -> None:
        self.halt = threading.Event()
        self._lock = threading.Lock()
        self._watchers = watchers
        self._started = time.monotonic()
        self._total = total
        self._waiting = {_name(job): job.cost for job in jobs}
        self._running: dict[tuple[str, tuple[int, ...]], tuple[float, float]] = {}
        self._spent = 0.0
        self._done = total - len(jobs)

    def tell(self, job: Job, fraction: float) -> None:
        if self.halt.is_set():
            raise Interrupted
        with self._lock:
            self._waiting.pop(_name(job), None)
            self._running[_name(job)] = (job.cost, fraction)
            self._announce()

    def finish(self, job: Job) -> None:
        with self._lock:
            cost, fraction = self._running.pop(_name(job))
            self._spent += cost * fraction  # what an early end saves is no work
            self._done += 1
            self._announce()

    def _announce(self) -> None:
        seconds = time.monotonic() - self._started
        spent = self._spent + sum(cost * part for cost, part in self._running.values())
        rest = sum(self._waiting.values())
        rest += sum(cost * (1.0 - part) for cost, part in self._running.values())
        running = tuple(
            (f"{setting} ({', '.join(map(str, seeds))})", part)
            for (setting, seeds), (_, part) in self._running.items()
        )
        left = seconds * rest / spent if spent > 0 else None
        state = State(self._done, self._total, running, seconds, left)
        for watcher in self._watchers:
            watcher(state)


def _name(job: Job) -> tuple[str, tuple[int, ...]]:
    return job.setting, job.seeds
