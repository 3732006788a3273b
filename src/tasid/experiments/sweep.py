"""Experiments as named sweeps: jobs in an order, done somewhere, resumed by records.

An experiment says which jobs a size has and how one is done; everything else is here. A job that
has its ending on record is skipped, so the same command continues an interrupted sweep and does
nothing to a complete one. Jobs are done by an executor (`tasid.runs.executors`), and write nothing:
what they tell is put on record by the one process that owns the folder.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tasid import __version__
from tasid.experiments.records import Records, ToldLog, keeper
from tasid.files import Artifact
from tasid.runs.executors.dispatch import (
    Executor,
    Fraction,
    Interrupted,
    Line,
    State,
    Task,
    Watcher,
    do_all,
)
from tasid.runs.executors.processes import Processes

__all__ = ["SIZES", "JobContext", "Experiment", "Interrupted", "Job", "State", "sweep"]

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

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.setting} ({', '.join(map(str, self.seeds))})"


@dataclass(frozen=True)
class JobContext:
    """What a job gets to work with."""

    job: Job
    line: Line
    kept: Mapping[int, Artifact | None] = field(default_factory=dict)
    """What is on record to go on from, by seed."""

    def log(self, seed: int, **facts: Any) -> ToldLog:
        """The log of one seed; facts about it go into the heading."""
        heading = {
            "setting": self.job.setting,
            "seed": seed,
            "version": __version__,
            "configuration": dict(self.job.configuration),
            **facts,
        }
        return ToldLog(self.line, seed, heading, self.kept.get(seed))

    def tell(self, fraction: float) -> None:
        """How far it is, of 1; the place where a sweep that is to end interrupts it."""
        self.line.say(Fraction(fraction))
        self.line.check()


@dataclass(frozen=True)
class Experiment:
    """A named sweep. Its figures and tables are made from records alone, by the page beside it."""

    name: str
    title: str
    jobs: Callable[[str], Sequence[Job]]
    """The jobs of a size, in the order in which to do them."""
    work: Callable[[Job, JobContext], None]
    """Does one job: rows and an ending into the log of every seed; a function of a module."""


def sweep(
    experiment: Experiment,
    folder: str | Path,
    *,
    size: str = "quick",
    workers: int | None = None,
    executor: Executor | None = None,
    watchers: Sequence[Watcher] = (),
) -> Records:
    """Do what is left of an experiment; the folder holds everything.

    Without an executor so many processes of this machine do it; one worker is this process.
    """
    if size not in SIZES:
        raise ValueError(f"size: {size!r} is none of {', '.join(SIZES)}")
    if executor is None:
        executor = Processes(os.cpu_count() or 1 if workers is None else workers)
    if Path(folder).exists() and not Path(folder).is_dir():
        raise ValueError(f"{folder}: is a file; an experiment needs a folder")
    jobs = experiment.jobs(size)
    records = Records(folder)
    with records.writing():
        records.describe({"name": experiment.name, "title": experiment.title, "size": size})
        left = [job for job in jobs if not _finished(records, job)]
        tasks = [_task(experiment, job, records) for job in left]
        do_all(tasks, executor, total=len(jobs), watchers=watchers)
    return records


def _task(experiment: Experiment, job: Job, records: Records) -> Task:
    def given() -> tuple[Any, ...]:
        kept = {seed: records.kept(job.setting, seed, job.configuration) for seed in job.seeds}
        return experiment.work, job, kept

    return Task(job.name, _work, given, keeper(records, job.setting), cost=job.cost)


def _work(given: tuple[Any, ...], line: Line) -> None:
    work, job, kept = given
    work(job, JobContext(job, line, kept))


def _finished(records: Records, job: Job) -> bool:
    return all(records.finished(job.setting, seed, job.configuration) for seed in job.seeds)
