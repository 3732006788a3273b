"""Experiments as lists of jobs, and one JSON record per finished job.

    experiment.json              which experiment, at which size
    records/SETTING/SEED.json    a finished run: configuration, result, rows
    unfinished/SETTING-SEED/     what an interrupted run continues from; removed at its end

A job with a record is not run again, so that the same command continues an interrupted experiment
and does nothing to a complete one.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tasid
from tasid.storage import ArtifactError, read_json, write_json, writer_lock

if TYPE_CHECKING:
    from reproduction.pages import Page

SIZES = ("smoke", "quick", "full")
"""Seconds, minutes, and the paper's."""


@dataclass(frozen=True)
class Job:
    """One seed in one setting."""

    setting: str
    seed: int
    configuration: Mapping[str, Any]
    """Everything that decides the result apart from the seed, as JSON has it."""

    @property
    def name(self) -> str:
        """For messages and folders."""
        return f"{self.setting}-{self.seed}"


@dataclass(frozen=True)
class Record:
    """A finished job."""

    setting: str
    seed: int
    method: str
    """The method or algorithm that learned."""
    version: str
    """Of the package."""
    commit: str | None
    """Of the repository, with "-dirty" for uncommitted changes; None if it is unknown. For records
    of the first edition the commit that added them."""
    configuration: Mapping[str, Any]
    result: Mapping[str, Any]
    """What came out, ready for tables."""
    rows: Sequence[Mapping[str, Any]] = field(default=())
    """What happened during training, ready for curves."""
    seconds: float | None = None


@dataclass(frozen=True)
class Outcome:
    """What running a job gives."""

    result: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class Experiment:
    """A named list of jobs with the page that shows their records."""

    name: str
    title: str
    jobs: Callable[[str], list[Job]]
    """The jobs of a size, in the order in which to run them."""
    run: Callable[[Job, Path], Outcome]
    """Runs a job; the folder is for what an interrupted run continues from."""
    page: Callable[[str, list[Record]], Page]
    """What the records of a size show."""


class Records:
    """The folder of an experiment."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def describe(self, experiment: Experiment, size: str) -> None:
        """Write experiment.json; records of another experiment or size are an error."""
        file = self.folder / "experiment.json"
        description = {"name": experiment.name, "title": experiment.title, "size": size}
        if file.exists():
            present = read_json(file)
            for name in ("name", "size"):
                if present.get(name) != description[name]:
                    raise ValueError(
                        f"--out: {self.folder} holds records of {present.get('name')!r} at size "
                        f"{present.get('size')!r}; choose another folder for {experiment.name!r} "
                        f"at size {size!r}"
                    )
        write_json(file, description)

    def path(self, job: Job) -> Path:
        """Where the record of a job is."""
        return self.folder / "records" / job.setting / f"{job.seed}.json"

    def unfinished(self, job: Job) -> Path:
        """Where a job keeps what it continues from."""
        return self.folder / "unfinished" / job.name

    def finished(self, job: Job, version: str | None = None) -> bool:
        """Is there a record of this job with this configuration (and of this version)?"""
        if not self.path(job).exists():
            return False
        record = read_record(self.path(job))
        same = record.configuration == _plain(job.configuration)
        return same and version in (None, record.version)

    def write(self, job: Job, outcome: Outcome, seconds: float) -> None:
        """Record a finished job and remove what it would have continued from."""
        configuration = dict(job.configuration)
        method = str(configuration.get("method", configuration.get("algorithm", "")))
        record = Record(
            job.setting,
            job.seed,
            method,
            tasid.__version__,
            commit(),
            configuration,
            outcome.result,
            outcome.rows,
            round(seconds, 2),
        )
        write_json(self.path(job), _plain(asdict(record)))
        shutil.rmtree(self.unfinished(job), ignore_errors=True)

    def __iter__(self) -> Iterator[Record]:
        """All of them, by setting and seed."""
        files = (self.folder / "records").glob("*/*.json")
        ordered = sorted(files, key=lambda file: (file.parent.name, int(file.stem)))
        return (read_record(file) for file in ordered)


def run_experiment(
    experiment: Experiment,
    size: str,
    folder: str | Path,
    *,
    workers: int = 2,
    seeds: Sequence[int] | None = None,
    settings: Sequence[str] | None = None,
    again: bool = False,
) -> int:
    """Run the jobs of an experiment that have no record yet; returns how many there were.

    Parameters
    ----------
    size
        "smoke", "quick" or "full".
    workers
        Processes; 1 runs the jobs in this one.
    seeds, settings
        Run these only; settings by the beginning of their name.
    again
        Run jobs again whose records are of another version of the package.
    """
    records = Records(folder)
    with writer_lock(records.folder):
        records.describe(experiment, size)
        jobs = [
            job
            for job in experiment.jobs(size)
            if (seeds is None or job.seed in seeds)
            and (settings is None or job.setting.startswith(tuple(settings)))
        ]
        version = tasid.__version__ if again else None
        left = [job for job in jobs if not records.finished(job, version)]
        done = len(jobs) - len(left)
        progress(f"{experiment.name}, {size}: {done} of {len(jobs)} jobs have records")
        for number, (job, seconds) in enumerate(_run_all(experiment, records, left, workers)):
            progress(f"[{done + number + 1}/{len(jobs)}] {job.name}: {seconds:.0f} s")
    return len(left)


def _run_all(
    experiment: Experiment, records: Records, jobs: list[Job], workers: int
) -> Iterator[tuple[Job, float]]:
    if workers == 1 or len(jobs) < 2:
        return (run_job(experiment, records, job) for job in jobs)
    from joblib import Parallel, delayed

    parallel = Parallel(n_jobs=workers, backend="loky", return_as="generator_unordered")
    results: Iterator[tuple[Job, float]] = parallel(
        delayed(run_job)(experiment, records, job) for job in jobs
    )
    return results


def run_job(experiment: Experiment, records: Records, job: Job) -> tuple[Job, float]:
    """Run one job and write its record."""
    started = time.perf_counter()
    outcome = experiment.run(job, records.unfinished(job))
    seconds = time.perf_counter() - started
    records.write(job, outcome, seconds)
    return job, seconds


def progress(message: str) -> None:
    """Say something on standard error."""
    sys.stderr.write(f"{message}\n")
    sys.stderr.flush()


def _plain(value: Any) -> Any:
    """As JSON has it; NaN and infinity, which JSON does not have, are null."""
    return json.loads(json.dumps(value), parse_constant=lambda name: None)


def commit() -> str | None:
    """The commit of this repository; "-dirty" if code differs from it, whatever the records do."""
    root = Path(__file__).parents[1]

    def git(*command: str) -> str:
        answer = subprocess.run(["git", *command], cwd=root, capture_output=True, text=True)
        return answer.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", "src", "reproduction")
    return git("rev-parse", "--short", "HEAD") + ("-dirty" if changed else "") or None


def read_record(file: Path) -> Record:
    """The record in a file, or an `ArtifactError`."""
    try:
        return Record(**read_json(file))
    except (TypeError, ValueError) as error:
        raise ArtifactError(f"{file}: not a record ({error})") from None
