"""Outcome classes: why predicting what happened needs fewer episodes than predicting what was done.

Definitions. At the tracked state ŝ the actions with one successor T°_h(ŝ, ·) form an *outcome*;
k ≥ 2 bounds the number of outcomes at the states the robust policy reaches in the target. At the
explored step an outcome o is drawn uniformly and its one fixed representative r(ŝ, o) is executed;
the model f(o | x, ŝ, x') is fitted to those labels by maximum likelihood over a class F that
contains f*(o | x, ŝ, x') ∝ T*(x' | x, r(ŝ, o)). Histories come from the policy π in a fraction ≥ w
of the episodes. L = ln(H|F|/δ); G is the return range.

Guarantee. With probability ≥ 1−δ, at every step h,

  P_π(first h−1 decodings right, the h-th wrong) ≤ c·8L / (n_D (1−2η)²),
  c = k (1+(k−2)η)² / ((1−η) w) ≤ k³/w,        V^{ρ∘φ*} − V^π ≤ G · Σ_h of this + G ε₀.

So c stands where Theorem 2 has |A|³. The parts of c: (1+(k−2)η)² from the gap between the right
outcome and any other; k/(1−η) from the change of measure (k alone where the policy's own action
is the representative); 1/w from the mixture. The proof and three tempting variants that fail are in
docs/outcome-classes.md. The paper has none of this; its |A|³ is the case of one outcome per action.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from tasid.theory.setting import Setting, as_float, ceiling, count, real


@dataclass(frozen=True, kw_only=True)
class Exploration:
    """How the labelled transitions of a step are collected."""

    outcomes: int
    """k: most outcomes at any state that matters."""
    weight: float = 1.0
    """w: least fraction of roll-ins that follow the policy itself up to the explored step."""
    plan_is_representative: bool = False
    """Whether the policy's own action always represents its outcome, which saves 1/(1−η)."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "outcomes", count("outcomes", self.outcomes, least=2))
        real("weight", self.weight, "(0, 1]")


@dataclass(frozen=True, kw_only=True)
class OutcomeBudget:
    """Episodes that suffice with outcome classes, with everything they were computed from."""

    setting: Setting
    exploration: Exploration
    epsilon: float
    union: bool
    n_decode: int
    """n_D: episodes for the model of one step."""
    n_total: int
    """(H−1)·n_D: episodes executed."""
    n_paper: int
    """H·n_D: what the paper would call n."""
    ratio: float
    """c/|A|³: n_D before rounding, over that of Theorem 2 in the coupling reading."""


def outcome_gap(*, eta: float, outcomes: int) -> float:
    """How far the right outcome leads every other in the posterior f*, where ŝ is right.

    f*(o₁) − f*(o₂) ≥ (1−2η)/(1+(k−2)η) ≥ (1−2η)/k, attained by some ξ. The appendix-B gap of the
    one-step lemma, for outcomes.
    """
    noise = real("eta", eta, "[0, 0.5)")
    return as_float((1 - 2 * noise) / _spread(noise, count("outcomes", outcomes, least=2)))


def outcome_factor(exploration: Exploration, *, eta: float) -> float:
    """The constant that takes the place of |A|³ in Theorem 2.

    c = k (1+(k−2)η)² / ((1−η) w), without the 1−η if the plan's actions are representatives.
    """
    return as_float(_factor(exploration, real("eta", eta, "[0, 0.5)")))


def outcome_error_bound(
    setting: Setting, exploration: Exploration, *, n_decode: int, union: bool = True
) -> float:
    """Bound on the probability, under π, that ŝ is right at a step and its decoding then errs.

    P_π(ŝ = s, α wrong) ≤ c · 8 L / (n_D (1−2η)²). In place of the one-step lemma of appendix B.
    """
    return as_float(_error_times_n(setting, exploration, union) / count("n_decode", n_decode))


def outcome_value_loss_bound(
    setting: Setting,
    exploration: Exploration,
    *,
    n_decode: int,
    union: bool = True,
    start_error: float = 0.0,
) -> float:
    """Bound on what the learned policy loses against the robust one; ε of n_D when ε₀ = 0.

    V^{ρ∘φ*} − V^π ≤ G·H · c · 8 L / (n_D (1−2η)²) + G ε₀. In place of Theorem 2, solved for ε;
    H−1 steps are decoded, H are charged, as in the paper.
    """
    errors = setting.horizon * _error_times_n(setting, exploration, union)
    wrong_start = real("start_error", start_error, "[0, 1]")
    return as_float(setting.range * (errors / count("n_decode", n_decode) + wrong_start))


def outcome_budget(
    setting: Setting, exploration: Exploration, *, epsilon: float, union: bool = True
) -> OutcomeBudget:
    """Episodes after which the policy is within ε of the robust one with probability ≥ 1−δ.

    n_D = ⌈8 G·H · c · L / (ε (1−2η)²)⌉. In place of Algorithm 2, line 2, and Theorem 2.
    """
    accuracy = real("epsilon", epsilon, "(0, inf)")
    loss = setting.range * setting.horizon * _error_times_n(setting, exploration, union)
    n_decode = ceiling(loss / accuracy)
    return OutcomeBudget(
        setting=setting,
        exploration=exploration,
        epsilon=epsilon,
        union=union,
        n_decode=n_decode,
        n_total=(setting.horizon - 1) * n_decode,
        n_paper=setting.horizon * n_decode,
        ratio=as_float(_factor(exploration, Fraction(setting.eta)) / setting.actions**3),
    )


def _spread(eta: Fraction, outcomes: int) -> Fraction:
    """1+(k−2)η: a successor's likelihoods summed over the k outcomes, where the gap is least."""
    return 1 + (outcomes - 2) * eta


def _factor(exploration: Exploration, eta: Fraction) -> Fraction:
    k = exploration.outcomes
    coverage = Fraction(1) if exploration.plan_is_representative else 1 - eta
    return k * _spread(eta, k) ** 2 / (coverage * Fraction(exploration.weight))


def _error_times_n(setting: Setting, exploration: Exploration, union: bool) -> Fraction:
    """The one-step bound times n_D: 8cL/(1−2η)²."""
    if exploration.outcomes > setting.actions:
        raise ValueError(
            f"outcomes: {exploration.outcomes} is more than the number of actions; "
            f"give at most {setting.actions}"
        )
    eta = Fraction(setting.eta)
    return 8 * _factor(exploration, eta) * setting.log_term(union=union) / (1 - 2 * eta) ** 2
