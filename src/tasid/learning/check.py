"""Does a target fit a map? Answered by a few episodes, before any are spent on learning.

All episodes have actions that are fixed in advance. Every test allows for what an η-perturbation of
the map may do, and calls a fitting target unfit with probability at most `LEVEL`. No test uses
latent states.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasid.episodes import Episodes
from tasid.keys import Phase, episode_keys
from tasid.learning.base import shortened
from tasid.planning import robust_dp
from tasid.planning.perturbation import check_eta
from tasid.planning.values import simulator_problems
from tasid.policy import OpenLoopPolicy
from tasid.simulator import AbstractSimulator, is_integer
from tasid.targets.base import Target
from tasid.targets.rollout import rollout
from tasid.theory import at_least

LEVEL = 0.001
"""Probability with which a test rejects a target that fits."""
TOLERANCE = 1e-4
"""Relative error of rewards, which targets compute in float32."""


@dataclass(frozen=True)
class Finding:
    """The outcome of one test."""

    name: str
    status: str
    """"ok" or "problem"."""
    text: str


@dataclass(frozen=True)
class CheckReport:
    """All findings about a target and a map."""

    findings: tuple[Finding, ...]

    @property
    def problems(self) -> list[str]:
        """What does not fit."""
        return [f"{f.name}: {f.text}" for f in self.findings if f.status == "problem"]

    @property
    def ok(self) -> bool:
        """Does everything fit?"""
        return not self.problems

    def to_json(self) -> dict[str, Any]:
        """In plain values."""
        findings = [asdict(finding) for finding in self.findings]
        return {"ok": self.ok, "problems": self.problems, "findings": findings}


def check_target(
    target: Target,
    simulator: AbstractSimulator | None = None,
    *,
    eta: float = 0.1,
    episodes: int = 160,
    seed: int = 0,
) -> CheckReport:
    """Compare a target with a map: actions, horizon, η, observations, rewards, ends.

    Parameters
    ----------
    target
        The environment.
    simulator
        The map; the target's own if None.
    eta
        Perturbation level that the plan allows for, in [0, ½).
    episodes
        Episodes per test.
    seed
        Determines the episodes.
    """
    sim = target.simulator if simulator is None else simulator
    if sim is None:
        raise ValueError("simulator: None, and the target has no map of its own; pass one")
    if not is_integer(episodes) or episodes < 2:
        raise ValueError(f"episodes: {episodes!r} is not an integer of 2 or more")
    eta, target = check_eta(eta, decodable=True), target.with_horizon(sim.horizon)
    findings = [Finding("map", "problem", text) for text in simulator_problems(sim)]
    tests = [_repeats, _observations, _rewards_and_ends]
    if len(sim.starts) == 1 and not sim.stochastic:
        tests += [_route, _leaks]
    for name in ("num_actions", "horizon"):
        ours, theirs = getattr(sim, name), getattr(target, name)
        if ours != theirs:
            text = f"{ours} on the map, {theirs} in the target"
            findings.append(Finding(name, "problem", text))
            tests = []  # which could not be played
    trial = _Trial(target, sim, eta, episodes, seed)
    for test in tests:
        try:
            problems = list(test(trial))
        except ValueError as error:  # an episode that the target could not finish
            problems = [str(error)]
        name, confirmed = test.__name__.strip("_").replace("_", " "), test.__doc__ or ""
        findings += [Finding(name, "problem", text) for text in problems]
        if not problems:
            findings.append(Finding(name, "ok", confirmed.partition(".")[0]))
    return CheckReport(tuple(findings))


Problems = Iterator[str]
"""A test that yields none confirms the first sentence of its docstring."""


@dataclass(frozen=True, eq=False)
class _Trial:
    """A target, its supposed map, and how many episodes to play."""

    target: Target
    sim: AbstractSimulator
    eta: float
    episodes: int
    seed: int

    def play(self, actions: NDArray[Any], number: int) -> Episodes:
        """Episodes with actions [n, T]; `number` makes those of each test different."""
        keys = episode_keys(self.seed, Phase.DIAGNOSIS, number << 20, len(actions))
        overrides, policy = actions.astype(np.int32), OpenLoopPolicy(self.target)
        return rollout(self.target, policy, keys, overrides=overrides, steps=actions.shape[1])

    def play_random(self, episodes: int, steps: int, number: int) -> Episodes:
        """Episodes of uniformly random actions."""
        rng = np.random.default_rng([self.seed, number])
        return self.play(rng.integers(self.sim.num_actions, size=(episodes, steps)), number)

    def guess_actions(self, pair: tuple[int, int], number: int) -> int:
        """How often the first action is guessed from the observation after it, in all episodes.

        The classifier is ridge regression in the span of the observations, cross-validated.
        """
        n = self.episodes
        labels = np.random.default_rng([self.seed, number]).permutation(np.arange(n) % 2)
        played = self.play(np.array(pair)[labels][:, None], number)
        x = np.asarray(played.observations)[:, 1].reshape(n, -1).astype(np.float64)
        x = x - x.mean(axis=0)
        gram = x @ x.T / max(float((x**2).sum()) / n, 1e-12)
        right, half = 0, np.arange(n) % 2 == 0
        for train in (half, ~half):
            ridge = gram[np.ix_(train, train)] + np.eye(train.sum())
            guesses = gram[np.ix_(~train, train)] @ np.linalg.solve(ridge, labels[train] - 0.5) > 0
            right += int((guesses == labels[~train]).sum())
        return right


def _repeats(trial: _Trial) -> Problems:
    """The same seed and actions give the same episode."""
    first, second = (trial.play_random(4, min(trial.sim.horizon, 8), 0) for _ in range(2))
    for name in ("observations", "rewards"):
        if not np.array_equal(getattr(first, name), getattr(second, name)):
            yield f"{name} of the same seed differ: `reset` ignores its seed"


def _observations(trial: _Trial) -> Problems:
    """They are finite and vary."""
    played = trial.play_random(min(trial.episodes, 64), min(trial.sim.horizon, 4), 1)
    frames = np.asarray(played.observations).reshape(-1, *trial.target.observation_shape)
    if not np.isfinite(frames).all():
        yield "some are not finite"
    elif (frames == frames[0]).all():
        yield f"all {len(frames)} are the same"


def _rewards_and_ends(trial: _Trial) -> Problems:
    """Random actions earn rewards that the map has at that step, and end in absorbing states."""
    sim, states = trial.sim, np.unique(trial.sim.starts)
    played = trial.play_random(trial.episodes, sim.horizon, 3)
    for h in range(sim.horizon):  # `states` can be reached at step h
        successor, probabilities = (table[states] for table in sim.transitions_at(h))
        ended = int((played.lengths == h).sum())
        if ended and not sim.absorbing(h)[states].any():
            yield f"{ended} of {len(played)} end after {h} steps; no state there absorbs"
            return
        known = np.unique(np.append(sim.transition_reward_at(h)[states], 0.0))
        earned = np.unique(played.rewards[:, h]).astype(float)
        error = np.abs(earned[:, None] - known).min(axis=1)
        unknown = earned[error > TOLERANCE * np.maximum(1.0, np.abs(earned))]
        if unknown.size:
            listed = ", ".join(f"{reward:g}" for reward in known[:8])
            yield f"step {h}: the target gave {unknown[0]:g}, the map has only {listed}"
            return
        states = np.unique(successor[probabilities > 0])


def _route(trial: _Trial) -> Problems:
    """Rewards agree along the nominal plan, executed open loop.

    With probability (1−η)^(h+1) no action slips up to step h, and all rewards are the map's.
    """
    route = robust_dp(trial.sim, eta=0.0).route()
    played = trial.play(np.tile([step.action for step in route], (trial.episodes, 1)), 2)
    agrees = np.ones(len(played), bool)
    for h, (_, state, action, reward) in enumerate(route):
        agrees &= np.abs(played.rewards[:, h] - reward) <= TOLERANCE * max(1.0, abs(reward))
        wrong, slipped = int((~agrees).sum()), 1 - (1 - trial.eta) ** (h + 1)
        if at_least(wrong, len(played), slipped) < LEVEL / len(route):
            values, counts = np.unique(played.rewards[:, h], return_counts=True)
            text = f"step {h}, state {shortened(state)}, action {action}: the map says {reward:g}, "
            text += f"most episodes earned {values[counts.argmax()]:g}; {wrong} of {len(played)} "
            yield text + f"differ up to there, more than η = {trial.eta:g} allows"
            return


def _leaks(trial: _Trial) -> Problems:
    """The observation does not show which of two actions with the same outcome was taken.

    From one start state, nothing but slips tells them apart: with probability at most ½ + η/2.
    """
    after = trial.sim.successor_at(0)[trial.sim.start]
    pairs = [(a, b) for a, b in combinations(range(len(after)), 2) if after[a] == after[b]]
    for number, pair in enumerate(pairs[:2]):
        right = trial.guess_actions(pair, 4 + number)
        if at_least(right, trial.episodes, 0.5 + trial.eta / 2) < LEVEL:
            text = f"after actions {pair}, which have the same outcome at the start, {right} of "
            text += f"{trial.episodes} observations tell which was taken: the map is wrong, or "
            yield text + "they show the command"
            return
