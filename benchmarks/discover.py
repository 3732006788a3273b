"""Maps discovered without a map: episodes, and the value of plans on them in the true world.

    python -m benchmarks discover --seeds 720-729 --out results/discover/records.jsonl
    python -m benchmarks discover --settings lock-H20 transfer-H20 --seeds 1-3
    python -m benchmarks discover --read results/discover/records.jsonl

Every episode counts. States of the discovered map are matched with true ones by mean observations,
in the lava crossing, where some look alike, by the arrows from the start. The ratio is the exact
value of the discovered map's robust plan in the source over that of the true map's; for stochastic
sources, of its optimal plan over the optimum. *transfer* learns in another lock (other observations
and slips) or lava crossing (other slips) with 128 episodes, on the discovered map and on the true
one; `difference` is between their ratios. The lock with coin flips is explored until the plan on
the map so far opens it. In MiniGrid's rooms, one layout seen from above, the ratio is the share of
true transitions that the map has, each state having one of its own.
"""

from __future__ import annotations

import argparse
import heapq
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

import tasid

GOALS = {  # least ratio, most episodes; cheap ones first
    "lock-H20": (0.95, 700),
    "lock-H40": (0.95, 1400),
    "transfer-H20": (0.95, 700),
    "lake-4x4-numbers": (0.95, None),
    "empty-8x8": (1.0, None),
    "lock-H100-eta0": (0.95, 1500),
    "lock-H100": (0.95, 3500),
    "lava": (0.97, 1000),
    "coin-flips-H100": (0.95, 2500),
    "lake-8x8-numbers": (0.95, None),
    "lake-4x4-pictures": (0.95, None),
    "fourrooms": (1.0, None),
    "lake-8x8-pictures": (0.95, None),
}


def lock(horizon: int, eta: float, seed: int, transfer: bool = False) -> dict[str, Any]:
    """A combination lock; the ratio of its discovered map, and of learning in another lock."""
    source = tasid.make("combination-lock", horizon=horizon, eta=eta, seed=seed)
    found, record = explored(source, eta, seed)
    record["ratio"] = plan_ratio(source, found, by_means(found, source))
    if transfer:
        target = tasid.make("combination-lock", horizon=horizon, eta=eta, seed=seed + 1000)
        target = with_graph(target, source)
        record |= transferred(target, found, source.simulator, seed)
    return record


def transferred(target: Any, found: tasid.Discovery, true: Any, seed: int) -> dict[str, float]:
    """Ratios after 128 episodes of learning in the target, on the discovered and the true map."""
    robust, ratios = target.latent.robust_value(tasid.robust_dp(true, eta=0.1)), {}
    for name, sim in (("discovered", found.simulator), ("true", true)):
        result = tasid.learn(target, sim, eta=0.1, episodes=128, seed=seed)
        score = tasid.evaluate(result.policy, target, episodes=10_000, seed=seed)
        ratios[name] = score.mean / robust
    return ratios | {"difference": ratios["discovered"] - ratios["true"]}


def with_graph(target: Any, source: Any) -> Any:
    """The target's observations and slips on the source's graph."""
    from tasid.planning import PerturbedMDP
    from tasid.targets.block import BlockMDP

    world = PerturbedMDP(source.simulator, tasid.perturb(source.simulator, eta=0.1, seed=7).xi)
    return BlockMDP(world, target.emission, name="another lock", options={})


def coin_flips(horizon: int, seed: int) -> dict[str, Any]:
    """The lock of HOMER and BRIEE: episodes after which the plan on the map so far opens it."""
    from tasid.learning.discovery import Exploration
    from tasid.learning.mixture import DiscoveryConfig

    source = tasid.make("combination-lock", horizon=horizon, eta=0.0, coin_flips=True, seed=seed)
    true, started = source.simulator, time.perf_counter()
    exploration = Exploration(source, 0.0, None, seed, DiscoveryConfig())
    ratio, limit = 0.0, 5000
    while ratio < 0.95 and exploration.played < limit:
        with threadpool_limits(1, "blas"):
            exploration.batch(limit)
        if exploration.played % 64 == 0 and exploration.stochastic:
            found = exploration.result(force=True)
            ratio = optimal_ratio(found, true, by_means(found, source))
    return {
        "episodes": exploration.played,
        "states": len(exploration.component),
        "seconds": time.perf_counter() - started,
        "ratio": ratio,
    }


def by_means(found: tasid.Discovery, source: Any) -> NDArray[np.intp]:
    """The discovered state with the nearest mean for every state of a lock; −1 if it has none."""
    true, clean = source.simulator, np.asarray(source.emission.clean)
    if not found.layered:
        return np.asarray(((clean[:, None] - found.means[None]) ** 2).sum(axis=2).argmin(axis=1))
    step = np.array([h for h, _ in found.simulator.states])
    match = np.full(true.num_states, -1)
    for s, (layer, _) in enumerate(true.states):
        own = np.flatnonzero(step == layer)
        if len(own):
            match[s] = own[((found.means[own] - clean[s]) ** 2).sum(axis=1).argmin()]
    return match


def lava(seed: int) -> dict[str, Any]:
    """The lava crossing, whose pictures have four look-alike pairs."""
    source = tasid.make("lava-crossing", seed=seed)
    found, record = explored(source, 0.1, seed)
    record["ratio"] = plan_ratio(source, found, by_arrows(found, source.simulator))
    target = tasid.make("lava-crossing", seed=seed + 1000)
    return record | transferred(target, found, source.simulator, seed)


def lake(size: str, pictures: bool, seed: int) -> dict[str, Any]:
    """FrozenLake as Gymnasium ships it, slippery."""
    import gymnasium

    def make() -> Any:
        mode = "rgb_array" if pictures else None
        return gymnasium.make(name, render_mode=mode)

    name, horizon = {"4x4": ("FrozenLake-v1", 100), "8x8": ("FrozenLake8x8-v1", 200)}[size]
    observe = {"observe": "render", "resize": 56} if pictures else {}
    target: Any = tasid.wrap(make, horizon=horizon, num_envs=8, **observe)
    found, record = explored(target, 0.1, seed)
    true = tasid.AbstractSimulator.from_toy_text(make(), horizon=horizon)
    looks = np.eye(true.num_states)
    if pictures:
        from tasid.hmm.features import flatten

        env, drawn = make(), []
        env.reset(seed=0)
        for state in range(true.num_states):
            env.unwrapped.s = state
            drawn.append(np.asarray(_shrunk(env.render(), 56)))
        looks = flatten(np.stack(drawn), 4)
    means = found.means.reshape(len(found.means), -1)
    match = ((looks[:, None] - means[None]) ** 2).sum(axis=2).argmin(axis=1)
    record["ratio"] = optimal_ratio(found, true, match)
    return record


def room(name: str, horizon: int, seed: int) -> dict[str, Any]:
    """A MiniGrid room without slips whose layout is drawn from the seed, seen from above."""
    import gymnasium

    from benchmarks.worlds import FORWARD, LEFT, RIGHT, SlipperyRoom, minigrid_map

    class SeenFromAbove(SlipperyRoom):
        def __init__(self) -> None:
            super().__init__(name, seed, (LEFT, RIGHT, FORWARD), 0.0)
            self.env.reset(seed=seed)
            self.observation_space = gymnasium.spaces.Box(0, 255, self.picture().shape, np.uint8)

        def picture(self) -> Any:
            base: Any = self.unwrapped
            return base.get_frame(highlight=False, tile_size=8)

        def reset(self, **options: Any) -> tuple[Any, dict]:
            _, info = super().reset(**options)
            return self.picture(), info

        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
            _, *rest = super().step(action)
            return self.picture(), *rest

    true = minigrid_map(SeenFromAbove(), horizon)
    target = tasid.wrap(SeenFromAbove, num_envs=8, horizon=horizon)
    found, record = explored(target, 0.0, seed)
    match, moves = by_arrows(found, true), np.ptp(true.successor, axis=1) > 0
    right = found.simulator.intended(0)[match] == match[true.successor]
    right &= (match >= 0)[:, None] & (np.bincount(match + 1)[match + 1] == 1)[:, None]
    record["ratio"] = float(right[moves].mean())
    return record


def _shrunk(picture: NDArray[np.uint8], side: int) -> Any:
    from PIL import Image

    return Image.fromarray(picture).resize((side, side), Image.Resampling.BOX)


def explored(source: Any, eta: float, seed: int) -> tuple[tasid.Discovery, dict[str, Any]]:
    """A discovery and its record."""
    started = time.perf_counter(), time.process_time()
    found = tasid.discover(source, eta=eta, seed=seed, force=True)
    seconds = time.perf_counter() - started[0], time.process_time() - started[1]
    record = found.summary() | {"seconds": seconds[0], "cpu_seconds": seconds[1]}
    return found, record


def by_arrows(found: tasid.Discovery, true: Any) -> NDArray[np.intp]:
    """A discovered state for every true one, by arrows from the start that were tested most often;
    −1 if none leads there."""
    sim, match = found.simulator, np.full(true.num_states, -1)
    successor = sim.intended(0)
    queue = [(-np.inf, int(true.start), int(sim.starts[sim.start_probabilities.argmax()]))]
    while queue:
        support, s, own = heapq.heappop(queue)
        if match[s] >= 0:
            continue
        match[s] = own
        for a in np.flatnonzero(found.tried[own] > 0):
            weakest = max(support, -found.tried[own, a])
            heapq.heappush(queue, (weakest, int(true.successor[s, a]), int(successor[own, a])))
    return match


def carried(found: tasid.Discovery, eta: float, match: NDArray[np.intp]) -> NDArray[np.intp]:
    """Actions [H, S] of the discovered map's plan in the true states."""
    actions = np.asarray(tasid.robust_dp(found.simulator, eta=eta).actions)
    return np.where(match >= 0, actions[:, match], 0)


def plan_ratio(source: Any, found: tasid.Discovery, match: NDArray[np.intp]) -> float:
    """Of the values of the discovered and the true map's robust plan in the source."""
    world = source.latent.world
    value = tasid.policy_value(world, carried(found, 0.1, match))
    return float(value / source.latent.robust_value(tasid.robust_dp(source.simulator, eta=0.1)))


def optimal_ratio(found: tasid.Discovery, true: Any, match: NDArray[np.intp]) -> float:
    """Of the value of the discovered map's optimal plan and the optimum."""
    value = tasid.policy_value(true, carried(found, 0.0, match))
    return float(value / tasid.optimal_value(true))


RUNS: dict[str, Callable[[int], dict[str, Any]]] = {
    "lock-H20": lambda seed: lock(20, 0.1, seed),
    "lock-H40": lambda seed: lock(40, 0.1, seed),
    "transfer-H20": lambda seed: lock(20, 0.1, seed, transfer=True),
    "lake-4x4-numbers": lambda seed: lake("4x4", False, seed),
    "empty-8x8": lambda seed: room("Empty-8x8", 100, seed),
    "lock-H100-eta0": lambda seed: lock(100, 0.0, seed),
    "lock-H100": lambda seed: lock(100, 0.1, seed),
    "lava": lava,
    "coin-flips-H100": lambda seed: coin_flips(100, seed),
    "lake-8x8-numbers": lambda seed: lake("8x8", False, seed),
    "lake-4x4-pictures": lambda seed: lake("4x4", True, seed),
    "fourrooms": lambda seed: room("FourRooms", 150, seed),
    "lake-8x8-pictures": lambda seed: lake("8x8", True, seed),
}


def print_table(records: list[dict[str, Any]]) -> None:
    """Median and range of every setting, and how many runs reached its goal.

    A run is *silent* if it misses its goal although discovery called the map finished.
    """
    print(f"{'setting':<18} runs reached silent   ratio least  most        episodes  CPU seconds")
    for name, (least, most) in GOALS.items():
        own = [record for record in records if record["setting"] == name]
        if not own:
            continue
        ratio, played, seconds = (
            np.array([record.get(key, np.nan) for record in own])
            for key in ("ratio", "episodes", "cpu_seconds")
        )
        reached = (ratio >= least) & (played <= (most or np.inf))
        silent = int(sum(record.get("finished", False) for record in np.array(own)[ratio < least]))
        span = f"{np.median(played):.0f} ({played.min()}-{played.max()})"
        print(
            f"{name:<18} {len(own):>4} {int(reached.sum()):>7} {silent:>6} "
            f"{np.median(ratio):>7.3f} {ratio.min():>5.3f} {ratio.max():>5.3f} "
            f"{span:>18} {np.median(seconds):>12.1f}"
        )
        if "difference" in own[0]:
            worst = max((record["difference"] for record in own), key=abs)
            print(f"{'':<18} largest difference to learning on the true map: {worst:+.4f}")


def read(path: Path) -> Iterator[dict[str, Any]]:
    """Records of a file, if it is there."""
    if path.exists():
        yield from map(json.loads, path.read_text().splitlines())


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks discover",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--settings", nargs="+", choices=RUNS, default=list(RUNS))
    parser.add_argument("--seeds", default="720-729", metavar="A-B")
    parser.add_argument("--out", type=Path, help="append records, skipping those that are there")
    parser.add_argument("--read", type=Path, help="print the table of these records")
    options = parser.parse_args()
    if options.read:
        print_table(list(read(options.read)))
        return
    first, _, last = options.seeds.partition("-")
    records = [] if options.out is None else list(read(options.out))
    done = {(record["setting"], record["seed"]) for record in records}
    for seed in range(int(first), int(last or first) + 1):
        for name in options.settings:
            if (name, seed) in done:
                continue
            record = {"setting": name, "seed": seed, **RUNS[name](seed)}
            records.append(record)
            print(json.dumps(record), flush=True)
            if options.out is not None:
                options.out.parent.mkdir(parents=True, exist_ok=True)
                with options.out.open("a") as file:
                    file.write(json.dumps(record) + "\n")
    print_table(records)


if __name__ == "__main__":
    main()
