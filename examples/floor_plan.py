"""A drawn floor plan and a robot with a camera: from the plan to a policy, with pictures.

    python examples/floor_plan.py [EPISODES]

The camera shows the 7 × 7 cells ahead; walls hide what is behind them, and everything that is not
wall, hazard or goal is noise. The plan is all that is known. Writes plan.png, episode.gif and the
policy to runs/floor-plan.
"""

import sys
from pathlib import Path

import tasid
from tasid.report.maps import save_plan

PLAN = """
###########
#S..#....G#
#...#..#..#
#......#..#
##.LL###..#
#.........#
###########
""".strip()


if __name__ == "__main__":
    episodes = int(sys.argv[1]) if len(sys.argv) > 1 else 400
    out = Path("runs/floor-plan")
    env = tasid.make("lava-crossing", text_map=PLAN, eta=0.1, seed=0)
    plan = tasid.robust_dp(env.simulator, eta=0.1)
    print(f"{env.simulator.num_states} poses, {env.simulator.horizon} steps")
    print(f"robust value {env.latent.robust_value(plan):.3f}, for an oracle that sees the state")
    print("plan:", save_plan(plan, out / "plan.png"))

    result = tasid.learn(env, eta=0.1, episodes=episodes, seed=0)
    score = tasid.evaluate(result.policy, env, episodes=1_000)
    print(result.episodes, "episodes of learning,", score)
    print("policy:", result.policy.save(out / "policy"))
    print("episode:", tasid.watch(result.policy, env).save_gif(out / "episode.gif"))
