"""Whole commands that are killed, interrupted, or started twice in one folder."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import NamedTuple

from benchmarks.torture.count import Count

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
_IMPORTED = ["tasid.cli", "tasid.runs.train", "gymnasium"]
"""What all commands import, which takes longer than they do: once, by a process that forks."""

_TURNS = 5
"""Runs for each that a signal has to find under way, at most."""


def _command(order: str, folder: str, said: str) -> None:
    """`tasid train` in a process of its own."""
    # Shells and test runners may have their children ignore Ctrl-C, and a server of processes that
    # was started for environments blocks it for all its children.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    place = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(place, 1)
    os.dup2(place, 2)
    from tasid.cli import main

    sys.argv[1:] = ["train", *order.split(), "--out", folder]
    main()


def _train(order: str, folder: Path) -> ForkServerProcess:
    from tasid.cli import keep_compiled_code

    keep_compiled_code()
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(_IMPORTED)
    said = folder.with_name(f"{folder.name}.said")
    process = server.Process(target=_command, args=(order, str(folder), str(said)))
    process.start()
    return process


def _finish(order: str, folder: Path) -> None:
    process = _train(order, folder)
    process.join()
    if process.exitcode:
        said = folder.with_name(f"{folder.name}.said").read_text()
        raise RuntimeError(f"{order}: {process.exitcode}: {said}")


def _bytes(folder: Path) -> dict[str, bytes]:
    """What repeats byte for byte (docs/files.md)."""
    arrays = (folder / "evaluation").glob("arrays-*")
    files = [folder / "run.json", *(folder / "policy").iterdir(), *arrays]
    if (folder / "epochs.jsonl").exists():
        files.append(folder / "epochs.jsonl")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


class Stopped(NamedTuple):
    """How a run took a signal."""

    number: signal.Signals
    code: int | None
    seconds: float
    """Until it had ended."""
    recovered: bool
    """Did the same command then give the same bytes, and leave nothing else behind?"""


def _stopped(
    place: Path, number: int, numbers: list[signal.Signals], dice: random.Random
) -> Iterator[Stopped]:
    """Runs that got a signal at a random moment; those that were complete by then do not count."""
    whole = {}
    turn = stopped = 0
    while stopped < number:
        if turn >= _TURNS * number:
            raise RuntimeError(f"{turn - stopped} of {turn} runs were complete whatever they got")
        name = list(ORDERS)[turn % len(ORDERS)]
        order, folder, chosen = ORDERS[name], place / f"run-{turn}", numbers[stopped % len(numbers)]
        if name not in whole:
            whole[name] = _uninterrupted(order, place, place / f"whole-{len(whole)}")
        expected, seconds = whole[name]
        turn += 1
        process = _train(order, folder)
        _wait_for_its_folder(process, place, folder)
        time.sleep(dice.uniform(0.0, 1.0) * seconds)
        started = time.monotonic()
        if not (folder / "result.json").exists() and process.is_alive():
            os.kill(process.pid or 0, chosen)
        process.join()
        waited = time.monotonic() - started
        if (folder / "result.json").exists() and process.exitcode == 0:
            shutil.rmtree(folder)
            continue
        stopped += 1
        if not (folder / "result.json").exists():
            _finish(order, folder)
        clean = not [path for path in place.iterdir() if path.name.startswith(f".run-{turn - 1}.")]
        yield Stopped(chosen, process.exitcode, waited, clean and _bytes(folder) == expected)
        shutil.rmtree(folder)


def _uninterrupted(order: str, place: Path, folder: Path) -> tuple[dict[str, bytes], float]:
    """The bytes of a run, and how long it takes once everything is compiled."""
    _finish(order, folder.with_name(f"{folder.name}-warm"))
    process = _train(order, folder)
    _wait_for_its_folder(process, place, folder)
    started = time.monotonic()
    process.join()
    return _bytes(folder), time.monotonic() - started


def _wait_for_its_folder(process: ForkServerProcess, place: Path, folder: Path) -> None:
    """Until then Python is starting, and nobody has promised anything."""
    while process.is_alive() and not folder.exists():
        if any(path.name.startswith(f".{folder.name}.") for path in place.iterdir()):
            return
        time.sleep(0.005)


def kills(place: Path, number: int, dice: random.Random) -> Count:
    """SIGKILL at random moments of training, then the same command."""
    same = [one.recovered for one in _stopped(place, number, [signal.SIGKILL], dice)]
    note = "same bytes after; methods belief, paper, PPO; Gymnasium and native"
    return Count("SIGKILL at random moments of training", number, sum(same), note)


def signals(place: Path, number: int, dice: random.Random) -> Count:
    """SIGINT and SIGTERM: the exit code, five seconds, and the same command."""
    codes = {signal.SIGINT: 130, signal.SIGTERM: 143}
    found = list(_stopped(place, number, list(codes), dice))
    kept = [one.recovered and one.code == codes[one.number] and one.seconds <= 5 for one in found]
    slowest = max(one.seconds for one in found)
    note = f"130 and 143, same bytes after; {slowest:.1f} s at most"
    return Count("SIGINT and SIGTERM", number, sum(kept), note)


RACE = """
import sys, time
from tasid.runs.unfinished import Commission
from tasid.files.sole_writer import FolderBusy
try:
    with Commission(sys.argv[1], {}).writing() as place:
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
