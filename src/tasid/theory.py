"""Bounds and episode counts of the paper.

**Setting.** H steps; |A| actions; the target is an η-perturbation of the simulator, η < ½; the
inverse models come from a class F, given by ln|F|; δ is the probability with which a guarantee may
fail; G is the length of an interval that holds every return (rewards in [0, 1]: G = H).

**Decoding (Theorem 2).** Algorithm 2 fits one inverse model per step h = 1 … H−1, each from n_D
episodes that roll in with the policy so far and take a uniform action at step h. The decoder errs
at step h if argmax_a f_h(a | x, x') does not lead from the state to its successor in the simulator.
ε₀ is the probability of a wrong start state. With probability ≥ 1−δ, V^π ≥ V^{ρ∘φ*} − ε − G ε₀ if
n_D ≥ 8 G·K |A|³ L / (ε (1−2η)²). Three readings:

  reading      K    L             n_D, G = H    source
  algorithm    H    ln(|F|/δ)     8H²…          Algorithm 2, Theorem 2 (main text)
  appendix     H²   ln(|F|/δ)     8H³…          the proof in appendix B
  coupling     H    ln(H|F|/δ)    8H²…          ours; the form of the main text, proved

The appendix charges an error at step j to every later action, and each of those with G. But π and
ρ∘φ* act alike until the first decoding error and lose at most G from there on, so one charge per
step suffices. In either case the one-step bound must hold at all steps at once, hence with δ/H at
each, as in the reading "coupling".

**Several starts (Algorithms 3 and 4, appendix C).** N start states, each of probability ≥ μ; any
two differ by at least Γ in total variation of their next-state distribution, averaged over actions.
n₀ real-or-imposter transitions train a regressor of complexity C with error Δ = √(C ln(1/δ)/n₀);
Δ' = 8|A|²Δ/Γ bounds the probability that two starts differ but share a cluster. For each of N
clusters and N hypotheses Algorithm 4 runs Algorithm 2 for n_l episodes and its policy for n_t. Up
to probability 3δ the policy is within 4ε of the robust one in all but N²(n_l + n_t) + n₀ episodes,
if Δ is small enough that clusters match states one to one and are pure up to ε₀ = ε/G:

  reading     Δ at most                      impurity ε₀ ≤        n₀ = max{…} · |A|⁴C ln(1/δ)/Γ²
  printed     μ²Γ(1−(1−2μ/N)²)/(32N²|A|²)    16N²|A|²Δ/(Γμ²)      256G²N⁴/(ε²μ⁴), 1024N⁴/μ⁶
  corrected   μ³Γ/(16N³|A|²)                 16N²|A|²Δ/(Γμ²)      256G²N⁴/(ε²μ⁴), 256N⁶/μ⁶

The printed second term falls short of its own proof once N > 2. The paper prints n_t with ln(N/δ);
its proof needs ln(N²/δ).

Counts are exact: numbers become fractions and are rounded up once. A count within 2⁻⁴⁰ of an
integer, relatively, is that integer, since logarithms are known no better.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from tasid.simulator import is_integer

Reading = Literal["algorithm", "appendix", "coupling"]
StartReading = Literal["printed", "corrected"]


# Binomial tails, by the incomplete beta function: scipy.stats takes long to import.


def at_least(successes: ArrayLike, trials: ArrayLike, probability: ArrayLike) -> Any:
    """P(X ≥ successes) for X ~ Bin(trials, probability); broadcasts."""
    from scipy.special import betainc

    k, n = np.asarray(successes, float), np.asarray(trials, float)
    inside = (k > 0) & (k <= n)
    tail = betainc(np.where(inside, k, 1.0), np.where(inside, n - k + 1, 1.0), probability)
    return np.where(inside, tail, k <= 0)


def binomial_interval(successes: int, trials: int, *, confidence: float) -> tuple[float, float]:
    """Clopper–Pearson interval of a probability with at least this confidence."""
    from scipy.special import betaincinv

    tail = (1 - confidence) / 2
    low = betaincinv(successes, trials - successes + 1, tail) if successes > 0 else 0.0
    high = betaincinv(successes + 1, trials - successes, 1 - tail) if successes < trials else 1.0
    return float(low), float(high)


# One start state (Theorem 2)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The quantities of Theorem 2."""

    horizon: int
    """H."""
    actions: int
    """|A|."""
    eta: float
    """η in [0, ½)."""
    log_class_size: float
    """ln|F|."""
    delta: float
    """δ in (0, 1)."""
    return_range: float | None = None
    """G; None is the paper's G = H."""

    def __post_init__(self) -> None:
        for name in ("horizon", "actions"):
            _integer(name, getattr(self, name), 1)
        _real("eta", self.eta, "[0, 0.5)")
        _real("log_class_size", self.log_class_size, "[0, inf)")
        _real("delta", self.delta, "(0, 1)")
        if self.return_range is not None:
            _real("return_range", self.return_range, "(0, inf)")

    @property
    def range(self) -> Fraction:
        """G."""
        return Fraction(self.horizon if self.return_range is None else self.return_range)

    def errors_times_n(self, *, union: bool) -> Fraction:
        """n_D times the one-step error bound: 8|A|³L/(1−2η)²."""
        log = math.log(self.horizon) * union - math.log(self.delta)
        log_term = Fraction(self.log_class_size) + Fraction(log)
        return 8 * self.actions**3 * log_term / (1 - 2 * Fraction(self.eta)) ** 2

    def loss_times_n(self, reading: Reading) -> Fraction:
        """n_D times the bound of the loss ε: G·K times the one-step bound."""
        power = {"algorithm": 1, "appendix": 2, "coupling": 1}[reading]
        errors = self.errors_times_n(union=reading == "coupling")
        return self.range * self.horizon**power * errors


@dataclass(frozen=True)
class DecodingBudget:
    """Episodes that suffice for Theorem 2."""

    n_decode: int
    """n_D: episodes for the inverse model of one step."""
    n_total: int
    """(H−1)·n_D: episodes of Algorithm 2; the last step needs no model."""
    n_paper: int
    """H·n_D, the paper's n."""


def decoding_budget(
    setting: Setting, *, epsilon: float, reading: Reading = "algorithm"
) -> DecodingBudget:
    """Episodes after which the policy is within ε of the robust one with probability ≥ 1−δ."""
    n = _ceiling(setting.loss_times_n(reading) / _real("epsilon", epsilon, "(0, inf)"))
    return DecodingBudget(n, (setting.horizon - 1) * n, setting.horizon * n)


def value_loss_bound(
    setting: Setting,
    *,
    n_decode: int,
    reading: Reading = "algorithm",
    start_error: float = 0.0,
) -> float:
    """V^{ρ∘φ*} − V^π ≤ 8 G·K |A|³ L / (n_D (1−2η)²) + G ε₀: Theorem 2, solved for ε."""
    loss = setting.loss_times_n(reading) / _integer("n_decode", n_decode, 1)
    return float(loss + setting.range * _real("start_error", start_error, "[0, 1]"))


def one_step_error_bound(setting: Setting, *, n_decode: int) -> float:
    """P(decoder wrong at one step) ≤ 8|A|³L/(n_D(1−2η)²), under the policy's own actions.

    Appendix B, one-step lemma: |A|² from `action_gap`, |A| from the change of uniform to own
    actions. The lemma prints 8h|A|³; its proof has no h.
    """
    return float(setting.errors_times_n(union=False) / _integer("n_decode", n_decode, 1))


def wrong_actions_bound(
    setting: Setting, *, n_decode: int, steps: int | None = None, start_error: float = 0.0
) -> float:
    """E[number of the first h actions that differ from the robust policy's]; h = H by default.

    At most h · P(state estimate wrong within h steps), and that at most h · one-step bound + ε₀.
    Appendix B, h-step lemma; it prints +ε₀, but a wrong start may spoil all h actions.
    """
    h = setting.horizon if steps is None else _integer("steps", steps, 1)
    if h > setting.horizon:
        raise ValueError(f"steps: {h} exceeds the horizon {setting.horizon}")
    wrong_start = float(_real("start_error", start_error, "[0, 1]"))
    return h * (h * one_step_error_bound(setting, n_decode=n_decode) + wrong_start)


def action_gap(setting: Setting) -> float:
    """(1−2η)/|A|: least posterior lead of the right action over any other (appendix B)."""
    return float((1 - 2 * Fraction(setting.eta)) / setting.actions)


# Several start states (Algorithms 3 and 4)


@dataclass(frozen=True, kw_only=True)
class StartSetting:
    """The quantities of appendix C."""

    setting: Setting
    starts: int
    """N ≥ 2."""
    min_probability: float
    """μ: least probability of a start state, at most 1/N."""
    margin: float
    """Γ in (0, 1]."""
    complexity: float
    """C of the real-or-imposter class, such as ln(|G||Φ|)."""

    def __post_init__(self) -> None:
        _integer("starts", self.starts, 2)
        mu = _real("min_probability", self.min_probability, "(0, 1)")
        if mu * self.starts > 1 + Fraction(1, 2**50):  # a float such as 1/3 may be rounded up
            raise ValueError(
                f"min_probability: {self.min_probability!r} exceeds 1/{self.starts}, the largest "
                f"possible minimum of {self.starts} probabilities"
            )
        _real("margin", self.margin, "(0, 1]")
        _real("complexity", self.complexity, "(0, inf)")

    @property
    def noise(self) -> Fraction:
        """C ln(1/δ)."""
        return Fraction(self.complexity) * Fraction(-math.log(self.setting.delta))


@dataclass(frozen=True)
class StartBudget:
    """Episodes that may be spent before every start is handled."""

    n_learn: int
    """n_l: episodes of Algorithm 2 for one cluster and one hypothesis."""
    n_test: int
    """n_t: episodes that measure the return of the learned policy."""
    n_cluster: int
    """n₀: real-or-imposter transitions; an imposter takes two episodes."""
    n_total: int
    """N²(n_l + n_t) + n₀."""


def start_budget(
    start: StartSetting, *, epsilon: float, reading: StartReading = "corrected"
) -> StartBudget:
    """All counts of Algorithms 3 and 4.

    n_l = ⌈H·n_D(ε, δ/N²)⌉ with n_D of appendix B; n_t = ⌈G² ln(N²/δ)/(2ε²)⌉, printed with
    ln(N/δ); n₀ as in the module's table.
    """
    accuracy, setting, n = _real("epsilon", epsilon, "(0, inf)"), start.setting, start.starts
    each = replace(setting, log_class_size=setting.log_class_size + 2 * math.log(n))
    n_learn = _ceiling(setting.horizon * each.loss_times_n("appendix") / accuracy)
    log = Fraction(math.log(n if reading == "printed" else n**2) - math.log(setting.delta))
    n_test = _ceiling(setting.range**2 * log / (2 * accuracy**2))
    mu, loss = Fraction(start.min_probability), setting.range / accuracy
    pure, separate = {
        "printed": (256 * loss**2, 1024 / mu**2),
        "corrected": (256 * loss**2, 256 * n**2 / mu**2),
    }[reading]
    unit = n**4 * setting.actions**4 / (Fraction(start.margin) ** 2 * mu**4)
    n_cluster = _ceiling(max(pure, separate) * unit * start.noise)
    return StartBudget(n_learn, n_test, n_cluster, n**2 * (n_learn + n_test) + n_cluster)


def regression_error(start: StartSetting, *, n: int) -> float:
    """Δ = √(C ln(1/δ)/n) of the real-or-imposter regressor after n transitions."""
    return math.sqrt(start.noise / _integer("n", n, 1))


def regression_error_limit(start: StartSetting, *, reading: StartReading = "corrected") -> float:
    """Largest Δ at which clusters match start states one to one (see the module's table)."""
    n, mu = start.starts, Fraction(start.min_probability)
    y = 2 * mu / n
    share = {"printed": (1 - (1 - y) ** 2) / 32, "corrected": y / 32}
    unit = mu**2 * Fraction(start.margin) / (n * start.setting.actions) ** 2
    return float(share[reading] * unit)


def pair_confusion_bound(start: StartSetting, *, error: float) -> float:
    """P(two first observations differ in state but share a cluster) ≤ Δ' = 8|A|²Δ/Γ."""
    error_bound = _real("error", error, "[0, inf)")
    return float(8 * start.setting.actions**2 * error_bound / Fraction(start.margin))


def purity_bound(start: StartSetting, *, error: float) -> float:
    """P(a cluster's first observation comes from the cluster's state) ≥ 1 − ε₀ of the table."""
    scale = (start.starts / start.min_probability) ** 2
    return 1 - 2 * scale * pair_confusion_bound(start, error=error)


# What `tasid budget` puts beside these counts

PAPER_EPISODES = {5: 10_000, 10: 11_000, 20: 48_000, 40: 393_000}
"""Episodes to 0.95 of the robust value by horizon: median of the paper's five seeds on the
combination lock with 10 actions and η = 0.1 (appendix D)."""
BELIEF_EPISODES = {10: 64, 20: 96, 40: 128, 100: 400}
"""Episodes with which the median seed of the belief method has 0.95 of the robust value there."""


def lock_class_size(horizon: int, actions: int) -> float:
    """ln|F| of the paper's network on the combination lock, with 32 bits per parameter."""
    inputs = 2 * (1 << (_integer("horizon", horizon, 1) + 3).bit_length())
    sizes = (inputs, 56, 56, _integer("actions", actions, 1))
    return sum((a + 1) * b for a, b in pairwise(sizes)) * 32 * math.log(2)


def _integer(name: str, value: int, least: int) -> int:
    if not is_integer(value) or value < least:
        raise ValueError(f"{name}: {value!r} is not an integer ≥ {least}")
    return int(value)


def _real(name: str, value: float, interval: str) -> Fraction:
    """The number, exact, if it lies in an interval written like "[0, 0.5)"."""
    number = math.nan if isinstance(value, bool | str) else float(value)
    low, high = (float(end) for end in interval[1:-1].split(","))
    above = number >= low if interval[0] == "[" else number > low
    below = number <= high if interval[-1] == "]" else number < high
    if not (above and below):
        raise ValueError(f"{name}: {value!r} is not a number in {interval}")
    return Fraction(value)


def _ceiling(amount: Fraction) -> int:
    """Least integer ≥ amount, forgiving a relative rounding error of 2⁻⁴⁰."""
    nearest = round(amount)
    close = abs(amount - nearest) <= Fraction(1, 2**40) * amount
    return nearest if close else math.ceil(amount)
