"""A policy's score beside the exact values that give it a meaning."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any

from tasid.algorithms import Policy, Score, evaluate
from tasid.envs import BlockMDP, make
from tasid.mdp import policy_value, robust_dp


@dataclass(frozen=True)
class Yardsticks:
    """Exact values in one very target, all but the worst case by its true perturbation."""

    robust_value: float
    """The robust plan with latent access."""
    nominal_plan_value: float
    """The plan for η = 0 with latent access."""
    blind_value: float
    """The better of the best constant action and the open-loop nominal plan."""
    worst_case_value: float
    """What the robust plan is sure of in any η-perturbation."""


def yardsticks(policy: Policy, env: BlockMDP) -> Yardsticks:
    """The exact values to hold a score of this policy against."""
    latent = env.latent
    nominal = robust_dp(policy.simulator, eta=0.0)
    return Yardsticks(
        robust_value=latent.robust_value(policy.plan),
        nominal_plan_value=policy_value(latent.world, nominal),
        blind_value=latent.blind_value(),
        worst_case_value=policy.plan.start_value,
    )


def summary(score: Score, measure: Yardsticks | None) -> dict[str, Any]:
    """Mean, interval, ratio and skill, ready for JSON; null where a value is unknown."""
    known: dict[str, Any] = {
        "return_mean": score.mean,
        "return_ci95": [bound if isfinite(bound) else None for bound in score.ci95],
        "evaluation_episodes": int(score.returns.size),
        "ratio": None,
        "skill": None,
        "robust_value": None,
    }
    if measure is None:
        return known
    known.update(asdict(measure))
    if measure.robust_value != 0:
        known["ratio"] = score.mean / measure.robust_value
    lead = measure.robust_value - measure.blind_value
    if lead > 0:
        known["skill"] = (score.mean - measure.blind_value) / lead
    return known


def rebuild(policy: Policy) -> BlockMDP:
    """The very environment instance the policy was learned in."""
    if policy.environment is None:
        raise ValueError(
            "policy: it does not record an environment of ours; say which one with --env"
        )
    return make(policy.environment["name"], **policy.environment["options"])


def score(
    policy: Policy, env: BlockMDP, *, episodes: int, seed: int
) -> tuple[Score, dict[str, Any]]:
    """Evaluate and summarise in one go."""
    result = evaluate(policy, env, episodes=episodes, seed=seed)
    return result, summary(result, yardsticks(policy, env))
