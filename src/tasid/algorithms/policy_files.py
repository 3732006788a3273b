"""Policies of any kind, read by the kind that is on file."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

from tasid.storage import read_artifact
from tasid.storage.manifest import MANIFEST_NAME

if TYPE_CHECKING:
    from tasid.algorithms.belief_policy import BeliefPolicy
    from tasid.algorithms.policy import Policy
    from tasid.algorithms.ppo_policy import PPOPolicy

_READERS = {
    "belief-policy": ("tasid.algorithms.belief_policy", "load_belief_policy"),
    "ppo-policy": ("tasid.algorithms.ppo_policy", "load_ppo_policy"),
}


def load(path: str | Path) -> BeliefPolicy | Policy | PPOPolicy:
    """Read a saved policy, or a run's; every byte is verified, nothing is executed."""
    path = Path(path)
    if not (path / MANIFEST_NAME).exists() and (path / "policy").is_dir():
        path /= "policy"  # the folder of a run
    module, reader = _READERS.get(read_artifact(path).kind, ("tasid.algorithms.policy", "load"))
    return getattr(importlib.import_module(module), reader)(path)
