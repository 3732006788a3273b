"""Faults: kills, damaged files, full disks, two runs in one folder, and dying Ray actors.

    python -m benchmarks faults                    # all kinds, some twenty minutes
    python -m benchmarks faults --kinds mutations disk --number 300

kills       `tasid train` gets SIGKILL at a random moment; the same command again must finish with
            the policy and the score of a run without interruption.
races       The same command twice at the same time: one finishes, the other is refused.
mutations   Policies and episode logs with flipped bits, cut, extended or mixed files: none may
            load, except that a log may lose a torn last block, and holds the episodes before it.
disk        Files cannot grow beyond a random size, as on a full disk: a save fails with a clear
            error and leaves the old policy; a run fails with exit code 2 and is continued later.
ray         Actors of a Ray cluster die while they play; the episodes are those of one process.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np

import tasid
from benchmarks.processes import row, table

LAKE = "gym:FrozenLake-v1 --simulator gym:FrozenLake-v1 --set success_rate=0.9 --horizon 8"
LOCK = "combination-lock --horizon 4 --set num_actions=4"
SHORT = "--evaluation-episodes 40 --seed 3"
COMMANDS = (
    f"{LAKE} --episodes 48 {SHORT}",
    f"{LOCK} --episodes 48 {SHORT}",
    f"{LOCK} --method paper --episodes 400 {SHORT}",
)
"""A wrapped environment with an episode log, and both methods on an environment of ours."""


class Count(NamedTuple):
    """How many of so many faults were survived."""

    survived: int
    number: int
    note: str


def train(command: str, folder: Path, *, file_limit: int | None = None) -> subprocess.Popen[bytes]:
    """`tasid train` in a process of its own; files there grow up to `file_limit` bytes.

    Its messages go to a file beside the folder.
    """
    program = "from tasid.cli import main; main()"
    if file_limit is not None:
        limit = f"resource.RLIMIT_FSIZE, ({file_limit}, {file_limit})"
        program = f"import resource; resource.setrlimit({limit}); {program}"
    with folder.with_suffix(".log").open("ab") as messages:
        return subprocess.Popen(
            [sys.executable, "-c", program, "train", *command.split(), "--out", str(folder)],
            stdout=subprocess.DEVNULL,
            stderr=messages,
        )


def outcome(folder: Path) -> Any:
    """What must be the same in every run of a command: policy, episodes and score."""
    result = json.loads((folder / "result.json").read_text())
    policy = {path.name: path.read_bytes() for path in (folder / "policy").iterdir() if path.suffix}
    return policy, result["episodes"], result["return_mean"]


def references(place: Path, number: int = len(COMMANDS)) -> list[tuple[str, Any, float]]:
    """Commands, the outcome without a fault, and the seconds once everything is compiled."""
    found = []
    for i, command in enumerate(COMMANDS[:number]):
        for attempt in ("warm", "whole"):
            started, folder = time.monotonic(), place / f"{attempt}-{i}"
            if train(command, folder).wait():
                said = folder.with_suffix(".log").read_text()
                raise RuntimeError(f"tasid train {command} fails without any fault: {said[-600:]}")
        found.append((command, outcome(folder), time.monotonic() - started))
    return found


def kills(place: Path, number: int, rng: random.Random) -> Count:
    """SIGKILL at random moments, then the same command."""
    number, killed, same, early = max(number // 15, 2), 0, 0, 0
    runs = references(place)
    for turn in range(4 * number):
        command, expected, seconds = runs[turn % len(runs)]
        folder = place / f"run-{turn}"
        process = train(command, folder)
        time.sleep(rng.uniform(0.1, seconds))
        process.send_signal(signal.SIGKILL)
        process.wait()
        if (folder / "result.json").exists():
            continue  # too late
        killed += 1
        early += not (folder / "config.json").exists()
        same += train(command, folder).wait() == 0 and outcome(folder) == expected
        if killed == number:
            break
    return Count(same, killed, f"same policy and score; {early} were killed before they began")


def races(place: Path, number: int, rng: random.Random) -> Count:
    """Two runs in one folder."""
    number, kept = max(number // 60, 1), 0
    [(command, expected, _)] = references(place, 1)
    for turn in range(number):
        folder = place / f"race-{turn}"
        pair = [train(command, folder) for _ in range(2)]
        kept += sorted(process.wait() for process in pair) == [0, 2] and outcome(folder) == expected
    return Count(kept, number, "one finishes, the other ends with exit code 2")


def mutations(place: Path, number: int, rng: random.Random) -> Count:
    """Damaged policies and logs."""
    from tasid.storage import ArtifactError, EpisodeLog

    lock = tasid.make("combination-lock", horizon=3, num_actions=3)
    for method, episodes in (("belief", 16), ("paper", 60)):
        tasid.learn(lock, eta=0.1, episodes=episodes, method=method).policy.save(place / method)
    lake = tasid.wrap("FrozenLake-v1", num_envs=8, horizon=3)
    sim = tasid.AbstractSimulator.from_toy_text("FrozenLake-v1", horizon=3)
    tasid.learn(lake, sim, eta=0.1, episodes=40, run_dir=place / "run")
    log = place / "run" / "episodes"
    whole = list(EpisodeLog.open(log).rows)
    files = [
        path
        for folder in (place / "belief", place / "paper", log)
        for path in folder.iterdir()
        if path.suffix
    ]
    contents = {path: path.read_bytes() for path in files}
    refused, shortened, loaded = 0, 0, 0
    for turn in range(number):
        path = files[turn % len(files)]
        bad = good = contents[path]
        while bad == good:
            bad = mutated(good, rng.choice(list(contents.values())), rng)
        path.write_bytes(bad)
        try:
            if path.parent == log:
                rows = list(EpisodeLog.open(log).rows)
                shortened += len(rows) < len(whole) and rows == whole[: len(rows)]
                loaded += not (len(rows) < len(whole) and rows == whole[: len(rows)])
            else:
                tasid.load(path.parent)
                loaded += 1
        except ArtifactError:
            refused += 1
        path.write_bytes(good)
    note = f"{refused} refused, {shortened} logs without a torn last block, {loaded} loaded"
    return Count(refused + shortened, number, note)


def mutated(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """One bit flipped, or the end cut off, something appended, or a part of another file."""
    kind, place = rng.randrange(5), rng.randrange(len(data))
    if kind == 0:
        return data[:place] + bytes([data[place] ^ 1 << rng.randrange(8)]) + data[place + 1 :]
    if kind == 1:
        return data[:place]
    if kind == 2:
        return data + rng.randbytes(rng.randint(1, 40))
    return other if kind == 3 else data[:place] + other[place:]


def disk(place: Path, number: int, rng: random.Random) -> Count:
    """Saves and runs on a full disk."""
    lock = tasid.make("combination-lock", horizon=3, num_actions=3)
    policies = [tasid.learn(lock, eta=0.1, episodes=16, seed=seed).policy for seed in (0, 1)]
    folder, kept, failed = place / "policy", 0, 0
    policies[0].save(folder)
    for turn in range(number):
        before, after = policies[turn % 2], policies[(turn + 1) % 2]
        largest = max(path.stat().st_size for path in folder.iterdir())
        saved = True
        try:
            with file_limit(rng.randrange(2 * largest)):
                after.save(folder)
        except ValueError:
            saved = False
        held = tasid.load(folder).digest
        tidy = not any(path.name.endswith(".tmp") for path in folder.iterdir())
        kept += tidy and held == (after if saved else before).digest
        failed += not saved
        after.save(folder)
    runs = [(command, expected) for command, expected, _ in references(place)]
    for turn, (command, expected) in enumerate(runs):
        codes = []
        for limit in (1_000, None):
            codes.append(train(command, place / f"run-{turn}", file_limit=limit).wait())
        kept += codes == [2, 0] and outcome(place / f"run-{turn}") == expected
    note = f"{failed} of {number} saves failed and left the old policy; {len(runs)} runs continued"
    return Count(kept, number + len(runs), note)


@contextmanager
def file_limit(size: int) -> Iterator[None]:
    """No file of this process can grow beyond `size` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class Corridor(gymnasium.Env):
    """Two cells in noise; its process dies in a reset for each file in a folder, once."""

    action_space = gymnasium.spaces.Discrete(2)
    observation_space = gymnasium.spaces.Box(-9, 9, (2,), np.float32)

    def __init__(self, deaths: Path | None = None) -> None:
        self.deaths = deaths

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        for path in sorted(self.deaths.iterdir())[:1] if self.deaths else ():
            path.unlink(missing_ok=True)
            os._exit(1)
        self.cell = 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        self.cell = int(action) if self.np_random.random() < 0.9 else 1 - int(action)
        return self._observe(), float(self.cell), False, False, {}

    def _observe(self) -> np.ndarray:
        return (np.eye(2)[self.cell] + 0.1 * self.np_random.normal(size=2)).astype(np.float32)


def ray(place: Path, number: int, rng: random.Random) -> Count:
    """Ray actors that die."""
    from tasid.targets.ray import RayError, connect

    sim = tasid.AbstractSimulator([[0, 1], [0, 1]], [[0.0, 1.0], [0.0, 1.0]], horizon=6)
    learn = partial(tasid.learn, simulator=sim, eta=0.1, episodes=64)
    deaths, number = place / "deaths", max(number // 60, 2)
    deaths.mkdir()
    for turn in range(number):
        (deaths / f"{turn}").touch()
    try:
        with tasid.wrap(partial(Corridor, deaths), 4, workers="ray", envs_per_actor=2) as target:
            digest = learn(target).policy.digest
    except RayError as error:
        return Count(0, 0, f"skipped: {error}")
    finally:
        if "ray" in sys.modules:
            connect().shutdown()
    left = len(list(deaths.iterdir()))
    same = digest == learn(tasid.wrap(Corridor, 2)).policy.digest
    note = f"{number - left} deaths, {'the same' if same else 'ANOTHER'} policy as in one process"
    return Count(number - left if same else 0, number, note)


KINDS: dict[str, Callable[[Path, int, random.Random], Count]] = {
    kind.__name__: kind for kind in (kills, races, mutations, disk, ray)
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument(
        "--number", type=int, default=300, help="mutations and saves; a 15th of it kills"
    )
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    table(["fault", "survived", "of", ""])
    failed = False
    for kind in options.kinds:
        place = Path(tempfile.mkdtemp(prefix="tasid-faults-"))
        try:
            count = KINDS[kind](place, options.number, random.Random(options.seed))
        finally:
            shutil.rmtree(place, ignore_errors=True)
        row(kind, *count)
        failed |= count.survived < count.number
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
