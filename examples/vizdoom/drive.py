"""A 3-D engine that nobody here wrote: the office floor as a Doom level, learned from its screen.

    python examples/vizdoom/drive.py [--small] [--episodes 200] [--seed 0]

Takes `pip install -r examples/vizdoom/requirements.txt`; `make compat` runs it in an environment of
its own. The robot has the map of the floor and sees 64 × 64 pixels of the screen, nothing else.
"""

from __future__ import annotations

import argparse
import os
from functools import partial
from pathlib import Path

import numpy as np
from doom_floor import DoomFloor
from level import Part, part_of_the_floor, write_level, write_map
from PIL import Image

import tasid
from tasid.learning.belief.method import BatchEnded
from tasid.maps import blind_value
from tasid.report.pages.player import episode_page

ETA = 0.1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--small", action="store_true", help="few episodes")
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/vizdoom"))
    asked = parser.parse_args()
    out = asked.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    os.chdir(out)  # the engine leaves a folder of its own where it runs

    part = part_of_the_floor()
    sim, wad = map_of(part, out), write_level(part, out / "part.wad")
    plan = tasid.robust_dp(sim, eta=ETA)
    slips = (1 - ETA) * np.eye(sim.num_actions) + ETA / sim.num_actions
    world = tasid.PerturbedMDP(sim, np.broadcast_to(slips, (sim.num_states, *slips.shape)))
    robust = tasid.policy_value(world, plan)
    print(f"{sim.num_states} poses, {sim.horizon} steps; the robust plan that knows its pose earns "
          f"{robust:.3f}, the best without eyes {blind_value(world):.3f}")  # fmt: skip

    target = tasid.wrap(partial(DoomFloor, wad, sim, ETA), num_envs=8, resize=64)
    episodes, scored = (36, 100) if asked.small else (asked.episodes, 1000)
    result = tasid.learn(target, sim, eta=ETA, episodes=episodes, seed=asked.seed, callbacks=[tell])
    score = tasid.evaluate(result.policy, target, episodes=scored, seed=asked.seed + 1)
    print(f"{result.episodes} episodes of learning: earns {score.mean:.3f} a time in {scored}, "
          f"ratio {score.mean / robust:.3f}")  # fmt: skip
    result.policy.save(out / "policy")
    episode = tasid.watch(result.policy, target)
    Image.fromarray(episode.observations[0]).save(out / "screen.png")
    print(f"an episode: {episode_page([episode], out / 'episode.html')}")
    target.close()


def tell(batch: BatchEnded) -> None:
    """A line after every batch."""
    print(f"{batch.episodes:>5} episodes, the new ones earned {batch.return_mean:.3f}", flush=True)


def map_of(part: Part, folder: Path) -> tasid.AbstractSimulator:
    """Poses on cells of a metre; an episode lasts three times the shortest way."""
    return tasid.AbstractSimulator.from_occupancy_map(
        write_map(part, folder),
        start=part.dock,
        goal=part.goal,
        hazards=part.hazards,
        cell_size=1.0,
        robot_radius=0.2,
        moves="drive",
        step_reward=-0.005,
    )


if __name__ == "__main__":
    main()
