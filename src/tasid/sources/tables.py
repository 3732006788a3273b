"""Simulators from `.npz` files of tables."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
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
    """The arrays of a file, whose size is checked before they are read."""
    try:
        with zipfile.ZipFile(file) as archive:
            size = sum(member.file_size for member in archive.infolist())
        if size > MAX_BYTES:
            raise ValueError(f"{size} bytes are more than {MAX_BYTES}")
        with np.load(file, allow_pickle=False) as tables:
            return dict(tables)
    except (ValueError, OSError, EOFError, MemoryError, zipfile.BadZipFile) as error:
        raise SimulatorError(f"{file}: not a file of plain numeric tables ({error})") from None
