"""Files that survive crashes and notice damage: artifacts, and atomic replacement of any file."""

from tasid.files.artifact import Artifact, digest_of, read_artifact, write_artifact
from tasid.files.atomic import write_bytes_atomically
from tasid.files.canonical_json import ArtifactError

__all__ = [
    "Artifact",
    "ArtifactError",
    "digest_of",
    "read_artifact",
    "write_artifact",
    "write_bytes_atomically",
]
