"""Numbers as words, and what a run's numbers say, in plain sentences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tasid.report.pages.findings import RunFindings

UNKNOWN = "unknown"
THIN = "\u202f"
"""A narrow space that does not break."""


def number(value: float | None) -> str:
    """A value with two decimals, three below 1, and a true minus sign."""
    if value is None:
        return UNKNOWN
    if value != 0 and not 0.0005 <= abs(value) < 1e9:
        text = f"{value:.3g}"
    else:
        text = f"{value:,.{3 if 0 < abs(value) < 0.9995 else 2}f}"
    return text.replace(",", THIN).replace("-", "−")


def percent(value: float | None) -> str:
    """A share; 100 % is said only of the whole."""
    if value is None:
        return UNKNOWN
    digits = 1
    while digits < 4 and value != 1 and float(f"{100 * value:.{digits}f}") == 100:
        digits += 1
    text = "100" if value == 1 else f"{100 * value:,.{digits}f}"
    return text.replace(",", THIN).replace("-", "−") + THIN + "%"


def count(value: float | None) -> str:
    """A whole number in groups of three digits."""
    return UNKNOWN if value is None else f"{value:,.0f}".replace(",", THIN)


def episodes_of(value: int) -> str:
    """So many episodes."""
    return f"{count(value)} {'episode' if value == 1 else 'episodes'}"


def duration(seconds: float | None) -> str:
    """Seconds, or minutes and seconds, or hours and minutes."""
    if seconds is None:
        return UNKNOWN
    if seconds < 99.95:
        return f"{seconds:.1f}{THIN}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 100:
        hours, minutes = divmod(round(seconds / 60), 60)
        return f"{count(hours)}{THIN}h {minutes}{THIN}min"
    return f"{count(minutes)}{THIN}min {rest}{THIN}s"


def sentence(text: str) -> str:
    """A message with a capital letter first and a full stop last."""
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def unbroken(text: str) -> str:
    """A text that stays on one line."""
    return text.replace(" ", "\u00a0")


def headline(found: RunFindings) -> str:
    """The result in one sentence."""
    earned = f"The learned policy earns {number(found.mean)} per episode"
    robust, ratio = found["robust_value"], found["ratio"]
    if robust is None:
        return f"{earned}; what the robust plan would earn here is unknown."
    if ratio is None or robust <= 0:
        return f"{earned}; the robust plan earns {number(robust)} with the latent state in view."
    return (
        f"{earned}, {percent(ratio)} of what the robust plan earns with the latent state in view "
        f"({number(robust)})."
    )


def certainty(found: RunFindings) -> str:
    """How sure the headline is."""
    episodes = episodes_of(found.returns.size)
    if found.interval is None:
        return f"This is the mean of {episodes}, too few for an interval."
    low, high = found.interval
    said = (
        f"The 95{THIN}% interval of this mean, from {episodes}, is {number(low)} to {number(high)}"
    )
    robust = found["robust_value"]
    if robust is None:
        return f"{said}."
    if low <= robust <= high:
        return f"{said}: it holds the robust plan’s value, so the two cannot be told apart."
    return f"{said}: it lies {'below' if high < robust else 'above'} the robust plan’s value."


def caution(found: RunFindings) -> str | None:
    """Why this setting says little, if it does."""
    blind, robust = found["blind_value"], found["robust_value"]
    if blind is None or robust is None:
        return None
    if blind >= robust:
        return (
            f"Playing blind earns {number(blind)} here, no less than the robust plan’s "
            f"{number(robust)}. This setting is no evidence of learning."
        )
    if robust > 0 and blind > robust / 2:
        return (
            f"Playing blind already earns {number(blind)}, more than half of the robust plan’s "
            f"{number(robust)}. A good return is weak evidence of learning in this setting; "
            "look at the skill instead."
        )
    return None


@dataclass(frozen=True)
class KeyFigure:
    """A number and what it means."""

    name: str
    value: str
    meaning: str


def key_figures(found: RunFindings) -> tuple[tuple[str, tuple[KeyFigure, ...]], ...]:
    """The figures of a run in three groups."""
    return (
        ("Result", _results(found)),
        ("Yardsticks", _yardsticks(found)),
        ("Effort and tracking" if found.beliefs else "Effort and decoding", _efforts(found)),
    )


def _results(found: RunFindings) -> tuple[KeyFigure, ...]:
    interval = UNKNOWN
    if found.interval is not None:
        interval = f"{number(found.interval[0])} to {number(found.interval[1])}"
    return (
        KeyFigure(
            "Return",
            number(found.mean),
            f"Mean per episode of the learned policy, which sees observations only. "
            f"95{THIN}% interval: {interval}.",
        ),
        KeyFigure("Ratio", percent(found["ratio"]), "The return as a part of the robust value."),
        KeyFigure(
            "Skill",
            number(found["skill"]),
            "Where the return lies between playing blind (0) and the robust plan (1): "
            f"{unbroken('(return − blind)')} / {unbroken('(robust − blind)')}.",
        ),
    )


def _yardsticks(found: RunFindings) -> tuple[KeyFigure, ...]:
    eta = unbroken(f"η = {found.policy.plan.eta:g}")
    told = found.policy.simulator.horizon > 1  # with a single step there is nothing to decode
    perfect = KeyFigure(
        "Perfect models",
        number(found["population_value"]),
        "What the method would earn in this very target with unlimited data: what looks alike "
        "cannot be told apart by any model. Exact.",
    )
    return (
        KeyFigure(
            "Robust value",
            number(found["robust_value"]),
            "What the robust plan earns in this very target when it is told the latent state. "
            "Exact.",
        ),
        KeyFigure(
            "Worst case",
            number(found["worst_case_value"]),
            f"What the robust plan earns, told the state, in the worst target that {eta} allows. "
            "Exact.",
        ),
        KeyFigure(
            "Nominal plan",
            number(found["nominal_plan_value"]),
            f"What the plan that trusts the map ({unbroken('η = 0')}) earns in this very target "
            "when it is told the latent state. Exact.",
        ),
        KeyFigure(
            "Blind value",
            number(found["blind_value"]),
            "What needs no eyes: the better of the best single action and the nominal plan’s "
            "actions played from memory. Exact.",
        ),
        *((perfect,) if told and found["population_value"] is not None else ()),
    )


def _efforts(found: RunFindings) -> tuple[KeyFigure, ...]:
    return (
        KeyFigure(
            "Learning episodes",
            count(found["episodes"]),
            "All episodes spent on learning. Evaluation is not among them, nor is a certificate.",
        ),
        KeyFigure(
            "Learning time",
            duration(found["seconds"]),
            "By the clock, compilation included.",
        ),
        _accuracy(found),
    )


def _accuracy(found: RunFindings) -> KeyFigure:
    known = percent(found["decoder_accuracy"])
    if found.beliefs is not None:
        return KeyFigure(
            "Tracking accuracy",
            known,
            "How often, after a move, the likeliest state was the true one. Mean over steps; known "
            "only where the truth is.",
        )
    return KeyFigure(
        "Decoder accuracy",
        known,
        "How often the decoded move leads, on the map, from the true state to the true next "
        "one. Mean over steps.",
    )
