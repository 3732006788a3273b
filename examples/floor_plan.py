"""A drawn floor plan and a robot with a camera: from the plan to a policy that finds the way.

    python examples/floor_plan.py [--small]

The robot turns and drives; its camera sees the 7 × 7 cells ahead of it, walls hide what is behind
them, and everything that is not wall, hazard or goal is noise. The plan is all it is told.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import tasid
from tasid.report import plan_picture

OFFICE = """
###########
#S..#....G#
#...#..#..#
#......#..#
##.LL###..#
#.........#
###########
"""
TINY = "#####\n#S.G#\n#..L#\n#####"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--small", action="store_true", help="a tiny floor, few episodes")
    parser.add_argument("--episodes", type=int, default=400)
    parser.add_argument("--out", type=Path, default=Path("runs/floor-plan"))
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)

    text = TINY if asked.small else OFFICE.strip()
    horizon = 4 if asked.small else None  # else three times the way
    env = tasid.make("lava-crossing", text_map=text, horizon=horizon, eta=0.1, seed=0)
    plan = tasid.robust_dp(env.simulator, eta=0.1)
    print(f"{env.simulator.num_states} poses, {env.simulator.horizon} steps")
    print(f"the robust plan is worth {env.latent.robust_value(plan):.3f} here, the state in view")
    print(f"plan: {plan_picture(plan, asked.out / 'plan.png')}")

    episodes = 32 if asked.small else asked.episodes
    result = tasid.learn(env, eta=0.1, episodes=episodes, seed=0)
    score = tasid.evaluate(result.policy, env, episodes=256 if asked.small else 10_000)
    print(f"{result.episodes} episodes of learning: earns {score.mean:.3f} a time")
    result.policy.save(asked.out / "policy")
    episode = tasid.watch(result.policy, env)
    print(f"an episode: {episode.save_strip(asked.out / 'episode.png')}")


if __name__ == "__main__":
    main()
