"""Your own environment class in thirty lines, and a map of it: a warehouse cart with a lidar.

    python examples/custom_environment.py [--small]

The cart drives on a drawn floor. It sees eight noisy distances and a dim beacon, never its place;
now and then it moves somewhere else than told. The map knows the floor and nothing else.
"""

from __future__ import annotations

import argparse

import gymnasium
import numpy as np

import tasid

FLOOR = """
#########
#S..#...#
#.#...#.#
#.#.#.#.#
#...#..G#
#########
"""
MAP = tasid.AbstractSimulator.from_text_map(FLOOR.strip(), horizon=20)


class Cart(gymnasium.Env):
    """Drives north, east, south, west; one command in ten comes out as another."""

    action_space = gymnasium.spaces.Discrete(4)
    observation_space = gymnasium.spaces.Box(-10.0, 20.0, (10,), np.float32)
    rows = FLOOR.strip().split("\n")
    rays = ((-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = np.argwhere(np.array([list(row) for row in self.rows]) == "S")[0]
        return self.look(), {}

    def step(self, action):
        if self.np_random.random() < 0.1:
            action = self.np_random.integers(4)
        ahead = self.place + ((-1, 0), (0, 1), (1, 0), (0, -1))[action]
        self.place = self.place if self.rows[ahead[0]][ahead[1]] == "#" else ahead
        arrived = self.rows[self.place[0]][self.place[1]] == "G"
        return self.look(), 1.0 if arrived else -0.01, arrived, False, {}

    def look(self):
        free = lambda spot: self.rows[spot[0]][spot[1]] != "#"  # noqa: E731
        reach = [next(d for d in range(9) if not free(self.place + (d + 1) * np.array(ray)))
                 for ray in self.rays]  # fmt: skip
        beacon = np.sin(self.place * (0.9, 0.7))
        return (np.append(reach, beacon) + self.np_random.normal(0, 0.1, 10)).astype(np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--small", action="store_true", help="few episodes")
    small = parser.parse_args().small

    plan = tasid.robust_dp(MAP, eta=0.1)
    print(f"planned: worth {plan.start_value:.3f} in the worst case, {len(MAP.states)} states")
    with tasid.wrap(Cart) as target:
        check = tasid.check_target(target, MAP, eta=0.1, episodes=40 if small else 160)
        print("fits the map" if check.ok else "\n".join(check.problems))
        result = tasid.learn(target, MAP, eta=0.1, episodes=32 if small else 200)
        score = tasid.evaluate(result.policy, target, episodes=40 if small else 1_000)
    print(f"{result.episodes} episodes of learning: earns {score.mean:.3f} a time")
    for warning in result.diagnostics.warnings:
        print(f"noticed: {warning}")


if __name__ == "__main__":
    main()
