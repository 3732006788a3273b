"""Where simulators come from: tables, Gymnasium tables, functions, drawn and occupancy maps."""

from tasid.maps.size import MapError, MapWarning
from tasid.maps.sources.by_name import is_map, read_source

__all__ = ["MapError", "MapWarning", "is_map", "read_source"]
