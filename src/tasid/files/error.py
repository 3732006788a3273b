"""The one error of stored artifacts."""

from __future__ import annotations

from pathlib import Path


class ArtifactError(ValueError):
    """An artifact cannot be written as asked, or what is on disk is not what was written."""


def damaged(file: Path, what: str) -> ArtifactError:
    """Say which file is not as it was written, and how to recover."""
    what = what if len(what) <= 600 else what[:600] + "…"  # a hostile file may fill pages
    return ArtifactError(
        f"{file}: {what}. The artifact is damaged or was edited; "
        "restore the whole directory from a copy or write the artifact again."
    )
