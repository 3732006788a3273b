"""Where does a pruned belief pay? Filtering and smoothing on grids of up to a million cells.

A robot walks from the upper left corner towards the lower right of a grid with a wall in every
seventh cell; 10 % of its commands slip; every state has a random look of four numbers, seen with
noise. The full filter keeps a weight for every reachable state and step, the frontier 256 at most.
Times are of the processor, so that a busy machine does not matter.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable, Sequence

import numpy as np

import tasid
from tasid.beliefs import Beliefs, Frontier, filter_beliefs, smooth_beliefs

ETA, LOOK, NOISE = 0.1, 4, 0.5


def grid(side: int) -> tasid.AbstractSimulator:
    """A random grid whose far corner is as many steps away as it has rows and columns."""
    rng = np.random.default_rng(side)
    cells = np.where(rng.random((side, side)) < 1 / 7, "#", ".")
    cells[0, 0], cells[0, 1], cells[1, 0], cells[-1, -1] = "S", ".", ".", "G"
    text = "\n".join("".join(row) for row in cells)
    return tasid.AbstractSimulator.from_text_map(text, horizon=2 * side + side // 5)


def run(arguments: Sequence[str]) -> None:
    """Print a Markdown table."""
    parser = argparse.ArgumentParser(prog="benchmarks frontier", description=__doc__)
    parser.add_argument("--sides", type=int, nargs="+", default=[30, 100, 300, 1000])
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--largest-full", type=int, default=100_000, metavar="STATES")
    options = parser.parse_args(arguments)
    frontier = Frontier(size=options.size)
    print("| states | H | belief | filter | smoother | evidence | most discarded | right | peak |")
    print("|---|---|---|---|---|---|---|---|---|")
    for side in options.sides:
        sim = grid(side)
        _row(sim, f"frontier {options.size}", frontier)
        if sim.num_states <= options.largest_full:
            _row(sim, "full", None)
        else:
            size = 4e-9 * sim.num_states * (sim.horizon + 1)
            print(f"| {sim.num_states} | {sim.horizon} | full | – (its weights: {size:.1f} GB) |")


def _row(sim: tasid.AbstractSimulator, name: str, frontier: Frontier | None) -> None:
    rng = np.random.default_rng(1)
    commands = rng.choice(sim.num_actions, size=(1, sim.horizon), p=_onward(sim))
    slips = rng.random(sim.horizon) < ETA
    happened = np.where(slips, rng.integers(sim.num_actions, size=sim.horizon), commands[0])
    truth = np.array(sim.replay(happened.tolist()))
    look = rng.normal(size=(sim.num_states, LOOK)).astype(np.float32)
    shown = look[truth] + NOISE * rng.normal(size=(sim.horizon + 1, LOOK))

    def seen(h: int, states: np.ndarray) -> np.ndarray:
        return -((shown[h] - look[states]) ** 2).sum(axis=-1) / (2 * NOISE**2)

    def filtered() -> Beliefs:
        return filter_beliefs(sim, commands, seen, eta=ETA, frontier=frontier)

    def smoothed() -> Beliefs:
        return smooth_beliefs(sim, commands, seen, eta=ETA, frontier=frontier)

    forth, both = _timed(filtered), _timed(smoothed)
    found = both[1]
    right = (found.likeliest[0] == truth).mean()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(
        f"| {sim.num_states} | {sim.horizon} | {name} | {forth[0]:.2f} s | {both[0]:.2f} s "
        f"| {found.log_evidence[0]:.3f} | {found.discarded.max():.1e} | {right:.3f} "
        f"| {peak:.1f} GB |",
        flush=True,
    )


def _onward(sim: tasid.AbstractSimulator) -> np.ndarray:
    """Down and right three times as often as up and left."""
    leads = sim.successor[sim.start] != sim.start
    weights = np.where(leads, 3.0, 1.0)
    return weights / weights.sum()


def _timed(compute: Callable[[], Beliefs]) -> tuple[float, Beliefs]:
    """Processor seconds of a second run, compiled, and what it gave."""
    compute()
    begin = time.process_time()
    found = compute()
    return time.process_time() - begin, found
