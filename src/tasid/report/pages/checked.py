"""Records of a run read back as the types they were written from; what does not fit is refused."""

from __future__ import annotations

from dataclasses import is_dataclass
from types import UnionType
from typing import Any, cast, get_args, get_origin, get_type_hints

from tasid.files import ArtifactError


def checked(kind: Any, value: Any, where: str) -> Any:
    """A value from JSON as a number, text, a dataclass of ours or a tuple of these, or as null.

    Fields of the type `Any`, labels of states, may be anything; a tuple that is null is empty.
    """
    parts = get_args(kind)
    if isinstance(kind, UnionType):
        return None if value is None else checked(parts[0], value, where)
    if get_origin(kind) is tuple and isinstance(value, list | None):
        return tuple(
            checked(parts[0], one, f"{where}, entry {number}")
            for number, one in enumerate(value or ())
        )
    if is_dataclass(kind) and isinstance(value, dict):
        hints = get_type_hints(kind)
        if missing := hints.keys() - value.keys():
            raise ArtifactError(f"{where} is {value!r}; it lacks {', '.join(sorted(missing))}")
        fields = {name: checked(hints[name], value[name], f"{where}: {name}") for name in hints}
        return cast(type[Any], kind)(**fields)
    if kind in (int, float):
        # The comparison is False for NaN, which is no count; a truth value is no number.
        fits = type(value) in (int, float) and (kind is float or value == value)
    else:
        fits = kind is Any or (isinstance(kind, type) and isinstance(value, kind))
    if not fits:
        raise ArtifactError(f"{where} is {value!r}; it should be {_spelled(kind)}")
    return value


def _spelled(kind: Any) -> str:
    if get_origin(kind) is tuple:
        return "a list"
    return {int: "a number", float: "a number", str: "text"}.get(kind, "a record")
