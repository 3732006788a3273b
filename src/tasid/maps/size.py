"""What maps and numbers may be: what is wrong with them, and how it is told."""

from __future__ import annotations

import sysconfig
from math import isfinite, nan, prod
from pathlib import Path
from traceback import walk_tb
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_BYTES = 2**33
"""Of one table; 8 GiB."""
MOST_STEPS = 1_000_000
"""Of one episode."""


class SimulatorError(ValueError):
    """A table, a start or a horizon that cannot be a deterministic finite-horizon world."""


class MapError(SimulatorError):
    """A file, a text, a table or a function that no simulator can be made of."""


class MapWarning(UserWarning):
    """A map that works and is probably not what was meant."""


class SizeError(ValueError):
    """A table that would be too large, told before it is made."""


def is_whole(number: Any) -> bool:
    """Is it a whole number, Python's or NumPy's? True and False are none."""
    return isinstance(number, (int, np.integer)) and not isinstance(number, bool)


def raised(error: BaseException) -> str:
    """An error of somebody's own code: its kind, its words and the innermost line of that code."""
    said = f"{type(error).__name__}: {error}"
    libraries = Path(__file__).parents[1], Path(sysconfig.get_path("stdlib"))
    for frame, line in reversed(list(walk_tb(error.__traceback__))):
        file = Path(frame.f_code.co_filename)
        theirs = any(map(file.is_relative_to, libraries)) or "site-packages" in file.parts
        if file.is_file() and not theirs:
            return said if isinstance(error, SyntaxError) else f"{said} ({file.name}, line {line})"
    return said


def finite(given: Any) -> float:
    """What was given, as a finite number; NaN if it is none."""
    try:
        number = float(given)
    except (TypeError, ValueError):
        return nan
    return number if isfinite(number) else nan


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


def refuse_entries(
    error: type[ValueError],
    name: str,
    table: NDArray[Any],
    bad: NDArray[np.bool_],
    right: str,
    axes: str = "hsa",
) -> None:
    """Refuse a table with bad entries: what the first one is and where, and what is right."""
    if bad.any():
        first = tuple(int(i) for i in np.unravel_index(int(bad.argmax()), bad.shape))
        raise error(
            f"{name}: {table[first]} at ({', '.join(axes[-bad.ndim :])}) = {first} should be "
            f"{right}; {int(bad.sum())} such entries in all"
        )
