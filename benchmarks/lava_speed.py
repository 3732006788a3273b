"""Steps per second of the lava crossing: native and compiled, against Minigrid through Gymnasium.

Both make the same noisy pictures and take uniformly random actions, in turns in the same run. An
absorbed native episode goes on to its horizon and still makes pictures; Gymnasium's is reset, which
is not timed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

import tasid
from tasid.targets.gym.lava import MinigridLavaEnv
from tasid.targets.target import episode_keys, seed_key

TARGET = 50.0
"""What the native environment is meant to reach, times Minigrid's speed."""


def run(arguments: Sequence[str]) -> None:
    """Print both speeds and their ratio."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks lava-speed", description=__doc__)
    parser.add_argument("--height", type=int, default=11)
    parser.add_argument("--width", type=int, default=128, help="episodes side by side")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=1000, help="Gymnasium steps a round")
    options = parser.parse_args(arguments)
    native = _native(options.height, options.width)
    gymnasium = _gymnasium(options.height, options.steps)
    native(), gymnasium()
    speeds = np.array([(native(), gymnasium()) for _ in range(options.rounds)])
    ratios = speeds[:, 0] / speeds[:, 1]
    fast, slow = np.median(speeds, axis=0)
    print("| | steps per second (median) |\n|---|---|")
    print(f"| native, {options.width} episodes side by side | {fast:,.0f} |")
    print(f"| Minigrid through Gymnasium | {slow:,.0f} |")
    each = ", ".join(f"{ratio:.0f}" for ratio in ratios)
    print(f"| ratio, median of {options.rounds} rounds ({each}) | {np.median(ratios):.0f} |")
    print(f"\nmeant to be at least {TARGET:.0f}")


def _native(height: int, width: int) -> Callable[[], float]:
    target = tasid.make("lava-crossing", height=height).target
    horizon = target.horizon

    @jax.jit
    def episodes(target, keys, actions):  # type: ignore[no-untyped-def]
        def body(h, carry):  # type: ignore[no-untyped-def]
            state, observations, total, checksum = carry
            state, observations, rewards = target.step(state, actions[h], h, keys)
            # Every picture is used, or the compiler might skip making it.
            return state, observations, total + rewards, checksum + observations.max()

        state, observations = target.reset(keys)
        start = (state, observations, jnp.zeros(keys.shape[0]), jnp.uint8(0))
        return jax.lax.fori_loop(0, horizon, body, start)

    rng = np.random.default_rng(0)
    rounds = iter(range(1 << 30))

    def measure(batches: int = 8) -> float:
        actions = jnp.asarray(rng.integers(0, 5, (horizon, width)), jnp.int32)
        first = [next(rounds) * width for _ in range(batches)]
        keys = [episode_keys(seed_key(0), 0, start + jnp.arange(width)) for start in first]
        jax.block_until_ready(keys)
        started = time.perf_counter()
        for batch in keys:
            jax.block_until_ready(episodes(target, batch, actions))
        return batches * horizon * width / (time.perf_counter() - started)

    return measure


def _gymnasium(height: int, steps: int) -> Callable[[], float]:
    env = MinigridLavaEnv(height=height)
    rng = np.random.default_rng(0)

    def measure() -> float:
        actions, seconds = rng.integers(0, 5, steps), 0.0
        env.reset(seed=0)
        for action in actions:
            started = time.perf_counter()
            _, _, terminated, truncated, _ = env.step(action)
            seconds += time.perf_counter() - started
            if terminated or truncated:
                env.reset()
        return steps / seconds

    return measure


if __name__ == "__main__":
    import sys

    run(sys.argv[1:])
