"""Robust DP beside solvers of others and beside the same loop in one thread: times and ratios.

    python -m benchmarks planning                  # yardsticks, and what is installed of others
    python -m benchmarks planning --peers none     # yardsticks alone
    python -m benchmarks planning --install        # others into .venv-peers first (1 GB)

Ours is `tasid.robust_dp` for η = 0.1, with the actions of all H = 40 steps. The yardsticks are
Algorithm 1 as a fused Numba loop in one thread and in plain NumPy. Of the solvers of others only
Storm can express η > 0 (as an interval MDP with a state for every (s, a)); the rest solve the
simpler problem with η = 0. They run in processes and an environment of their own. Every repeat
measures ours and then each of the others, the quickest of three in a row; a cell is the median over
repeats of (time of the other) / (time of ours), with the range. The cell of the Numba loop is to be
at least 1 / 1.1 = 0.91 from 10⁵ states on.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numba import njit

import tasid
from benchmarks.processes import row, table

HERE = Path(__file__).parent
ETA, HORIZON = 0.1, 40
PEERS = {
    "quantecon": 10_000_000,
    "pymdptoolbox": 10_000_000,
    "mdpsolver": 1_000_000,
    "storm": 1_000_000,
    "storm_robust": 500_000,
}
"""Solvers of `solvers.py`, and the most (s, a) each is given: beyond, it takes minutes."""
PACKAGES = ("quantecon==0.11.4", "pymdptoolbox==4.0b3", "mdpsolver==0.10.2", "stormpy==2.0.0")
MOVES = [(0, 0), (-1, 0), (0, 1), (1, 0), (0, -1), (-1, -1), (1, 1), (-1, 1), (1, -1), (2, 0)]
Solve = Callable[[], float]
"""Solves once; returns the seconds it took."""


def random_map(states: int, actions: int) -> tasid.AbstractSimulator:
    """Every action leads anywhere."""
    rng = np.random.default_rng(states)
    successor = rng.integers(states, size=(states, actions), dtype=np.int32)
    reward = rng.standard_normal((states, actions))
    return tasid.AbstractSimulator(successor, reward, horizon=HORIZON)


def grid_map(states: int, actions: int) -> tasid.AbstractSimulator:
    """Every action leads to a neighbour in a square."""
    side = round(states**0.5)
    row, column = np.divmod(np.arange(side * side), side)
    moved = [
        np.clip(row + down, 0, side - 1) * side + np.clip(column + right, 0, side - 1)
        for down, right in MOVES[:actions]
    ]
    reward = np.random.default_rng(states).standard_normal((side * side, actions))
    return tasid.AbstractSimulator(np.stack(moved, axis=1), reward, horizon=HORIZON)


@njit
def _loop(successor, reward, eta, value, new, actions):  # type: ignore[no-untyped-def]
    for s in range(successor.shape[0]):
        best = reward[s, 0] + value[successor[s, 0]]
        worst, choice = best, 0
        for a in range(1, successor.shape[1]):
            q = reward[s, a] + value[successor[s, a]]
            if q > best:
                best, choice = q, a
            if q < worst:
                worst = q
        new[s] = (1 - eta) * best + eta * worst
        actions[s] = choice


def numba_loop(sim: tasid.AbstractSimulator) -> Any:
    """Algorithm 1 as one would write it with Numba, in one thread; actions [H, S]."""
    actions = np.zeros((sim.horizon, sim.num_states), np.uint8)
    value, new = np.zeros((2, sim.num_states))
    for h in reversed(range(sim.horizon)):
        _loop(sim.successor, sim.reward, ETA, value, new, actions[h])
        value, new = new, value
    return actions


def plain_numpy(sim: tasid.AbstractSimulator) -> Any:
    """Algorithm 1 as one would write it with NumPy; actions [H, S]."""
    actions = np.zeros((sim.horizon, sim.num_states), np.uint8)
    value = np.zeros(sim.num_states)
    for h in reversed(range(sim.horizon)):
        q = sim.reward + value[sim.successor]
        actions[h] = q.argmax(axis=1)
        value = (1 - ETA) * q.max(axis=1) + ETA * q.min(axis=1)
    return actions


def ours(sim: tasid.AbstractSimulator) -> Any:
    """Actions [H, S] of the robust plan."""
    return tasid.robust_dp(sim, eta=ETA).actions


class Peer:
    """A solver of others that holds its model and solves it whenever it is asked."""

    def __init__(
        self, python: Path, name: str, sim: tasid.AbstractSimulator, stack: ExitStack
    ) -> None:
        tables = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "tables.npz"
        np.savez(
            tables,
            successor=sim.successor,
            reward=sim.reward,
            horizon=sim.horizon,
            start=sim.start,
            eta=ETA,
        )
        self._process = subprocess.Popen(
            [python, HERE / "solvers.py", name, tables],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": ""},
        )
        stack.callback(self._process.wait)
        stack.callback(self._process.kill)
        self.answer: dict[str, Any] | None = None

    def __call__(self) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write("\n")
            self._process.stdin.flush()
            self.answer = json.loads(self._process.stdout.readline())
        except (BrokenPipeError, json.JSONDecodeError):
            return float("nan")  # it ended, for want of memory perhaps
        return self.answer["seconds"]


def installed(venv: Path, install: bool, asked: Sequence[str]) -> list[str]:
    """Which of the solvers of others can be run here; says which cannot."""
    python = venv / "bin" / "python"
    if install:
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        for package in PACKAGES:  # one that cannot be installed here does not keep out the others
            subprocess.run([*pip, package, "scipy", "numpy"], check=False)
    if asked and not python.exists():
        print(f"Solvers of others are skipped: {venv} is not there; --install makes it.\n")
        return []
    modules = {"pymdptoolbox": "mdptoolbox", "storm": "stormpy", "storm_robust": "stormpy"}
    usable = []
    for name in asked:
        command = [python, "-c", f"import {modules.get(name, name)}"]
        if subprocess.run(command, capture_output=True, env={"PYTHONPATH": ""}).returncode == 0:
            usable.append(name)
        else:
            print(f"{name} is skipped: it is not installed in {venv}.\n")
    return usable


def timed(work: Callable[[tasid.AbstractSimulator], Any], sim: tasid.AbstractSimulator) -> Solve:
    """A function of ours as a solver."""

    def seconds() -> float:
        started = time.perf_counter()
        work(sim)
        return time.perf_counter() - started

    return seconds


def compare(
    sim: tasid.AbstractSimulator, python: Path, peers: Sequence[str], repeats: int
) -> list[str]:
    """Cells: milliseconds of ours, and the times of the others beside it."""
    assert (ours(sim) == numba_loop(sim)).all(), "the yardstick plans differently"
    pairs = sim.num_states * sim.num_actions
    with ExitStack() as stack:
        others: list[Solve | None] = [timed(numba_loop, sim), timed(plain_numpy, sim)]
        for name in peers:
            others.append(Peer(python, name, sim, stack) if pairs <= PEERS[name] else None)
        for other in others:
            if other is not None:
                other()  # compilers and caches
        own = timed(ours, sim)
        rows = []
        for _ in range(repeats):
            mine = min(own() for _ in range(3))
            rows.append([mine, *(min(x() for _ in range(3)) / mine if x else None for x in others)])
    columns = list(zip(*rows, strict=True))
    cells = [f"{1e3 * median(columns[0]):.1f}"]
    for column in columns[1:]:
        missing = column[0] is None or column[0] != column[0]
        spread = "" if missing else f"{median(column):.2f} ({min(column):.2f} … {max(column):.2f})"
        cells.append(spread or "–")
    return cells


def first_plan(states: int) -> str:
    """Milliseconds of the first and the second plan of a fresh process, ring of `states`."""
    code = """
import sys, time
import numpy as np, tasid
successor = (np.arange(int(sys.argv[1]))[:, None] + [[0, 1, 2]]) % int(sys.argv[1])
sim = tasid.AbstractSimulator(successor, np.ones(successor.shape), horizon=40)
for _ in range(2):
    started = time.perf_counter()
    tasid.robust_dp(sim, eta=0.1)
    print(f"{1e3 * (time.perf_counter() - started):.0f}")
"""
    command = [sys.executable, "-c", code, str(states)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return " and then ".join(done.stdout.split())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--states", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--actions", type=int, nargs="+", default=[5, 10])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--peers", nargs="+", choices=[*PEERS, "none"], default=list(PEERS))
    parser.add_argument("--install", action="store_true", help="install the others first")
    parser.add_argument("--venv", type=Path, default=Path(".venv-peers"), help="where they are")
    options = parser.parse_args()
    asked = [name for name in options.peers if name != "none"]
    peers = installed(options.venv, options.install, asked)
    python = options.venv.absolute() / "bin" / "python"
    columns = ["Numba loop, one thread", "plain NumPy"]
    columns += [name if name == "storm_robust" else f"{name}, η = 0" for name in peers]
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    print(f"H = {HORIZON}, load average at the start {load:.1f}; ratios: other / ours")
    table(["map", "S", "A", "ours, ms", *columns])
    for states in options.states:
        for make in (random_map, grid_map):
            for actions in options.actions:
                sim = make(states, actions)
                cells = compare(sim, python, peers, options.repeats)
                name = make.__name__.removesuffix("_map")
                row(name, sim.num_states, actions, *cells)
    print()
    for states in (1_000, 100_000):
        print(f"First plan of a fresh process, {states} states, 3 actions: {first_plan(states)} ms")


if __name__ == "__main__":
    main()
