"""Robust DP beside its peers: how many times our time they take, all in one run.

Every repeat runs ours and then each of the others; a cell is the median of the repeats' ratios,
and their range. Ours plans against η = 0.1 and returns the policy for all h; of the peers only
Storm can express η > 0, the others solve the simpler problem with η = 0. They live in .venv-peers,
which is made on the first run.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from statistics import median
from time import perf_counter

import tasid
from benchmarks.peers import extras
from benchmarks.peers.maps import HORIZON, MAPS
from benchmarks.peers.process import Peer, install
from benchmarks.peers.yardsticks import floor, numba_loop, plain_numpy

ETA = 0.1
PEERS = {
    "QuantEcon η=0": ("quantecon", 1_000_000),
    "pymdptoolbox η=0": ("pymdptoolbox", 1_000_000),
    "mdpsolver η=0": ("mdpsolver", 100_000),
    "Storm η=0": ("storm", 100_000),
    "Storm η=0.1": ("storm_robust", 100_000),
}
"""Column: solver, and the most states it is given; beyond, it takes too much memory or time."""


def run(arguments: Sequence[str]) -> None:
    """Print the tables in Markdown."""
    options = _parse(arguments)
    peers = {} if options.without_peers else PEERS
    if peers:
        install()
    columns = ["floor", "Numba loop", "plain NumPy", *peers]
    print(f"H = {HORIZON}, {options.repeats} repeats; times of ours, median (least – most)\n")
    print("| map | S | A | ours, ms | " + " | ".join(columns) + " |")
    print("|---" * (4 + len(columns)) + "|")
    for states in options.states:
        for actions in options.actions:
            for name in MAPS:
                print(_row(name, states, actions, peers, options.repeats), flush=True)
    print()
    if peers:
        extras.agreement()
    extras.several_etas(options.repeats)
    extras.reachable_only(options.repeats)
    extras.first_plan(options.repeats)
    if options.large:
        extras.hundred_million_pairs()
        extras.long_plan()


def _row(
    name: str, states: int, actions: int, peers: dict[str, tuple[str, int]], repeats: int
) -> str:
    sim = MAPS[name](states, actions)
    with ExitStack() as stack:
        others: list[Callable[[], float] | None] = [
            floor(sim),
            _timed(lambda: numba_loop(sim, ETA)),
            _timed(lambda: plain_numpy(sim, ETA)),
        ]
        for solver, most in peers.values():
            if states <= most:
                peer = stack.enter_context(Peer(solver, sim, ETA))
                others.append(lambda peer=peer: peer.solve().seconds)
            else:
                others.append(None)
        ours = _timed(lambda: tasid.robust_dp(sim, eta=ETA, reachable_only=False))
        for warm in (ours, *others):
            if warm is not None:
                warm()
        times = [
            (ours(), [None if other is None else other() for other in others])
            for _ in range(repeats)
        ]
    cells = [
        ratios([theirs[k] / own for own, theirs in times]) if other is not None else "–"
        for k, other in enumerate(others)
    ]
    own = 1e3 * median(own for own, _ in times)
    return f"| {name} | {sim.num_states} | {actions} | {own:.1f} | " + " | ".join(cells) + " |"


def _timed(work: Callable[[], object]) -> Callable[[], float]:
    def timed() -> float:
        started = perf_counter()
        work()
        return perf_counter() - started

    return timed


def ratios(found: Sequence[float]) -> str:
    """Median, least and most."""
    return f"{median(found):.2f} ({min(found):.2f} – {max(found):.2f})"


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks peers", description=__doc__)
    parser.add_argument("--states", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--actions", type=int, nargs="+", default=[5, 10])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--without-peers", action="store_true")
    parser.add_argument("--large", action="store_true", help="minutes, and 4 GB of memory")
    return parser.parse_args(arguments)
