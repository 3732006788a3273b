"""FrozenLake through its own pictures: a map from the table, a policy from images.

    python examples/frozen_lake_images.py [EPISODES]

The lake is slippery: one action in five becomes a step to the side. The map is the lake without
slips. The exact value of the robust plan, computed from the lake's table, stands beside the return
of the learned policy.
"""

import sys

import tasid
from tasid.policies.evaluate import yardsticks

LAKE = {"success_rate": 0.8}


if __name__ == "__main__":
    episodes = int(sys.argv[1]) if len(sys.argv) > 1 else 400
    sim = tasid.AbstractSimulator.from_toy_text(
        "FrozenLake-v1", horizon=20, deterministic="most-likely", **LAKE
    )
    eta = 1 - LAKE["success_rate"]
    print(f"η = {eta:.2f}, worst-case value {tasid.robust_dp(sim, eta=eta).start_value:.3f}")
    with tasid.wrap("FrozenLake-v1", 16, observe="render", resize=32, **LAKE) as target:
        result = tasid.learn(target, sim, eta=eta, episodes=episodes, seed=0)
        score = tasid.evaluate(result.policy, target, episodes=5 * episodes)
        exact = yardsticks(result.policy, target)
    print(result.episodes, "episodes of learning,", score)
    print(f"robust value {exact.robust_value:.4f}, ratio {score.mean / exact.robust_value:.3f}")
