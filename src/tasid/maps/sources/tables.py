"""Simulators from `.npz` files of tables."""

from __future__ import annotations

import zipfile
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from tasid.maps.layout import Origin
from tasid.maps.simulator import AbstractSimulator, as_label
from tasid.maps.size import MapError

_MOST_BYTES = 2**31
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
_NEEDED = ("successor", "reward")
_KNOWN = (*_NEEDED, "horizon", "start", "start_probabilities", "states")


def from_tables(path: str | Path, *, horizon: int | None = None) -> AbstractSimulator:
    """A simulator from the arrays of a `.npz` file, as `numpy.savez` writes it.

    `successor` and `reward` are needed; `start`, `start_probabilities`, `states` (labels) and
    `horizon` are what they are for `AbstractSimulator`. A `horizon` given here goes first.
    """
    file = Path(path)
    tables = _read(file)
    missing = [name for name in _NEEDED if name not in tables]
    if missing:
        raise MapError(
            f"{file}: lacks the array {missing[0]!r}; it has "
            f"{', '.join(tables) or 'none'}; known are {', '.join(_KNOWN)}"
        )
    strangers = [name for name in tables if name not in _KNOWN]
    if strangers:
        raise MapError(f"{file}: unknown array {strangers[0]!r}; known are {', '.join(_KNOWN)}")
    if horizon is None:
        if "horizon" not in tables:
            raise MapError(f"horizon: {file} has no array 'horizon'; give one")
        horizon = _horizon(tables["horizon"], file)
    start, states = tables.get("start", np.array(0)), tables.get("states")
    return AbstractSimulator(
        tables["successor"],
        tables["reward"],
        horizon=horizon,
        start=start,  # type: ignore[arg-type]
        start_probabilities=tables.get("start_probabilities"),  # type: ignore[arg-type]
        states=None if states is None else [as_label(x) for x in states.tolist()],
        origin=Origin(f"tables {file.name}"),
    )


def _read(file: Path) -> dict[str, NDArray[Any]]:
    if not file.is_file():
        raise MapError(f"{file}: no such file")
    try:
        with file.open("rb") as handle:
            if handle.read(len(npy.MAGIC_PREFIX)) == npy.MAGIC_PREFIX:
                raise MapError(f"{file}: holds one array, not named tables; write it with savez")
            _check_sizes(file, handle)
            handle.seek(0)
            archive = np.load(handle)  # of plain arrays only: objects are refused by default
            with archive:
                return {name: archive[name] for name in archive.files}
    except MapError:
        raise
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile, SyntaxError) as error:
        raise MapError(f"{file}: not a file of plain numeric tables ({error})") from None


def _check_sizes(file: Path, handle: BinaryIO) -> None:
    """Refuse arrays that say they are larger than what the file holds, or too large altogether."""
    total = 0
    with zipfile.ZipFile(handle) as archive:
        for member in archive.infolist():
            with archive.open(member) as array:
                read = _HEADERS.get(npy.read_magic(array))
                if read is None:
                    raise ValueError(f"{member.filename} is of an unknown version")
                shape, _, dtype = read(array)
                size = array.tell() + prod(shape) * dtype.itemsize
            if size != member.file_size and not dtype.hasobject:
                raise ValueError(
                    f"{member.filename} says it has shape {shape} of {dtype}, but "
                    f"{member.file_size} bytes"
                )
            total += size
    if total > _MOST_BYTES:
        raise MapError(f"{file}: {total} bytes of tables are more than {_MOST_BYTES}")


def _horizon(given: NDArray[Any], file: Path) -> int:
    if given.size != 1 or given.dtype.kind not in "iu":
        raise MapError(f"horizon: {given.tolist()!r} in {file} is not one whole number")
    return int(given.reshape(()))
