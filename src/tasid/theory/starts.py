"""Several start states: what clustering, hypothesis tests and learning cost (Algorithms 3 and 4).

Definitions. N start states, each of probability ≥ μ; any two differ by at least Γ in total
variation of their next-state distribution, averaged over actions. n₀ real-or-imposter transitions
train a regressor with bottleneck φ̂ into [N]; C is the complexity of its class and
Δ = √(C ln(1/δ)/n₀) its error. Δ' = 8|A|²Δ/Γ bounds P(two starts differ, yet share a cluster).
For each of N clusters and each of N hypotheses, Algorithm 4 runs Algorithm 2 for n_l episodes and
its policy for n_t.

Guarantee (appendix C). Up to probability 3δ the policy is within 4ε of the robust one in all but
N²(n_l + n_t) + n₀ episodes, if Δ is small enough that clusters correspond one to one to states
and each is pure up to ε₀ = ε/G. Three readings of "small enough":

  reading     Δ at most                              impurity ε₀ ≤
  printed     μ²Γ(1−(1−2μ/N)²)/(32N²|A|²), excluded  16N²|A|²Δ/(Γμ²)
  corrected   μ³Γ/(16N³|A|²)                         16N²|A|²Δ/(Γμ²)
  direct      μ²Γ/(8N²|A|²), excluded                8N²|A|²Δ/(Γμ²)

Where the paper's n₀ writes η it means μ. Its second term 1024N⁴… falls short of the condition on
Δ in its own proof once N > 2; that takes 256N⁶…: `corrected`. `direct` is ours: q = P(s, σ(s)) is
at least μ/N and q(p−q) ≤ Δ' with p = P(σ(s)) ≥ q, so the impurity (p−q)/p is at most
Δ'/q² ≤ N²Δ'/μ² for every Δ', and σ is one-to-one once Δ' < μ²/N². No quadratic equation, hence no
further condition; and the printed n₀ turns out to suffice. Algorithm 4 prints n_t with ln(N/δ);
its proof needs ln(N²/δ).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal, get_args

from tasid.theory.decoding import loss_times_n
from tasid.theory.setting import Setting, as_float, ceiling, count, real

StartReading = Literal["printed", "corrected", "direct"]


@dataclass(frozen=True, kw_only=True)
class StartSetting:
    """A task whose episodes begin in one of several states."""

    setting: Setting
    starts: int
    """N ≥ 2; one start needs no clusters and no tests."""
    min_probability: float
    """μ: the least probability of a start state, at most 1/N."""
    margin: float
    """Γ, in (0, 1]."""
    complexity: float
    """C of the real-or-imposter class, such as ln(|G||Φ|)."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "starts", count("starts", self.starts, least=2))
        mu = real("min_probability", self.min_probability, "(0, 1)")
        # A float such as 1/3 may exceed the fraction by its rounding.
        if mu * self.starts > 1 + Fraction(1, 2**50):
            raise ValueError(
                f"min_probability: {self.min_probability!r} cannot be the least of {self.starts} "
                f"probabilities that sum to 1; give at most 1/{self.starts}"
            )
        real("margin", self.margin, "(0, 1]")
        real("complexity", self.complexity, "(0, inf)")


@dataclass(frozen=True)
class StartBudget:
    """Episodes that may be spent before every start is handled."""

    n_learn: int
    """n_l: episodes of Algorithm 2 for one cluster and one hypothesis."""
    n_test: int
    """n_t: episodes that measure the learned policy's return."""
    n_cluster: int
    """n₀: real-or-imposter transitions; an imposter takes the episodes of two."""
    n_total: int
    """N²(n_l + n_t) + n₀."""


def start_budget(
    start: StartSetting, *, epsilon: float, reading: StartReading = "corrected"
) -> StartBudget:
    """All counts of Algorithms 3 and 4 and the theorem that closes appendix C.

    n_l = ⌈H·n_D(ε, δ/N²)⌉, printed 8H⁴|A|³ln(N²|F|/δ)/(ε(1−2η)²), n_D as in appendix B;
    n_t = ⌈G² ln(N²/δ)/(2ε²)⌉, printed with ln(N/δ); n₀ as in `cluster_samples`.
    """
    accuracy = real("epsilon", epsilon, "(0, inf)")
    n_cluster = cluster_samples(start, epsilon=epsilon, reading=reading)
    setting, n = start.setting, start.starts
    each = replace(setting, log_class_size=setting.log_class_size + 2 * math.log(n))
    n_learn = ceiling(setting.horizon * loss_times_n(each, "appendix", None) / accuracy)
    log = Fraction(math.log(n if reading == "printed" else n**2) - math.log(setting.delta))
    n_test = ceiling(setting.range**2 * log / (2 * accuracy**2))
    return StartBudget(n_learn, n_test, n_cluster, n**2 * (n_learn + n_test) + n_cluster)


def cluster_samples(
    start: StartSetting, *, epsilon: float, reading: StartReading = "corrected"
) -> int:
    """n₀: transitions after which clusters are one-to-one and pure up to ε/G.

    printed    max{256G²N⁴|A|⁴C/(ε²Γ²μ⁴), 1024N⁴|A|⁴C/(Γ²μ⁶)} · ln(1/δ)
    corrected  max{256G²N⁴|A|⁴C/(ε²Γ²μ⁴), 256N⁶|A|⁴C/(Γ²μ⁶)} · ln(1/δ)
    direct     max{64G²N⁴|A|⁴C/(ε²Γ²μ⁴), 64N⁴|A|⁴C/(Γ²μ⁴)} · ln(1/δ)

    Appendix C, last theorem, where G = H. The first term makes clusters pure enough, the second
    makes them clusters. `direct` needs ε < G, as any promise does.
    """
    accuracy = real("epsilon", epsilon, "(0, inf)")
    _check(reading)
    n, mu, loss = start.starts, Fraction(start.min_probability), start.setting.range / accuracy
    pure, separate = {
        "printed": (256 * loss**2, 1024 / mu**2),
        "corrected": (256 * loss**2, 256 * n**2 / mu**2),
        "direct": (64 * loss**2, Fraction(64)),
    }[reading]
    unit = n**4 * start.setting.actions**4 / (Fraction(start.margin) ** 2 * mu**4)
    return ceiling(max(pure, separate) * unit * _noise(start))


def regression_error(start: StartSetting, *, n: int) -> float:
    """Δ: error of the real-or-imposter regressor after n transitions.

    Δ = √(C ln(1/δ)/n). Appendix C, generalisation bound.
    """
    return math.sqrt(as_float(_noise(start) / count("n", n)))


def regression_error_limit(start: StartSetting, *, reading: StartReading = "corrected") -> float:
    """The Δ below which clusters correspond one to one to start states.

    printed    μ²Γ/(32N²|A|²) · (1−(1−2μ/N)²), excluded; appendix C, clustering theorem
    corrected  μ³Γ/(16N³|A|²), included: simpler and smaller; appendix C, last proof
    direct     μ²Γ/(8N²|A|²), excluded
    """
    _check(reading)
    n, mu = start.starts, Fraction(start.min_probability)
    y = 2 * mu / n
    share = {"printed": (1 - (1 - y) ** 2) / 32, "corrected": y / 32, "direct": Fraction(1, 8)}
    unit = mu**2 * Fraction(start.margin) / (n * start.setting.actions) ** 2
    return as_float(share[reading] * unit)


def pair_confusion_bound(start: StartSetting, *, error: float) -> float:
    """Δ': bound on the probability that two first observations differ in state, not in cluster.

    P(φ*(x₁) ≠ φ*(x₂), φ̂(x₁) = φ̂(x₂)) ≤ Δ' = 8|A|²Δ/Γ. Appendix C, one-sided error lemma.
    """
    return as_float(_confusion(start, error))


def purity_bound(
    start: StartSetting, *, error: float, reading: StartReading = "corrected"
) -> float:
    """Least probability that a first observation of a cluster comes from the cluster's state.

    P(s | σ(s)) ≥ 1 − 16N²|A|²Δ/(Γμ²); `direct`: 1 − 8N²|A|²Δ/(Γμ²). Appendix C, clustering
    theorem. Holds for Δ below `regression_error_limit`; 1 minus it is ε₀ of `value_loss_bound`.
    May be negative; then it says nothing.
    """
    _check(reading)
    twice = 1 if reading == "direct" else 2
    scale = (start.starts / Fraction(start.min_probability)) ** 2
    return as_float(1 - twice * scale * _confusion(start, error))


def _confusion(start: StartSetting, error: float) -> Fraction:
    delta = real("error", error, "[0, inf)")
    return 8 * start.setting.actions**2 * delta / Fraction(start.margin)


def _noise(start: StartSetting) -> Fraction:
    """C ln(1/δ)."""
    return Fraction(start.complexity) * Fraction(-math.log(start.setting.delta))


def _check(reading: StartReading) -> None:
    if reading not in get_args(StartReading):
        raise ValueError(f"reading: {reading!r} is unknown; give one of {get_args(StartReading)}")
