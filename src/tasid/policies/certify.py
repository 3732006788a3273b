"""Certificates: a lower bound on the mean return of a frozen policy, valid at every sample size.

Betting (Waudby-Smith and Ramdas, 2024). Let x₁, x₂, … be independent returns, scaled to [0, 1]. A
gambler who doubts that their mean is m or less stakes a share c of his wealth on every return,

    W_n(m) = Σ_c w_c Π_{i ≤ n} (1 + c (x_i / m − 1)),    0 ≤ c ≤ 1,  Σ_c w_c = 1.

If the mean is at most m, this is a nonnegative supermartingale, and by Ville's inequality it ever
reaches 1/δ with probability at most δ. So with probability 1 − δ, at all n at once, the mean is at
least sup {m : W_i(m) ≥ 1/δ for some i ≤ n}. Stopping at a lucky moment gains nothing.

The bound is compared with two exact values of the robust plan ρ, each minus ε: its worst-case value
Ṽ (Theorem 1), and max_M V^ρ_M over the η-perturbations M of the map. A policy that reaches the
second is within ε of ρ in whichever M the target is, which is what Theorem 2 promises.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logsumexp

from tasid.keys import Phase, episode_keys
from tasid.planning import best_case_value, return_range
from tasid.policies.evaluate import EVALUATION_WIDTH, matching
from tasid.policy import Policy
from tasid.targets.base import Target
from tasid.targets.rollout import rollout

Floats = NDArray[np.float64]

STAKES = np.append(0.999, expit(np.linspace(math.log(0.003), math.log(9.0), 12)))
"""Shares of the wealth c: nearly all of it, best while all returns are maximal, and a grid from
0.003 to 0.9 in equal steps of log-odds."""
WEIGHTS = np.append(0.5, np.full(12, 0.5 / 12))
"""Initial wealth w_c on each of them."""


@dataclass(frozen=True)
class ReturnCertificate:
    """A lower bound on the mean return of a policy, and what it is compared with."""

    passed: bool
    """Is the worst-case value of the plan reached, up to ε?"""
    paper_guarantee: bool
    """Is the policy shown to be within ε of the plan with latent access (Theorem 2)?"""
    lower_bound: float
    """At most the mean return, but for a probability of `delta`; −∞ if void."""
    mean: float
    """Of the returns of the episodes."""
    episodes: int
    """Fresh episodes played."""
    range: tuple[float, float]
    """Smallest and largest return of any actions on the map."""
    epsilon: float
    delta: float
    """Probability of error that this attempt spends: δ/(k(k+1)) for attempt k."""
    attempt: int
    worst_case_value: float
    best_case_value: float
    void: str | None = None
    """Why nothing is certified: a return outside of the range."""

    def to_json(self) -> dict[str, Any]:
        """All fields in plain values; null where they are not finite."""
        values = asdict(self) | {"range": list(self.range)}
        finite = {name: math.isfinite(values[name]) for name in ("lower_bound", "mean")}
        return {name: value if finite.get(name, True) else None for name, value in values.items()}


def certify_return(
    policy: Policy,
    target: Target,
    *,
    seed: int = 0,
    epsilon: float | None = None,
    delta: float = 0.05,
    max_episodes: int = 2_000,
    attempt: int = 1,
) -> ReturnCertificate:
    """Play fresh episodes until both comparisons are decided, either way.

    Parameters
    ----------
    policy
        A policy with a robust plan. It must not have been chosen by these episodes.
    target
        Where it acts.
    seed
        Determines the episodes, which nothing else uses.
    epsilon
        How far below a value counts as reaching it, in units of reward; 5 % of the range of returns
        if None.
    delta
        Probability of error, over all attempts together.
    max_episodes
        The most episodes to play. A larger number continues the same attempt.
    attempt
        1, 2, …: every further policy, and every further seed, is an attempt of its own.
    """
    plan = policy.plan
    if plan is None:
        raise ValueError(f"policy: {type(policy).__name__} has no plan to compare its returns with")
    for name, value, valid, expected in (
        ("delta", delta, 0 < delta < 1, "in (0, 1)"),
        ("epsilon", epsilon, epsilon is None or 0 <= epsilon < math.inf, "a number from 0 up"),
        ("max_episodes", max_episodes, 1 <= max_episodes < 2**32, "a positive integer"),
        ("attempt", attempt, 1 <= attempt <= 10**6, "in 1 … 1 000 000"),
    ):
        if not valid:
            raise ValueError(f"{name}: {value!r} is not {expected}")
    target, sim = matching(policy, target), plan.simulator
    spent = delta / (attempt * (attempt + 1))
    low, high = return_range(sim)
    span = high - low or 1.0
    rounding = float(np.finfo(np.float32).eps * sim.horizon * np.abs(sim.reward).max())
    margin = max(0.05 * (high - low), rounding) if epsilon is None else float(epsilon)
    best = best_case_value(sim, plan, eta=plan.eta)
    goals = [(value - margin - low) / span for value in (plan.start_value, best)]
    width = EVALUATION_WIDTH if target.pads_batches else target.width
    returns, stop = np.zeros(0), None
    while stop is None and returns.size < max_episodes:
        count = min(width, max_episodes - returns.size)
        keys = episode_keys(seed, Phase.CERTIFICATION + attempt, returns.size, count)
        played = rollout(target, policy, keys, keep_from=target.horizon + 1, width=width)
        returns = np.concatenate([returns, played.returns])
        scaled = np.clip((returns - low) / span, 0.0, 1.0)
        decided = [_decided(scaled, goal, spent) for goal in goals]
        if None not in decided:
            stop = max(1, *(number for number in decided if number is not None))
    returns, scaled = returns[:stop], scaled[:stop]
    foreign = np.flatnonzero(~((returns >= low - rounding) & (returns <= high + rounding)))
    void = f"episode {foreign[0]} returned {returns[foreign[0]]:.6g}" if foreign.size else None
    reached = [void is None and crossing(scaled, goal, spent) is not None for goal in goals]
    certain = [goal for goal, yes in zip(goals, reached, strict=True) if yes]
    bound = max(0.0, lower_bound(scaled, delta=spent), *certain)
    return ReturnCertificate(
        passed=reached[0],
        paper_guarantee=reached[1],
        lower_bound=-math.inf if void is not None else low + bound * span,
        mean=float(returns.mean()),
        episodes=returns.size,
        range=(low, high),
        epsilon=margin,
        delta=spent,
        attempt=attempt,
        worst_case_value=plan.start_value,
        best_case_value=best,
        void=void,
    )


def _decided(scaled: Floats, goal: float, delta: float) -> int | None:
    """After how many returns it is certain that the mean is above the goal, or that it is below."""
    above, below = crossing(scaled, goal, delta), crossing(1 - scaled, 1 - goal, delta)
    return min((number for number in (above, below) if number is not None), default=None)


def crossing(scaled: Floats, mean: float, delta: float) -> int | None:
    """After how many numbers [n] in [0, 1] bets that their mean is above `mean` have won 1/δ.

    None if they have not. Nothing in [0, 1] is below 0: a `mean` of 0 or less is exceeded at once.
    """
    if mean <= 0:
        return 0
    growth = np.log1p(STAKES[:, None] * (scaled / mean - 1))
    wealth = logsumexp(np.cumsum(growth, axis=1), axis=0, b=WEIGHTS[:, None])
    won = wealth >= -math.log(delta)
    return int(won.argmax()) + 1 if won.any() else None


def lower_bound(scaled: Floats, *, delta: float) -> float:
    """The bound on the mean of numbers [n] in [0, 1]; by bisection, because W falls in m."""
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        if crossing(scaled, middle, delta) is None:
            high = middle
        else:
            low = middle
    return low
