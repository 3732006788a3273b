"""How many episodes the decoder needs (Theorem 2), and what a given number of them guarantees.

Definitions. Algorithm 2 fits one inverse model per step h = 1 … H−1, each from n_D episodes that
roll in with the policy so far and take a uniform action at step h. The *shadow actions* of
(x, x') are those that lead from its state to its next state in the simulator; the decoder α_h
errs when argmax_a f_h(a | x, x') is not one of them. ε₀ is the probability that an episode does
not begin in the start state (0 in Theorem 2; see `starts`).

Guarantee. With probability ≥ 1−δ, V^π ≥ V^{ρ∘φ*} − ε − G·ε₀ as soon as
n_D ≥ 8 G·K |A|³ L / (ε (1−2η)²); G is the return range, K counts steps, L is a logarithm:

  reading      K    L             n_D, G = H    n ∝   where it stands
  algorithm    H    ln(|F|/δ)     8H²…          H³    Algorithm 2, Theorem 2 (main text)
  appendix     H²   ln(|F|/δ)     8H³…          H⁴    the proof in appendix B
  coupling     H    ln(H|F|/δ)    8H²…          H³    ours; the main text's form, proved

Of the printed powers of H in n_D one is always the return range G: what a wrong action can cost.
The others count steps. The appendix charges an error at step j to every later action, and each of
those with G (performance difference lemma): K = H². But π and ρ∘φ* act alike until the first
decoding error and lose at most G in all from there, so one charge per step is enough: K = H. Either
way the one-step bound must hold at all steps at once, hence with δ/H at each: `union=True`. The
paper leaves that out; each reading's own default can be overridden.

The paper's n is H·n_D (`n_paper`). Algorithm 2 executes (H−1)·n_D (`n_total`), because step H
needs no model.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, get_args

from tasid.theory.setting import Setting, as_float, ceiling, count, real

Reading = Literal["algorithm", "appendix", "coupling"]


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Episodes that suffice for Theorem 2, with everything they were computed from."""

    setting: Setting
    epsilon: float
    reading: Reading
    union: bool
    n_decode: int
    """n_D: episodes for the inverse model of one step."""
    n_total: int
    """(H−1)·n_D: the episodes Algorithm 2 executes."""
    n_paper: int
    """H·n_D: what the paper calls n."""


def decoding_budget(
    setting: Setting,
    *,
    epsilon: float,
    reading: Reading = "algorithm",
    union: bool | None = None,
) -> Budget:
    """Episodes after which the policy is within ε of the robust one with probability ≥ 1−δ.

    n_D = ⌈8 G·K |A|³ L / (ε (1−2η)²)⌉, K and L by `reading`. Algorithm 2 (line 2) and Theorem 2.
    """
    accuracy = real("epsilon", epsilon, "(0, inf)")
    shared = resolved_union(reading, union)
    n_decode = ceiling(decoding_loss_times_n(setting, reading, shared) / accuracy)
    return Budget(
        setting=setting,
        epsilon=epsilon,
        reading=reading,
        union=shared,
        n_decode=n_decode,
        n_total=(setting.horizon - 1) * n_decode,
        n_paper=setting.horizon * n_decode,
    )


def guaranteed_epsilon(
    setting: Setting, *, n_decode: int, reading: Reading = "algorithm", union: bool | None = None
) -> float:
    """The ε that n_D episodes per step guarantee; the inverse of `decoding_budget`.

    ε = 8 G·K |A|³ L / (n_D (1−2η)²). Theorem 2, solved for ε.
    """
    n = count("n_decode", n_decode)
    return as_float(decoding_loss_times_n(setting, reading, resolved_union(reading, union)) / n)


def action_gap(setting: Setting) -> float:
    """How far every shadow action leads every other action in the posterior f*.

    f*(a₁ | x, x') − f*(a₂ | x, x') ≥ (1−2η)/|A|. Appendix B, proof of the one-step lemma.
    """
    return as_float((1 - 2 * Fraction(setting.eta)) / setting.actions)


def one_step_error_bound(setting: Setting, *, n_decode: int, union: bool = False) -> float:
    """Bound on the probability that α_h errs at one step under the policy's own actions.

    P(α_h wrong) ≤ 8 |A|³ L / (n_D (1−2η)²). Appendix B, one-step lemma: |A|² from the gap, |A|
    from the change of uniform to own actions. The lemma's statement prints 8h|A|³; its proof has
    no h, and the lemma that uses it would come out larger by h if there were one. May exceed 1;
    then it says nothing.
    """
    return as_float(_error_times_n(setting, union) / count("n_decode", n_decode))


def wrong_actions_bound(
    setting: Setting,
    *,
    n_decode: int,
    steps: int | None = None,
    start_error: float = 0.0,
    union: bool = False,
) -> float:
    """Bound on the expected number of the first h actions that are not the robust policy's.

    E Σ_{k≤h} 1[a_k ≠ ρ_k(s_k)] ≤ h² · 8|A|³L/(n_D(1−2η)²) + h ε₀. Appendix B, h-step lemma, which
    prints +ε₀: but an episode with the wrong start may be wrong at all h actions. h = H if `steps`
    is None.
    """
    n, h = count("n_decode", n_decode), _checked_steps(setting, steps)
    wrong_start = real("start_error", start_error, "[0, 1]")
    return as_float(h * h * _error_times_n(setting, union) / n + h * wrong_start)


def any_error_bound(
    setting: Setting,
    *,
    n_decode: int,
    steps: int | None = None,
    start_error: float = 0.0,
    union: bool = True,
) -> float:
    """Bound on the probability that the tracked state is ever wrong within h decoded steps.

    P(some α_j wrong, j ≤ h, or wrong start) ≤ h · 8|A|³L/(n_D(1−2η)²) + ε₀. Ours: the sum over
    the step of the first error, which is what the coupling argument charges G for. h = H if
    `steps` is None.
    """
    n, h = count("n_decode", n_decode), _checked_steps(setting, steps)
    wrong_start = real("start_error", start_error, "[0, 1]")
    return as_float(h * _error_times_n(setting, union) / n + wrong_start)


def value_loss_bound(
    setting: Setting,
    *,
    n_decode: int,
    reading: Reading = "algorithm",
    union: bool | None = None,
    start_error: float = 0.0,
) -> float:
    """Bound on what the learned policy loses against the robust one.

    V^{ρ∘φ*} − V^π ≤ 8 G·K |A|³ L / (n_D (1−2η)²) + G ε₀. Appendix B, the stronger form of
    Theorem 2, where G = H. The term G ε₀ is right (a wrong start costs one episode, G), though it
    does not follow from the h-step lemma with its correct h ε₀, which would give G·H ε₀.
    """
    loss = decoding_loss_times_n(setting, reading, resolved_union(reading, union))
    wrong_start = real("start_error", start_error, "[0, 1]")
    return as_float(loss / count("n_decode", n_decode) + setting.range * wrong_start)


def resolved_union(reading: Reading, union: bool | None) -> bool:
    """Whether δ is shared among the steps: as asked, else as the reading has it."""
    if reading not in get_args(Reading):
        raise ValueError(f"reading: {reading!r} is unknown; give one of {get_args(Reading)}")
    return reading == "coupling" if union is None else union


def _error_times_n(setting: Setting, union: bool) -> Fraction:
    """The one-step bound times n_D: 8|A|³L/(1−2η)²."""
    lead = 1 - 2 * Fraction(setting.eta)
    return 8 * setting.actions**3 * setting.log_term(union=union) / lead**2


def decoding_loss_times_n(setting: Setting, reading: Reading, union: bool) -> Fraction:
    """The loss bound times n_D: G·K times the one-step bound's."""
    steps = setting.horizon**2 if reading == "appendix" else setting.horizon
    return setting.range * steps * _error_times_n(setting, union)


def _checked_steps(setting: Setting, steps: int | None) -> int:
    h = setting.horizon if steps is None else count("steps", steps)
    if h > setting.horizon:
        raise ValueError(f"steps: {h} is more than the horizon; give at most {setting.horizon}")
    return h
