"""Do arrays have the shapes that annotations say? Letters mean the same within a group."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import NoneType
from typing import Any, get_args, get_type_hints

import jax
import jaxtyping
from jaxtyping import jaxtyped

KNOWN = {**vars(jaxtyping), "Array": jax.Array}


def shaped(kind: type) -> dict[str, Any]:
    """The annotated fields of a class that say a shape."""
    hints = get_type_hints(kind, localns={**KNOWN, **_near(kind)})
    return {name: hint for name, hint in hints.items() if any(map(_is_shape, _options(hint)))}


def misshapen(*values: Any) -> list[str]:
    """The fields of a group of values that are not what they say; sums of letters come last."""
    wrong = []
    with jaxtyped("context"):
        fields = [(v, n, hint) for v in values for n, hint in shaped(type(v)).items()]
        for value, name, hint in sorted(fields, key=lambda field: _computed(field[2])):
            held = getattr(value, name)
            if not any(isinstance(held, option) for option in _options(hint)):
                found = None if held is None else (held.dtype, held.shape)
                wrong.append(f"{type(value).__name__}.{name}: {found} is not {hint}")
    return wrong


def _near(kind: type) -> dict[str, Any]:
    """Names that a class sees only when types are checked mean anything here."""
    module = __import__(kind.__module__, fromlist=["_"])
    words = re.findall(r"[A-Za-z_]\w*", " ".join(str(a) for a in kind.__annotations__.values()))
    return {word: Any for word in words if not hasattr(module, word) and word not in KNOWN}


def _options(hint: Any) -> Iterator[Any]:
    args = get_args(hint)
    yield from (
        (one for one in args if one is not NoneType or _is_shape(args[0])) if args else [hint]
    )


def _is_shape(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, jaxtyping.AbstractArray)


def _computed(hint: Any) -> bool:
    return any("+" in one.dim_str or "-" in one.dim_str for one in _options(hint) if _is_shape(one))
