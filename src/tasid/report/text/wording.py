"""Numbers and labels as words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

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


def seeds_of(value: int, each: str) -> str:
    """So many seeds, each something of its own."""
    return (
        f"one seed, {each} of its own" if value == 1 else f"{value} seeds, each {each} of its own"
    )


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
