"""Policies: acting, scoring, certifying, loading."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tasid.policy import Policy
from tasid.storage import ArtifactError, read_artifact


def load(path: str | Path, model: Any = None) -> Policy:
    """Read a policy written by `Policy.save`, or that of a run folder.

    Every byte is verified, and nothing in the files is executed. `model` is the user's own model,
    if the policy was learned with one.
    """
    folder = Path(path)
    if not (folder / "manifest.json").exists() and (folder / "policy").is_dir():
        folder = folder / "policy"
    artifact = read_artifact(folder)
    if artifact.kind == "belief-policy":
        from tasid.policies.belief_policy import BeliefPolicy

        return BeliefPolicy.from_artifact(artifact, folder, model)
    if artifact.kind == "decoder-policy":
        from tasid.policies.decoder_policy import load_decoder_policy

        return load_decoder_policy(artifact, folder, model)
    raise ArtifactError(f"{path}: holds a {artifact.kind}, not a policy")
