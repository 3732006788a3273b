"""What every calculator needs to know of a task, checked once; and arithmetic that cannot overflow.

Definitions. H steps; |A| actions; the target is an η-perturbation of the simulator, η < ½; the
inverse models come from a class F, given by ln|F| because |F| itself is astronomically large;
δ is the probability with which a guarantee may fail; G is the length of an interval that holds
every return. With the paper's rewards in [0, 1], G = H.

Counts are exact: floats become fractions, products are formed without rounding, and a count is
rounded up once. A count within 2⁻⁴⁰ of an integer, relatively, is that integer, since ln alone is
known no better than a float; so n → ε → n returns to n.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from fractions import Fraction

_ROUNDING = Fraction(1, 2**40)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """H, |A|, η, ln|F|, δ and the return range G of one task."""

    horizon: int
    """H."""
    actions: int
    """|A|."""
    eta: float
    """η, in [0, ½)."""
    log_class_size: float
    """ln|F|, natural logarithm."""
    delta: float
    """δ, in (0, 1)."""
    return_range: float | None = None
    """G; None is the paper's: rewards in [0, 1], hence G = H."""

    def __post_init__(self) -> None:
        for name in ("horizon", "actions"):
            object.__setattr__(self, name, count(name, getattr(self, name)))
        real("eta", self.eta, "[0, 0.5)")
        real("log_class_size", self.log_class_size, "[0, inf)")
        real("delta", self.delta, "(0, 1)")
        if self.return_range is not None:
            real("return_range", self.return_range, "(0, inf)")

    @property
    def range(self) -> Fraction:
        """G, exact."""
        return Fraction(self.horizon if self.return_range is None else self.return_range)

    def log_term(self, *, union: bool) -> Fraction:
        """ln(|F|/δ), or ln(H|F|/δ) if the H steps share δ by a union bound."""
        steps = math.log(self.horizon) if union else 0.0
        return Fraction(self.log_class_size) + Fraction(steps - math.log(self.delta))


def count(name: str, value: int, *, least: int = 1) -> int:
    """`value` as an int ≥ `least`, or an error that names it."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise TypeError(f"{name}: {value!r} is a {type(value).__name__}; give an integer")
    if number < least:
        raise ValueError(f"{name}: {value!r} is too small; give an integer ≥ {least}")
    return number


def real(name: str, value: float, interval: str) -> Fraction:
    """`value`, exact, if it lies in an interval written like "[0, 0.5)"; else an error."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        kind = type(value).__name__
        raise TypeError(f"{name}: {value!r} is a {kind}; give a number in {interval}")
    low, high = (float(end) for end in interval[1:-1].split(","))
    above = value >= low if interval[0] == "[" else value > low
    below = value <= high if interval[-1] == "]" else value < high
    if not (above and below):
        raise ValueError(f"{name}: {value!r} is outside {interval}")
    return Fraction(value)


def ceiling(amount: Fraction) -> int:
    """The least integer ≥ `amount`, forgiving the rounding of its inputs."""
    nearest = round(amount)
    return nearest if abs(amount - nearest) <= _ROUNDING * amount else math.ceil(amount)


def as_float(amount: Fraction) -> float:
    """The nearest float; ±∞ where a bound is too large for one (it then says nothing)."""
    try:
        return float(amount)
    except OverflowError:
        return math.inf if amount > 0 else -math.inf
