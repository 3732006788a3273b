"""Time to a solved world: method belief beside PyTorch's TASID, PPO and RecurrentPPO, in one run.

A world is solved by a policy that earns 0.95 of what the robust plan earns there with latent
access. Ours decides itself when it has played enough, and that is its time, with and without what
compiling took. The others stop as soon as an evaluation says solved, which is not counted, and give
up after so many times our time. PyTorch's TASID has as many episodes as the paper needed, 400 000
on the lock and 500 000 on the lava crossing. Seconds are the processor's, of all threads.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import tasid
from benchmarks.learners.process import Answer, answer
from benchmarks.learners.tables import write
from benchmarks.peers.process import installed

ETA, ENOUGH = 0.1, 0.95
WORLDS = {
    "lock, H = 40": ("combination-lock", {"horizon": 40}, 400_000),
    "lava crossing": ("lava-crossing", {}, 500_000),
}


def run(arguments: Sequence[str]) -> None:
    """Print a table for every world."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks solving", description=__doc__)
    parser.add_argument("--worlds", nargs="+", choices=list(WORLDS), default=list(WORLDS))
    parser.add_argument("--times", type=float, default=10.0, help="our time is the others' budget")
    parser.add_argument("--seed", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=1, help="others that run side by side")
    options = parser.parse_args(arguments)
    installed("learners")
    for world in options.worlds:
        name, settings, episodes = WORLDS[world]
        env = tasid.make(name, eta=ETA, seed=options.seed, **settings)
        first, own = _ours(env, options.seed), _ours(env, options.seed)
        print(f"\n| {world} | seconds | times ours | earned / robust | experience |")
        print("|---|---|---|---|---|")
        played = f"{own['episodes']} episodes"
        _row("`belief`", own, own, played)
        _row("`belief`, compiling", first, own, played)
        budget = options.times * own["processor"]
        with TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as pool:
            tables = Path(folder) / "tables.npz"
            write(env, tables, eta=ETA)
            peers = {
                "PPO": ("sb3.py", tables, "ppo", options.seed, budget),
                "RecurrentPPO": ("sb3.py", tables, "recurrent", options.seed, budget),
                "PyTorch TASID": ("torch_tasid.py", tables, episodes, options.seed, 1, budget),
            }
            found = pool.map(lambda peer: answer(*peer), peers.values())
            for peer, one in zip(peers, found, strict=True):
                _row(peer, one, own, _experience(one, env.simulator.horizon))


def _ours(env: tasid.BlockMDP, seed: int) -> Answer:
    started = time.process_time()
    learned = tasid.learn(env, eta=ETA, seed=seed)
    processor = time.process_time() - started
    robust = env.latent.robust_value(tasid.robust_dp(env.simulator, eta=ETA))
    mean = tasid.evaluate(learned.policy, env, episodes=10_000, seed=1).mean
    return {"processor": processor, "episodes": learned.episodes, "ratio": mean / robust}


def _row(name: str, one: Answer, own: Answer, experience: str) -> None:
    ratio = one["ratio"]
    solved = ratio is not None and ratio >= ENOUGH
    beside = one["processor"] / own["processor"]
    times = f"{beside:.1f}" if solved else f"never in {beside:.1f}"
    earned = "–" if ratio is None else f"{ratio:.3f}"
    print(f"| {name} | {one['processor']:.1f} | {times} | {earned} | {experience} |", flush=True)


def _experience(one: Answer, horizon: int) -> str:
    if "updates" in one:
        return f"{one['steps']} of {horizon - 1} models learned"
    return f"{one['steps']:,} steps".replace(",", " ")
