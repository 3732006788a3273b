"""Steps per second of our environments: compiled, and the same behind Gymnasium's interface.

Natively whole episodes run inside one compiled call. Through Gymnasium every step is a call of its
own: `SyncVectorEnv` steps one environment after the other, our own vector all of them at once,
`AsyncVectorEnv` has a process for each, as many as there are cores, and only the wall's time is
known of it. NAVIX (its pictures are as large as ours, without noise) is compiled as well and runs
in .venv-learners. All take uniformly random actions, in turns in the same run.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from math import isnan, nan
from pathlib import Path
from statistics import median

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

import tasid
from benchmarks.peers import ratios
from benchmarks.peers.process import Waiting, installed
from tasid.targets.target import episode_keys, seed_key

WORLDS = {
    "lock, H = 40": ("combination-lock", "tasid/CombinationLock-v0", {"horizon": 40}),
    "lava pictures": ("lava-crossing", "tasid/LavaCrossing-v0", {}),
}
Speeds = tuple[float, float]
"""Steps per second, by the processor and by the wall."""


def run(arguments: Sequence[str]) -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks env-speed", description=__doc__)
    parser.add_argument("--width", type=int, default=128, help="native episodes side by side")
    parser.add_argument("--envs", type=int, default=16, help="environments of a vector")
    parser.add_argument("--steps", type=int, default=200, help="of a vector, each round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--without-navix", action="store_true", help="nothing is installed")
    options = parser.parse_args(arguments)
    print("| | steps a second of processor time | of the wall | native is faster by | wall |")
    print("|---|---|---|---|---|")
    for world, (name, gym_id, settings) in WORLDS.items():
        env = tasid.make(name, **settings)
        with ExitStack() as stack:
            vector = partial(_vector, stack, gym_id, settings, options.steps)
            ways: dict[str, Callable[[], Speeds]] = {
                "native": _native(env, options.width),
                "our vector": vector(options.envs, "vector_entry_point"),
                "`SyncVectorEnv`": vector(options.envs, "sync"),
                "`AsyncVectorEnv`": vector(os.cpu_count() or 1, "async"),
            }
            if len(env.target.observation_shape) == 3 and not options.without_navix:
                ways["NAVIX"] = _navix(stack, options.width, env.simulator.horizon)
            _table(world, ways, options.rounds)


def _table(world: str, ways: Mapping[str, Callable[[], Speeds]], rounds: int) -> None:
    for once in ways.values():
        once()
    found = np.array([[once() for once in ways.values()] for _ in range(rounds)])
    for k, way in enumerate(ways):
        speeds = [_number(median(found[:, k, clock])) for clock in (0, 1)]
        gains = [ratios(list(found[:, 0, clock] / found[:, k, clock])) for clock in (0, 1)]
        cells = [*speeds, *(gains if k else ["", ""])]
        print(f"| {world}: {way} | {' | '.join(cells)} |", flush=True)


def _number(speed: float) -> str:
    return "–" if isnan(speed) else f"{speed:,.0f}".replace(",", " ")


def _navix(stack: ExitStack, width: int, steps: int) -> Callable[[], Speeds]:
    script = Path(__file__).parent / "learners" / "navix_speed.py"
    command = [installed("learners"), str(script), str(width), str(steps)]
    navix = stack.enter_context(Waiting(command))

    def once() -> Speeds:
        said = navix.ask()
        return said["processor"], said["wall"]

    return once


def _speeds(work: Callable[[], int]) -> Speeds:
    processor, wall = time.process_time(), time.perf_counter()
    steps = work()
    return steps / (time.process_time() - processor), steps / (time.perf_counter() - wall)


def _native(env: tasid.BlockMDP, width: int) -> Callable[[], Speeds]:
    target, horizon = env.target, env.simulator.horizon

    @jax.jit
    def episodes(target, keys, actions):  # type: ignore[no-untyped-def]
        def body(h, carry):  # type: ignore[no-untyped-def]
            state, total, checksum = carry
            state, seen, rewards = target.step(state, actions[h], h, keys)
            # Every observation is used, or the compiler might skip making it.
            return state, total + rewards, checksum + seen.max().astype(jnp.float32)

        state, _ = target.reset(keys)
        start = (state, jnp.zeros(keys.shape[0]), jnp.float32(0))
        return jax.lax.fori_loop(0, horizon, body, start)

    rng, rounds = np.random.default_rng(0), iter(range(1 << 30))

    def work() -> int:
        for batch in range(8):
            first = (8 * next(rounds) + batch) * width
            keys = episode_keys(seed_key(0), 0, first + jnp.arange(width))
            actions = rng.integers(0, target.num_actions, (horizon, width)).astype(np.int32)
            jax.block_until_ready(episodes(target, keys, actions))
        return 8 * horizon * width

    return lambda: _speeds(work)


def _vector(
    stack: ExitStack, gym_id: str, settings: dict[str, int], steps: int, number: int, mode: str
) -> Callable[[], Speeds]:
    # JAX dislikes forked processes; a fresh one for each does not inherit any threads.
    more = {"vector_kwargs": {"context": "forkserver"}} if mode == "async" else {}
    envs = gymnasium.make_vec(gym_id, num_envs=number, vectorization_mode=mode, **more, **settings)
    stack.callback(envs.close)
    envs.action_space.seed(0)
    envs.reset(seed=0)

    def work() -> int:
        for _ in range(steps):
            envs.step(envs.action_space.sample())
        return steps * number

    if mode == "async":  # its processes' time is not this one's
        return lambda: (nan, _speeds(work)[1])
    return lambda: _speeds(work)
