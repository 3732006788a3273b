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

With an `Exploration`, c of `outcomes` stands in place of |A|³.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, get_args

from tasid.theory.outcomes import Exploration
from tasid.theory.setting import Setting, as_float, ceiling, count, real

Reading = Literal["algorithm", "appendix", "coupling"]


@dataclass(frozen=True)
class Budget:
    """Episodes that suffice for Theorem 2."""

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
    exploration: Exploration | None = None,
) -> Budget:
    """Episodes after which the policy is within ε of the robust one with probability ≥ 1−δ.

    n_D = ⌈8 G·K |A|³ L / (ε (1−2η)²)⌉, K and L by `reading`. Algorithm 2 (line 2) and Theorem 2.
    """
    accuracy = real("epsilon", epsilon, "(0, inf)")
    n = ceiling(loss_times_n(setting, reading, union, exploration) / accuracy)
    return Budget(n, (setting.horizon - 1) * n, setting.horizon * n)


def value_loss_bound(
    setting: Setting,
    *,
    n_decode: int,
    reading: Reading = "algorithm",
    union: bool | None = None,
    exploration: Exploration | None = None,
    start_error: float = 0.0,
) -> float:
    """Bound on what the learned policy loses against the robust one; ε of n_D when ε₀ = 0.

    V^{ρ∘φ*} − V^π ≤ 8 G·K |A|³ L / (n_D (1−2η)²) + G ε₀. Theorem 2, solved for ε, in the stronger
    form of appendix B, where G = H. The term G ε₀ is right (a wrong start costs one episode, G),
    though it does not follow from the h-step lemma with its correct h ε₀, which would give G·H ε₀.
    """
    loss = loss_times_n(setting, reading, union, exploration)
    wrong_start = real("start_error", start_error, "[0, 1]")
    return as_float(loss / count("n_decode", n_decode) + setting.range * wrong_start)


def action_gap(setting: Setting) -> float:
    """How far every shadow action leads every other action in the posterior f*.

    f*(a₁ | x, x') − f*(a₂ | x, x') ≥ (1−2η)/|A|. Appendix B, proof of the one-step lemma.
    """
    return as_float((1 - 2 * Fraction(setting.eta)) / setting.actions)


def one_step_error_bound(
    setting: Setting,
    *,
    n_decode: int,
    union: bool = False,
    exploration: Exploration | None = None,
) -> float:
    """Bound on the probability that α_h errs at one step under the policy's own actions.

    P(α_h wrong) ≤ 8 |A|³ L / (n_D (1−2η)²). Appendix B, one-step lemma: |A|² from the gap, |A|
    from the change of uniform to own actions. The lemma's statement prints 8h|A|³; its proof has
    no h, and the lemma that uses it would come out larger by h if there were one. With outcomes it
    is P(ŝ right, α_h wrong). May exceed 1; then it says nothing.
    """
    return as_float(_error_times_n(setting, union, exploration) / count("n_decode", n_decode))


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
    is None. It is h times `any_error_bound`: an error is charged to every action.
    """
    h = setting.horizon if steps is None else steps
    return h * any_error_bound(
        setting, n_decode=n_decode, steps=steps, start_error=start_error, union=union
    )


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
    h = setting.horizon if steps is None else count("steps", steps)
    if h > setting.horizon:
        raise ValueError(f"steps: {h} is more than the horizon; give at most {setting.horizon}")
    wrong_start = real("start_error", start_error, "[0, 1]")
    errors = h * _error_times_n(setting, union, None)
    return as_float(errors / count("n_decode", n_decode) + wrong_start)


def loss_times_n(
    setting: Setting,
    reading: Reading,
    union: bool | None,
    exploration: Exploration | None = None,
) -> Fraction:
    """The loss bound times n_D: G·K times the one-step bound's."""
    if reading not in get_args(Reading):
        raise ValueError(f"reading: {reading!r} is unknown; give one of {get_args(Reading)}")
    shared = reading == "coupling" if union is None else union
    steps = setting.horizon**2 if reading == "appendix" else setting.horizon
    return setting.range * steps * _error_times_n(setting, shared, exploration)


def _error_times_n(setting: Setting, union: bool, explored: Exploration | None) -> Fraction:
    """The one-step bound times n_D: 8|A|³L/(1−2η)², with c in place of |A|³ for outcomes."""
    if explored is not None and explored.outcomes > setting.actions:
        raise ValueError(
            f"outcomes: {explored.outcomes} is more than the number of actions; "
            f"give at most {setting.actions}"
        )
    factor = setting.actions**3 if explored is None else explored.factor(setting.eta)
    return 8 * factor * setting.log_term(union=union) / (1 - 2 * Fraction(setting.eta)) ** 2
