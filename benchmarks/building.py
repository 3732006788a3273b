"""A delivery robot in the building that is carried away, drifts, or loses its sensor.

    python -m benchmarks building                      # seeds 500 … 502, some minutes each
    python -m benchmarks building --seeds 500 --episodes 256 --sensor camera
    python -m benchmarks building --policies runs/building     # kept there, and used again

A policy is learned in the target (--learn episodes) and plays episodes that are disturbed:

nothing     as learned.
carried     at a random step of the first half a robot under way is put at any pose of the map.
drift       from step H/10 on, half of the steps are followed by one of a random action, ahead …
ahead       … by one step forward, …
aside       … by a turn to the left after a step forward, or …
held        … are undone.
blind       from step H/10 on the sensor shows zeros.
frozen      from step H/10 on the sensor shows the same observation.

Beside it plays the informed robot, whose emissions were fitted to labelled observations of every
pose (--informed), and the oracle, which sees its pose; all meet the same random numbers. The first
table holds mean returns from the disturbance on (blind and frozen robots are not compared), and the
shares of episodes that arrive or enter a hazard.

The second table is about the estimate. A stretch is five steps or more in a row in which the
estimated position is off by more than a cell. `told` is the share of stretches in which the robot
is lost or gives its pose less than half of the probability, `lost` the share in which it is lost.
`alarms` is the share of steps in which it is lost, `doubts` that in which it gives its pose less
than half, both among steps with an estimate off by at most a cell. `noticed` is the share of
episodes in which the robot is lost within six steps of the disturbance.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tasid
from benchmarks.belief_table import seed_range
from benchmarks.processes import row, table
from tasid.hmm.emissions import GaussianEmission, MapViews, Moments, PLDAConfig
from tasid.keys import episode_keys
from tasid.storage import write_json

ETA = 0.1
DRIFTS = ("drift", "ahead", "aside", "held")
DISTURBANCES = ("nothing", "carried", *DRIFTS, "blind", "frozen")
FORWARD, LEFT = 0, 2
STRETCH = 5
"""Steps."""
SOON = 6
"""Steps in which a broken sensor should be noticed."""
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
    successor, cells = sim.successor_at(0), sim.layout.positions
    final = (successor == np.arange(sim.num_states)[:, None]).all(axis=1)
    when = np.full(episodes, 0 if disturbance == "nothing" else max(horizon // 10, 1))
    if disturbance == "carried":
        when = rng.integers(1, max(horizon // 2, 2), episodes)
    where = rng.choice(np.flatnonzero(~final), episodes)
    half = rng.random((horizon, episodes)) < 0.5
    push = rng.integers(sim.num_actions, size=(horizon, episodes))
    keys, memory = episode_keys(seed, KEYS, 0, episodes), policy.init(episodes)
    state, observations = target.reset(keys)
    steps = np.zeros((4, horizon, episodes), bool)  # under way, off, lost, in doubt
    total, before, shown = np.zeros(episodes), np.array(state), np.array(observations)
    arrived, fell, began = (np.zeros(episodes, bool) for _ in range(3))
    repeats, actions = np.zeros(episodes, int), np.zeros(episodes, np.int32)
    for h in range(horizon):
        truth = np.array(state)
        going, disturbed = ~final[truth], when <= h
        began |= (when == h) & going
        if disturbance in DRIFTS or disturbance == "carried":
            moved, there = going & disturbed & half[h], before
            if disturbance == "carried":
                moved, there = going & (when == h), where
            elif disturbance == "aside":
                moved, there = moved & (actions == FORWARD), successor[truth, LEFT]
            elif disturbance != "held":
                there = successor[truth, push[h] if disturbance == "drift" else FORWARD]
            truth = np.where(moved, there, truth)
            if moved.any():
                _, placed = target.place(truth, keys)
                rows = moved.reshape(-1, *[1] * (observations.ndim - 1))
                state, observations = truth.astype(np.int32), np.where(rows, placed, observations)
        if disturbance in ("blind", "frozen") and h >= when[0] and not oracle:
            observations = np.zeros_like(shown) if disturbance == "blind" else shown
        same = (observations == shown).reshape(episodes, -1).all(axis=1)
        repeats, shown = np.where(same & (h > 0), repeats + 1, 0), observations
        before = truth
        memory, actions = policy.act(memory, observations, h)
        estimate = policy.estimate(memory, h)
        if estimate is not None:
            off = np.abs(cells[estimate.state] - cells[truth]).max(axis=1) > 1
            frozen = repeats > 2 * (policy.max_repeats or 0) + 3  # as `Agent.lost`
            steps[:, h] = ~final[truth], off, estimate.lost | frozen, estimate.confidence < 0.5
        state, observations, rewards, _ = target.step(state, actions, h, keys)
        total += rewards * disturbed
        arrived |= rewards > 0.5
        fell |= rewards < -0.5
    result = {
        "return": float(total[began].mean()),
        "arrived": float(arrived[began].mean()),
        "hazard": float(fell[began].mean()),
    }
    return result if oracle else result | agreement(steps, when, began)


def agreement(
    steps: NDArray[np.bool_], when: NDArray[Any], began: NDArray[np.bool_]
) -> dict[str, float]:
    """Counts of steps, stretches and episodes that say whether alarms agree with the truth."""
    going, off, lost, doubt = steps
    off, fine = off & going, ~off & going
    edges = np.diff(np.pad(off, ((1, 1), (0, 0))).T.astype(np.int8), axis=1)
    (rows, first), (_, last) = np.nonzero(edges == 1), np.nonzero(edges == -1)
    spans = [(row, slice(i, j)) for row, i, j in zip(rows, first, last, strict=True)
             if j - i >= STRETCH]  # fmt: skip
    soon = [lost[h : h + SOON, row].any() for row, h in enumerate(when) if began[row]]
    return {
        "stretches": len(spans),
        "lost": sum(lost[span, row].any() for row, span in spans),
        "told": sum((lost | doubt)[span, row].any() for row, span in spans),
        "steps": going.sum(),
        "off": off.sum(),
        "fine": fine.sum(),
        "alarms": (lost & fine).sum(),
        "doubts": (doubt & fine).sum(),
        "episodes": len(soon),
        "noticed": sum(soon),
    }


def measure(options: argparse.Namespace, seed: int) -> dict[tuple[str, str], dict[str, float]]:
    """For every disturbance and robot, what `play` returns."""
    task = {"map": options.map, "goal": options.goal}
    env = tasid.make("building", eta=ETA, seed=seed, sensor=options.sensor, **task)
    folder = None if options.policies is None else options.policies / str(seed)
    if folder is not None and folder.is_dir():
        policy: Any = tasid.load(folder)
    else:
        policy = tasid.learn(env, eta=ETA, episodes=options.learn, seed=seed).policy
        if folder is not None:
            policy.save(folder)
    robots = {"learned": policy, "oracle": env.latent.robust_policy(policy.plan)}
    if options.informed:
        robots["informed"] = informed(env, policy)
    result = {}
    for disturbance in options.disturbances:
        for name, robot in robots.items():
            if name != "oracle" or disturbance not in ("blind", "frozen"):
                args = (env, robot, disturbance, options.episodes, seed, name == "oracle")
                result[disturbance, name] = play(*args)
        print(f"seed {seed}: {disturbance}", file=sys.stderr, flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=seed_range, default=seed_range("500-502"))
    parser.add_argument("--learn", type=int, default=200, help="episodes to learn from")
    parser.add_argument("--episodes", type=int, default=256, help="disturbed episodes")
    parser.add_argument("--sensor", choices=["lidar", "camera"], default="lidar")
    parser.add_argument("--map", help="a ROS map (.yaml) or a text map instead of the office")
    parser.add_argument("--goal", type=float, nargs=2, help="x and y, for a map that marks none")
    parser.add_argument("--policies", type=Path, help="folder of learned policies, by seed")
    parser.add_argument("--informed", action="store_true", help="measure the informed robot, too")
    parser.add_argument("--disturbances", nargs="*", choices=DISTURBANCES, default=DISTURBANCES)
    parser.add_argument("--out", type=Path, help="also write all numbers to a JSON file")
    options = parser.parse_args()
    runs = {seed: measure(options, seed) for seed in options.seeds}
    if options.out is not None:
        rows = [{"seed": seed, "disturbance": d, "robot": robot, **numbers}
                for seed, run in runs.items() for (d, robot), numbers in run.items()]  # fmt: skip
        write_json(options.out, rows)
    keys = list(runs[options.seeds[0]])

    def column(key: tuple[str, str], name: str) -> list[float]:
        return [run[key][name] for run in runs.values()]

    table(["disturbance", "robot", "return (lowest)", "of the oracle", "arrived", "hazard"])
    for key in keys:
        returns, known = column(key, "return"), (key[0], "oracle")
        share = f"{sum(returns) / sum(column(known, 'return')):.3f}" if known in keys else "–"
        cells = [f"{np.mean(column(key, name)):.1%}" for name in ("arrived", "hazard")]
        row(*key, f"{np.mean(returns):.3f} ({min(returns):.3f})", share, *cells)
    shares = (("off", "steps"), ("told", "stretches"), ("lost", "stretches"), ("alarms", "fine"),
              ("doubts", "fine"), ("noticed", "episodes"))  # fmt: skip
    table(["disturbance", "robot", "stretches", *(name for name, _ in shares)])
    for key in keys:
        if "steps" in runs[options.seeds[0]][key]:
            cells = [f"{sum(column(key, part)) / max(sum(column(key, whole)), 1):.1%}"
                     for part, whole in shares]  # fmt: skip
            row(*key, int(sum(column(key, "stretches"))), *cells)
    if len(options.seeds) > 1:
        print(f"\nof {len(options.seeds)} seeds together; in brackets the lowest return of a seed")


if __name__ == "__main__":
    main()
