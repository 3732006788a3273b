"""Files that survive crashes and detect damage.

**Artifacts** (simulators, policies, checkpoints) are directories: `manifest.json` and one
safetensors file of named arrays. The manifest holds the SHA-256 of the arrays and of itself, in
canonical JSON, so that equal content has equal bytes and every flipped bit is detected. The array
file is named after its hash and written first; the manifest then replaces the old one in a single
rename. A crash leaves the complete old or the complete new artifact.

**Episode logs** are artifacts without arrays, whose metadata describe the episodes, with numbered
safetensors blocks beside the manifest. The name of a block holds its SHA-256. Blocks are only ever
added, each by a rename; a crash loses the unfinished block at most.

Reading executes nothing, follows no links, allocates nothing before sizes have been checked and
raises `ArtifactError` for everything that was not written by this module.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import secrets
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from tasid.episodes import Episodes

FORMAT = "tasid/2"
"""Name and version of the format."""
MANIFEST = "manifest.json"
MAX_JSON_BYTES = 64 * 2**20
"""Size limit of manifests and other JSON files."""
DTYPES = frozenset(
    "bool float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()
)
_ARRAYS = "arrays-{}.safetensors"
_ARRAY_FILE = re.compile(_ARRAYS.format("[0-9a-f]{16}"))
_BLOCKS = "[0-9]" * 8 + "-*.safetensors"
_TABLES = ("actions", "rewards", "lengths", "explored")
_HEADER = ("observation_shape", "observation_dtype", "horizon", "num_actions")
_TEMPORARY = re.compile(r"\.tasid-[0-9a-f]{16}\.tmp")

StrPath = str | os.PathLike[str]
Arrays = Mapping[str, NDArray[Any]]
Json = Mapping[str, Any]
Id = tuple[int, int]


class ArtifactError(ValueError):
    """Content that cannot be stored, or files that are not as they were written."""


class FolderBusyError(ArtifactError):
    """Another process is writing to the folder."""


@dataclass(frozen=True, eq=False)
class Artifact:
    """Content of an artifact."""

    kind: str
    metadata: dict[str, Any]
    arrays: dict[str, NDArray[Any]]


# Artifacts


def write_artifact(path: StrPath, *, kind: str, metadata: Json, arrays: Arrays) -> Path:
    """Write an artifact into a directory, replacing the artifact there, and return its path.

    Parameters
    ----------
    kind
        What the artifact is, say "simulator"; `read_artifact` checks it.
    metadata
        JSON values; tuples and arrays become lists, NumPy scalars become Python numbers.
    arrays
        Named arrays of booleans, integers or floats.
    """
    directory = Path(path)
    manifest, payload = _serialise(kind, metadata, arrays)
    file, name = directory / MANIFEST, _ARRAYS.format(_sha256(payload)[:16])
    with writer_lock(directory, wait=True):
        if os.path.lexists(file) and b'"format": "tasid/' not in _read_bytes(file):
            raise ArtifactError(f"{file}: belongs to another program; choose another directory")
        write_bytes_atomically(directory / name, payload)
        write_bytes_atomically(file, manifest)
        for other in os.listdir(directory):
            if (_ARRAY_FILE.fullmatch(other) and other != name) or _TEMPORARY.fullmatch(other):
                (directory / other).unlink(missing_ok=True)
    return directory


def digest(kind: str, metadata: Json, arrays: Arrays) -> str:
    """SHA-256 of the artifact with this content, written or not."""
    return _sha256(_serialise(kind, metadata, arrays)[0])


def read_artifact(path: StrPath, *, kind: str | None = None) -> Artifact:
    """Read an artifact and verify every byte of it; `kind` is the only kind accepted, if given."""
    directory = Path(path)
    content = _parse_manifest(_read_bytes(directory / MANIFEST), directory / MANIFEST)
    if kind is not None and content["kind"] != kind:
        raise ArtifactError(f"{directory}: holds a {content['kind']!r}, expected a {kind!r}")
    file = directory / _ARRAYS.format(content["sha256"][:16])
    payload = _read_bytes(file, content["bytes"])
    if len(payload) != content["bytes"] or _sha256(payload) != content["sha256"]:
        raise _damaged(file, "its size or SHA-256 is not that of the manifest")
    return Artifact(content["kind"], content["metadata"], _load_arrays(payload, file))


def _serialise(kind: str, metadata: Json, arrays: Arrays) -> tuple[bytes, bytes]:
    """The bytes of the manifest and of the array file."""
    stored = {}
    for name, array in arrays.items():
        if array.dtype.name not in DTYPES:
            raise ArtifactError(f"arrays[{name!r}]: {array.dtype} is none of {sorted(DTYPES)}")
        # save() copies raw memory, which must be little-endian and in C order; 0-d stays 0-d.
        stored[name] = np.asarray(array, array.dtype.newbyteorder("<"), order="C")
    payload = save(stored)
    content = {
        "format": FORMAT,
        "kind": kind,
        "metadata": plain_json(metadata, "metadata"),
        "sha256": _sha256(payload),
        "bytes": len(payload),
    }
    manifest = _canonical(content | {"digest": _sha256(_canonical(content))})
    if len(manifest) > MAX_JSON_BYTES:
        raise ArtifactError(f"metadata: {len(manifest)} bytes of JSON; put large data into arrays")
    return manifest, payload


def _parse_manifest(data: bytes, source: Path) -> dict[str, Any]:
    """The content of a manifest, all fields checked."""
    content = _parse_json(data, source)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ArtifactError(f"{source}: not a manifest of format {FORMAT}; write it anew")
    unsigned = {key: value for key, value in content.items() if key != "digest"}
    # Canonical form: neither white space nor repeated keys can hide a change.
    if content.get("digest") != _sha256(_canonical(unsigned)) or data != _canonical(content):
        raise _damaged(source, "the content does not have the recorded digest")
    match unsigned:
        case {"kind": str(), "metadata": dict(), "sha256": str(sha256), "bytes": int()}:
            # The file name follows from the hash: no other file can be reached.
            if len(unsigned) == 5 and re.fullmatch("[0-9a-f]{64}", sha256):
                return content
    raise _damaged(source, "fields are missing or have wrong values")


def _load_arrays(payload: bytes, source: Path) -> dict[str, NDArray[Any]]:
    try:
        arrays = load(payload)
    except (SafetensorError, LookupError, ValueError, OverflowError, MemoryError) as error:
        raise _damaged(source, f"not a valid safetensors file ({error})") from error
    for name, array in arrays.items():
        if array.dtype.name not in DTYPES or (
            array.dtype == bool and array.view("u1").max(initial=0) > 1
        ):
            raise _damaged(source, f"the array {name!r} has a type or values that are not stored")
    return dict(sorted(arrays.items()))


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _damaged(file: Path, what: str) -> ArtifactError:
    return ArtifactError(
        f"{file}: {what:.400}. It is damaged or was edited; restore it from a copy or write it anew"
    )


# JSON


def write_json(path: StrPath, content: Any) -> Path:
    """Write a JSON file atomically, in canonical form."""
    return write_bytes_atomically(path, _canonical(plain_json(content, Path(path).stem)))


def read_json(path: StrPath) -> Any:
    """Read a JSON file of limited size and depth without NaN and infinities."""
    return _parse_json(_read_bytes(Path(path)), Path(path))


def plain_json(value: Any, where: str) -> Any:
    """Copy a value into plain JSON types; an error names the place `where` of what is not JSON."""
    match value:
        case np.generic() | np.ndarray():
            return plain_json(value.tolist(), where)
        case None | bool() | int() | str():
            return value
        case float() if math.isfinite(value):
            return value
        case list() | tuple():
            return [plain_json(item, f"{where}[{i}]") for i, item in enumerate(value)]
        case Mapping() if all(isinstance(key, str) for key in value):
            return {key: plain_json(item, f"{where}.{key}") for key, item in value.items()}
    raise ArtifactError(
        f"{where}: {value!r:.80} is not JSON; use None, bool, str, int, finite float, list or dict "
        "with strings as keys"
    )


def _canonical(content: Any) -> bytes:
    text = json.dumps(content, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False)
    return (text + "\n").encode()


def _parse_json(data: bytes, source: Path) -> Any:
    try:
        return plain_json(json.loads(data.decode()), "content")
    except (ValueError, RecursionError) as error:
        raise _damaged(source, f"not valid JSON ({error})") from None


# Files


def write_bytes_atomically(path: StrPath, data: bytes) -> Path:
    """Replace a file so that readers see the old or the new bytes, whole, even after a crash."""
    target = Path(path)
    temporary = target.parent / f".tasid-{secrets.token_hex(8)}.tmp"
    with _clear_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(temporary, "xb") as handle:
                handle.write(data)
                handle.flush()
                os.fsync(handle.fileno())
            os.replace(temporary, target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        descriptor = os.open(target.parent, os.O_RDONLY)
        with contextlib.suppress(OSError):  # some file systems cannot flush directories
            os.fsync(descriptor)
        os.close(descriptor)
    return target


@contextlib.contextmanager
def writer_lock(folder: StrPath, *, wait: bool = False) -> Iterator[None]:
    """Keep other processes from writing to a folder, which is created, while the block runs.

    Without `wait` a busy folder raises `FolderBusyError`. The lock ends with its process.
    """
    from filelock import FileLock, Timeout

    directory = Path(folder)
    with _clear_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
        lock = FileLock(directory / ".lock", timeout=-1 if wait else 0)
        try:
            held = lock.acquire()
        except Timeout:
            if not (directory / ".lock").exists():  # not held: it cannot be created
                raise OSError("no file can be created in it") from None
            raise FolderBusyError(f"{directory}: another process is writing; wait for it") from None
    with held:
        yield


@contextlib.contextmanager
def _clear_errors(target: Path) -> Iterator[None]:
    """Turn an error of the operating system into one that names the destination."""
    try:
        yield
    except (OSError, NotImplementedError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ArtifactError(
            f"{target}: cannot be written ({reason}); choose a folder on a writable disk with space"
        ) from error


def _read_bytes(file: Path, limit: int = MAX_JSON_BYTES) -> bytes:
    """The bytes of a regular file that is no larger than `limit` and memory; no links, no pipes."""
    limit = min(limit, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(descriptor, "rb") as handle:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size > limit:
                raise _damaged(file, f"not a regular file of at most {limit} bytes")
            return handle.read(status.st_size)
    except OSError as error:
        raise ArtifactError(f"{file}: cannot be read ({error.strerror or error})") from error


# Episodes


class EpisodeLog:
    """An append-only log of whole episodes, each with an id: two integers, say (phase, index).

    Observations after the end of an episode repeat the last one (`Episodes`); the log stores that
    once. `Episodes.trace` is not stored.

    Attributes
    ----------
    path
        The directory.
    header
        JSON values given to `create`, at least `observation_shape`, `observation_dtype`, `horizon`
        and `num_actions`.
    rows
        Block of each id, and position in it, in the order of the log.
    """

    def __init__(self, path: Path, header: dict[str, Any]) -> None:
        self.path, self.header, self._empty = path, header, _no_episodes(header)
        self.rows: dict[Id, tuple[int, int]] = {}
        self._blocks: list[Path] = []

    @classmethod
    def create(cls, path: StrPath, header: Json) -> EpisodeLog:
        """Start an empty log in a directory that has none."""
        log = cls(Path(path), plain_json(header, "header"))
        if (log.path / MANIFEST).exists():
            raise ArtifactError(f"{path}: holds a log or an artifact; choose another folder")
        write_artifact(path, kind="episodes", metadata=log.header, arrays={})
        return log

    @classmethod
    def open(cls, path: StrPath) -> EpisodeLog:
        """Open a log and verify every byte."""
        log = cls(Path(path), read_artifact(path, kind="episodes").metadata)
        for number, file in enumerate(sorted(log.path.glob(_BLOCKS))):
            if int(file.name[:8]) != number:
                raise _damaged(log.path, f"block {number} is missing or there twice")
            episodes, ids = log._load(file)
            log._check(episodes, ids)
            log._register(file, ids)
        return log

    def __len__(self) -> int:
        return len(self.rows)

    def append(self, episodes: Episodes, ids: Sequence[Id]) -> None:
        """Append episodes with their ids; they are on disk on return."""
        self._check(episodes, ids)
        payload = save(_to_arrays(episodes, ids))
        number = len(self._blocks)
        file = self.path / f"{number:08d}-{_sha256(payload)}.safetensors"
        with writer_lock(self.path, wait=True):
            if len(list(self.path.glob(_BLOCKS))) != number:
                raise FolderBusyError(f"{self.path}: another process has appended to this log")
            write_bytes_atomically(file, payload)
        self._register(file, ids)

    def read(self) -> Episodes:
        """All episodes of H steps whose observations were all kept, in the order of the log."""
        parts = [self._empty]
        for episodes, _ in map(self._load, self._blocks):
            x = episodes.observations
            if x is not None and x.shape[1] == self.header["horizon"] + 1:
                parts.append(episodes)
        return Episodes.concatenate(parts)

    def get(self, ids: Sequence[Id]) -> Episodes:
        """The episodes with these ids, in this order."""
        if not ids:
            return self._empty
        block, position = np.array([self.rows[i] for i in ids]).T
        order = np.argsort(block, kind="stable")
        parts = [self._load(self._blocks[b])[0][position[block == b]] for b in np.unique(block)]
        return Episodes.concatenate(parts)[np.argsort(order)]

    def _check(self, episodes: Episodes, ids: Sequence[Id]) -> None:
        """Refuse episodes that do not fit the header and ids that are not new."""
        if len(set(ids)) != len(episodes) or any(episode in self.rows for episode in ids):
            raise ArtifactError(f"ids: {ids!r:.200} are not {len(episodes)} different new ids")
        shape, dtype, horizon, num_actions = (self.header[name] for name in _HEADER)
        x, actions = episodes.observations, episodes.actions
        if x is not None and (list(x.shape[2:]) != shape or x.dtype != dtype):
            raise ArtifactError(f"observations: not {dtype} {shape}, as in the log")
        if episodes.horizon > horizon or ((actions < 0) | (actions >= num_actions)).any():
            raise ArtifactError(f"actions: not at most {horizon} of 0 … {num_actions - 1}")

    def _register(self, file: Path, ids: Sequence[Id]) -> None:
        self.rows |= {episode: (len(self._blocks), i) for i, episode in enumerate(ids)}
        self._blocks.append(file)

    def _load(self, file: Path) -> tuple[Episodes, list[Id]]:
        payload = _read_bytes(file, sys.maxsize)
        if _sha256(payload) != file.stem[9:]:
            raise _damaged(file, "it does not have the SHA-256 in its name")
        try:
            return _from_arrays(_load_arrays(payload, file))
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise _damaged(file, f"it holds no episodes of this log ({error})") from error


def _no_episodes(header: dict[str, Any]) -> Episodes:
    """Zero episodes of the shapes and types in a header."""
    try:
        shape, dtype, steps, num_actions = (header[name] for name in _HEADER)
        x = np.zeros((0, steps + 1, *shape), dtype)
        if x.dtype.name not in DTYPES or num_actions < 1 or steps < 1:
            raise ValueError
    except (KeyError, TypeError, ValueError):
        raise ArtifactError(f"header: {header!r:.200} needs right {', '.join(_HEADER)}") from None
    actions, rewards = np.zeros((0, steps), np.int32), np.zeros((0, steps), np.float32)
    return Episodes(x, actions, rewards, np.zeros(0, np.int32), actions > 0)


def _to_arrays(episodes: Episodes, ids: Sequence[Id]) -> dict[str, NDArray[Any]]:
    """Arrays of a block; observations one after the other, [sum of frames, …]."""
    arrays = {name: np.ascontiguousarray(getattr(episodes, name)) for name in _TABLES}
    arrays["ids"] = np.array(ids, np.int64).reshape(-1, 2)
    if (x := episodes.observations) is not None:
        last = _last_frame(episodes.lengths, episodes.horizon, x.shape[1])
        arrays["kept"] = np.array(x.shape[1], np.int64)
        arrays["observations"] = x[np.arange(x.shape[1]) <= last[:, None]]
    return arrays


def _from_arrays(arrays: Arrays) -> tuple[Episodes, list[Id]]:
    """Inverse of `_to_arrays`: episodes and ids."""
    tables = [arrays[name] for name in _TABLES]
    n, steps = tables[0].shape
    shapes = [table.shape for table in (*tables, arrays["ids"])]
    kept = int(arrays.get("kept", 0))
    if shapes != [(n, steps), (n, steps), (n,), (n, steps), (n, 2)] or not 0 <= kept <= steps + 1:
        raise ValueError("shapes do not fit together")
    observations = None
    if kept:
        last = _last_frame(tables[2], steps, kept)[:, None]
        first = np.cumsum(last + 1, axis=0) - last - 1
        observations = arrays["observations"][first + np.minimum(np.arange(kept), last)]
    ids = [tuple(episode) for episode in arrays["ids"].tolist()]
    return Episodes(observations, *tables), ids


def _last_frame(lengths: NDArray[np.int32], steps: int, kept: int) -> NDArray[np.int64]:
    """Index of the last observation of each episode that is not padding, of the last `kept`."""
    return np.clip(lengths.astype(np.int64) - (steps + 1 - kept), 0, kept - 1)
