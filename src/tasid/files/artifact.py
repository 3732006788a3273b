"""Artifacts: a directory with a JSON manifest and one file of named NumPy arrays.

The array file is named after its content and written first; then the manifest, which names it, is
replaced in one rename; then array files nobody names any more are removed. A crash at any moment
leaves the complete old or the complete new artifact. Reading trusts nothing: every byte is covered
by a digest, and nothing in the files is ever executed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load, save

from tasid.files.atomic import directory_lock, make_directory, write_bytes_atomically
from tasid.files.canonical_json import ArtifactError, damaged, plain_json
from tasid.files.manifest import (
    ARRAY_FILE,
    DTYPES,
    FORMAT,
    MANIFEST_NAME,
    MAX_MANIFEST_BYTES,
    ForeignManifest,
    Manifest,
    TensorEntry,
    parse_manifest,
)

# A writer that overwrites the artifact under a reader makes it start again, at most so often.
_READ_ATTEMPTS = 100


@dataclass(frozen=True, eq=False)
class Artifact:
    """What was stored: a kind, JSON metadata, and arrays by name (in the order of their names)."""

    kind: str
    metadata: dict[str, Any]
    arrays: dict[str, npt.NDArray[Any]]


def write_artifact(
    path: str | os.PathLike[str],
    *,
    kind: str,
    metadata: Mapping[str, Any],
    arrays: Mapping[str, npt.NDArray[Any]],
) -> Path:
    """Write an artifact into a directory, replacing the one that is there, and return its path.

    Equal content gives equal bytes. Content that cannot be stored raises `ArtifactError`, a
    failing disk its `OSError`; the old artifact then remains as it was.
    """
    directory = Path(path)
    manifest, payload = _spelled(kind, metadata, arrays)
    manifest_data = manifest.to_bytes()
    if directory.exists() and not directory.is_dir():
        raise ArtifactError(f"{directory}: is a file; give the path of a directory.")
    make_directory(directory)
    with directory_lock(directory):
        _clear_leftovers(directory)
        write_bytes_atomically(directory / manifest.array_file, payload)
        write_bytes_atomically(directory / MANIFEST_NAME, manifest_data)
        _remove_array_files(directory, keep=manifest.array_file)
    return directory


def digest_of(
    *, kind: str, metadata: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]
) -> str:
    """What tells an artifact of this content from all others, whether it is written or not."""
    manifest, _ = _spelled(kind, metadata, arrays)
    return hashlib.sha256(manifest.to_bytes()).hexdigest()


def read_artifact(
    path: str | os.PathLike[str],
    *,
    kind: str | None = None,
    accept: Callable[[Manifest], None] | None = None,
) -> Artifact:
    """Read an artifact and verify every byte of it; `kind`, if given, is the only one accepted.

    Anything wrong raises `ArtifactError` with the file, the fault and the remedy. `accept` sees the
    manifest before the arrays are read, and may raise: large ones then cost nothing.
    """
    directory = Path(path)
    try:
        manifest, payload = _read_files(directory, kind, accept)
    except OSError as error:
        raise ArtifactError(
            f"{error.filename or directory}: cannot be read ({error.strerror}); "
            "check the path, its permissions and the disk."
        ) from error
    arrays = _parse_payload(payload, manifest, source=directory / manifest.array_file)
    return Artifact(kind=manifest.kind, metadata=manifest.metadata, arrays=arrays)


def _spelled(
    kind: str, metadata: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]
) -> tuple[Manifest, bytes]:
    """The manifest and the array file of this content, or an error that says what is wrong."""
    tensors = dict(_storable(name, array) for name, array in arrays.items())
    payload = save(tensors)
    manifest = Manifest(
        kind=kind,
        metadata=plain_json(metadata, where="metadata"),
        sha256=hashlib.sha256(payload).hexdigest(),
        size=len(payload),
        tensors={name: TensorEntry(a.dtype.name, a.shape) for name, a in tensors.items()},
    )
    return manifest, payload


def _storable(name: Any, array: Any) -> tuple[str, npt.NDArray[Any]]:
    """An array as it is stored, or an error that says why it is not."""
    if not isinstance(name, str) or name in ("", "__metadata__"):
        raise ArtifactError(
            f"arrays has the name {name!r}; an array's name must be a non-empty string other "
            "than '__metadata__'."
        )
    where = f"arrays[{name!r}]"
    if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
        raise ArtifactError(
            f"{where} is of type {type(array).__name__}; it must be a plain NumPy array "
            "(numpy.asarray(x) makes one)."
        )
    if array.dtype.name not in DTYPES:
        raise ArtifactError(
            f"{where} has dtype {array.dtype}, which is not stored; convert it to one of "
            f"{', '.join(sorted(DTYPES))}."
        )
    # save() copies raw memory, so the layout must be C order, little-endian; 0-d stays 0-d.
    dtype = np.dtype(array.dtype.name).newbyteorder("<")
    return plain_json(name, where=where), np.asarray(array, dtype=dtype, order="C")


def _read_files(
    directory: Path, kind: str | None, accept: Callable[[Manifest], None] | None
) -> tuple[Manifest, bytes]:
    """Read a manifest and the array file it names, again if a writer replaced both meanwhile."""
    _check_directory(directory)
    source = directory / MANIFEST_NAME
    for _ in range(_READ_ATTEMPTS):
        data = _read_file(source, limit=MAX_MANIFEST_BYTES)
        manifest = parse_manifest(data, source=source)
        if kind is not None and manifest.kind != kind:
            raise ArtifactError(
                f"{directory}: holds an artifact of kind {manifest.kind!r}, expected {kind!r}; "
                f"give the path of a {kind!r} artifact."
            )
        if accept is not None:
            accept(manifest)
        file = directory / manifest.array_file
        try:
            payload = _read_file(file, limit=manifest.size)
        except FileNotFoundError as error:
            if _read_file(source, limit=MAX_MANIFEST_BYTES) == data:
                raise damaged(file, "the array file is missing") from error
            continue
        sha256 = hashlib.sha256(payload).hexdigest()
        if (len(payload), sha256) != (manifest.size, manifest.sha256):
            raise damaged(
                file,
                f"it has {len(payload)} bytes and the SHA-256 {sha256}, the manifest says "
                f"{manifest.size} and {manifest.sha256}",
            )
        return manifest, payload
    raise ArtifactError(
        f"{directory}: was overwritten {_READ_ATTEMPTS} times while being read; "
        "read it when its writer has finished."
    )


def _check_directory(directory: Path) -> None:
    if not directory.exists():
        raise ArtifactError(f"{directory}: does not exist; check the path.")
    if not directory.is_dir():
        raise ArtifactError(
            f"{directory}: is a file; an artifact is a directory, give the path of the directory."
        )
    if not os.path.lexists(directory / MANIFEST_NAME):
        state = "holds no manifest.json" if any(directory.iterdir()) else "is an empty directory"
        raise ArtifactError(
            f"{directory}: {state}; give the path of a directory that {FORMAT} wrote."
        )


def _read_file(file: Path, *, limit: int) -> bytes:
    """Read a regular file of at most `limit` bytes, following no link and waiting on no pipe."""
    if file.is_symlink():
        raise damaged(file, "it is a symbolic link, not a regular file")
    descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise damaged(file, "it is not a regular file")
        if status.st_size > limit:
            raise damaged(file, f"it has {status.st_size} bytes, more than the {limit} allowed")
        with open(descriptor, "rb", closefd=False) as handle:
            return handle.read(status.st_size)
    finally:
        os.close(descriptor)


def _parse_payload(
    payload: bytes, manifest: Manifest, *, source: Path
) -> dict[str, npt.NDArray[Any]]:
    try:
        arrays = load(payload)
    except (SafetensorError, KeyError, ValueError) as error:  # KeyError: a dtype NumPy lacks
        raise damaged(source, f"not a valid safetensors file ({error})") from error
    found = {name: TensorEntry(a.dtype.name, a.shape) for name, a in arrays.items()}
    if found != manifest.tensors:
        names = sorted(found.keys() | manifest.tensors.keys())
        name = next(n for n in names if found.get(n) != manifest.tensors.get(n))
        raise damaged(
            source,
            f"the array {name!r} is {found.get(name)}, the manifest says "
            f"{manifest.tensors.get(name)}",
        )
    for name, array in arrays.items():
        if array.dtype == np.bool_ and np.any(array.view(np.uint8) > 1):
            raise damaged(source, f"the boolean array {name!r} has bytes other than 0 and 1")
    return {name: arrays[name] for name in sorted(arrays)}


def _clear_leftovers(directory: Path) -> None:
    """Remove array files of failed writes, and refuse to overwrite another program's manifest."""
    file, keep = directory / MANIFEST_NAME, None
    if os.path.lexists(file):
        data = _read_file(file, limit=MAX_MANIFEST_BYTES)
        try:
            keep = parse_manifest(data, source=file).array_file
        except ForeignManifest as error:
            raise ArtifactError(
                f"{file}: belongs to another program and would be overwritten; choose another "
                "directory or remove the file."
            ) from error
        except ArtifactError:
            return  # it may still be repaired by hand: leave all it might name for now
    _remove_array_files(directory, keep=keep)


def _remove_array_files(directory: Path, *, keep: str | None) -> None:
    for name in os.listdir(directory):
        if ARRAY_FILE.fullmatch(name) and name != keep:
            with contextlib.suppress(OSError):  # harmless, and tried again at the next write
                os.unlink(directory / name)
