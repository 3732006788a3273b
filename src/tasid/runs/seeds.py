"""One order for many seeds: a sweep of whole runs, each the very run that its seed alone gives.

    sweep.json    what was asked, apart from the seed
    seed-100/     a run (`tasid.runs.record`)
    .seed-100.partial/    one under way: what it has on record, as its task tells it

A task writes in a folder of its own, wherever it is, and the owner has a copy, file by file as they
appear: files appear whole (`tasid.files`) and are told in the order in which they did, so that what
the owner has is at every moment what a crash would have left. The run appears when it is complete.
What is there is not done again, and the same command goes on.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from tasid.baselines.training import Checkpoint
from tasid.files import write_bytes_atomically
from tasid.files.sole_writer import sole_writer
from tasid.learning.belief.method import BatchEnded
from tasid.learning.paper.tasid import StepEnded
from tasid.runs.executors.dispatch import (
    USUAL_MEMORY,
    Executor,
    Fraction,
    Line,
    Task,
    Watcher,
    do_all,
)
from tasid.runs.memory import bytes_of_learning
from tasid.runs.record import versions
from tasid.runs.train import AnyOrder, BaselineOrder, train
from tasid.runs.unfinished import ASKED, SUMMARY, changed_code, on_record, partial_of, settle

_SWEEP = "sweep.json"
_EVERY = 1.0
"""Seconds of files that a kill may cost."""
_UNKNOWN = 0.5
"""How far a task is of which nobody knows how long it will be."""
Setup = Callable[[], None] | None
_Given = tuple[AnyOrder, str, Mapping[str, bytes], Setup]
"""A run on its way: where it will be, and what it goes on from."""


def train_seeds(
    orders: Sequence[AnyOrder],
    folder: str | Path,
    executor: Executor,
    *,
    setup: Setup = None,
    overwrite: bool = False,
    watchers: Sequence[Watcher] = (),
) -> list[dict[str, Any]]:
    """Carry out orders that differ in their seed; give their summaries, in order.

    `setup` is called first wherever a run is made: a function of a module, perhaps with arguments.
    """
    home = Path(folder)
    asked = json.dumps(_without_seed(orders[0]), indent=2, default=str).encode() + b"\n"
    with sole_writer(home):
        _describe(home, asked, overwrite=overwrite)
        if overwrite:
            _drop(home, orders)
        tasks = []
        for order in orders:
            place = run_of(home, order.seed)
            settle(place)
            if not (place / SUMMARY).exists():
                tasks.append(_task(order, place, setup))
        do_all(tasks, executor, total=len(orders), watchers=watchers)
    return [json.loads((run_of(home, one.seed) / SUMMARY).read_bytes()) for one in orders]


def run_of(folder: str | Path, seed: int) -> Path:
    """Where the run of a seed is."""
    return Path(folder) / f"seed-{seed}"


def _without_seed(order: AnyOrder) -> dict[str, Any]:
    """What the runs of a sweep have in common."""
    fields = {name: getattr(order, name) for name in order.__dataclass_fields__}
    seed, options = fields.pop("seed"), dict(order.options)
    if options.get("seed") == seed:
        del options["seed"]
    fields.pop("simulator", None)  # `source` says which
    plain = {n: asdict(v) if is_dataclass(v) else v for n, v in fields.items()}  # type: ignore[arg-type]
    return {**plain, "options": options, "versions": versions()}


def _describe(home: Path, asked: bytes, *, overwrite: bool) -> None:
    there = home / _SWEEP
    if home.exists() and not there.exists() and any(home.iterdir()):
        raise FileExistsError(f"{home}: holds no sweep; choose another folder with --out")
    before = there.read_bytes() if there.exists() else asked
    if before != asked and not overwrite:
        if changed := changed_code(before, asked):
            if not any(_anything(place) for place in home.iterdir()):
                write_bytes_atomically(there, asked)
                return
            raise FileExistsError(
                f"{home}: a sweep of other code is here ({changed} changed since): its runs were "
                "made in an environment that is no more; pass --overwrite to replace them, or "
                "choose another folder with --out"
            )
        raise FileExistsError(
            f"{home}: a sweep of another order is here (see {there}); repeat that, pass "
            "--overwrite to replace its runs, or choose another folder with --out"
        )
    write_bytes_atomically(there, asked)


def _anything(place: Path) -> bool:
    """Is this a run of a sweep, or one that stopped early with something on record?"""
    return (place / SUMMARY).exists() or on_record(place)


def _drop(home: Path, orders: Sequence[AnyOrder]) -> None:
    for order in orders:
        place = run_of(home, order.seed)
        for old in (place, partial_of(place)):
            if (old / ASKED).exists():
                shutil.rmtree(old)


def _task(order: AnyOrder, place: Path, setup: Setup) -> Task:
    staged = partial_of(place)

    def given() -> _Given:
        return order, str(place), files_of(staged), setup

    def hear(message: File | None) -> None:
        if message is None:  # all files were told
            settle(place)
        else:
            write(staged, message)

    return Task(f"seed {order.seed}", _run, given, hear, memory_of(order))


def _run(given: _Given, line: Line) -> None:
    """Make a run in a folder of this machine, and tell its files."""
    order, home, files, setup = given
    if setup is not None:
        setup()

    def tell(event: Any) -> None:
        line.say(Fraction(_fraction(order, event)))
        line.check()

    with tempfile.TemporaryDirectory(prefix="tasid-") as scratch:
        place = Path(scratch) / "run"
        mirror = Mirror(partial_of(place), line, files)
        with mirror.telling():
            train(order, place, home=home, callbacks=[tell])
        mirror.tell(place)
    line.say(None)


def _fraction(order: AnyOrder, event: Any) -> float:
    if isinstance(event, BatchEnded):
        return _UNKNOWN if event.of is None else 0.9 * event.episodes / event.of
    if isinstance(event, StepEnded):
        return 0.9 * (event.step + 1) / event.steps
    if isinstance(event, Checkpoint) and isinstance(order, BaselineOrder):
        return 0.9 * order.baseline.episodes_at(event) / order.baseline.episodes
    return _UNKNOWN


def memory_of(order: AnyOrder) -> int:
    """Bytes: the data of learning on top of what JAX takes."""
    if isinstance(order, BaselineOrder) or not isinstance(order.episodes, int):
        return USUAL_MEMORY
    horizon = order.simulator.horizon if order.simulator else int(order.options.get("horizon", 0))
    if not horizon:
        return USUAL_MEMORY
    return USUAL_MEMORY + bytes_of_learning(
        order.method, order.episodes, horizon=horizon, shape=(_LARGE,), dtype="uint8"
    )


_LARGE = 64 * 64 * 3
"""Bytes of an observation, as long as nobody has looked: those of a picture."""


@dataclass(frozen=True)
class File:
    """A file that appeared; without data, one that is gone."""

    name: str
    data: bytes | None


class Mirror:
    """Tells what changes in a folder."""

    def __init__(self, folder: Path, line: Line, known: Mapping[str, bytes]) -> None:
        self._folder, self._line = folder, line
        for name, data in known.items():
            write_bytes_atomically(folder / name, data)
        self._told = {name: stamp for stamp, name in _stamps(folder)}
        self._lock = threading.Lock()

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Tell once a second for the length of a block, and once more if it fails."""
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(_EVERY):
                self.tell(self._folder)

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        except BaseException:
            self.tell(self._folder)
            raise
        finally:
            ended.set()
            thread.join()

    def tell(self, folder: Path) -> None:
        """What is new since the last time; `folder` is where the files are now."""
        with self._lock:
            found = _stamps(folder)
            if not folder.exists():  # a complete run has just been put in its place
                return
            for stamp, name in sorted(found):
                if self._told.get(name) == stamp:
                    continue
                try:
                    data = (folder / name).read_bytes()
                except FileNotFoundError:
                    continue  # it is gone by now, and so will be told
                self._line.say(File(name, data))
                self._told[name] = stamp
            for name in self._told.keys() - {name for _, name in found}:
                self._line.say(File(name, None))
                del self._told[name]


def files_of(folder: Path) -> dict[str, bytes]:
    """All that is there, the oldest first."""
    return {name: (folder / name).read_bytes() for _, name in sorted(_stamps(folder))}


def write(folder: Path, file: File) -> None:
    """At the owner's: make the change."""
    name = PurePosixPath(file.name)
    if name.is_absolute() or ".." in name.parts:
        raise ValueError(f"{file.name}: a task writes in its own folder")
    if file.data is None:
        (folder / name).unlink(missing_ok=True)
    else:
        write_bytes_atomically(folder / name, file.data)


def _stamps(folder: Path) -> list[tuple[tuple[int, int], str]]:
    """When every file appeared, and which it is; temporary ones are nobody's business."""
    found = []
    # os.walk passes over a folder that vanishes on the way; rglob raises.
    for place, _, names in os.walk(folder):
        for name in names:
            path = Path(place, name)
            with suppress(FileNotFoundError):
                if path.is_file() and not name.endswith(".tmp"):
                    told = path.stat()
                    shown = path.relative_to(folder).as_posix()
                    found.append(((told.st_mtime_ns, told.st_ino), shown))
    return found
