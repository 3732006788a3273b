"""A delivery robot in the building that is carried away, drifts, or loses its sensor.

    python -m benchmarks building                      # seeds 400 … 404, some minutes each
    python -m benchmarks building --seeds 400 --episodes 256 --sensor camera

A policy is learned in the target (--learn episodes) and plays episodes that are disturbed:

nothing     as learned; alarms are false here.
carried     at a random step a robot that is under way is put at any pose of the map.
drift       from step H/10 on, half of the steps are followed by one of a random action.
blind       from step H/10 on the sensor shows zeros.

Beside it plays the informed robot, whose emissions were fitted to labelled observations of every
pose, and the oracle, which sees its pose; all three meet the same random numbers. Returns are means
per episode; arrivals and hazards are shares of episodes; `lost` is the share of episodes in which
the robot called itself lost after the disturbance; `right` is the share of steps after it, while
under way, in which the estimated cell is the true one.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

import tasid
from benchmarks.belief_table import seed_range
from benchmarks.processes import row, table
from tasid.hmm.emissions import GaussianEmission, MapViews, Moments, PLDAConfig
from tasid.keys import episode_keys

ETA = 0.1
DISTURBANCES = ("nothing", "carried", "drift", "blind")
SHOWN = 16
"""Labelled observations of every pose for the informed robot."""
WIDTH = 128
"""Poses that are observed together."""
KEYS = 1 << 31
"""Phase of the keys of these episodes; no part of `tasid` uses it."""


def informed(env: Any, policy: Any) -> Any:
    """The same policy with emissions fitted to labelled observations of every pose."""
    poses = policy.graph.places
    moments = None
    for i in range(SHOWN):
        features = []
        for first in range(0, len(poses), WIDTH):
            # Rows of equal length compile once; the last row repeats its last pose.
            some = np.minimum(np.arange(first, first + WIDTH), len(poses) - 1)
            _, observations = env.place(poses[some], episode_keys(i, KEYS + 1, first, WIDTH))
            features.append(policy.features(observations, 0))
        of_round = Moments.of(np.concatenate(features)[: len(poses)], np.eye(len(poses)))
        moments = of_round if moments is None else moments + of_round
    views = MapViews.from_simulator(env.simulator, policy.graph)
    emission = GaussianEmission.from_moments(moments, PLDAConfig(), views)
    return dataclasses.replace(policy, emission=emission, min_log_prob=None)


def play(
    env: Any, policy: Any, disturbance: str, episodes: int, seed: int, oracle: bool = False
) -> dict[str, float]:
    """Returns, arrivals, hazards and alarms of disturbed episodes."""
    sim, horizon, rng = env.simulator, env.horizon, np.random.default_rng(seed)
    target = env.latent.oracle_target() if oracle else env
    successor = sim.successor_at(0)
    final = (successor == np.arange(sim.num_states)[:, None]).all(axis=1)
    under_way = np.flatnonzero(~final)
    when = rng.integers(1, max(horizon // 2, 2), episodes)
    where = rng.choice(under_way, episodes)
    pushed = rng.random((horizon, episodes)) < 0.5
    push = rng.integers(sim.num_actions, size=(horizon, episodes))
    keys, memory = episode_keys(seed, KEYS, 0, episodes), policy.init(episodes)
    state, observations = target.reset(keys)
    cells, begin = sim.layout.positions, 0 if disturbance == "nothing" else horizon // 10
    total, alarm, moved = np.zeros(episodes), np.zeros(episodes, bool), np.zeros(episodes, bool)
    arrived, fell = np.zeros(episodes, bool), np.zeros(episodes, bool)
    right, counted = 0, 0
    for h in range(horizon):
        truth = np.array(state)
        over = final[truth]
        if disturbance == "carried":
            moved = (when == h) & ~over
            truth = np.where(moved, where, truth)
        elif disturbance == "drift" and h >= begin:
            moved = pushed[h] & ~over
            truth = np.where(moved, successor[truth, push[h]], truth)
        if moved.any():
            _, there = target.place(truth, keys)
            state = truth.astype(np.int32)
            moved_rows = moved.reshape(-1, *[1] * (observations.ndim - 1))
            observations = np.where(moved_rows, there, observations)
        if disturbance == "blind" and h >= begin and not oracle:
            observations = np.zeros_like(observations)
        memory, actions = policy.act(memory, observations, h)
        disturbed = (when <= h) if disturbance == "carried" else np.full(episodes, h >= begin)
        estimate = policy.estimate(memory, h)
        if estimate is not None:
            going = disturbed & ~final[truth]
            alarm |= estimate.lost & going
            right += int((cells[estimate.state] == cells[truth]).all(axis=1)[going].sum())
            counted += int(going.sum())
        state, observations, rewards, _ = target.step(state, actions, h, keys)
        total += rewards
        arrived |= rewards > 0.5
        fell |= rewards < -0.5
    result = {"return": total.mean(), "arrived": arrived.mean(), "hazard": fell.mean()}
    if not oracle:
        result |= {"lost": alarm.mean(), "right": right / max(counted, 1)}
    return {name: float(value) for name, value in result.items()}


def measure(options: Mapping[str, Any], seed: int, learn: int, episodes: int) -> Any:
    """For every disturbance and robot, what `play` returns."""
    env = tasid.make("building", eta=ETA, seed=seed, **options)
    policy = tasid.learn(env, eta=ETA, episodes=learn, seed=seed).policy
    robots = {
        "learned": (policy, False),
        "informed": (informed(env, policy), False),
        "oracle": (env.latent.robust_policy(policy.plan), True),
    }
    return {
        (disturbance, name): play(env, robot, disturbance, episodes, seed, oracle)
        for disturbance in DISTURBANCES
        for name, (robot, oracle) in robots.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=seed_range, default=seed_range("400-404"))
    parser.add_argument("--learn", type=int, default=200, help="episodes to learn from")
    parser.add_argument("--episodes", type=int, default=1_024, help="disturbed episodes")
    parser.add_argument("--sensor", choices=["lidar", "camera"], default="lidar")
    parser.add_argument("--map", help="a ROS map (.yaml) or a text map instead of the office")
    options = parser.parse_args()
    world = {"sensor": options.sensor, "map": options.map}
    runs = [measure(world, seed, options.learn, options.episodes) for seed in options.seeds]
    table(["disturbance", "robot", "return (lowest)", "arrived", "hazard", "lost", "right"])
    for key in runs[0]:
        returns = [run[key]["return"] for run in runs]
        cells = [f"{np.mean(returns):.3f} ({min(returns):.3f})"]
        for name in ("arrived", "hazard", "lost", "right"):
            known = [run[key][name] for run in runs if name in run[key]]
            cells.append(f"{np.mean(known):.1%}" if known else "–")
        row(*key, *cells)
    if len(options.seeds) > 1:
        print(f"\nmeans over {len(options.seeds)} seeds; lowest mean return of a seed in brackets")


if __name__ == "__main__":
    main()
