"""A guard: a quick run's ratios against those recorded in benchmarks/expected.json.

Every ratio is a yardstick's processor time over ours, side by side in one round; more is better.
The exit code is 1 if one dropped beyond noise. Ratios differ a little from machine to machine:
--record writes down what this one gives.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import jax
import numpy as np

import tasid
from benchmarks.comparison import compare
from benchmarks.dense_smoother import dense_smoother, some_episodes
from benchmarks.fresh import spent
from benchmarks.peers.maps import MAPS
from benchmarks.peers.yardsticks import plain_numpy
from benchmarks.some_policy import some_policy
from tasid.beliefs import smooth_beliefs
from tasid.beliefs.classes import Classes
from tasid.beliefs.fitting import fit
from tasid.beliefs.fused import expect_fused
from tasid.beliefs.smoother import Expected, expect
from tasid.learning.belief.episodes import CHUNK, as_chunks, play
from tasid.learning.belief.fits import actor_of, flat_fit, measured, setting_for
from tasid.targets.target import seed_key

EXPECTED = Path(__file__).with_name("expected.json")
ETA = 0.1

Pair = tuple[Callable[[], float], Callable[[], float]]
"""Seconds of the yardstick, and ours."""


def run(arguments: Sequence[str]) -> None:
    """Measure, then compare or record."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks check", description=__doc__)
    parser.add_argument("--record", action="store_true", help="write the ratios down instead")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args(arguments)
    fresh = {name: _rounds(make(), options.rounds) for name, make in PAIRS.items()}
    if options.record:
        about = {"machine": platform.machine(), "python": platform.python_version()}
        EXPECTED.write_text(json.dumps({**about, "ratios": fresh}, indent=1) + "\n")
        print(f"recorded in {EXPECTED.name}")
    verdicts = compare(json.loads(EXPECTED.read_text())["ratios"], fresh)
    print("| | recorded | now (least – most) | |\n|---|---|---|---|")
    for one in verdicts:
        then = f"{median(one.recorded):.2f}" if one.recorded else "–"
        now = "–"
        if one.fresh:
            now = f"{median(one.fresh):.2f} ({min(one.fresh):.2f} – {max(one.fresh):.2f})"
        print(f"| {one.name} | {then} | {now} | {'DROPPED' if one.dropped else 'ok'} |")
    if any(one.dropped for one in verdicts):
        sys.exit(1)


def _rounds(pair: Pair, rounds: int) -> list[float]:
    for once in pair:
        once()
    return [round(yardstick() / ours(), 4) for yardstick, ours in [pair] * rounds]


def _timed(work: Callable[[], object], times: int = 1) -> Callable[[], float]:
    def seconds() -> float:
        started = time.process_time()
        for _ in range(times):
            work()
        return time.process_time() - started

    return seconds


def _planning(map_name: str) -> Pair:
    sim = MAPS[map_name](100_000, 5)
    ours = _timed(lambda: tasid.robust_dp(sim, eta=ETA, reachable_only=False))
    for _ in range(8):  # what is used often is compiled
        ours()
    return _timed(lambda: plain_numpy(sim, ETA)), ours


def _deciding(env: tasid.BlockMDP) -> Pair:
    """Against a hundred thousand exponentials for each decision."""
    policy, seen = some_policy(env)
    agent, numbers = policy.agent(), np.linspace(-1, 1, 100_000)

    def decide() -> None:
        if agent.step >= policy.horizon:
            agent.reset()
        agent.act(seen[agent.step])

    return _timed(lambda: np.exp(numbers), 400), _timed(decide, 400)


def _smoothing() -> Pair:
    sim, commands, scores = some_episodes()
    return (
        _timed(lambda: dense_smoother(sim, commands, scores, ETA)),
        _timed(lambda: smooth_beliefs(sim, commands, scores, eta=ETA)),
    )


def _expecting() -> Pair:
    """One pass over a step's edges against tables of them, in a building."""
    env = tasid.make("building", eta=ETA, starts="anywhere")
    plan = tasid.robust_dp(env.simulator, eta=ETA)
    setting = setting_for(plan)
    classes = Classes.of(setting.chain, "place", plan.simulator)
    flat = flat_fit(setting, classes, env.observation_shape)
    policy = actor_of(setting, flat)
    seen = play(env, policy, seed_key(0), first=0, episodes=CHUNK, explore=1.0)
    (chunk,) = as_chunks(seen, setting.chain, measured(seen, setting.chain), tells=True)
    emission, _ = fit(setting, classes, [chunk], [(0.1, chunk.features.shape[0])])
    given = chunk, setting.weights(), setting.advantage, chunk.features

    def expecting(how: Callable[..., Expected]) -> Callable[[], float]:
        return _timed(lambda: jax.block_until_ready(how(setting.chain, classes, emission, *given)))

    return expecting(expect), expecting(expect_fused)


def _starting(yardstick: str, *ours: str) -> Pair:
    return (
        lambda: spent(["-c", yardstick]).processor,
        lambda: spent(ours).processor,
    )


PAIRS: dict[str, Callable[[], Pair]] = {
    "planning on a grid, against NumPy": lambda: _planning("grid"),
    "planning on a random map, against NumPy": lambda: _planning("random"),
    "deciding on the lock": lambda: _deciding(tasid.make("combination-lock", horizon=40)),
    "deciding on the lava crossing": lambda: _deciding(tasid.make("lava-crossing")),
    "smoothing, against dense NumPy": _smoothing,
    "expectation in a building, against tables of edges": _expecting,
    "`import` to act, against JAX": lambda: _starting(
        "import jax.numpy", "-c", "import tasid.policies.belief_policy"
    ),
    "`tasid --help`, against NumPy": lambda: _starting("import numpy", "-m", "tasid.cli", "--help"),
}
