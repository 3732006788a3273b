"""Fits of the belief method as a file can hold them; features are measured again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tasid.beliefs.gaussian import Gaussians
from tasid.beliefs.scaled import Scaled
from tasid.learning.memory import Remembered
from tasid.policies.belief_policy import emission_from, emission_numbers
from tasid.targets.device import on_device


class StoredFit(NamedTuple):
    """A fit before anything has judged it."""

    beginning: str
    kind: str
    """Of its classes."""
    emission: Gaussians | Scaled
    counts: NDArray[np.float64]


def remembered(fits: Sequence[StoredFit]) -> Remembered:
    """Fits as JSON and arrays."""
    rows = [[one.beginning, one.kind] for one in fits]
    arrays: dict[str, NDArray[Any]] = {}
    for number, one in enumerate(fits):
        arrays[f"{number}.counts"] = one.counts
        for name, array in emission_numbers(one.emission).items():
            arrays[f"{number}.emission.{name}"] = np.asarray(array)
    return Remembered({"fits": rows}, arrays)


def stored_fits(found: Remembered) -> Iterator[StoredFit]:
    """The same fits again."""
    for number, (beginning, kind) in enumerate(found.metadata["fits"]):
        prefix = f"{number}.emission."
        numbers = {
            name.removeprefix(prefix): on_device(array)
            for name, array in found.arrays.items()
            if name.startswith(prefix)
        }
        yield StoredFit(beginning, kind, emission_from(numbers), found.arrays[f"{number}.counts"])
