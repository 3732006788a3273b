"""Policies of any kind, read by the kind that is on file."""

from __future__ import annotations

from pathlib import Path

from tasid.algorithms import belief_policy, policy, ppo_policy
from tasid.algorithms.belief_policy import BeliefPolicy
from tasid.algorithms.policy import Policy
from tasid.algorithms.ppo_policy import PPOPolicy
from tasid.storage import read_artifact
from tasid.storage.manifest import MANIFEST_NAME


def load(path: str | Path) -> BeliefPolicy | Policy | PPOPolicy:
    """Read a saved policy, or a run's; every byte is verified, nothing is executed."""
    path = Path(path)
    if not (path / MANIFEST_NAME).exists() and (path / "policy").is_dir():
        path /= "policy"  # the folder of a run
    kind = read_artifact(path).kind
    if kind == belief_policy.KIND:
        return belief_policy.load_belief_policy(path)
    if kind == ppo_policy.KIND:
        return ppo_policy.load_ppo_policy(path)
    return policy.load(path)
