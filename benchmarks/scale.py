"""What collection on a cluster costs per episode, and from that what many workers would need.

Coefficients are processor time, measured with a cluster on this machine. The rest is a simulation
of one driver that hands out episodes and takes them in, one after the other, and of workers that
play them; its only inputs are printed.
"""

from __future__ import annotations

import argparse
import heapq
import os
import random
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.drift import HORIZON, Drift
from benchmarks.ray_cluster import ray_cluster
from benchmarks.torture_cluster import players

SIZES = (2, 2_048, 65_536)
"""Numbers in an observation."""
WORKERS = (1, 10, 100, 1_000)
STEPS = 100
"""Of an episode in the simulation."""


@dataclass(frozen=True)
class Cost:
    """Processor seconds of one episode, by the bytes that it brings back."""

    driver: float
    driver_per_byte: float
    worker: float

    def driving(self, size: float) -> float:
        """What the driver needs for one episode."""
        return self.driver + self.driver_per_byte * size


def ticks(pids: list[int]) -> float:
    """Processor seconds that processes have used."""
    used = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        used += int(fields[11]) + int(fields[12])
    return used / os.sysconf("SC_CLK_TCK")


def measured(size: int, episodes: int) -> tuple[float, float, int]:
    """Driver's and workers' seconds an episode, and the bytes of one."""
    import tasid
    from tasid.runs.recording import record_episodes

    with tasid.wrap(partial(Drift, size=size), horizon=HORIZON, num_envs=2, workers="ray") as one:
        record_episodes(one, None, episodes=64)
        there, driver = ticks(players()), time.process_time()
        log = record_episodes(one, None, episodes=episodes).recorded
        driver, there = time.process_time() - driver, ticks(players()) - there
    bytes_of_one = sum(table.nbytes for table in log) // episodes
    return driver / episodes, there / episodes, bytes_of_one


def coefficients(episodes: int) -> Cost:
    """Straight lines through what was measured."""
    rows = [(*measured(size, episodes), size) for size in SIZES]
    print("| bytes an episode | driver, ms | worker, ms |\n|---|---|---|")
    for driver, worker, size, _ in rows:
        print(f"| {size} | {1e3 * driver:.2f} | {1e3 * worker:.2f} |", flush=True)
    slope, base = np.polyfit([row[2] for row in rows], [row[0] for row in rows], 1)
    return Cost(float(base), max(float(slope), 0.0), rows[0][1])


def simulated(
    cost: Cost, workers: int, step: float, size: float, episodes: int, dice: random.Random
) -> float:
    """Seconds until so many episodes are in; steps take `step` seconds, give or take a fifth."""
    driver, free = 0.0, [0.0] * min(workers, episodes)
    coming: list[float] = []
    handed, serving = 0, cost.driving(size) / 2  # half to hand out, half to take in
    heapq.heapify(free)
    while handed < episodes or coming:
        if handed < episodes and (free and (not coming or free[0] <= coming[0])):
            driver = max(driver, heapq.heappop(free)) + serving
            playing = cost.worker + STEPS * step * dice.uniform(0.8, 1.2)
            heapq.heappush(coming, driver + playing)
            handed += 1
        else:
            driver = max(driver, heapq.heappop(coming)) + serving
            heapq.heappush(free, driver)
    return driver


def simulate(cost: Cost) -> None:
    """Episodes a second by numbers of workers and kinds of target."""
    dice = random.Random(0)
    print("\n| target | bytes an episode | " + " | ".join(f"{n} workers" for n in WORKERS) + " |")
    print("|---|---|" + "---|" * len(WORKERS))
    for name, step, item in (
        ("robot, 50 ms a step, 64 numbers", 0.05, 256),
        ("simulator, 5 ms a step, 64 × 64 × 3 bytes", 0.005, 12_288),
        ("toy, 0.05 ms a step, 8 numbers", 5e-5, 32),
    ):
        size = (STEPS + 1) * item
        speeds = []
        for many in WORKERS:
            episodes = 20 * many
            seconds = simulated(cost, many, step, size, episodes, dice)
            alone = 1 / (cost.worker + STEPS * step + cost.driving(size))
            speeds.append(f"{episodes / seconds:.3g}/s ({episodes / seconds / (many * alone):.2f})")
        print(f"| {name} | {size} | {' | '.join(speeds)} |")
    print("\nin brackets: the share of linear speed-up")


def run(options: list[str]) -> None:
    """As a benchmark among others."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=256)
    given = parser.parse_args(options)
    cost = None
    with ray_cluster(nodes=1) as cluster:
        from tasid.targets.ray.session import connect

        connect(cluster.address, argument="address")
        cost = coefficients(given.episodes)
    report: dict[str, Any] = vars(cost)
    print("\n" + ", ".join(f"{name} {value:.3g} s" for name, value in report.items()))
    simulate(cost)
