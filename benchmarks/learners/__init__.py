"""The paper's method, ours beside the same algorithm in PyTorch: times in one run, and results.

Every seed is a random lock of its own and seeds the learner too. PyTorch's is written as its users
write (`torch_tasid.py`), with a NumPy environment that steps whole batches; it lives in
.venv-learners, which is made on the first run. Ours learns one seed at a time, and then all of them
together; PyTorch's learns them one after the other, each in a process of its own, imports not
counted. Seconds are the processor's, of all threads, or the wall's.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import tasid
from benchmarks.learners.process import Answer, answer
from benchmarks.learners.tables import write
from benchmarks.peers import ratios
from benchmarks.peers.process import installed

ETA = 0.1
MEANT = {"one seed": 5, "all seeds together": 10}
EVALUATED = 10_000


def run(arguments: Sequence[str]) -> None:
    """Print the tables in Markdown."""
    options = _parse(arguments)
    clock = {"wall": "wall", "cpu": "processor"}[options.clock]
    seeds = options.seeds
    installed("learners")
    envs = [
        tasid.make("combination-lock", horizon=options.horizon, eta=ETA, seed=seed)
        for seed in seeds
    ]
    alone, earned = [], []
    with ThreadPoolExecutor(options.jobs) as pool:
        peers = partial(pool.map, partial(_theirs, options=options), envs, seeds)
        # The processor's clock does not mind company.
        begun = peers() if options.clock == "cpu" else None
        first, _ = _ours(envs[:1], seeds[:1], options.episodes)
        for env, seed in zip(envs, seeds, strict=True):
            seconds, (ratio,) = _ours([env], [seed], options.episodes)
            alone.append(seconds[clock])
            earned.append(ratio)
        _ours(envs, seeds, options.episodes)
        theirs = list(begun or peers())
    together = [_ours(envs, seeds, options.episodes)[0][clock] for _ in range(options.repeats)]
    times = [one[clock] for one in theirs]
    print(f"\nH = {options.horizon}, {options.episodes} episodes, {clock} time\n")
    print("| | ours, s | PyTorch, s | times ours | meant |\n|---|---|---|---|---|")
    _row("one seed", alone, times)
    _row("all seeds together", together, [sum(times)] * len(together))
    print(f"| the first, compiling | {first[clock]:.1f} | | {median(times) / first[clock]:.2f} | |")
    updates = sum(one["fitting"] for one in theirs) / sum(one["updates"] for one in theirs)
    share = sum(one["fitting"] for one in theirs) / sum(one["processor"] for one in theirs)
    print(f"\nPyTorch: {1e6 * updates:.0f} µs an update; {share:.0%} of its time is fitting.")
    _results(earned, [one["ratio"] for one in theirs])


def _row(name: str, ours: Sequence[float], theirs: Sequence[float]) -> None:
    found = ratios([b / a for a, b in zip(ours, theirs, strict=True)])
    seconds = f"{median(ours):.1f} | {median(theirs):.1f}"
    print(f"| {name} | {seconds} | {found} | ≥ {MEANT[name]} |")


def _results(ours: Sequence[float], theirs: Sequence[float]) -> None:
    """What the policies earn, and whether that could be chance."""
    from scipy.stats import ks_2samp

    print("\n| | median ratio to the robust value | ratios |\n|---|---|---|")
    for name, found in (("ours", ours), ("PyTorch", theirs)):
        each = " ".join(f"{ratio:.3f}" for ratio in found)
        print(f"| {name} | {median(found):.3f} | {each} |")
    chance = ks_2samp(ours, theirs).pvalue
    print(f"\ntwo samples of one distribution differ so much with probability {chance:.2f}")


def _ours(
    envs: Sequence[tasid.BlockMDP], seeds: Sequence[int], episodes: int
) -> tuple[Answer, list[float]]:
    """Seconds by both clocks, and the ratios to the robust value."""
    processor, wall = time.process_time(), time.perf_counter()
    learned = tasid.learn(list(envs), eta=ETA, episodes=episodes, seeds=list(seeds), method="paper")
    spent = {"processor": time.process_time() - processor, "wall": time.perf_counter() - wall}
    earned = [
        tasid.evaluate(one.policy, env, episodes=EVALUATED, seed=1).mean
        / env.latent.robust_value(tasid.robust_dp(env.simulator, eta=ETA))
        for one, env in zip(learned, envs, strict=True)
    ]
    return spent, earned


def _theirs(env: tasid.BlockMDP, seed: int, options: argparse.Namespace) -> Answer:
    with TemporaryDirectory() as folder:
        tables = Path(folder) / "tables.npz"
        write(env, tables, eta=ETA)
        return answer("torch_tasid.py", tables, options.episodes, seed, options.threads)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks learners", description=__doc__)
    parser.add_argument("--horizon", type=int, default=20)
    parser.add_argument("--episodes", type=int, default=50_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(100, 105)))
    parser.add_argument("--repeats", type=int, default=3, help="of all seeds together")
    parser.add_argument("--threads", type=int, default=1, help="PyTorch's")
    parser.add_argument("--jobs", type=int, default=1, help="of PyTorch, side by side")
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    return parser.parse_args(arguments)
