"""One order for many seeds: a sweep of whole runs, each the very run that its seed alone gives.

    sweep.json    what was asked, apart from the seed
    seed-100/     a run (`tasid.runs.record`)
    .seed-100.partial/    one under way: what it has on record, as its task tells it

A task writes in a folder of its own, wherever it is, and the owner has a copy (`mirror`); the run
appears when it is complete. What is there is not done again, and the same command goes on.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tasid.baselines.training import Checkpoint
from tasid.files import write_bytes_atomically
from tasid.files.sole_writer import sole_writer
from tasid.learning.belief.method import BatchEnded
from tasid.learning.paper.tasid import StepEnded
from tasid.runs.baseline_run import BaselineOrder, run_baseline
from tasid.runs.executors.dispatch import Fraction, Task, Watcher, do_all
from tasid.runs.executors.mirror import File, Mirror, files_of, write
from tasid.runs.executors.protocol import USUAL, Executor, Line, Needs
from tasid.runs.memory import bytes_of_learning
from tasid.runs.record import versions
from tasid.runs.train import Order, train
from tasid.runs.unfinished import ASKED, SUMMARY, partial_of, settle

_SWEEP = "sweep.json"
_UNKNOWN = 0.5
"""How far a task is of which nobody knows how long it will be."""
AnyOrder = Order | BaselineOrder
Setup = Callable[[], None]


def _nothing() -> None:
    pass


def train_seeds(
    orders: Sequence[AnyOrder],
    folder: str | Path,
    executor: Executor,
    *,
    setup: Setup = _nothing,
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
    if there.exists() and there.read_bytes() != asked and not overwrite:
        raise FileExistsError(
            f"{home}: a sweep of another order is here (see {there}); repeat that, pass "
            "--overwrite to replace its runs, or choose another folder with --out"
        )
    write_bytes_atomically(there, asked)


def _drop(home: Path, orders: Sequence[AnyOrder]) -> None:
    for order in orders:
        place = run_of(home, order.seed)
        for old in (place, partial_of(place)):
            if (old / ASKED).exists():
                shutil.rmtree(old)


@dataclass(frozen=True)
class Complete:
    """The last word of a run: all its files were told."""


class _Given(NamedTuple):
    """A run on its way."""

    order: AnyOrder
    home: str
    files: Mapping[str, bytes]
    setup: Setup


def _task(order: AnyOrder, place: Path, setup: Setup) -> Task:
    staged = partial_of(place)

    def given() -> _Given:
        return _Given(order, str(place), files_of(staged), setup)

    def hear(message: File | Complete) -> None:
        if isinstance(message, File):
            write(staged, message)
        else:
            settle(place)

    return Task(f"seed {order.seed}", _run, given, hear, needs_of(order))


def _run(given: _Given, line: Line) -> None:
    """Make a run in a folder of this machine, and tell its files."""
    given.setup()
    order = given.order
    make: Callable[..., Any] = train if isinstance(order, Order) else run_baseline

    def tell(event: Any) -> None:
        line.say(Fraction(_fraction(order, event)))
        line.check()

    with tempfile.TemporaryDirectory(prefix="tasid-") as scratch:
        place = Path(scratch) / "run"
        mirror = Mirror(partial_of(place), line, given.files)
        with mirror.telling():
            make(order, place, home=given.home, callbacks=[tell])
        mirror.tell(place)
    line.say(Complete())


def _fraction(order: AnyOrder, event: Any) -> float:
    if isinstance(event, BatchEnded):
        return _UNKNOWN if event.of is None else 0.9 * event.episodes / event.of
    if isinstance(event, StepEnded):
        return 0.9 * (event.step + 1) / event.steps
    if isinstance(event, Checkpoint) and isinstance(order, BaselineOrder):
        return 0.9 * order.baseline.episodes_at(event) / order.baseline.episodes
    return _UNKNOWN


def needs_of(order: AnyOrder) -> Needs:
    """A processor, and the data of learning on top of what JAX takes."""
    if isinstance(order, BaselineOrder) or not isinstance(order.episodes, int):
        return USUAL
    horizon = order.simulator.horizon if order.simulator else int(order.options.get("horizon", 0))
    if not horizon:
        return USUAL
    shape = (_LARGE,)
    data = bytes_of_learning(
        order.method, order.episodes, horizon=horizon, shape=shape, dtype="uint8"
    )
    return Needs(memory=USUAL.memory + data)


_LARGE = 64 * 64 * 3
"""Bytes of an observation, as long as nobody has looked: those of a picture."""
