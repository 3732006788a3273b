"""CartPole-v1 to a return of 475: our PPO and Stable-Baselines3's, by the steps they took.

Same networks, learning rate, discount and clip; Stable-Baselines3 updates every 2048 steps, ours
after every so many whole episodes. Evaluated greedily by 20 episodes at each update.
"""

from __future__ import annotations

import argparse
import statistics
import sys

import gymnasium
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy

import tasid
from tasid.baselines.ppo import PPOConfig
from tasid.baselines.training import Checkpoint, ppo
from tasid.models.fit import Descent

GOAL, MOST = 475.0, 300_000
EPISODES = 20
OURS = PPOConfig(
    batch=20,
    passes=10,
    minibatch=64,
    clip=0.2,
    discount=0.99,
    decay=0.95,
    entropy=0.0,
    hidden=(64, 64),
    descent=Descent(3e-4, 0.5),
)


class _UntilGoal(BaseCallback):
    """Stop at the first evaluation that reaches the goal."""

    reached: int | None = None

    def _on_rollout_start(self) -> None:
        if self.num_timesteps and self.reached is None:
            mean, _ = evaluate_policy(
                self.model, gymnasium.make("CartPole-v1"), EPISODES, warn=False
            )
            self.reached = self.num_timesteps if mean >= GOAL else None

    def _on_step(self) -> bool:
        return self.reached is None


def theirs(seed: int) -> int | None:
    """Steps of Stable-Baselines3 with its own defaults."""
    model = PPO("MlpPolicy", "CartPole-v1", seed=seed, device="cpu")
    until = _UntilGoal()
    model.learn(MOST, callback=until)
    return until.reached


def ours(seed: int) -> int | None:
    """Steps of ours; every step of CartPole pays 1, so returns are lengths."""
    steps = 0

    def count(here: Checkpoint) -> None:
        nonlocal steps
        steps += int(here.returns.sum())

    def enough(here: Checkpoint) -> bool:
        reached = here.evaluation is not None and here.evaluation.mean >= GOAL
        return reached or steps >= MOST

    with tasid.wrap("CartPole-v1", horizon=500, num_envs=OURS.batch) as target:
        (trained,) = ppo(
            [target],
            seeds=[seed],
            episodes=100 * MOST,
            config=OURS,
            every=OURS.batch,
            evaluation_episodes=EPISODES,
            callbacks=[count],
            stop=enough,
        )
    return steps if trained.evaluations[-1].mean >= GOAL else None


def main() -> None:
    """Compare; ours failing on any seed, or needing over three times as much, is an error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    seeds = parser.parse_args().seeds
    print("| seed | our PPO, steps to 475 | Stable-Baselines3 |\n|---|---|---|")
    rows = []
    for seed in seeds:
        rows.append((ours(seed), theirs(seed)))
        print(f"| {seed} | {rows[-1][0]} | {rows[-1][1]} |", flush=True)
    if any(own is None for own, _ in rows):
        sys.exit("our PPO did not reach 475 on every seed")
    own = statistics.median(row[0] for row in rows)
    other = statistics.median(row[1] or MOST for row in rows)
    print(f"medians: {own:.0f} and {other:.0f} steps")
    if own > 3 * other:
        sys.exit("our PPO needs over three times as many steps")


if __name__ == "__main__":
    main()
