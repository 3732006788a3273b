"""Numbers that options take: anything else is one line that names the option."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Any

import typer

MOST_SEED = 2**32 - 1
"""JAX keeps 32 bits of a seed: larger ones would be other seeds in disguise."""
MOST_EPISODES = 10**8
MOST_STEPS = 10**6
MOST_ATTEMPTS = 10**6
MOST_CHECKED = 10**6


def within(least: int, most: int) -> Callable[..., Any]:
    """A check that a whole number is in least … most, if it was given."""

    def check(parameter: typer.CallbackParam, value: Any) -> Any:
        if value is not None and not least <= value <= most:
            raise ValueError(f"{parameter.opts[0]}: {value} is not in {least} … {most}")
        return value

    return check


def finite(parameter: typer.CallbackParam, value: Any) -> Any:
    """A check that a number is one, if it was given."""
    if value is not None and not isfinite(value):
        raise ValueError(f"{parameter.opts[0]}: {value} is not a finite number")
    return value


seeds = within(0, MOST_SEED)
steps = within(1, MOST_STEPS)
episodes = within(1, MOST_EPISODES)
attempts = within(1, MOST_ATTEMPTS)
