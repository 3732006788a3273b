"""One decision of a belief agent: how long it takes, and what a process that only acts costs.

The lock has H = 40 steps, the lava crossing shows pictures. Policies are as large as learned ones.
Processor time is what a machine of its own would take; the wall says what this one gave.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import tasid
from benchmarks.fresh import Spent, spent
from benchmarks.some_policy import some_policy
from tasid.policies.belief_policy import BeliefPolicy

MEANT = {"lock": 2.0, "lava": 5.0}
"""Milliseconds for a decision."""
_ALONE = """
import json, sys, time
import numpy as np
begun = time.process_time()
import tasid
policy = tasid.load(sys.argv[1])
loaded = time.process_time()
agent = policy.agent()
made = time.process_time()
seen = np.load(sys.argv[2])
for _ in range(1000):
    if agent.step >= policy.horizon:
        agent.reset()
    agent.act(seen[agent.step])
print(json.dumps([loaded - begun, made - loaded]))
"""


def run(arguments: Sequence[str]) -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks agent-speed", description=__doc__)
    parser.add_argument("--calls", type=int, default=10_000)
    options = parser.parse_args(arguments)
    worlds = {
        "lock": some_policy(tasid.make("combination-lock", horizon=40)),
        "lava": some_policy(tasid.make("lava-crossing")),
    }
    print(f"milliseconds of a decision, {options.calls} calls\n")
    print("| | processor: median | 99 % | wall: median | 99 % | meant to be at most |")
    print("|---|---|---|---|---|---|")
    for name, (policy, seen) in worlds.items():
        times = 1e3 * decisions(policy, seen, options.calls)
        cells = [f"{x:.2f}" for x in np.percentile(times, [50, 99], axis=1).T.ravel()]
        print(f"| {name} | {' | '.join(cells)} | {MEANT[name]:.0f} |", flush=True)
    print("\na process that loads a policy and acts 1000 times; seconds are the processor's\n")
    print("| | import and load, s | make the agent, s | all, s | wall, s | memory, MB |")
    print("|---|---|---|---|---|---|")
    for name, (policy, seen) in worlds.items():
        for row, cells in zip(("", ", compiled before"), alone(policy, seen), strict=True):
            print(f"| {name}{row} | {cells} |", flush=True)
    jax = spent(["-c", "import jax.numpy"])
    print(f"| `import jax` alone | | | {jax.processor:.2f} | {jax.wall:.2f} | {jax.memory:.0f} |")
    print("\nmeant to be at most 1.5 s and 300 MB")


def decisions(policy: BeliefPolicy, seen: np.ndarray, calls: int) -> np.ndarray:
    """Seconds of each call, by the processor and by the wall, [2, calls]."""
    agent = policy.agent()
    times = np.empty((2, calls))
    for k in range(calls):
        if agent.step >= policy.horizon:
            agent.reset()
        observation = seen[k % len(seen)]
        processor, wall = time.process_time(), time.perf_counter()
        agent.act(observation)
        times[:, k] = time.process_time() - processor, time.perf_counter() - wall
    return times


def alone(policy: BeliefPolicy, seen: np.ndarray) -> list[str]:
    """Cells of a process that does nothing else, and of one that finds its code in JAX's cache."""
    with TemporaryDirectory() as folder:
        policy.save(Path(folder) / "policy")
        np.save(Path(folder) / "seen.npy", seen[: policy.horizon])
        arguments = ["-c", _ALONE, f"{folder}/policy", f"{folder}/seen.npy"]
        kept = {
            "JAX_COMPILATION_CACHE_DIR": f"{folder}/compiled",
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }
        costs = [spent(arguments), spent(arguments, kept), spent(arguments, kept)]
        return [_cells(costs[0]), _cells(costs[2])]


def _cells(cost: Spent) -> str:
    loaded, made = json.loads(cost.output)
    times = (loaded, made, cost.processor, cost.wall)
    return " | ".join([*(f"{x:.2f}" for x in times), f"{cost.memory:.0f}"])
