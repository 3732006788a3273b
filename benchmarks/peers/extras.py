"""Planning beyond the table of peers: exactness, several η, reachability, start-up, size."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np

import tasid
from benchmarks.peers.maps import MAPS, grid_map
from benchmarks.peers.process import Peer
from tasid.maps import robust_plans

Clock = Callable[[], float]


def agreement(worlds: int = 10) -> None:
    """Storm in rational numbers against ours; eighths, so that floats hold every value exactly."""
    wrong = 0
    for seed in range(worlds):
        rng = np.random.default_rng(seed)
        successor = rng.integers(6, size=(6, 3))
        reward = rng.integers(-16, 17, size=(6, 3)) / 8
        sim = tasid.AbstractSimulator(successor, reward, horizon=4, start=0)
        eta = (seed % 8 + 1) / 8
        with Peer("storm_exact", sim, eta) as storm:
            exact = Fraction(str(storm.solve().value))
        wrong += exact != Fraction(tasid.robust_dp(sim, eta=eta).start_value)
    print(f"Storm in rational numbers: {wrong} of {worlds} start values differ from ours.")


def several_etas(repeats: int, now: Clock, states: int = 1_000_000, actions: int = 5) -> None:
    """Eight η together against one after the other."""
    etas = [k / 10 for k in range(8)]
    for name, make in MAPS.items():
        sim = make(states, actions)
        robust_plans(sim, etas=etas, reachable_only=False)
        gains = []
        for _ in range(repeats):
            started = now()
            robust_plans(sim, etas=etas, reachable_only=False)
            middle = now()
            for eta in etas:
                tasid.robust_dp(sim, eta=eta, reachable_only=False)
            gains.append((now() - middle) / (middle - started))
        print(f"Eight η at once, {name} map, S = {states}: {_spread(gains)} times cheaper.")


def reachable_only(repeats: int, now: Clock) -> None:
    """Only what can be reached within the horizon, on 1000 × 1000 cells."""
    sim = grid_map(1_000_000, 5)
    tasid.robust_dp(sim, eta=0.1, reachable_only=False)
    gains, work = [], 1.0
    for _ in range(repeats):
        started = now()
        part = tasid.robust_dp(sim, eta=0.1)
        middle = now()
        full = tasid.robust_dp(sim, eta=0.1, reachable_only=False)
        gains.append((now() - middle) / (middle - started))
        work = full.states_swept / part.states_swept
    print(f"Reachable only, 1000², H = 40: {work:.0f} times less work, {_spread(gains)} in time.")


def first_plan(repeats: int, now: Clock) -> None:
    """A fresh process: compiling, and what a small map takes."""
    code = """
import sys, time
import numpy as np, tasid
states, now = int(sys.argv[1]), getattr(time, sys.argv[2])
successor = (np.arange(states)[:, None] + [[0, 1, 2]]) % states
sim = tasid.AbstractSimulator(successor, np.ones(successor.shape), horizon=40)
started = now()
tasid.robust_dp(sim, eta=0.1, reachable_only=False)
print(now() - started)
"""
    for states in (1_000, 1_000_000):
        command = [sys.executable, "-c", code, str(states), now.__name__]
        found = [
            float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
            for _ in range(repeats)
        ]
        print(
            f"First plan of a fresh process, {states} states, 3 actions, H = 40: "
            f"{1e3 * median(found):.0f} ms ({1e3 * min(found):.0f} – {1e3 * max(found):.0f})."
        )


def hundred_million_pairs() -> None:
    """10⁷ states with 10 actions, the policy for all 40 steps, in a process of its own."""
    code = """
import resource, sys, time
from benchmarks.peers.maps import MAPS
import tasid
sim = MAPS[sys.argv[1]](10_000_000, 10)
started = time.perf_counter()
plan = tasid.robust_dp(sim, eta=0.1, reachable_only=False)
seconds = time.perf_counter() - started
assert plan.actions.shape == (40, sim.num_states)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 if sys.platform == "darwin" else 1e3)
print(f"{seconds:.1f} s, at most {peak / 1e3:.2f} GB, making the map included")
"""
    for name in MAPS:
        done = subprocess.run(
            [sys.executable, "-c", code, name], capture_output=True, text=True, check=True
        )
        print(f"10⁸ pairs a step, {name} map, H = 40: {done.stdout.strip()}.")


def long_plan(side: int = 1_000, horizon: int = 2_000) -> None:
    """`tasid plan` on a drawn map, from one corner to the other."""
    wall, row = "#" * side, "." * (side - 2)
    lines = [wall, *[f"#{row}#"] * (side - 2), wall]
    lines[1] = "#S" + lines[1][2:]
    lines[-2] = lines[-2][:-2] + "G#"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "map.txt"
        path.write_text("\n".join(lines))
        command = [sys.executable, "-m", "tasid.cli", "plan", str(path), "--horizon", str(horizon)]
        started = perf_counter()
        subprocess.run(command, capture_output=True, check=True)
        seconds = perf_counter() - started
    print(f"tasid plan, {side}² cells, H = {horizon}: {seconds:.0f} s.")


def _spread(found: list[float]) -> str:
    return f"{median(found):.2f} ({min(found):.2f} – {max(found):.2f})"
