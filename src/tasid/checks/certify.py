"""`tasid.certify_return`: the certificate of a policy, beside what needs no eyes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tasid.policies.certificate import ReturnCertificate
from tasid.policies.certification import Planned, certification
from tasid.targets import Target


@dataclass(frozen=True)
class Certify:
    """A certificate to be had when learning is over; refused at once if it could not be."""

    epsilon: float | None = None
    """How far below a promised value counts as keeping it; None is 5 % of the range of returns."""
    episodes: int = 2_000
    """Fresh episodes at most."""
    attempt: int = 1
    """The how many-th policy this is that one tries to certify."""

    def __post_init__(self) -> None:
        if self.epsilon is not None and not 0.0 <= self.epsilon < math.inf:
            raise ValueError(f"certify: epsilon {self.epsilon} is no finite number from 0 up")
        for name in ("episodes", "attempt"):
            if getattr(self, name) < 1:
                raise ValueError(f"certify: {name} {getattr(self, name)} is below 1")


def certify_return(
    policy: Planned,
    target: Target,
    *,
    delta: float = 0.05,
    epsilon: float | None = None,
    max_episodes: int = 2_000,
    attempt: int = 1,
    seed: int = 0,
) -> ReturnCertificate:
    """A lower bound on the mean return of a frozen policy, from fresh episodes.

    It holds with probability 1 − δ/(k(k+1)) for attempt number k, at whatever moment one stops.
    Playing ends when it is clear whether the policy keeps, up to ε, what the plan promises in the
    worst case (`passed`), and whether it keeps up with the plan with latent access in any target
    that the map allows (`paper_guarantee`).

    Args:
        policy: One that follows a plan.
        target: Where it acts.
        delta: The probability that the first attempt's bound does not hold, at most.
        epsilon: Up to what promises are to be kept; 0.05 times the range of returns if not given.
        max_episodes: Playing ends with these at the latest.
        attempt: Counts policies and seeds that were tried, from 1.
        seed: Draws the episodes.
    """
    found = certification(
        policy,
        target,
        delta=delta,
        epsilon=epsilon,
        max_episodes=max_episodes,
        attempt=attempt,
        seed=seed,
    )
    latent = target.latent_on(policy.plan.simulator)
    return replace(found, blind_value=None if latent is None else latent.blind_value())
