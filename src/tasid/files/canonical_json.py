"""JSON with exactly one spelling for every value, so that equal content means equal bytes.

Whatever is wrong with it, or with an artifact it belongs to, is an `ArtifactError`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

# Far below the interpreter's recursion limit, so that whatever is written can be read anywhere.
MAX_DEPTH = 100
# Python refuses to print or parse integers of more than 4300 digits; this stays well inside.
MAX_INTEGER_BITS = 4096


class ArtifactError(ValueError):
    """An artifact cannot be written as asked, or what is on disk is not what was written."""


def damaged(file: Path, what: str) -> ArtifactError:
    """Say which file is not as it was written, and how to recover."""
    what = what if len(what) <= 600 else what[:600] + "…"  # a hostile file may fill pages
    return ArtifactError(
        f"{file}: {what}. The artifact is damaged or was edited; "
        "restore the whole directory from a copy or write the artifact again."
    )


def canonical_bytes(value: Any) -> bytes:
    """Spell a plain JSON value in its canonical form, as UTF-8 with a trailing newline."""
    text = json.dumps(
        value,
        sort_keys=True,
        indent=2,
        separators=(",", ": "),
        ensure_ascii=False,
        allow_nan=False,
    )
    return (text + "\n").encode()


def plain_json(value: Any, *, where: str, depth: int = 0) -> Any:
    """Copy a value into plain JSON types; tuples become lists, anything else foreign is refused.

    `where` is the place of the value, for the message of the `ArtifactError`.
    """
    if depth > MAX_DEPTH:
        raise ArtifactError(
            f"{where[:80]}… is nested deeper than {MAX_DEPTH} levels (or contains itself); "
            "flatten it."
        )
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _plain_string(value, where=where)
    if isinstance(value, int):
        if value.bit_length() > MAX_INTEGER_BITS:
            raise ArtifactError(
                f"{where} is an integer of {value.bit_length()} bits; at most {MAX_INTEGER_BITS} "
                "are stored, write it as a hexadecimal string."
            )
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ArtifactError(
                f"{where} is {float(value)}, which JSON cannot hold; use None or put it in an "
                "array."
            )
        return float(value)
    if isinstance(value, Mapping):
        return {
            _plain_key(key, where=where): plain_json(
                item, where=f"{where}[{key!r}]", depth=depth + 1
            )
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [
            plain_json(item, where=f"{where}[{index}]", depth=depth + 1)
            for index, item in enumerate(value)
        ]
    raise ArtifactError(
        f"{where} is of type {type(value).__name__}, which JSON cannot hold; use None, bool, int, "
        "float, str, list or dict (int(x), float(x) or x.tolist() for NumPy values)."
    )


def parse_json(data: bytes, *, source: Path) -> Any:
    """Parse UTF-8 JSON, refusing duplicate keys and whatever `plain_json` refuses."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        content: dict[str, Any] = {}
        for key, item in pairs:
            if key in content:
                raise ArtifactError(f"the key {key!r} occurs twice in one object")
            content[key] = item
        return content

    def refuse(constant: str) -> NoReturn:
        raise ArtifactError(f"{constant} is not JSON")

    try:
        content = json.loads(data.decode(), object_pairs_hook=unique, parse_constant=refuse)
        return plain_json(content, where="the content", depth=-1)  # what is in it starts at 0
    except ArtifactError as error:
        raise damaged(source, str(error).rstrip(".")) from error
    except UnicodeDecodeError as error:
        raise damaged(source, f"byte {error.start} is not UTF-8 text") from error
    except RecursionError as error:
        raise damaged(source, "the JSON is nested too deeply") from error
    except ValueError as error:  # JSONDecodeError, and integers with too many digits
        raise damaged(source, f"not valid JSON ({error})") from error


def _plain_key(key: Any, *, where: str) -> str:
    if not isinstance(key, str):
        raise ArtifactError(
            f"{where} has the key {key!r} of type {type(key).__name__}; JSON keys are strings, "
            "use str(key)."
        )
    return _plain_string(key, where=f"the key {key!r} of {where}")


def _plain_string(value: str, *, where: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ArtifactError(
            f"{where} has a lone surrogate at position {error.start}, which UTF-8 cannot hold; "
            "remove it."
        ) from error
    return str.__str__(value)  # an enumeration's own __str__ would give its name, not its value
