"""The manifest of an artifact: what it is, and how its array file must look.

Its bytes are canonical, so not even white space can change unnoticed, and its own digest covers
everything else in it.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasid.files.canonical_json import ArtifactError, canonical_bytes, damaged, parse_json

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


class ForeignManifest(ArtifactError):
    """Somebody else's `manifest.json`."""


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
        data = canonical_bytes(content | {"digest": _digest(content)})
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
        raise ForeignManifest(
            f"{source}: not the manifest of a {FORMAT} artifact; give the path of a directory "
            f"that {FORMAT} wrote."
        )
    version = content.get("format_version")
    if type(version) is not int or version < 1:
        raise damaged(source, f"'format_version' is {version!r}, not a positive integer")
    if version > FORMAT_VERSION:
        raise ArtifactError(
            f"{source}: written in format version {version}, but this {FORMAT} reads up to "
            f"version {FORMAT_VERSION}; upgrade {FORMAT}."
        )
    if data != canonical_bytes(content):
        raise damaged(source, "the bytes are not the canonical form of their content")
    said = content.pop("digest", None)
    if said != (digest := _digest(content)):
        raise damaged(source, f"the content has the digest {digest}, not {said!r}")
    try:
        manifest, file = _read(content), content["arrays"]["file"]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise damaged(source, f"no manifest of ours ({error!r})") from error
    # The only accepted name is the one the digest gives: no other file or folder can be reached.
    if file != manifest.array_file:
        raise damaged(source, f"'file' is {file!r}, must be {manifest.array_file!r}")
    # Whatever is there besides, or spelled as another type, is missing when it is spelled again.
    if data != manifest.to_bytes():
        raise damaged(source, "there is more in it than in a manifest of ours")
    return manifest


def _read(content: dict[str, Any]) -> Manifest:
    """What is looked for in a manifest, or some error."""
    kind, metadata, arrays = content["kind"], content["metadata"], content["arrays"]
    sha256, size = arrays["sha256"], arrays["bytes"]
    tensors = {
        name: TensorEntry(entry["dtype"], tuple(entry["shape"]))
        for name, entry in arrays["tensors"].items()
    }
    if not (isinstance(kind, str) and kind and isinstance(metadata, dict)):
        raise ValueError(f"kind {kind!r}, metadata a {type(metadata).__name__}")
    for number in (size, *(length for entry in tensors.values() for length in entry.shape)):
        if type(number) is not int or number < 0:  # exactly: True is an int to isinstance
            raise ValueError(f"{number!r} is no length")
    if not _SHA256.fullmatch(sha256) or any(e.dtype not in DTYPES for e in tensors.values()):
        raise ValueError(f"sha256 {sha256!r}, or a dtype that is not stored")
    return Manifest(kind, metadata, sha256, size, tensors)


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(canonical_bytes(content)).hexdigest()
