"""Steps per second of NAVIX with pictures of what the agent sees; runs in .venv-learners.

python navix_speed.py WIDTH STEPS: a line of JSON for every line on standard input, with the
speeds of one round by the processor and by the wall, and the shape of a picture.
"""

from __future__ import annotations

import json
import sys
import time

import jax
import jax.numpy as jnp
import navix

ID = "Navix-DistShift1-v0"
"""A crossing beside lava, 9 × 7 cells."""


def main() -> None:
    """Compile, then answer."""
    width, steps = map(int, sys.argv[1:])
    env = navix.make(ID, observation_fn=navix.observations.rgb_first_person)

    @jax.jit
    def episodes(keys, actions):  # type: ignore[no-untyped-def]
        def body(carry, now):  # type: ignore[no-untyped-def]
            state, checksum = carry
            state = jax.vmap(env.step)(state, now)
            # Every picture is used, or the compiler might skip making it.
            return (state, checksum + state.observation.max()), None

        state = jax.vmap(env.reset)(keys)
        start = (state, jnp.zeros((), state.observation.dtype))
        return jax.lax.scan(body, start, actions)[0][1]

    def once(seed: int) -> dict[str, object]:
        keys = jax.random.split(jax.random.key(seed), width)
        actions = jax.random.randint(jax.random.key(seed + 1), (steps, width), 0, 3)
        processor, wall = time.process_time(), time.perf_counter()
        jax.block_until_ready(episodes(keys, actions))
        processor, wall = time.process_time() - processor, time.perf_counter() - wall
        return {"processor": width * steps / processor, "wall": width * steps / wall}

    shape = jax.eval_shape(env.reset, jax.random.key(0)).observation.shape
    once(0)
    for seed, _ in enumerate(sys.stdin):
        print(json.dumps({**once(seed + 1), "shape": shape}), flush=True)


if __name__ == "__main__":
    main()
