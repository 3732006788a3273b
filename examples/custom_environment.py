"""A Gymnasium environment of one's own and its map: a warehouse cart with range sensors.

    python examples/custom_environment.py [EPISODES]

The cart measures distances along eight rays and two beacons, all with noise. Its position is not
observed, and one action in ten is replaced by a random one.
"""

import sys

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
""".strip()
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))
RAYS = [(down, right) for down in (-1, 0, 1) for right in (-1, 0, 1) if (down, right) != (0, 0)]


class Cart(gymnasium.Env):
    action_space = gymnasium.spaces.Discrete(4)  # north, east, south, west
    observation_space = gymnasium.spaces.Box(-10.0, 20.0, (10,), np.float32)
    walls = np.array([list(row) for row in FLOOR.split("\n")]) == "#"

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = np.array([1, 1])
        return self.measure(), {}

    def step(self, action):
        move = action if self.np_random.random() >= 0.1 else self.np_random.integers(4)
        ahead = self.place + MOVES[move]
        self.place = self.place if self.walls[tuple(ahead)] else ahead
        arrived = tuple(self.place) == (4, 7)
        return self.measure(), 1.0 if arrived else -0.01, arrived, False, {}

    def measure(self):
        steps = np.arange(1, 9)[:, None, None] * np.array(RAYS)
        row, column = np.clip(self.place + steps, 0, np.array(self.walls.shape) - 1).T
        exact = np.append(self.walls[row, column].argmax(axis=1), np.sin(self.place * (0.9, 0.7)))
        return (exact + self.np_random.normal(0, 0.1, 10)).astype(np.float32)


if __name__ == "__main__":
    episodes = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    sim = tasid.AbstractSimulator.from_text_map(FLOOR, horizon=20)
    print(f"worst-case value {tasid.robust_dp(sim, eta=0.1).start_value:.3f}")
    with tasid.wrap(Cart, num_envs=16) as target:
        print("problems:", tasid.check_target(target, sim, eta=0.1, episodes=40).problems)
        result = tasid.learn(target, sim, eta=0.1, episodes=episodes)
        score = tasid.evaluate(result.policy, target, episodes=200)
    print(result.episodes, "episodes of learning,", score, *result.diagnostics.warnings)
