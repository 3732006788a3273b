"""What can be wrong with a map, and with a number."""

from __future__ import annotations

import math
from typing import Any

from tasid.maps.simulator import SimulatorError


class MapError(SimulatorError):
    """A file, a text, a table or a function that no simulator can be made of."""


class MapWarning(UserWarning):
    """A map that works and is probably not what was meant."""


def finite(given: Any) -> float:
    """What was given, as a finite number; NaN if it is none."""
    try:
        number = float(given)
    except (TypeError, ValueError):
        return math.nan
    return number if math.isfinite(number) else math.nan
