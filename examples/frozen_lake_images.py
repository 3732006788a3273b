"""FrozenLake seen through its own pictures: a map from the table, a policy from images.

    python examples/frozen_lake_images.py            # five seeds
    python examples/frozen_lake_images.py --small    # a short run that shows the way

The lake is slippery: one command in five comes out as a step to the side. The map is the lake
without the ice. What the robust policy is worth is computed from the lake's own table and printed
beside what the learned policy earns.
"""

from __future__ import annotations

import argparse
import time

import gymnasium

import tasid
from tasid.maps.sources.toy_text import from_toy_text

LAKE = {"id": "FrozenLake-v1", "success_rate": 0.8}
HORIZON = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--small", action="store_true", help="few episodes, one seed")
    parser.add_argument("--episodes", type=int, default=400)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    asked = parser.parse_args()
    episodes, seeds, scored, horizon = asked.episodes, asked.seeds, 5_000, HORIZON
    if asked.small:
        episodes, seeds, scored, horizon = 32, seeds[:1], 16, 8

    # The map: every move comes out as asked. The lake itself is a perturbation of it.
    lake = from_toy_text(gymnasium.make(**LAKE), horizon=horizon, deterministic="most-likely")
    eta = lake.simulator.origin.implied_eta
    plan = tasid.robust_dp(lake.simulator, eta=eta)
    robust = tasid.policy_value(lake.world, plan)
    print(f"η = {eta:.2f}; the robust plan earns {robust:.4f} in this lake, the state in view")

    with tasid.wrap(LAKE["id"], success_rate=0.8, observe="render", resize=32) as target:
        for seed in seeds:
            started = time.perf_counter()
            result = tasid.learn(target, lake.simulator, eta=eta, episodes=episodes, seed=seed)
            seconds = time.perf_counter() - started
            score = tasid.evaluate(result.policy, target, episodes=scored, seed=seed)
            print(
                f"seed {seed}: {result.episodes} episodes, {seconds:.0f} s; "
                f"earns {score.mean:.4f}, ratio {score.mean / robust:.3f}"
            )


if __name__ == "__main__":
    main()
