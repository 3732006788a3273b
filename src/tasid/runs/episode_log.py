"""Recorded episodes as a value and as a file: an artifact of kind `episodes` (docs/logs.md)."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasid.files import ArtifactError, read_artifact, write_artifact
from tasid.files.manifest import Manifest, TensorEntry
from tasid.learning.belief.episodes import Recorded

KIND = "episodes"
MOST_BYTES = 8 * 2**30
"""Larger logs are refused before room is made for them."""
DTYPES = ("float32", "uint8")
"""What an observation's numbers may be."""
_KEYS = set(
    "horizon num_actions observation_shape observation_dtype tells_ends environment".split()
)


@dataclass(frozen=True, eq=False)
class EpisodeLog:
    """Whole episodes that somebody recorded, checked."""

    recorded: Recorded
    num_actions: int
    """|A|: commands are below it."""
    tells_ends: bool
    """Would the target have told if it had ended an episode?"""
    environment: Mapping[str, Any] | None = None
    """Name and options of the environment, ours or gym:ID, if it is known."""

    def __post_init__(self) -> None:
        _check_log(self)

    @property
    def number(self) -> int:
        """N."""
        return self.recorded.number

    @property
    def horizon(self) -> int:
        """H."""
        return int(self.recorded.commands.shape[1])

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """The shape of one observation."""
        return tuple(self.recorded.observations.shape[2:])

    @property
    def observation_dtype(self) -> str:
        """float32 or uint8."""
        return self.recorded.observations.dtype.name

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write a checked artifact directory; the same episodes give the same bytes."""
        metadata = {
            "horizon": self.horizon,
            "num_actions": self.num_actions,
            "observation_shape": list(self.observation_shape),
            "observation_dtype": self.observation_dtype,
            "tells_ends": self.tells_ends,
            "environment": None if self.environment is None else dict(self.environment),
        }
        arrays = self.recorded._asdict()
        return write_artifact(path, kind=KIND, metadata=metadata, arrays=arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> EpisodeLog:
        """Read what `save` wrote; sizes are checked before anything large is read."""
        try:
            artifact = read_artifact(path, kind=KIND, accept=_check_manifest)
            meta, arrays = artifact.metadata, artifact.arrays
            arrays.setdefault("own", np.ones(arrays["commands"].shape, np.bool_))
            recorded = Recorded(**{name: arrays[name] for name in Recorded._fields})
            return cls(recorded, meta["num_actions"], meta["tells_ends"], meta["environment"])
        except ArtifactError:
            raise
        except (KeyError, TypeError, ValueError) as error:
            raise ArtifactError(
                f"{path}: intact, but no episodes that this version can use: {error}"
            ) from error


def check_size(number: int, horizon: int, shape: tuple[int, ...], dtype: str) -> None:
    """Refuse observations that would take more room than there may be."""
    size = number * (horizon + 1) * math.prod(shape) * np.dtype(dtype).itemsize
    if size > MOST_BYTES:
        raise ValueError(
            f"observations: {number} episodes of {horizon + 1} observations {shape} of {dtype} "
            f"take {size / 2**30:.1f} GiB, more than the {MOST_BYTES / 2**30:g} allowed; give fewer"
        )


def _check_manifest(manifest: Manifest) -> None:
    """Metadata of the right types, and arrays whose shapes follow from it."""
    meta = manifest.metadata
    if meta.keys() != _KEYS:
        raise ValueError(f"metadata has the keys {sorted(meta)}, must be {sorted(_KEYS)}")
    horizon, actions = meta["horizon"], meta["num_actions"]
    for name, value in (("horizon", horizon), ("num_actions", actions)):
        if type(value) is not int or value < 1:
            raise ValueError(f"{name}: {value!r} is no positive whole number")
    shape, dtype = meta["observation_shape"], meta["observation_dtype"]
    if type(shape) is not list or not all(type(n) is int and n > 0 for n in shape):
        raise ValueError(f"observation_shape: {shape!r} is no list of positive whole numbers")
    if dtype not in DTYPES:
        raise ValueError(f"observation_dtype: {dtype!r} is none of {', '.join(DTYPES)}")
    if type(meta["tells_ends"]) is not bool:
        raise ValueError(f"tells_ends: {meta['tells_ends']!r} is neither true nor false")
    record = meta["environment"]
    if record is not None and (
        not isinstance(record, Mapping)
        or record.keys() != {"name", "options"}
        or not isinstance(record["name"], str)
        or not isinstance(record["options"], Mapping)
    ):
        raise ValueError(f"environment: {record!r} is no name with options")
    tensors = manifest.tensors
    number = tensors["commands"].shape[0] if len(tensors["commands"].shape) == 2 else 0
    expected = {
        "observations": TensorEntry(dtype, (number, horizon + 1, *shape)),
        "commands": TensorEntry("int32", (number, horizon)),
        "rewards": TensorEntry("float32", (number, horizon)),
        "ended": TensorEntry("int32", (number,)),
        "own": TensorEntry("bool", (number, horizon)),
    }
    for name in (*expected, *sorted(tensors.keys() - expected.keys())):
        optional = name == "own" and name not in tensors
        if not optional and tensors.get(name) != expected.get(name):
            raise ValueError(f"{name}: is {tensors.get(name)}, must be {expected.get(name)}")
    check_size(number, horizon, tuple(shape), dtype)


def _check_log(log: EpisodeLog) -> None:
    """Every number where it belongs; the message names episode and step.

    Types and shapes are right by then: of files they were checked, other tables are our own.
    """
    seen, commands, rewards, ended, _ = log.recorded
    if not commands.size:
        raise ValueError(f"commands: shape {commands.shape}, must be [episodes, steps]")
    horizon, steps = log.horizon, np.arange(log.horizon)
    _refuse(
        (commands < 0) | (commands >= log.num_actions),
        lambda i, h: (
            f"episode {i}, step {h}: command {commands[i, h]}, but there are the actions 0 … "
            f"{log.num_actions - 1}"
        ),
    )
    _refuse(~np.isfinite(rewards), lambda i, h: f"episode {i}, step {h}: reward {rewards[i, h]}")
    _refuse(
        (ended < 1) | (ended > horizon),
        lambda i: f"episode {i}: ended after {ended[i]} steps, must be 1 … {horizon}",
    )
    _refuse(
        (rewards != 0) & (steps >= ended[:, None]),
        lambda i, h: (
            f"episode {i}, step {h}: reward {rewards[i, h]}, but it ended after {ended[i]} steps"
        ),
    )
    if not log.tells_ends:
        _refuse(
            ended < horizon,
            lambda i: (
                f"episode {i}: ended after {ended[i]} of {horizon} steps, in a log of a target "
                "that does not tell ends"
            ),
        )
    if seen.dtype.kind == "f":
        fine = np.array([np.isfinite(one).reshape(horizon + 1, -1).all(axis=1) for one in seen])
        _refuse(~fine, lambda i, h: f"episode {i}, observation {h}: not finite")


def _refuse(bad: NDArray[np.bool_], words: Any) -> None:
    """Raise for the first place that is bad."""
    if bad.any():
        raise ValueError(words(*np.argwhere(bad)[0].tolist()))
