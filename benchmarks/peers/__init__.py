"""Robust DP beside its peers: how many times our time they take, all in one run.

Every repeat runs ours and then each of the others, three times in a row, of which the quickest
counts: after a peer, caches hold the peer's data. A cell is the median of the repeats' ratios, and
their range. Ours plans against η = 0.1 and returns the policy for all h; of the peers only
Storm can express η > 0, the others solve the simpler problem with η = 0. They live in .venv-peers,
which is made on the first run. On a busy machine --clock cpu compares the processor's time, of all
threads together, instead of the time on the wall.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from math import isnan, nan
from statistics import median

import tasid
from benchmarks.peers import extras
from benchmarks.peers.maps import HORIZON, MAPS
from benchmarks.peers.process import Peer, installed
from benchmarks.peers.yardsticks import floor, numba_loop, plain_numpy

ETA = 0.1
PEERS = {
    "QuantEcon η=0": ("quantecon", 10_000_000),
    "pymdptoolbox η=0": ("pymdptoolbox", 10_000_000),
    "mdpsolver η=0": ("mdpsolver", 1_000_000),
    "Storm η=0": ("storm", 1_000_000),
    "Storm η=0.1": ("storm_robust", 500_000),
}
"""Column: solver, and the most (s, a) it is given; beyond, it takes too much memory or time."""


WARM = 100_000_000
"""So many (h, s, a) are swept before the clock starts: ours compiles what is used often."""


def run(arguments: Sequence[str]) -> None:
    """Print the tables in Markdown."""
    options = _parse(arguments)
    peers = {} if options.without_peers else PEERS
    if peers:
        installed("peers")
    columns = ["floor", "Numba loop", "plain NumPy", *peers]
    clock = {"wall": "perf_counter", "cpu": "process_time"}[options.clock]
    print(
        f"H = {HORIZON}, {options.clock} time, {options.repeats} repeats: median (least – most)\n"
    )
    print("| map | S | A | ours, ms | " + " | ".join(columns) + " |")
    print("|---" * (4 + len(columns)) + "|")
    for states in options.states:
        for actions in options.actions:
            for name in MAPS:
                sim = MAPS[name](states, actions)
                print(f"| {name} {_cells(sim, peers, options.repeats, clock)}", flush=True)
    print()
    if peers:
        extras.agreement()
    extras.several_etas(options.repeats, getattr(time, clock))
    extras.reachable_only(options.repeats, getattr(time, clock))
    extras.first_plan(options.repeats, getattr(time, clock))
    if options.large:
        extras.hundred_million_pairs()
        extras.long_plan()


def _cells(
    sim: tasid.AbstractSimulator, peers: dict[str, tuple[str, int]], repeats: int, clock: str
) -> str:
    now: Callable[[], float] = getattr(time, clock)

    def timed(work: Callable[..., object]) -> Callable[[], float]:
        def seconds() -> float:
            started = now()
            work(sim, eta=ETA)
            return now() - started

        return seconds

    pairs = sim.num_states * sim.num_actions
    ours = timed(partial(tasid.robust_dp, reachable_only=False))
    others: list[Callable[[], float]] = [floor(sim, now), timed(numba_loop), timed(plain_numpy)]
    with ExitStack() as stack:
        for solver, most in peers.values():
            if pairs <= most:
                peer = stack.enter_context(Peer(solver, sim, ETA, clock))
                others.append(lambda peer=peer: peer.solve().seconds)
            else:
                others.append(lambda: nan)
        for _ in range(2 + WARM // (sim.horizon * pairs)):
            ours()
        for other in others:
            other()
        times = [(_quickest(ours), [_quickest(one) for one in others]) for _ in range(repeats)]
    own = 1e3 * median(own for own, _ in times)
    found = [ratios([theirs[k] / own for own, theirs in times]) for k in range(len(others))]
    return f"| {sim.num_states} | {sim.num_actions} | {own:.1f} | " + " | ".join(found) + " |"


def _quickest(measure: Callable[[], float], times: int = 3) -> float:
    """Of several in a row."""
    return min(measure() for _ in range(times))


def ratios(found: Sequence[float]) -> str:
    """Median, least and most."""
    if isnan(found[0]):
        return "–"
    return f"{median(found):.2f} ({min(found):.2f} – {max(found):.2f})"


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks peers", description=__doc__)
    parser.add_argument("--states", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--actions", type=int, nargs="+", default=[5, 10])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    parser.add_argument("--without-peers", action="store_true")
    parser.add_argument("--large", action="store_true", help="minutes, and 4 GB of memory")
    return parser.parse_args(arguments)
