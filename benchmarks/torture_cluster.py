"""What a cluster survives: workers, nodes and drivers killed, counted. `make torture-cluster`.

A Ray cluster of three small nodes runs on this machine. Every row injects one kind of fault and
counts how often the bytes were those of one process (docs/scale.md); the last two rows measure.
"""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.drift import HORIZON, Drift
from benchmarks.ray_cluster import add, ray_cluster
from benchmarks.torture.count import Count
from benchmarks.torture.table import parse, print_table
from benchmarks.walks import rows_of, walks

LONG = 20
"""Steps of an episode that takes a second."""
TARGETS: dict[str, tuple[Any, dict[str, Any]]] = {
    "Gymnasium": (partial(Drift, seconds=0.01), {}),
    "native": ("tasid/CombinationLock-v0", {"num_actions": 3, "seed": 1}),
}


def digest(recorded: Any) -> str:
    """A hash over all episodes in order."""
    found = hashlib.sha256()
    for table in recorded:
        found.update(np.ascontiguousarray(table).tobytes())
    return found.hexdigest()


def collected(env: Any, *, episodes: int, **options: Any) -> str:
    """The hash of so many random episodes."""
    import tasid

    with tasid.wrap(env, horizon=HORIZON, **options) as target:
        return _hash(target, episodes)


def _hash(target: Any, episodes: int) -> str:
    from tasid.runs.recording import record_episodes

    return digest(record_episodes(target, None, episodes=episodes).recorded)


# ---------------------------------------------------------------- who is there


def _parents() -> dict[int, int]:
    found = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            found[int(status.parent.name)] = int(status.read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
    return found


def _ours(pid: int, parents: dict[int, int]) -> bool:
    """Did this process start that one, or one that did?"""
    while pid in parents and pid != os.getpid():
        pid = parents[pid]
    return pid == os.getpid()


def descendants() -> list[int]:
    """All processes that this one started, and that they did."""
    parents = _parents()
    return [pid for pid in parents if pid != os.getpid() and _ours(pid, parents)]


def players() -> list[int]:
    """The actors of our cluster that play episodes."""
    found = []
    for pid in descendants():
        try:
            if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::Player"):
                found.append(pid)
        except OSError:
            continue
    return found


@contextmanager
def _killing(dice: random.Random, seconds: float, done: list[int]) -> Iterator[None]:
    """Kill a player at a random moment of the block."""

    def kill() -> None:
        time.sleep(dice.uniform(0.0, seconds))
        while not ended.is_set():
            there = players()
            if there:
                victim = dice.choice(there)
                os.kill(victim, signal.SIGKILL)
                done.append(victim)
                return
            time.sleep(0.02)

    ended = threading.Event()
    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


# ---------------------------------------------------------------- rows that count


def workers(cluster: Any, place: Path, number: int, dice: random.Random) -> Count:
    """A worker killed at a random moment while collecting: the hash of one process."""
    found = [
        _killed(env, options, share, dice)
        for (env, options), share in zip(
            TARGETS.values(), (number - number // 2, number // 2), strict=True
        )
    ]
    what = "workers killed at random moments while collecting"
    return Count(what, number, sum(found), f"same hash; {', '.join(TARGETS)}")


def _killed(env: Any, options: dict[str, Any], number: int, dice: random.Random) -> int:
    """How often the hash was the same in so many collections with a worker killed."""
    import tasid

    if not number:
        return 0
    expected = collected(env, episodes=48, num_envs=1, **options)
    kept = tried = 0
    with tasid.wrap(env, horizon=HORIZON, num_envs=3, workers="ray", **options) as target:
        _hash(target, 48)  # actors are made, and have compiled
        started = time.monotonic()
        _hash(target, 48)
        seconds = time.monotonic() - started
        while tried < number:
            dead: list[int] = []
            with _killing(dice, 0.8 * seconds, dead):
                same = _hash(target, 48) == expected
            tried += bool(dead)  # a collection that ended before its killer came does not count
            kept += bool(dead) and same
    return kept


def nodes(cluster: Any, place: Path, number: int, dice: random.Random) -> Count:
    """A node removed and one added during a sweep."""
    from tasid.experiments.sweep import sweep
    from tasid.runs.executors.cluster import RayCluster

    sweep(walks(number=9), place / "alone", size="smoke", workers=1)
    kept = 0
    for turn in range(number):
        folder, victim = place / f"sweep-{turn}", add(cluster)

        def trade(victim: Any = victim, wait: float = dice.uniform(0.5, 2.5)) -> None:
            time.sleep(wait)
            cluster.remove_node(victim, allow_graceful=False)

        thread = threading.Thread(target=trade)
        thread.start()
        executor = RayCluster(cluster.address)
        sweep(walks(number=9, pause=0.15), folder, size="smoke", executor=executor)
        thread.join()
        kept += _same_records(folder, place / "alone")
    return Count("a node removed and one added during a sweep", number, kept, "same records")


def _same_records(one: Path, other: Path) -> bool:
    endings = [path.read_text().count('"ending"') for path in (one / "records").rglob("*.jsonl")]
    return rows_of(one) == rows_of(other) and endings == [1] * len(rows_of(other))


DRIVER = """
import sys
from benchmarks.walks import walks
from tasid.runs.executors.cluster import RayCluster
from tasid.experiments.sweep import sweep
sweep(walks(number=6, pause=0.15), sys.argv[1], size="smoke", executor=RayCluster(sys.argv[2]))
"""


def drivers(cluster: Any, place: Path, number: int, dice: random.Random) -> Count:
    """The driver killed at a random moment, and started again."""
    from tasid.experiments.sweep import sweep

    sweep(walks(number=6), place / "alone", size="smoke", workers=1)
    kept = 0
    for turn in range(number):
        folder = place / f"sweep-{turn}"
        command = [sys.executable, "-c", DRIVER, str(folder), cluster.address]
        process = subprocess.Popen(command)
        while not (folder / "records").exists():
            time.sleep(0.02)
        time.sleep(dice.uniform(0.0, 1.5))
        process.kill()
        process.wait()
        again = subprocess.run(command, check=False)
        kept += again.returncode == 0 and _same_records(folder, place / "alone")
    return Count("the driver killed and started again", number, kept, "same records, each once")


# ---------------------------------------------------------------- rows that measure


def speedup(cluster: Any, place: Path, number: int, dice: random.Random) -> Count:
    """A target of 50 ms a step: seconds for the same episodes by 2, 4, 8 and 16 workers."""
    import tasid

    times: dict[int, float] = {}
    given = {"horizon": LONG, "workers": "ray"}
    for many in (2, 4, 8, 16):
        with tasid.wrap(partial(Drift, seconds=0.05), num_envs=many, **given) as target:
            _hash(target, 2 * many)  # actors are made, and have compiled
            started = time.monotonic()
            _hash(target, number)
            times[many] = time.monotonic() - started
    shares = {many: 2 * times[2] / (many * seconds) for many, seconds in times.items()}
    told = ", ".join(f"{many}: {times[many]:.2f} s ({shares[many]:.2f})" for many in times)
    what = f"slow target, {number} episodes of {LONG} steps of 50 ms, share of linear"
    return Count(what, 1, int(shares[16] >= 0.8), told)


def overhead(cluster: Any, place: Path, number: int, dice: random.Random) -> Count:
    """Milliseconds an episode in a target that takes no time."""
    import tasid

    told = []
    for name, how in (("this process", False), ("processes", True), ("ray", "ray")):
        with tasid.wrap(Drift, horizon=HORIZON, num_envs=2, workers=how) as target:
            _hash(target, 64)
            started = time.monotonic()
            _hash(target, number)
            told.append(f"{name} {1e3 * (time.monotonic() - started) / number:.2f}")
    return Count("fast target, ms an episode of 4 steps, 2 workers", 1, 1, ", ".join(told))


Row = Callable[[Any, Path, int, random.Random], Count]
ROWS: dict[str, tuple[Row, int, int]] = {
    "workers": (workers, 100, 2),
    "nodes": (nodes, 10, 1),
    "drivers": (drivers, 10, 1),
    "speedup": (speedup, 256, 32),
    "overhead": (overhead, 1000, 128),
}
"""By name: how, and how often at full and at small size."""


def main(arguments: list[str] | None = None) -> int:
    """Print the table; the exit code says whether every promise was kept."""
    given = parse(arguments, ROWS, about=__doc__)
    with ray_cluster() as cluster:
        from tasid.targets.ray.session import connect

        connect(cluster.address, argument="address")
        return print_table(given, ROWS, cluster)


if __name__ == "__main__":
    sys.exit(main())
