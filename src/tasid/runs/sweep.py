"""Runs of several seeds: in processes of this machine, or as tasks of a Ray cluster.

    seed-100/      the run of a seed (`tasid.runs.train`)
    sweep.json     the summary of all

A seed that fails does not end the others. Finished seeds are kept when the sweep is resumed.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tasid.runs.config import ConfigError, RunConfig
from tasid.runs.train import train
from tasid.storage import write_bytes_atomically, write_json, writer_lock
from tasid.targets.ray import connect

SUMMARISED = ("return_mean", "ratio", "skill", "decoder_accuracy", "episodes", "seconds")
"""Figures of which a sweep reports mean, median, minimum and maximum."""
Outcome = tuple[int, dict[str, Any]]
"""A seed and its result, or {"error": message}."""


@dataclass(frozen=True)
class SweepResult:
    """Runs of several seeds."""

    folder: Path
    runs: dict[int, dict[str, Any]]
    """`result.json` of each seed that finished."""
    errors: dict[int, str]
    """What ended the others."""

    def summary(self) -> dict[str, Any]:
        """Statistics over seeds, ready for JSON; null where a figure is unknown."""
        measures: dict[str, Any] = {"mean": statistics.fmean, "median": statistics.median}
        measures |= {"min": min, "max": max}
        figures: dict[str, Any] = dict.fromkeys(SUMMARISED)
        for name in SUMMARISED:
            known = [run[name] for run in self.runs.values() if run.get(name) is not None]
            if known:
                figures[name] = {key: measure(known) for key, measure in measures.items()}
        return {
            "out": str(self.folder),
            "seeds": sorted({*self.runs, *self.errors}),
            "summary": figures,
            "errors": {str(seed): error for seed, error in sorted(self.errors.items())},
            "runs": [run for _, run in sorted(self.runs.items())],
        }


def train_seeds(
    config: RunConfig,
    seeds: Sequence[int],
    out: str | Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    workers: int = 2,
    cluster: str | None = None,
    progress: Callable[[int, dict[str, Any]], None] = lambda seed, result: None,
) -> SweepResult:
    """Train one policy per seed.

    Parameters
    ----------
    config
        The run; its seed is replaced.
    seeds
        One run each, in `out/seed-<seed>`.
    resume, overwrite
        Continue the sweep that is there, or replace it.
    workers
        Processes on this machine.
    cluster
        Address of a Ray cluster to use instead: HOST:PORT, "auto", or "local" to start one. Files
        that the config names must exist on its nodes.
    progress
        Called with every seed that ends.
    """
    folder = Path(out)
    with writer_lock(folder):
        if overwrite:
            for path in folder.glob("seed-*"):
                shutil.rmtree(path)
        elif not resume and any(folder.glob("seed-*")):
            raise ConfigError(f"out: {folder} holds a sweep; pass --resume or --overwrite")
        done = SweepResult(folder, {}, {})
        configs = [replace(config, seed=seed) for seed in seeds]
        run = _on_cluster(configs, folder, cluster) if cluster else _local(configs, folder, workers)
        for seed, result in run:
            if "error" in result:
                done.errors[seed] = result["error"]
            else:
                done.runs[seed] = result
            progress(seed, result)
        write_json(folder / "sweep.json", done.summary())
    return done


def _train_seed(config: RunConfig, folder: Path) -> Outcome:
    """Run a seed, or continue it; exceptions become errors of this seed."""
    try:
        resume = (folder / "config.json").exists()
        return config.seed, train(config, folder, resume=resume).summary
    except Exception as error:
        return config.seed, {"error": f"{type(error).__name__}: {error}"}


def _local(configs: Sequence[RunConfig], folder: Path, workers: int) -> Iterator[Outcome]:
    """Worker processes; a new pool replaces one of which a worker was killed, twice at most."""
    from joblib import Parallel, delayed
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    pending, reason = {config.seed: config for config in configs}, ""
    for _ in range(3):
        pool = Parallel(n_jobs=workers, return_as="generator_unordered")
        tasks = [
            delayed(_train_seed)(config, folder / f"seed-{seed}")
            for seed, config in pending.items()
        ]
        try:
            for seed, result in pool(tasks):
                del pending[seed]
                yield seed, result
        except TerminatedWorkerError as error:
            reason = str(error).partition("\n")[0]
        if not pending:
            return
    yield from ((seed, {"error": reason}) for seed in pending)


def _on_cluster(configs: Sequence[RunConfig], folder: Path, address: str) -> Iterator[Outcome]:
    """Ray tasks; a task whose worker dies is run again, and the files come back with the result."""
    ray = connect(address)
    task = ray.remote(max_retries=3, num_cpus=1)(_train_remotely)
    pending = {}
    for config in configs:
        place = folder / f"seed-{config.seed}"
        if (place / "result.json").exists():
            yield _train_seed(config, place)
        else:
            pending[task.remote(config)] = config.seed, place
    while pending:
        (ready,), _ = ray.wait(list(pending), num_returns=1)
        seed, place = pending.pop(ready)
        try:
            files, result = ray.get(ready)
        except ray.exceptions.RayError as error:
            files, result = [], {"error": f"{type(error).__name__}: {error}"}
        for name, data in files:
            write_bytes_atomically(place / name, data)
        if "error" not in result:
            result["policy"] = str(place / "policy")
            write_json(place / "result.json", result)
        yield seed, result


def _train_remotely(config: RunConfig) -> tuple[list[tuple[str, bytes]], dict[str, Any]]:
    """Run a seed in a scratch folder of the node; returns all files but the result, and that."""
    with tempfile.TemporaryDirectory(prefix="tasid-") as scratch:
        place = Path(scratch) / "run"
        _, result = _train_seed(config, place)
        files = [
            (str(file.relative_to(place)), file.read_bytes())
            for file in sorted(place.rglob("*"))
            if file.is_file() and file.name not in (".lock", "result.json")
        ]
    return files, result


def parse_seeds(text: str) -> range:
    """Seeds written 100-119, or a single one."""
    first, dash, last = text.partition("-")
    if first.isdecimal() and (last.isdecimal() or not dash):
        seeds = range(int(first), int(last or first) + 1)
        if 0 < len(seeds) <= 100_000 and seeds[-1] < 2**32:
            return seeds
    raise ConfigError(f"seeds: {text!r:.80} is not a range of at most 100000 seeds, say 100-119")
