"""Steps per second of our environments: compiled, and the same behind Gymnasium's interface.

Natively whole episodes run inside one compiled call. Through Gymnasium every step is a call of its
own: `SyncVectorEnv` steps one environment after the other, our own vector all of them at once. All
take uniformly random actions, in turns in the same run; seconds are the processor's, or the wall's.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from statistics import median

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

import tasid
from benchmarks.peers import ratios
from tasid.envs.target import episode_keys, seed_key

WORLDS = {
    "lock, H = 40": ("combination-lock", "tasid/CombinationLock-v0", {"horizon": 40}),
    "lava pictures": ("lava-crossing", "tasid/LavaCrossing-v0", {}),
}
WAYS = ("native", "our vector", "SyncVectorEnv")


def run(arguments: Sequence[str]) -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks env-speed", description=__doc__)
    parser.add_argument("--width", type=int, default=128, help="native episodes side by side")
    parser.add_argument("--envs", type=int, default=16, help="environments of a vector")
    parser.add_argument("--steps", type=int, default=200, help="of a vector, each round")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    print("| | steps a second of processor time | of the wall | native is faster by |")
    print("|---|---|---|---|")
    for world, (name, gym_id, settings) in WORLDS.items():
        made = [
            _native(tasid.make(name, **settings), options.width),
            _vector(gym_id, settings, options.envs, options.steps, "vector_entry_point"),
            _vector(gym_id, settings, options.envs, options.steps, "sync"),
        ]
        for once in made:
            once()
        found = np.array([[once() for once in made] for _ in range(options.rounds)])
        for k, way in enumerate(WAYS):
            speeds = [f"{median(found[:, k, clock]):,.0f}" for clock in (0, 1)]
            gain = ratios(list(found[:, 0, 0] / found[:, k, 0])) if k else ""
            print(f"| {world}: {way} | {' | '.join(speeds)} | {gain} |", flush=True)


def _speeds(work: Callable[[], int]) -> tuple[float, float]:
    """Steps per second, by the processor and by the wall."""
    processor, wall = time.process_time(), time.perf_counter()
    steps = work()
    return steps / (time.process_time() - processor), steps / (time.perf_counter() - wall)


def _native(env: tasid.BlockMDP, width: int) -> Callable[[], tuple[float, float]]:
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
    gym_id: str, settings: dict[str, int], number: int, steps: int, mode: str
) -> Callable[[], tuple[float, float]]:
    envs = gymnasium.make_vec(gym_id, num_envs=number, vectorization_mode=mode, **settings)
    envs.action_space.seed(0)
    envs.reset(seed=0)

    def work() -> int:
        for _ in range(steps):
            envs.step(envs.action_space.sample())
        return steps * number

    return lambda: _speeds(work)
