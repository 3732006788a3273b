"""Scores of policies, beside the exact values that give them a meaning."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from tasid.keys import Phase, episode_keys
from tasid.planning.robust_dp import robust_dp
from tasid.policy import Policy
from tasid.simulator import is_integer
from tasid.targets.base import Target
from tasid.targets.rollout import rollout

if TYPE_CHECKING:
    from tasid.targets.block import BlockMDP

FIGURES = {
    "return_mean": ("return", "of an episode"),
    "robust_value": ("robust value", "exact, for an oracle that sees the true state"),
    "optimal_value": ("optimal value", "exact, for an oracle that sees the true state"),
    "nominal_plan_value": ("nominal plan (η = 0)", "exact, for an oracle that sees the true state"),
    "open_loop_value": ("open-loop value", "exact, best without observations"),
    "worst_case_value": ("worst-case value", "exact, of the robust plan"),
    "ratio": ("ratio", "return / robust value"),
    "skill": ("skill", "(return − open loop) / (robust − open loop)"),
    "decoder_accuracy": ("decoder accuracy", "mean over steps"),
}
"""Figures of a result: what they are called, and what they mean."""

EVALUATION_WIDTH = 512
"""Episodes of a JAX target that advance together in an evaluation."""


@dataclass(frozen=True, eq=False)
class Score:
    """Returns of a policy over fresh episodes."""

    returns: NDArray[np.float64]
    """[N]."""

    @property
    def mean(self) -> float:
        """Mean return."""
        return float(self.returns.mean())

    @property
    def ci95(self) -> tuple[float, float]:
        """A normal 95 % confidence interval of the mean."""
        n = self.returns.size
        half = 1.96 * float(self.returns.std(ddof=1)) / math.sqrt(n) if n > 1 else math.inf
        return (self.mean - half, self.mean + half)

    def __repr__(self) -> str:
        low, high = self.ci95
        return f"Score(mean={self.mean:.4f}, ci95=({low:.4f}, {high:.4f}), n={self.returns.size})"


def evaluate(policy: Policy, env: Target, *, episodes: int = 10_000, seed: int = 0) -> Score:
    """Play fresh episodes of a policy.

    Parameters
    ----------
    policy
        Any policy.
    env
        A target, or an environment of ours.
    episodes
        How many episodes.
    seed
        Determines the episodes; learning with the same seed uses others.
    """
    for name, value, kind in (("policy", policy, Policy), ("env", env, Target)):
        if not isinstance(value, kind):
            raise TypeError(
                f"{name}: {type(value).__name__} is not a tasid.{kind.__name__}; load policies "
                "with tasid.load(…), wrap environments with tasid.wrap(…)"
            )
    if not is_integer(episodes) or episodes < 1:
        raise ValueError(f"episodes: {episodes!r} is not an integer of 1 or more")
    keys = episode_keys(seed, Phase.EVALUATION, 0, episodes)
    env = matching(policy, env)
    width = EVALUATION_WIDTH if env.pads_batches and episodes >= EVALUATION_WIDTH else None
    return Score(rollout(env, policy, keys, keep_from=env.horizon + 1, width=width).returns)


def matching(policy: Policy, env: Target) -> Target:
    """The target as the policy acts in it, or an error if it cannot."""
    env = policy.view(env.with_horizon(policy.horizon))
    for name in ("horizon", "num_actions", "observation_shape"):
        mine, theirs = getattr(policy, name), getattr(env, name)
        if mine != theirs:
            raise ValueError(
                f"env: its {name} is {theirs}, but the policy was learned with {mine}; use an "
                "environment like the one it was learned in"
            )
    return env


@dataclass(frozen=True)
class Yardsticks:
    """Exact values in one target; all but the worst case use its true dynamics."""

    robust_value: float
    """Of the robust plan for an oracle that sees the true state."""
    optimal_value: float
    """Of the best policy that sees the true state and knows the true dynamics."""
    nominal_plan_value: float
    """Of the plan for η = 0, for the same oracle."""
    open_loop_value: float
    """The better of the best constant action and the nominal plan executed open loop."""
    worst_case_value: float
    """Of the robust plan in the worst η-perturbation of the map."""


def yardsticks(policy: Policy, env: Target) -> Yardsticks | None:
    """Exact values to compare a score with, where the true dynamics are known.

    A policy without a plan, or with a plan for another map than the environment's own, is compared
    with the robust plan on the environment's map.
    """
    plan, own = policy.plan, env.simulator
    if own is not None and (plan is None or not own.same_tables(plan.simulator)):
        options = (env.environment or {"options": {}})["options"]
        plan = robust_dp(own, eta=options.get("eta", 0.1) if plan is None else plan.eta)
    latent = None if plan is None else env.latent_on(plan.simulator)
    if plan is None or latent is None:
        return None
    return Yardsticks(
        robust_value=latent.robust_value(plan),
        optimal_value=latent.optimal_value(),
        nominal_plan_value=latent.robust_value(robust_dp(plan.simulator, eta=0.0)),
        open_loop_value=latent.open_loop_value(),
        worst_case_value=plan.start_value,
    )


def summary(
    score: Score, exact: Yardsticks | None, *, worst_case: float | None = None
) -> dict[str, Any]:
    """Mean, interval, ratio and skill, ready for JSON; None where a value is unknown.

    The ratio is None where the robust value is no scale, because it is not positive.
    """
    known = dict.fromkeys(field.name for field in fields(Yardsticks))
    result: dict[str, Any] = {
        "return_mean": score.mean,
        "return_ci95": [bound if math.isfinite(bound) else None for bound in score.ci95],
        "evaluation_episodes": int(score.returns.size),
        "ratio": None,
        "skill": None,
        **(known | {"worst_case_value": worst_case} if exact is None else asdict(exact)),
    }
    if exact is not None and exact.robust_value > 0:
        result["ratio"] = score.mean / exact.robust_value
    if exact is not None and (lead := exact.robust_value - exact.open_loop_value) > 0:
        result["skill"] = (score.mean - exact.open_loop_value) / lead
    return result


def tracking_accuracy(
    policy: Policy, env: Target, *, episodes: int = 2_048, seed: int = 0
) -> NDArray[np.float64]:
    """Share of episodes of a block MDP whose estimated state is the true one, by step, [H].

    The entries from step 1 on are the accuracy of the decoder. For evaluation only.
    """
    latent = cast("BlockMDP", env).latent

    def correct(state: Any, memory: Any, h: int) -> NDArray[np.bool_]:
        estimate = policy.estimate(memory, h)
        assert estimate is not None
        return np.asarray(estimate.state == np.asarray(latent.states(state)))

    keys, unseen = episode_keys(seed, Phase.DIAGNOSIS, 0, episodes), env.horizon + 1
    played = rollout(env, policy, keys, keep_from=unseen, trace=correct, width=EVALUATION_WIDTH)
    accuracy: NDArray[np.float64] = played.trace.mean(axis=0)
    return accuracy
