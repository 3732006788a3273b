"""A sweep of walks whose jobs any process can do, and that go wrong when a file says so.

Each row depends on the one before, so that rows tell whether a job went on where it was.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import numpy as np

from tasid.experiments.records import Records
from tasid.experiments.sweep import Experiment, Job, JobContext

STEPS = 6


def walks(place=None, *, number=4, pause=0.0):
    """So many walks; a file `die`, `fail` or `wait` in a folder happens to the one it names."""

    def jobs(size):
        given = {"place": None if place is None else str(place), "pause": pause}
        return [Job(f"walk-{i}", (i,), given, 1.0) for i in range(number)]

    return Experiment("walks", "Walks", jobs, walk)


def walk(job: Job, context: JobContext) -> None:
    (seed,) = job.seeds
    log = context.log(seed)
    kept = log.resume()
    place = float(seed) if kept is None else float(kept.arrays["place"])
    first = 0 if kept is None else int(kept.metadata["given"]["step"])
    note(job, f"begin-{seed}-{first}")
    for step in range(first, STEPS):
        place = 2 * place + seed
        log.row(step=step, place=place)
        if step % 2:
            log.keep({"place": np.array(place)}, step=step + 1)
        trouble(job, seed, step)
        context.tell((step + 1) / STEPS)
        time.sleep(job.configuration["pause"])
    log.end(place=place)
    note(job, f"end-{seed}")


def note(job: Job, words: str) -> None:
    if job.configuration["place"] is not None:
        with open(Path(job.configuration["place"]) / "notes", "a") as file:
            file.write(f"{words}\n")


def trouble(job: Job, seed: int, step: int) -> None:
    if job.configuration["place"] is None:
        return
    place = Path(job.configuration["place"])
    if taken(place / f"die-{seed}-{step}"):
        time.sleep(1.0)  # for what was told to arrive
        os.kill(os.getpid(), signal.SIGKILL)
    if taken(place / f"fail-{seed}-{step}"):
        raise RuntimeError("spoiled")
    while (place / f"wait-{seed}-{step}").exists():
        time.sleep(0.05)


def taken(path: Path) -> bool:
    """Once only."""
    if not path.exists():
        return False
    path.unlink()
    return True


def notes(place) -> list[str]:
    file = Path(place) / "notes"
    return file.read_text().split() if file.exists() else []


def records_of(folder) -> dict[str, bytes]:
    return {p.parent.name: p.read_bytes() for p in (Path(folder) / "records").rglob("*.jsonl")}


def rows_of(folder):
    return {one.setting: (one.rows, one.ending) for one in Records(folder).series()}
