"""Where simulators come from: tables, Gymnasium tables, functions, drawn and occupancy maps."""

from tasid.maps.sources.by_name import is_map, read_source
from tasid.maps.sources.trouble import MapError, MapWarning

__all__ = ["MapError", "MapWarning", "is_map", "read_source"]
