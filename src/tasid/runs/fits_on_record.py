"""Fits of a run under way, on disk as they are made.

    fits-000003/    an artifact: the fits after the fourth batch, or of the fourth step

One that is damaged, or of other data, counts for nothing: it is fitted again.
"""

from __future__ import annotations

import warnings
from pathlib import Path

from tasid.files import ArtifactError, read_artifact, write_artifact
from tasid.files.manifest import MANIFEST_NAME
from tasid.learning.memory import Remembered

_KIND = "fits"


class FitsOnRecord:
    """A learner's memory in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def recall(self, number: int, seal: str) -> Remembered | None:
        """What was kept under this number for data of this seal; None if nothing was."""
        place = self._place(number)
        if not (place / MANIFEST_NAME).exists():  # written last: a save was cut short, or none made
            return None
        try:
            found = read_artifact(place, kind=_KIND)
        except ArtifactError as error:
            warnings.warn(f"{error} Fitted again.", stacklevel=2)
            return None
        if found.metadata.get("seal") != seal:
            warnings.warn(f"{place}: fits of other data; fitted again", stacklevel=2)
            return None
        return Remembered(found.metadata, found.arrays)

    def keep(self, number: int, seal: str, found: Remembered) -> None:
        """Keep it for the next time."""
        metadata = {**found.metadata, "seal": seal}
        write_artifact(self._place(number), kind=_KIND, metadata=metadata, arrays=found.arrays)

    def _place(self, number: int) -> Path:
        return self._folder / f"fits-{number:06d}"
