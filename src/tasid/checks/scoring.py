"""A policy's score beside the exact values that give it a meaning."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from math import isfinite
from typing import Any

from tasid.maps import robust_dp
from tasid.policies import BeliefPolicy, Policy, Score
from tasid.policies.evaluate import evaluate
from tasid.policies.ppo_policy import PPOPolicy
from tasid.targets import BlockMDP, Target

_LITTLE = 0.05


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
    lowest_return: float
    """The least that any actions earn on the map; its mean over the starts."""
    highest_return: float
    """The most."""

    @property
    def return_range(self) -> float:
        """The unit in which returns differ by much or by little."""
        return self.highest_return - self.lowest_return

    @property
    def ratio_means_something(self) -> bool:
        """Is a part of the robust value a part of something?

        Not where that value is negative, or next to nothing beside what returns range over while
        returns below 0 are possible: then zero is no more the bottom of the scale than its top.
        """
        if self.robust_value <= 0:
            return False
        return self.lowest_return >= 0 or self.robust_value >= _LITTLE * self.return_range


def yardsticks(policy: BeliefPolicy | Policy | PPOPolicy, env: Target) -> Yardsticks | None:
    """The exact values to hold a score of this policy against, where they can be known.

    A policy without a plan is held against the robust one for the environment's own η, and one
    with a plan for another map than the environment's against the plan for that.
    """
    if not isinstance(policy, PPOPolicy):
        plan = policy.plan
        if isinstance(env, BlockMDP) and not env.brings(plan.simulator):
            plan = robust_dp(env.simulator, eta=plan.eta)
    elif isinstance(env, BlockMDP) and "eta" in env.options:
        plan = robust_dp(env.simulator, eta=float(env.options["eta"]))
    else:
        return None
    latent = env.latent_on(plan.simulator)
    if latent is None:
        return None
    nominal = robust_dp(plan.simulator, eta=0.0)
    return Yardsticks(
        robust_value=latent.robust_value(plan),
        nominal_plan_value=latent.robust_value(nominal),
        blind_value=latent.blind_value(),
        worst_case_value=plan.start_value,
        # Where every command may become any other, the worst of all actions is taken.
        lowest_return=robust_dp(plan.simulator, eta=1.0).start_value,
        highest_return=nominal.start_value,
    )


def summary(
    score: Score, measure: Yardsticks | None, *, worst_case: float | None = None
) -> dict[str, Any]:
    """Mean, interval, ratio and skill, ready for JSON; null where a value is unknown.

    `worst_case` is what a plan is sure of where no other yardstick is known. `difference` is
    return − robust value in units of the range of returns; it has a meaning where the ratio has
    none.
    """
    known: dict[str, Any] = {
        "return_mean": score.mean,
        "return_ci95": [bound if isfinite(bound) else None for bound in score.ci95],
        "evaluation_episodes": int(score.returns.size),
        "ratio": None,
        "difference": None,
        "skill": None,
        **dict.fromkeys(field.name for field in fields(Yardsticks)),
    }
    if measure is None:
        return known | {"worst_case_value": worst_case}
    known.update(asdict(measure))
    if measure.ratio_means_something:
        known["ratio"] = score.mean / measure.robust_value
    if measure.return_range > 0:
        known["difference"] = (score.mean - measure.robust_value) / measure.return_range
    lead = measure.robust_value - measure.blind_value
    if lead > 0:
        known["skill"] = (score.mean - measure.blind_value) / lead
    return known


def score(
    policy: BeliefPolicy | Policy | PPOPolicy, env: Target, *, episodes: int, seed: int
) -> tuple[Score, dict[str, Any]]:
    """Evaluate and summarise in one go."""
    result = evaluate(policy, env, episodes=episodes, seed=seed)
    sure = None if isinstance(policy, PPOPolicy) else policy.plan.start_value
    return result, summary(result, yardsticks(policy, env), worst_case=sure)
