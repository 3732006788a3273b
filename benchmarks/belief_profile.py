"""Where the time of the default method goes, and what the floor is.

Learns twice with one worker and reads the processor's clock around every part: the first time says
what compiling takes, the second what is left. The floor of the smoother and of the maximisation is
the arithmetic of their matrix products alone (each score once, each sum once; moments, and one
diagonalisation for each round, by 9 D³), at the rate at which this machine multiplies matrices in
the same run, in one thread: single precision in JAX, double in NumPy.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
from threadpoolctl import threadpool_limits

import tasid
from benchmarks import solving
from benchmarks.solving import ETA
from tasid.beliefs import fitting
from tasid.learning.belief import method, refits
from tasid.runs import learn as learning

WORLDS = solving.WORLDS | {"building, lidar": ("building", {}, 0)}
PARTS: list[tuple[str, Any, str]] = [
    ("playing", method, "play"),
    ("features", method, "as_chunks"),
    ("features", refits, "as_chunks"),
    ("features, measured", method, "measured"),
    ("smoother", fitting, "expect"),
    ("smoother", fitting, "expect_fused"),
    ("maximisation: moments", fitting.Totals, "moments"),
    ("maximisation: Gaussians", fitting, "fit_gaussians"),
    ("findings", learning, "agreed_findings"),
]
COMPILING = "/jax/core/compile/"
_ROUNDS = 5
"""Diagonalisations of a fit: the first guess, three rounds, the last."""


class Meter:
    """Seconds of processor time and floating-point operations, by part."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self.work: Counter[str] = Counter()

    def around(self, name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, watched."""

        def watched(*arguments: Any, **named: Any) -> Any:
            started = time.process_time()
            found = jax.block_until_ready(work(*arguments, **named))
            self.seconds[name] += time.process_time() - started
            self.calls[name] += 1
            self.work[name] += COUNTS.get(name, lambda *_, **__: 0)(*arguments, **named)
            return found

        return watched


def smoothing(chain: Any, classes: Any, emission: Any, episodes: Any, *_: Any) -> int:
    """Multiplications and additions of the smoother's matrix products."""
    steps, lanes, size = episodes.features.shape
    kept = emission.directions.shape[1]
    members = classes.members.shape[-1]
    return 2 * steps * lanes * (size * kept + 2 * members * kept + members * size)


def fitting_gaussians(moments: Any, **_: Any) -> int:
    """Of a fit: products of sums and directions, and diagonalisations."""
    classes, size = moments.sums.shape
    return _ROUNDS * (9 * size**3 + 6 * classes * size**2)


COUNTS = {"smoother": smoothing, "maximisation: Gaussians": fitting_gaussians}


def run(arguments: Sequence[str]) -> None:
    """Print a table for every world."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks profile", description=__doc__)
    parser.add_argument("--worlds", nargs="+", choices=list(WORLDS), default=list(WORLDS))
    parser.add_argument("--seed", type=int, default=100)
    options = parser.parse_args(arguments)
    compiled: Counter[str] = Counter()
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, seconds, **_: compiled.update({event: seconds})
    )
    for world in options.worlds:
        name, settings, _ = WORLDS[world]
        env = tasid.make(name, eta=ETA, seed=options.seed, **settings)
        compiled.clear()
        first, _, _ = _learned(env, options.seed)
        parts = {e.removeprefix(COMPILING): s for e, s in compiled.items() if COMPILING in e}
        again, meter, result = _learned(env, options.seed)
        started = time.process_time()
        tasid.evaluate(result.policy, env, episodes=10_000, seed=1)
        evaluating = time.process_time() - started
        rates = {"smoother": _single(), "maximisation: Gaussians": _double()}
        print(f"\n{world}, {result.episodes} episodes: {first:.1f} s of processor time when")
        print(f"compiling, {again:.1f} s when not; evaluating 10 000 episodes {evaluating:.1f} s\n")
        print("| part | seconds | share | calls | times the floor |\n|---|---|---|---|---|")
        for part, seconds in meter.seconds.most_common():
            floor = meter.work[part] / rates[part] if part in rates else 0.0
            above = f"{seconds / floor:.1f}" if floor else ""
            calls = meter.calls[part]
            print(f"| {part} | {seconds:.2f} | {seconds / again:.0%} | {calls} | {above} |")
        rest = again - sum(meter.seconds.values())
        print(f"| everything else | {rest:.2f} | {rest / again:.0%} | | |")
        spelt = ", ".join(f"{event} {seconds:.1f} s" for event, seconds in parts.items())
        print(f"\ncompiling, on the wall: {spelt}")
        single, double = (rate / 1e9 for rate in rates.values())
        print(f"matrix products: {single:.1f} GFLOP/s single, {double:.1f} double, one thread")


def _learned(env: tasid.BlockMDP, seed: int) -> tuple[float, Meter, tasid.LearningResult]:
    meter = Meter()
    with ExitStack() as stack:
        for name, place, function in PARTS:
            watched = meter.around(name, getattr(place, function))
            stack.enter_context(patch.object(place, function, watched))
        for place in (refits, fitting):
            alone = patch.object(place, "ThreadPoolExecutor", lambda _: ThreadPoolExecutor(1))
            stack.enter_context(alone)
        started = time.process_time()
        result = tasid.learn(env, eta=ETA, seed=seed)
        return time.process_time() - started, meter, result


def _rate(multiply: Callable[[], object], size: int) -> float:
    """Floating-point operations a second of processor time, the best of several."""
    multiply()
    found = []
    for _ in range(7):
        started = time.process_time()
        for _ in range(20):
            multiply()
        found.append(20 * 2 * size**3 / (time.process_time() - started))
    return max(found)


def _single(size: int = 512) -> float:
    matrix = jnp.ones((size, size), jnp.float32)
    product = jax.jit(jnp.matmul)
    return _rate(lambda: jax.block_until_ready(product(matrix, matrix)), size)


def _double(size: int = 512) -> float:
    matrix = np.ones((size, size))
    with threadpool_limits(1, "blas"):
        return _rate(lambda: matrix @ matrix, size)
