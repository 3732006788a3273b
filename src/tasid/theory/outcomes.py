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
The bounds and counts of `decoding` take an `Exploration`, and then have c in that place.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from tasid.theory.setting import as_float, count, real


@dataclass(frozen=True, kw_only=True)
class Exploration:
    """How the labelled transitions of a step are collected."""

    outcomes: int
    """k: most outcomes at any state that matters."""
    weight: float = 1.0
    """w: least fraction of roll-ins that follow the policy itself up to the explored step."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "outcomes", count("outcomes", self.outcomes, least=2))
        real("weight", self.weight, "(0, 1]")

    def factor(self, eta: float) -> Fraction:
        """What takes the place of |A|³ in Theorem 2: c = k (1+(k−2)η)² / ((1−η) w)."""
        k, noise = self.outcomes, Fraction(eta)
        return k * _spread(noise, k) ** 2 / ((1 - noise) * Fraction(self.weight))


def outcome_gap(*, eta: float, outcomes: int) -> float:
    """How far the right outcome leads every other in the posterior f*, where ŝ is right.

    f*(o₁) − f*(o₂) ≥ (1−2η)/(1+(k−2)η) ≥ (1−2η)/k, attained by some ξ. The appendix-B gap of the
    one-step lemma, for outcomes.
    """
    noise = real("eta", eta, "[0, 0.5)")
    return as_float((1 - 2 * noise) / _spread(noise, count("outcomes", outcomes, least=2)))


def _spread(eta: Fraction, outcomes: int) -> Fraction:
    """1+(k−2)η: a successor's likelihoods summed over the k outcomes, where the gap is least."""
    return 1 + (outcomes - 2) * eta
