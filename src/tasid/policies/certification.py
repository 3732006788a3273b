"""What a frozen policy earns, shown by fresh episodes instead of assumptions about learning.

The mean return of a policy is bounded from below (`tasid.policies.betting`) by episodes that
nobody has seen before, and the bound is held against two exact values of the plan ρ:

- Ṽ, which ρ is sure of in every η-perturbation (Theorem 1): `passed` if the bound reaches Ṽ − ε;
- max_M V^ρ_M, the most ρ earns in any η-perturbation M: if the bound reaches that minus ε, the
  policy is within ε of ρ in the target, whichever perturbation it is — what Theorem 2 promises.

The k-th attempt spends δ/(k(k+1)); over all attempts these add up to δ.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import numpy as np
from numpy.typing import NDArray

from tasid.maps import AbstractSimulator, RobustPlan, best_case_value, return_range
from tasid.maps.size import check_count
from tasid.policies.betting import Wager, lower_bound
from tasid.policies.certificate import ReturnCertificate
from tasid.policies.decoder import WIDTH
from tasid.policies.evaluate import Scorable, batch_returns, check_fit
from tasid.targets.streams import CERTIFICATION
from tasid.targets.target import Target, for_horizon, seed_key

_PART_OF_RANGE = 0.05
"""The ε that is asked for if none is given, as a part of the range of returns."""
_AT_A_TIME = 16
"""Episodes between two looks at the bound, where a target does not say how many it runs."""


class Planned(Scorable, Protocol):
    """A policy that follows a plan."""

    @property
    def plan(self) -> RobustPlan:
        """ρ."""


def certification(
    policy: Planned,
    env: Target,
    *,
    delta: float = 0.05,
    epsilon: float | None = None,
    max_episodes: int = 2_000,
    attempt: int = 1,
    seed: int = 0,
) -> ReturnCertificate:
    """Play fresh episodes until both questions are decided, at most so many.

    A question is decided when the bound reaches the value in question, or when bets the other way
    have shown that the mean lies below it.
    """
    plan = _checked_plan(policy)
    _check_numbers(delta, epsilon, max_episodes, attempt)
    target = for_horizon(env, policy.horizon)
    check_fit(policy, target)
    spent = delta / (attempt * (attempt + 1))
    scale = _Scale.of(plan.simulator)
    wanted = max(_PART_OF_RANGE * scale.span, scale.slack) if epsilon is None else float(epsilon)
    best = best_case_value(plan.simulator, plan, eta=plan.eta)
    questions = [
        _Question(value - wanted, scale, delta=spent) for value in (plan.start_value, best)
    ]
    key = jax.random.fold_in(jax.random.fold_in(seed_key(seed), CERTIFICATION), attempt)
    returns, void = np.empty(0), None
    for episodes in _batches(target, max_episodes):
        part = batch_returns(target, policy.actor, key, episodes)
        returns = np.concatenate([returns, part])
        stop, void = _decide(questions, scale, part, episodes)
        if stop is not None:
            returns = returns[:stop]
            break
    bound = -math.inf if void else _bound(questions, scale, returns, spent)
    return ReturnCertificate(
        lower_bound=bound,
        episodes=returns.size,
        mean=float(returns.mean()),
        range=(scale.low, scale.high),
        epsilon=wanted,
        delta=spent,
        attempt=attempt,
        worst_case_value=plan.start_value,
        best_case_value=best,
        void=void,
    )


@dataclass(frozen=True)
class _Scale:
    """Returns as parts of the map's range."""

    low: float
    high: float
    slack: float
    """What adding up H rewards in single precision may be off by."""

    @classmethod
    def of(cls, sim: AbstractSimulator) -> _Scale:
        low, high = return_range(sim)
        largest = float(np.abs(sim.reward).max())
        return cls(low, high, float(np.finfo(np.float32).eps) * sim.horizon**2 * largest)

    @property
    def span(self) -> float:
        return self.high - self.low

    def part(self, value: float) -> float:
        return (value - self.low) / (self.span or 1.0)

    def parts(self, returns: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.clip((returns - self.low) / (self.span or 1.0), 0.0, 1.0)

    def foreign(self, returns: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Which returns no episode on this map can have; what is no number is among them."""
        fine = (returns >= self.low - self.slack) & (returns <= self.high + self.slack)
        return ~fine


class _Question:
    """Does the policy earn this value on average? Bets on yes, and bets on no."""

    def __init__(self, value: float, scale: _Scale, *, delta: float) -> None:
        self.value, self.part = value, scale.part(value)
        self.yes = Wager(self.part, delta=delta)
        self.no = Wager(1.0 - self.part, delta=delta)

    def watch(self, parts: NDArray[np.float64]) -> None:
        self.yes.watch(parts)
        self.no.watch(1.0 - parts)

    @property
    def decided(self) -> int | None:
        """After how many episodes there was an answer."""
        answers = [wager.won for wager in (self.yes, self.no) if wager.won is not None]
        return min(answers, default=None)


def _decide(
    questions: list[_Question], scale: _Scale, part: NDArray[np.float64], episodes: range
) -> tuple[int | None, str | None]:
    """After how many episodes to stop, if at all, and why the certificate is void, if it is.

    Exact to the episode, so that the answer does not depend on how many are played at a time.
    """
    foreign = scale.foreign(part)
    fair = int(foreign.argmax()) if foreign.any() else part.size
    for question in questions:
        question.watch(scale.parts(part[:fair]))
    moments = [question.decided for question in questions]
    known = [moment for moment in moments if moment is not None]
    if len(known) == len(moments):
        return max(1, *known), None
    if fair == part.size:
        return None, None
    number = episodes.start + fair
    return number + 1, (
        f"episode {number} returned {part[fair]:.6g}, but on the map every return lies "
        f"between {scale.low:.6g} and {scale.high:.6g}"
    )


def _bound(
    questions: list[_Question], scale: _Scale, returns: NDArray[np.float64], delta: float
) -> float:
    """The bound as a return; it agrees to the last bit with the bets that were won."""
    won = [q for q in questions if q.yes.won is not None and q.yes.won <= returns.size]
    lost = [q.part for q in questions if q not in won]
    part = lower_bound(
        scale.parts(returns),
        delta=delta,
        above=max([0.0, *(q.part for q in won)]),
        below=min([1.0, *lost]),
    )
    return max([scale.low + part * scale.span, *(q.value for q in won if q.part > 0)])


def _batches(target: Target, episodes: int) -> Iterator[range]:
    """Numbers of episodes to play together: whole batches where they cost next to nothing."""
    room = WIDTH if target.traceable else min(target.num_envs or _AT_A_TIME, WIDTH)
    for batch in range(0, episodes, WIDTH):
        end = min(batch + WIDTH, episodes)
        for first in range(batch, end, room):
            yield range(first, min(first + room, end))


def _checked_plan(policy: Any) -> RobustPlan:
    plan = getattr(policy, "plan", None)
    if not isinstance(plan, RobustPlan):
        raise TypeError(
            f"policy: a {type(policy).__name__} follows no plan, so there is no promise to hold "
            "its returns against; tasid.evaluate scores any policy"
        )
    return plan


def _check_numbers(delta: Any, epsilon: Any, max_episodes: Any, attempt: Any) -> None:
    for name, value in (("delta", delta), ("epsilon", epsilon)):
        number = isinstance(value, (int, float, np.integer, np.floating))
        if value is not None and (not number or isinstance(value, bool)):
            raise TypeError(f"{name}: {value!r} is not a number")
    if delta is None or not 0.0 < delta < 1.0:
        raise ValueError(f"delta: {delta} is not between 0 and 1; 0.05 means 95 % sure")
    if epsilon is not None and not 0.0 <= epsilon < math.inf:
        raise ValueError(f"epsilon: {epsilon} is no finite number from 0 up")
    for name, value in (("max_episodes", max_episodes), ("attempt", attempt)):
        check_count(name, value)
        if value >= 1 << 32:
            raise ValueError(f"{name}: {value} is above {(1 << 32) - 1}")
