"""What a run survives: faults by the hundred, counted. `make torture`, or --size small.

Every row injects one kind of fault and counts how often the promise of docs/reliability.md was
kept. The table goes to standard output as Markdown.
"""

from __future__ import annotations

import argparse
import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

LAKE = "gym:FrozenLake-v1 --simulator gym:FrozenLake-v1 --set success_rate=0.9 --horizon 4"
LOCK = "combination-lock --horizon 4 --set num_actions=4"
FEW = "--evaluation-episodes 40 --seed 3"
ORDERS = {
    "belief, Gymnasium": f"{LAKE} --episodes 48 {FEW}",
    "paper, Gymnasium": f"{LAKE} --method paper --episodes 80 {FEW}",
    "ppo, Gymnasium": f"gym:FrozenLake-v1 --horizon 4 --algorithm ppo --episodes 300 {FEW}",
    "belief, native": f"{LOCK} --episodes 48 {FEW}",
    "paper, native": f"{LOCK} --method paper --episodes 400 {FEW}",
    "ppo, native": f"{LOCK} --algorithm ppo --episodes 300 {FEW}",
}
# Shells and test runners may have their children ignore Ctrl-C.
START = (
    "import signal, sys, tasid.cli; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "tasid.cli.main(sys.argv[1:])"
)


@dataclass(frozen=True)
class Count:
    """One row of the table."""

    fault: str
    tried: int
    kept: int
    note: str = ""


# ---------------------------------------------------------------- whole commands


def _train(order: str, folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", START, "train", *order.split(), "--out", str(folder)]
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, stdout=quiet, stderr=subprocess.PIPE)


def _bytes(folder: Path) -> dict[str, bytes]:
    """What repeats byte for byte (docs/files.md)."""
    arrays = (folder / "evaluation").glob("arrays-*")
    files = [folder / "run.json", *(folder / "policy").iterdir(), *arrays]
    if (folder / "epochs.jsonl").exists():
        files.append(folder / "epochs.jsonl")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def _finish(order: str, folder: Path) -> None:
    process = _train(order, folder)
    _, err = process.communicate()
    if process.returncode:
        raise RuntimeError(f"{order}: {err.decode()}")


def _stopped(
    place: Path, number: int, numbers: list[signal.Signals], dice: random.Random
) -> Iterator[tuple[signal.Signals, int, float, bool]]:
    """Signals at random moments: which, exit code, seconds until then, and the same bytes after."""
    whole: dict[str, tuple[dict[str, bytes], float]] = {}
    for turn in range(number):
        name = list(ORDERS)[turn % len(ORDERS)]
        order = ORDERS[name]
        if name not in whole:
            _finish(order, place / f"warm-{len(whole)}")
            started = time.monotonic()
            _finish(order, place / f"whole-{len(whole)}")
            seconds = time.monotonic() - started
            whole[name] = (_bytes(place / f"whole-{len(whole)}"), seconds)
        expected, seconds = whole[name]
        folder, chosen = place / f"run-{turn}", numbers[turn % len(numbers)]
        process = _train(order, folder)
        _wait_for_its_folder(process, place, folder)
        time.sleep(dice.uniform(0.0, 0.8) * seconds)
        started, done = time.monotonic(), (folder / "result.json").exists()
        process.send_signal(chosen)
        process.communicate()
        waited = time.monotonic() - started
        if not (folder / "result.json").exists():
            _finish(order, folder)
        clean = not [path for path in place.iterdir() if path.name.startswith(f".run-{turn}.")]
        # A run that is complete may end as it likes: there is nothing to go on with.
        code = 0 if done else process.returncode
        yield chosen, code, waited, clean and _bytes(folder) == expected
        shutil.rmtree(folder)


def _wait_for_its_folder(process: subprocess.Popen[bytes], place: Path, folder: Path) -> None:
    """Until then Python is importing, and nobody has promised anything."""
    while process.poll() is None and not folder.exists():
        if any(path.name.startswith(f".{folder.name}.") for path in place.iterdir()):
            return
        time.sleep(0.01)


def kills(place: Path, number: int, dice: random.Random) -> Count:
    """SIGKILL at random moments of training, then the same command."""
    same = [one[3] for one in _stopped(place, number, [signal.SIGKILL], dice)]
    return Count("SIGKILL at random moments of training", number, sum(same), "same bytes after")


def signals(place: Path, number: int, dice: random.Random) -> Count:
    """SIGINT and SIGTERM: the exit code, five seconds, and the same command."""
    codes, slowest, kept = {signal.SIGINT: 130, signal.SIGTERM: 143}, 0.0, 0
    for chosen, code, waited, same in _stopped(place, number, list(codes), dice):
        kept += same and code in (codes[chosen], 0) and waited <= 5.0
        slowest = max(slowest, waited)
    return Count("SIGINT and SIGTERM", number, kept, f"same bytes after; {slowest:.1f} s at most")


RACE = """
import sys, time
from tasid.runs.unfinished import staging
from tasid.storage.sole_writer import FolderBusy
try:
    with staging(sys.argv[1], b"{}") as place:
        time.sleep(0.5)
        (place / "result.json").write_text(sys.argv[2])
except (FolderBusy, FileExistsError):
    sys.exit(2)
"""


def races(place: Path, number: int, dice: random.Random) -> Count:
    """Two writers of one folder: one wins, and what is there is the winner's."""
    kept = 0
    for turn in range(number):
        folder = place / f"race-{turn}"
        two = [
            subprocess.Popen([sys.executable, "-c", RACE, str(folder), str(who)]) for who in (0, 1)
        ]
        codes = [process.wait() for process in two]
        winner = (folder / "result.json").read_text()
        alone = [path.name for path in place.iterdir()] == [folder.name]
        kept += sorted(codes) == [0, 2] and codes[int(winner)] == 0 and alone
        shutil.rmtree(folder)
    return Count("two processes starting in one folder", number, kept, "one winner")


# ---------------------------------------------------------------- files


def _artifact(folder: Path, value: int) -> None:
    from tasid.storage import write_artifact

    arrays = {"x": np.full(100, value, np.float32)}
    write_artifact(folder, kind="probe", metadata={"value": value}, arrays=arrays)


def _loaded(folder: Path) -> int:
    from tasid.storage import read_artifact

    found = read_artifact(folder, kind="probe")
    assert (found.arrays["x"] == found.metadata["value"]).all()
    return int(found.metadata["value"])


_CALLS = ("open", "fsync", "replace", "unlink")


@contextmanager
def _at_call(number: int, fault: Callable[[], None]) -> Iterator[list[int]]:
    """Let a fault happen at the so-and-so-many-th call that changes the disk."""
    real, made = {name: getattr(os, name) for name in _CALLS}, [0]

    def one(name: str) -> Any:
        def call(*given: Any, **how: Any) -> Any:
            made[0] += 1
            if made[0] == number:
                fault()
            return real[name](*given, **how)

        return call

    for name in _CALLS:
        setattr(os, name, one(name))
    try:
        yield made
    finally:
        for name, usual in real.items():
            setattr(os, name, usual)


def kills_in_saves(place: Path, number: int, dice: random.Random) -> Count:
    """A process that ends at every call of a save: the old or the new, and no leftovers."""
    folder, kept, tried = place / "artifact", 0, 0
    _artifact(folder, 0)
    while True:
        tried += 1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of threads, which the child does not use
            child = os.fork()
        if not child:
            with _at_call(tried, lambda: os._exit(9)):
                _artifact(folder, tried)
            os._exit(0)
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if ended == 0:
            return Count("SIGKILL inside a save, at every call", tried - 1, kept, "none unloadable")
        whole = _loaded(folder) in (tried - 1, tried)
        _artifact(folder, tried)
        kept += whole and len(list(folder.iterdir())) == 2


def disks(place: Path, number: int, dice: random.Random) -> Count:
    """Errors of the disk at random calls: an OSError, the old artifact, no temporary file."""
    kept, folder = 0, place / "artifact"
    _artifact(folder, 0)
    for turn in range(number):
        code = dice.choice([errno.ENOSPC, errno.EROFS, errno.EIO])

        def fail(code: int = code) -> None:
            raise OSError(code, os.strerror(code))

        told = None
        try:
            with _at_call(dice.randint(1, 9), fail):
                _artifact(folder, turn + 1)
        except OSError as error:
            told = error.errno
        value = _loaded(folder)
        tidy = not list(folder.glob("*.tmp"))
        kept += tidy and value in (turn, turn + 1) and (told == code or value == turn + 1)
        _artifact(folder, turn + 1)
    return Count("full disk, read-only disk, I/O error", number, kept, "typed error, nothing lost")


def mutations(place: Path, number: int, dice: random.Random) -> Count:
    """Flips, truncations, additions and swaps: refused, or the very same policy."""
    import tasid
    from tasid.storage import ArtifactError

    sim = tasid.AbstractSimulator([[1, 0], [1, 1]], [[0.0, 0.0], [1.0, 0.0]], horizon=3)
    folder = place / "map"
    sim.save(folder)
    good = {path: path.read_bytes() for path in folder.iterdir()}
    kept = 0
    for _ in range(number):
        path = dice.choice(list(good))
        path.write_bytes(_mutated(good[path], list(good.values()), dice))
        try:
            found = tasid.AbstractSimulator.load(folder)
            kept += path.read_bytes() == good[path] and (found.reward == sim.reward).all()
        except ArtifactError:
            kept += path.read_bytes() != good[path]
        except Exception as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
        path.write_bytes(good[path])
    return Count("mutated files of a map", number, kept, "refused as damaged")


def _mutated(data: bytes, others: list[bytes], dice: random.Random) -> bytes:
    kind, place = dice.randrange(4), dice.randrange(len(data))
    if kind == 0:
        return data[:place] + bytes([data[place] ^ 1 << dice.randrange(8)]) + data[place + 1 :]
    if kind == 1:
        return data[:place]
    if kind == 2:
        return data + dice.randbytes(dice.randint(1, 40))
    other = dice.choice(others)
    return data[:place] + other[place:]


# ---------------------------------------------------------------- targets and maps


class Faulty(gymnasium.Env[Any, Any]):
    """A walk that goes wrong once at a given step of the episode with a given seed."""

    def __init__(self, seed: int | None = None, step: int = 0, what: Any = None) -> None:
        self.observation_space = gymnasium.spaces.Box(-9, 9, (3,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)
        self._fault, self._what = (seed, step), what

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._now = (seed, 0)
        return self._look(), {}

    def step(self, action: Any) -> Any:
        self._now = (self._now[0], self._now[1] + 1)
        return self._look(), 0.0, False, False, {}

    def _look(self) -> Any:
        seen = self.np_random.normal(size=3).astype(np.float32)
        return self._what(seen) if self._what is not None and self._now == self._fault else seen


def _played(env: Callable[[], Any], **options: Any) -> Any:
    import tasid
    from tasid.runs.recording import record_episodes

    with tasid.wrap(env, horizon=5, **options) as target:
        return record_episodes(target, None, episodes=16).recorded


def _seeds() -> list[int]:
    """Of the sixteen episodes."""
    met = []

    class Noted(Faulty):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            met.append(seed)
            return super().reset(seed=seed)

    _played(Noted)
    return [seed for seed in met if seed is not None]


_SPOILT: tuple[Callable[[Any], Any], ...] = (
    lambda x: x * np.nan,
    lambda x: x + np.inf,
    lambda x: x[:2],
    lambda x: x.astype(str),
    lambda x: x.astype(complex),
)


def observations(place: Path, number: int, dice: random.Random) -> Count:
    """What cannot be used is named with the episode's seed and the step."""
    seeds, kept = _seeds(), 0
    for _ in range(number):
        seed, step = dice.choice(seeds), dice.randrange(6)
        what = dice.choice(_SPOILT)
        try:
            _played(lambda s=seed, h=step, w=what: Faulty(s, h, w))
        except ValueError as error:
            kept += f"after {step} steps of the episode with seed {seed}" in str(error)
    return Count("NaN, inf, shape and dtype faults in a target", number, kept, "named")


def exceptions(place: Path, number: int, dice: random.Random) -> Count:
    """Environments that raise: the data are those of no fault."""
    seeds, kept, whole = _seeds(), 0, _played(Faulty)
    for _ in range(number):
        left = [1]

        def fail(seen: Any, left: list[int] = left) -> Any:
            if left.pop() if left else 0:
                raise RuntimeError("the wheel came off")
            return seen

        seed, step = dice.choice(seeds), dice.randrange(6)
        found = _played(lambda s=seed, h=step, f=fail: Faulty(s, h, f))
        kept += all((a == b).all() for a, b in zip(found, whole, strict=True)) and not left
    return Count("exceptions of an environment mid-episode", number, kept, "same data")


def hangs(place: Path, number: int, dice: random.Random) -> Count:
    """Environments that hang in a worker process: the data are those of no fault."""
    seeds, kept, whole = _seeds(), 0, _played(Faulty)
    for turn in range(number):
        mark = place / f"hung-{turn}"

        def hang(seen: Any, mark: Path = mark) -> Any:
            if not mark.exists():
                mark.touch()
                time.sleep(600)
            return seen

        seed, step = dice.choice(seeds), dice.randrange(1, 6)
        found = _played(
            lambda s=seed, h=step, f=hang: Faulty(s, h, f),
            workers=True,
            num_envs=2,
            step_timeout=1.0,
        )
        kept += all((a == b).all() for a, b in zip(found, whole, strict=True)) and mark.exists()
    return Count("hangs of an environment mid-episode", number, kept, "same data")


def maps(place: Path, number: int, dice: random.Random) -> Count:
    """Maps with one broken invariant are refused."""
    import tasid

    kept = 0
    for _ in range(number):
        states, actions = dice.randint(1, 6), dice.randint(1, 3)
        successor: Any = np.array(
            [[dice.randrange(states) for _ in range(actions)] for _ in range(states)]
        )
        reward: Any = np.zeros((states, actions))
        s, a = dice.randrange(states), dice.randrange(actions)
        start, horizon = 0, 3
        kind = dice.randrange(7)
        if kind == 0:
            successor[s, a] = dice.choice([-1, states, states + 7])
        elif kind == 1:
            reward[s, a] = dice.choice([np.nan, np.inf, -np.inf])
        elif kind == 2:
            successor = successor + 0.5
        elif kind == 3:
            reward = reward.astype(complex) + 1j
        elif kind == 4:
            reward = reward[:, :0] if actions == 1 else reward[:, 1:]
        elif kind == 5:
            start = dice.choice([-1, states])
        else:
            horizon = dice.choice([0, -2])
        try:
            tasid.AbstractSimulator(successor, reward, horizon=horizon, start=start)
        except (ValueError, TypeError):
            kept += 1
    return Count("maps with a broken invariant", number, kept, "refused")


Row = Callable[[Path, int, random.Random], Count]
ROWS: dict[str, tuple[Row, int, int]] = {
    "kills": (kills, 100, 2),
    "saves": (kills_in_saves, 0, 0),
    "signals": (signals, 50, 2),
    "disks": (disks, 50, 50),
    "mutations": (mutations, 100_000, 500),
    "observations": (observations, 1000, 20),
    "exceptions": (exceptions, 100, 5),
    "hangs": (hangs, 20, 1),
    "maps": (maps, 10_000, 300),
    "races": (races, 100, 3),
}
"""By name: how, and how often at full and at small size."""


def main(arguments: list[str] | None = None) -> int:
    """Print the table; the exit code says whether every promise was kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=["full", "small"], default="full")
    parser.add_argument("--row", action="append", choices=list(ROWS), help="only these")
    parser.add_argument("--count", type=int, help="so many faults a row instead")
    given = parser.parse_args(arguments)
    print("| fault | tried | promise kept | |\n|---|---|---|---|", flush=True)
    broken = 0
    for name in given.row or ROWS:
        row, full, small = ROWS[name]
        number = given.count or (full if given.size == "full" else small)
        with tempfile.TemporaryDirectory() as place:
            found = row(Path(place), number, random.Random(name))
        broken += found.kept != found.tried
        print(f"| {found.fault} | {found.tried} | {found.kept} | {found.note} |", flush=True)
    return 1 if broken else 0


def run(options: list[str]) -> None:
    """As a benchmark among others."""
    sys.exit(main(options))


if __name__ == "__main__":
    sys.exit(main())
