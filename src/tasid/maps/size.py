"""What numbers may be: whole, seeds, and sizes of tables, which a few bytes can make huge."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

MOST_BYTES = 2**33
"""Of one table; 8 GiB."""
MOST_STEPS = 1_000_000
"""Of one episode."""


class SizeError(ValueError):
    """A table that would be too large, told before it is made."""


def is_whole(number: Any) -> bool:
    """Is it a whole number, Python's or NumPy's? True and False are none."""
    return isinstance(number, (int, np.integer)) and not isinstance(number, bool)


def check_count(name: str, number: int) -> None:
    """Refuse what is no number of things to do."""
    if not is_whole(number):
        raise TypeError(f"{name}: {number!r} is not a whole number")
    if number < 1:
        raise ValueError(f"{name}: {number} is below 1")


def check_seed(seed: int) -> None:
    """Refuse what is no seed, and one of which JAX would not keep all bits."""
    if not is_whole(seed):
        raise TypeError(f"seed: {seed!r} is not a whole number")
    if not 0 <= seed < 1 << 32:
        raise ValueError(f"seed: {seed} is not in 0 … {(1 << 32) - 1}")


def refuse_larger(name: str, shape: tuple[int, ...], itemsize: int, remedy: str) -> None:
    """Refuse a table of this shape if it would take more than `MOST_BYTES`."""
    size = prod(shape) * itemsize
    if size > MOST_BYTES:
        sizes = " × ".join(str(n) for n in shape)
        raise SizeError(
            f"{name}: {sizes} entries would take {size / 2**30:.3g} GiB, more than "
            f"{MOST_BYTES / 2**30:g}; {remedy}"
        )
