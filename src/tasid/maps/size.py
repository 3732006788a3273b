"""How large tables may become: a few bytes of a file or a command can ask for all memory."""

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


def refuse_larger(name: str, shape: tuple[int, ...], itemsize: int, remedy: str) -> None:
    """Refuse a table of this shape if it would take more than `MOST_BYTES`."""
    size = prod(shape) * itemsize
    if size > MOST_BYTES:
        sizes = " × ".join(str(n) for n in shape)
        raise SizeError(
            f"{name}: {sizes} entries would take {size / 2**30:.3g} GiB, more than "
            f"{MOST_BYTES / 2**30:g}; {remedy}"
        )
