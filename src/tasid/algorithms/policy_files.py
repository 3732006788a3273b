"""Policies of any kind, read by the kind that is on file."""

from __future__ import annotations

from pathlib import Path

from tasid.algorithms import policy, ppo_policy
from tasid.algorithms.policy import Policy
from tasid.algorithms.ppo_policy import PPOPolicy
from tasid.learning.own import Own
from tasid.storage import read_artifact
from tasid.storage.manifest import MANIFEST_NAME


def load(path: str | Path, *, model: Own | None = None) -> Policy | PPOPolicy:
    """Read a saved policy, or a run's; every byte is verified, nothing is executed.

    One that was learned with a network of your own needs the function that makes it as `model`.
    """
    path = Path(path)
    if not (path / MANIFEST_NAME).exists() and (path / "policy").is_dir():
        path /= "policy"  # the folder of a run
    if read_artifact(path).kind == ppo_policy.KIND:
        return ppo_policy.load_ppo_policy(path)
    return policy.load(path, model=model)
