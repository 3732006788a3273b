"""Numbers as words, and what a run's numbers say, in plain sentences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

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


def printable(text: object) -> str:
    """As one line that shows whatever cannot be shown by a mark."""
    return "".join(sign if sign.isprintable() else "\ufffd" for sign in str(text))


def shortened(text: str, most: int) -> str:
    """At most so many letters of it."""
    return text if len(text) <= most else text[: most - 1] + "…"


def flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Nested records as rows of a dotted name and a value."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from flat(item, f"{path}.{key}" if path else str(key))
    elif path:
        yield path, value


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
