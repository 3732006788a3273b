"""Growth: time and memory of the default method against H, |A|, S, the size of what is seen, seeds.

Every point is a process of its own that learns the same thing twice from so many episodes: the
first time it compiles, the second is what learning itself takes. Seconds are the processor's, of
all threads; memory is the most the process ever held, compiler and libraries included. An exponent
is the slope of a line through the points on double logarithmic scales; what is given in brackets is
the slope between the last two. With H, the lock's states and observations grow as well; with
`H alone` only the states do, and observations are 256 numbers.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from scipy.linalg import hadamard

import tasid
from benchmarks.fresh import spent
from benchmarks.state_space import HORIZON, coloured_map

ETA = 0.1
AXES = {
    "H": [10, 20, 40, 80, 160],
    "H alone": [10, 20, 40, 80, 160],
    "|A|": [5, 10, 20, 40, 80],
    "S": [39, 390, 3_900, 39_000],
    "observation": [64, 128, 256, 512, 1_024],
    "seeds": [1, 2, 4],
}
"""On the lock with H = 40 and 10 actions; S on the coloured maps of `state-space`, H = 12."""
_WIDE = 256
"""Numbers of an observation where H grows alone."""


def world(axis: str, value: int) -> tasid.BlockMDP:
    """The environment of one point."""
    if axis == "S":
        return coloured_map(value // (HORIZON + 1), eta=ETA, seed=100)
    horizon = value if axis in ("H", "H alone") else 40
    actions = value if axis == "|A|" else 10
    env = tasid.make("combination-lock", horizon=horizon, num_actions=actions, eta=ETA, seed=100)
    size = {"observation": value, "H alone": _WIDE}.get(axis)
    return env if size is None else widened(env, size)


def widened(env: tasid.BlockMDP, size: int) -> tasid.BlockMDP:
    """The lock with its code mixed by a larger Hadamard matrix: more numbers that say the same."""
    emission = env.target.emission
    place = np.random.default_rng(0).permutation(size)[: emission.mixing.shape[0]]
    mixing = jnp.asarray(hadamard(size)[place], jnp.float32)
    # Rows of the old matrix are orthogonal, so this finds the code that it mixed.
    code = emission.clean @ emission.mixing.T / emission.mixing.shape[1]
    wide = replace(emission, clean=code @ mixing, mixing=mixing)
    return replace(env, target=replace(env.target, emission=wide))


@dataclass(frozen=True)
class Point:
    """What one process took."""

    value: int
    first: float
    again: float
    """Seconds of processor time, compiling and not."""
    memory: float
    """MB."""


def run(arguments: Sequence[str]) -> None:
    """Print a Markdown table, and draw the figure if asked; or, as a point, measure it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks growth", description=__doc__)
    parser.add_argument("--axes", nargs="+", choices=list(AXES), default=list(AXES))
    parser.add_argument("--episodes", type=int, default=48)
    parser.add_argument("--jobs", type=int, default=1, help="points side by side")
    parser.add_argument("--points", type=Path, help="a file to keep points in, and go on from")
    parser.add_argument("--figure", type=Path, help="draw the figure to this file")
    options = parser.parse_args(arguments)
    kept = _kept(options.points)

    def measured(job: tuple[str, int]) -> tuple[tuple[str, int], Point]:
        axis, value = job
        if job in kept:
            return job, kept[job]
        code = ["-m", "benchmarks.growth", axis, str(value), str(options.episodes)]
        cost = spent(code)
        first, again = json.loads(cost.output.splitlines()[-1])
        point = Point(value, first, again, cost.memory)
        if options.points:
            with options.points.open("a") as file:
                file.write(json.dumps({"axis": axis, **vars(point)}) + "\n")
        return job, point

    jobs = [(axis, value) for axis in options.axes for value in AXES[axis]]
    with ThreadPoolExecutor(options.jobs) as pool:
        points = dict(pool.map(measured, jobs))
    series = {a: [p for (axis, _), p in points.items() if axis == a] for a in options.axes}
    print("| against | values | seconds | exponent | MB | exponent | compiling, s |")
    print("|---|---|---|---|---|---|---|")
    for axis, line in series.items():
        print(f"| {_in_a_cell(axis)} | {_cells(line)} |")
    if options.figure:
        _draw(series, options.figure)


def _kept(path: Path | None) -> dict[tuple[str, int], Point]:
    if path is None or not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return {(row.pop("axis"), row["value"]): Point(**row) for row in rows}


def _in_a_cell(text: str) -> str:
    return text.replace("|", "\\|")


def _cells(line: Sequence[Point]) -> str:
    values = [point.value for point in line]
    again, memory = [point.again for point in line], [point.memory for point in line]
    return " | ".join(
        [
            " ".join(map(str, values)),
            " ".join(f"{seconds:.1f}" for seconds in again),
            exponent(values, again),
            " ".join(f"{size:.0f}" for size in memory),
            exponent(values, memory),
            " ".join(f"{point.first - point.again:.0f}" for point in line),
        ]
    )


def exponent(values: Sequence[float], costs: Sequence[float]) -> str:
    """Of a power law through the points, and between the last two."""
    x, y = np.log(values), np.log(costs)
    return f"{np.polyfit(x, y, 1)[0]:.2f} ({(y[-1] - y[-2]) / (x[-1] - x[-2]):.2f})"


def _draw(series: dict[str, list[Point]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2.4 * len(series), 4.4), layout="constrained")
    rows = figure.subplots(2, len(series), sharey="row", squeeze=False)
    for column, (axis, line) in zip(rows.T, series.items(), strict=True):
        values = [point.value for point in line]
        for axes, costs in zip(column, _costs(line), strict=True):
            axes.loglog(values, costs, "o-", color="#00696f", markersize=3)
            axes.set_title(f"exponent {exponent(values, costs)}", fontsize=8)
            axes.set_xticks(values, labels=[f"{value:,}" for value in values], fontsize=7)
            axes.minorticks_off()
        column[1].set_xlabel(axis)
    for row in rows:
        low, high = row[0].get_ylim()
        ticks = [
            n * 10**p for p in range(-1, 4) for n in (1, 2, 3, 5, 7) if low <= n * 10**p <= high
        ]
        row[0].set_yticks(ticks, labels=[f"{tick:g}" for tick in ticks])
    rows[0, 0].set_ylabel("seconds of processor time")
    rows[1, 0].set_ylabel("peak memory, MB")
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def _costs(line: Sequence[Point]) -> tuple[list[float], list[float]]:
    return [point.again for point in line], [point.memory for point in line]


def point(axis: str, value: int, episodes: int) -> None:
    """Learn twice, and say in JSON what either took."""
    number = value if axis == "seeds" else 1
    env = world(axis, value)
    seconds = []
    for _ in range(2):
        started = time.process_time()
        tasid.learn(env, eta=ETA, episodes=episodes, seeds=list(range(number)))
        seconds.append(time.process_time() - started)
    print(json.dumps(seconds))


if __name__ == "__main__":
    point(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
