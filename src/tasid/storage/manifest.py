"""The manifest of an artifact: what it is, and how its array file must look.

Its bytes are canonical, so not even white space can change unnoticed, and its own digest covers
everything else in it.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tasid.storage.canonical_json import canonical_bytes, parse_json
from tasid.storage.error import ArtifactError, damaged

MANIFEST_NAME = "manifest.json"
MAX_MANIFEST_BYTES = 64 * 2**20
FORMAT = "tasid"
FORMAT_VERSION = 1
ARRAY_FILE = re.compile(r"arrays-([0-9a-f]{16})\.safetensors")
DTYPES = frozenset(
    {"bool", "float16", "float32", "float64"}
    | {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
)
_SHA256 = re.compile(r"[0-9a-f]{64}")
_KEYS = {"format", "format_version", "kind", "metadata", "arrays", "digest"}

T = TypeVar("T")


@dataclass(frozen=True)
class TensorEntry:
    """The type and shape one array must have."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Manifest:
    """The checked content of `manifest.json`."""

    kind: str
    metadata: dict[str, Any]
    sha256: str
    size: int
    tensors: dict[str, TensorEntry]

    @property
    def array_file(self) -> str:
        """The array file's name, which follows from its content."""
        return f"arrays-{self.sha256[:16]}.safetensors"

    def to_bytes(self) -> bytes:
        """Spell the manifest; `metadata` must be plain JSON already."""
        content: dict[str, Any] = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "kind": self.kind,
            "metadata": self.metadata,
            "arrays": {
                "file": self.array_file,
                "sha256": self.sha256,
                "bytes": self.size,
                "tensors": {
                    name: {"dtype": entry.dtype, "shape": list(entry.shape)}
                    for name, entry in self.tensors.items()
                },
            },
        }
        content["digest"] = _digest(content)
        data = canonical_bytes(content)
        if len(data) > MAX_MANIFEST_BYTES:
            raise ArtifactError(
                f"metadata makes a manifest of {len(data)} bytes, more than the "
                f"{MAX_MANIFEST_BYTES} allowed; put large data in arrays."
            )
        return data


def parse_manifest(data: bytes, *, source: Path) -> Manifest:
    """Check a manifest's bytes in full and return its content; `source` is named in errors."""
    content = parse_json(data, source=source)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ArtifactError(
            f"{source}: not the manifest of a {FORMAT} artifact; give the path of a directory "
            f"that {FORMAT} wrote."
        )
    _check_version(content.get("format_version"), source=source)
    _check_keys(content, _KEYS, "the manifest", source)
    _check_bytes(content, data, source=source)
    kind = _take(content, "kind", str, source)
    if not kind:
        raise damaged(source, "'kind' is empty")
    metadata = _take(content, "metadata", dict, source)
    return _parse_arrays(_take(content, "arrays", dict, source), kind, metadata, source)


def _check_version(version: Any, *, source: Path) -> None:
    if type(version) is not int or version < 1:
        raise damaged(source, f"'format_version' is {version!r}, not a positive integer")
    if version > FORMAT_VERSION:
        raise ArtifactError(
            f"{source}: written in format version {version}, but this {FORMAT} reads up to "
            f"version {FORMAT_VERSION}; upgrade {FORMAT}."
        )


def _check_bytes(content: dict[str, Any], data: bytes, *, source: Path) -> None:
    if data != canonical_bytes(content):
        raise damaged(source, "the bytes are not the canonical form of their content")
    digest = _digest({key: item for key, item in content.items() if key != "digest"})
    if content["digest"] != digest:
        raise damaged(source, f"the content has the digest {digest}, not {content['digest']!r}")


def _parse_arrays(
    arrays: dict[str, Any], kind: str, metadata: dict[str, Any], source: Path
) -> Manifest:
    _check_keys(arrays, {"file", "sha256", "bytes", "tensors"}, "'arrays'", source)
    sha256 = _take(arrays, "sha256", str, source)
    if not _SHA256.fullmatch(sha256):
        raise damaged(source, f"'sha256' is {sha256!r}, not 64 hexadecimal digits")
    size = _take(arrays, "bytes", int, source)
    if size < 0:
        raise damaged(source, f"'bytes' is {size}, which is negative")
    tensors = {
        name: _parse_tensor(name, entry, source)
        for name, entry in _take(arrays, "tensors", dict, source).items()
    }
    manifest = Manifest(kind=kind, metadata=metadata, sha256=sha256, size=size, tensors=tensors)
    # The only accepted name is the one the digest gives: no other file or folder can be reached.
    if _take(arrays, "file", str, source) != manifest.array_file:
        raise damaged(source, f"'file' is {arrays['file']!r}, must be {manifest.array_file!r}")
    return manifest


def _parse_tensor(name: str, entry: Any, source: Path) -> TensorEntry:
    if not isinstance(entry, dict):
        raise damaged(source, f"the entry of the array {name!r} is not an object")
    _check_keys(entry, {"dtype", "shape"}, f"the entry of the array {name!r}", source)
    dtype = _take(entry, "dtype", str, source)
    if dtype not in DTYPES:
        raise damaged(source, f"the array {name!r} has the unknown dtype {dtype!r}")
    shape = _take(entry, "shape", list, source)
    if not all(type(length) is int and length >= 0 for length in shape):
        raise damaged(source, f"the array {name!r} has the shape {shape!r}")
    return TensorEntry(dtype=dtype, shape=tuple(shape))


def _take(content: dict[str, Any], key: str, wanted: type[T], source: Path) -> T:
    value = content[key]
    if type(value) is not wanted:  # exactly: True is an int to isinstance
        raise damaged(source, f"{key!r} is of type {type(value).__name__}, not {wanted.__name__}")
    return value


def _check_keys(content: dict[str, Any], wanted: set[str], what: str, source: Path) -> None:
    if content.keys() != wanted:
        raise damaged(source, f"{what} has the keys {sorted(content)}, must be {sorted(wanted)}")


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(canonical_bytes(content)).hexdigest()
