"""Files that survive crashes and notice damage: artifacts, and atomic replacement of any file."""

from tasid.storage.artifact import Artifact, digest_of, read_artifact, write_artifact
from tasid.storage.atomic import write_bytes_atomically
from tasid.storage.error import ArtifactError

__all__ = [
    "Artifact",
    "ArtifactError",
    "digest_of",
    "read_artifact",
    "write_artifact",
    "write_bytes_atomically",
]
