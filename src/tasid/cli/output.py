"""What commands print: one JSON object, or tables; progress and notices on standard error."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from tasid.learning.base import Event

STDOUT: TextIO = sys.stdout
"""Standard output as it was when the command started."""


def notice(text: str) -> None:
    """Print a line that is not part of the answer."""
    print(f"tasid: {text}", file=sys.stderr)


def answer(
    result: Mapping[str, Any],
    words: Callable[[Mapping[str, Any]], None] | None = None,
    *,
    as_json: bool,
) -> None:
    """Print the result as JSON, or in words, by default names and values; warnings go to stderr."""
    for warning in result.get("warnings", ()):
        notice(f"warning: {warning}")
    if as_json:
        print(json.dumps(result, allow_nan=False), file=STDOUT, flush=True)
    else:
        (words or print_values)(result)


def print_values(result: Mapping[str, Any], *, inner: bool = False) -> None:
    """Names, values and what they mean, then the tables of the result. Lists are left out.

    A table within a table (`inner`) takes one line.
    """
    from tasid.policies.evaluate import FIGURES

    rows = []
    tables = {key: value for key, value in result.items() if isinstance(value, dict) and value}
    for key, value in result.items():
        name, note = FIGURES.get(key, (key.replace("_", " "), ""))
        if key == "return_ci95" and value is not None and value[0] is not None:
            name, value = "95 % interval", f"{value[0]:.4g} … {value[1]:.4g}"
        if inner and key in tables:
            value = "; ".join(f"{k.replace('_', ' ')} {number(v)}" for k, v in value.items())
        if value is not None and not isinstance(value, list | dict):
            rows.append((name, number(value), note))
    width = max((len(name) for name, _, _ in rows), default=0) + 2
    for name, value, note in rows:
        print(f"{name:<{width}}{value}" + (f"  ({note})" if note else ""))
    for key, table in tables.items() if not inner else ():
        print(f"\n{key.replace('_', ' ')}")
        print_values(table, inner=True)


def number(value: Any) -> str:
    """A number with four significant digits, everything else as it is."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def progress(seconds_between_lines: float = 5.0) -> Callable[[Event], None]:
    """A callback that says how far learning is: at the first event, then at times."""
    printed = -math.inf

    def show(event: Event) -> None:
        nonlocal printed
        if time.monotonic() - printed < seconds_between_lines:
            return
        printed = time.monotonic()
        total = "" if event.total_episodes is None else f" of {event.total_episodes}"
        figures = [
            f"{name.replace('_', ' ')} {number(value)}"
            for name, value in vars(event).items()
            if isinstance(value, int | float) and math.isfinite(value)
            if name not in ("episodes", "total_episodes")
        ]
        notice(", ".join([f"{event.episodes}{total} episodes", *figures[:4]]))

    return show
