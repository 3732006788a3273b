"""What can be wrong with a map."""

from __future__ import annotations

from tasid.maps.simulator import SimulatorError


class MapError(SimulatorError):
    """A file, a text, a table or a function that no simulator can be made of."""


class MapWarning(UserWarning):
    """A map that works and is probably not what was meant."""
