"""Observations per second of the building: lidar scans and camera pictures, and whole steps.

Wall time says what this machine gave, processor time what a core needs; with other work on the
machine only the second means anything. Observations are those of random poses, steps those of
uniformly random actions.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tasid
from tasid.targets.target import episode_keys, seed_key

TARGETS = {"lidar": 200_000, "camera": 50_000}
"""Observations a second that two cores are meant to make."""


def run(arguments: Sequence[str]) -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks building-speed", description=__doc__
    )
    parser.add_argument("--width", type=int, default=128, help="episodes side by side")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", type=int, default=16, help="a round")
    parser.add_argument("--map", default=None, help="a ROS map; our own floor if not given")
    options = parser.parse_args(arguments)
    print("| | per second (best round) | µs of one core each | two cores could | meant to be |")
    print("|---|---|---|---|---|")
    for sensor in ("lidar", "camera", "both"):
        target = tasid.make("building", sensor=sensor, map=options.map).target
        for name, work in (("observations", _observe), ("steps", _step)):
            seconds, cores = _timed(work(target, options.width), options.rounds, options.batches)
            each = 1e6 * cores / (options.batches * options.width)
            meant = TARGETS.get(sensor, 0) if name == "observations" else 0
            print(
                f"| {sensor} {name} | {options.batches * options.width / seconds:,.0f} | "
                f"{each:.1f} | {2e6 / each:,.0f} | {f'{meant:,}' if meant else ''} |",
                flush=True,
            )


def _timed(work: Callable[[int], Any], rounds: int, batches: int) -> tuple[float, float]:
    """The best round by the wall, and the best by the processor."""
    jax.block_until_ready(work(0))
    walls, cores = [], []
    for number in range(rounds):
        wall, core = time.perf_counter(), time.process_time()
        for batch in range(batches):
            done = work(1 + number * batches + batch)
        jax.block_until_ready(done)
        walls.append(time.perf_counter() - wall)
        cores.append(time.process_time() - core)
    return float(np.min(walls)), float(np.min(cores))


def _observe(target: Any, width: int) -> Callable[[int], Any]:
    poses = target.successor.shape[-2]

    @jax.jit
    def observations(target: Any, number: Any) -> jax.Array:
        keys = episode_keys(seed_key(0), 0, number * width + jnp.arange(width))
        states = jax.random.randint(keys[0], (width,), 0, poses)
        days = jax.vmap(target.circumstances.draw)(keys)
        return jax.vmap(target.emission)(keys, states, days)

    return lambda number: observations(target, number)


def _step(target: Any, width: int) -> Callable[[int], Any]:
    state = target.reset(episode_keys(seed_key(0), 0, jnp.arange(width)))[0]

    @jax.jit
    def step(target: Any, state: jax.Array, number: Any) -> Any:
        keys = episode_keys(seed_key(0), 0, jnp.arange(width))
        actions = jax.random.randint(jax.random.fold_in(keys[0], number), (width,), 0, 5)
        return target.step(state, actions, number, keys)

    return lambda number: step(target, state, number)
