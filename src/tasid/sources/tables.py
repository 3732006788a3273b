"""Simulators from `.npz` files of tables."""

from __future__ import annotations

import zipfile
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from tasid.simulator import AbstractSimulator, SimulatorError, label_from_json

MAX_BYTES = 2**31
"""Limit of all tables of a file together."""
NAMES = (
    "successor reward probabilities horizon start start_probabilities states action_names hazards"
).split()


def from_tables(path: str | Path, *, horizon: int | None = None) -> AbstractSimulator:
    """Simulator from the arrays of a `.npz` file, as `numpy.savez` writes it.

    `successor` and `reward` are needed; `probabilities`, `start`, `start_probabilities`, `states`
    (labels), `action_names`, `hazards` and `horizon` are as for `AbstractSimulator`. The argument
    `horizon` takes precedence over the array.
    """
    file = Path(path)
    tables = _read(file)
    for name in ("successor", "reward"):
        if name not in tables:
            raise SimulatorError(f"{file}: lacks the array {name!r}; it has {', '.join(tables)}")
    for name in tables:
        if name not in NAMES:
            raise SimulatorError(f"{file}: unknown array {name!r}; known are {', '.join(NAMES)}")
    stored: dict[str, Any] = dict(tables)
    for name in ("states", "action_names"):
        if name in stored:
            stored[name] = [label_from_json(label) for label in stored[name].tolist()]
    if horizon is None:
        if "horizon" not in stored or stored["horizon"].size != 1:
            raise SimulatorError(f"horizon: {file} has no number of this name; give the argument")
        horizon = stored["horizon"].item()
    stored["horizon"] = horizon
    return AbstractSimulator(**stored, source=f"tables {file.name}")


def _read(file: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a file, after their headers have been checked against its size."""
    try:
        with zipfile.ZipFile(file) as archive:
            sizes = [_array_bytes(archive, member) for member in archive.infolist()]
        if sum(sizes) > MAX_BYTES:
            raise ValueError(f"{sum(sizes)} bytes are more than {MAX_BYTES}")
        with np.load(file, allow_pickle=False) as tables:
            return dict(tables)
    except (ValueError, OSError, EOFError, KeyError, SyntaxError, zipfile.BadZipFile) as error:
        raise SimulatorError(f"{file}: not a file of plain numeric tables ({error})") from None


def _array_bytes(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> int:
    """Size of an array by its header, which must agree with the archive."""
    with archive.open(member) as array:
        version = npy.read_magic(array)
        if version not in ((1, 0), (2, 0)):
            raise ValueError(f"{member.filename} has an unknown version")
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = read(array)
        size = array.tell() + prod(shape) * dtype.itemsize
    if dtype.hasobject or size != member.file_size:
        raise ValueError(f"{member.filename} holds objects, or not the {shape} {dtype} it claims")
    return size
