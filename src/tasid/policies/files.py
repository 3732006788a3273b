"""Policies of any kind, read by the kind that is on file."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasid.files import ArtifactError, read_artifact
from tasid.files.manifest import MANIFEST_NAME

if TYPE_CHECKING:
    from tasid.policies.belief_policy import BeliefPolicy
    from tasid.policies.policy import Policy
    from tasid.policies.ppo_policy import PPOPolicy

_READERS = {
    "belief-policy": ("tasid.policies.belief_policy", "load_belief_policy"),
    "ppo-policy": ("tasid.policies.ppo_policy", "load_ppo_policy"),
}


def load(path: str | Path, *, model: Any = None) -> BeliefPolicy | Policy | PPOPolicy:
    """Read a saved policy, or a run's; every byte is verified, nothing is executed.

    Args:
        path: The policy's folder, or that of its run.
        model: The one of your own that the policy was learned with: files hold its parameters and
            not its code.
    """
    path = Path(path)
    if not (path / MANIFEST_NAME).exists() and (path / "policy").is_dir():
        path /= "policy"  # the folder of a run
    refuse_several(path)
    kind = read_artifact(path).kind
    if model is not None and kind != "belief-policy":
        raise ValueError(f"model: {type(model).__name__} given, but {path} holds a {kind}")
    module, reader = _READERS.get(kind, ("tasid.policies.policy", "load"))
    given = {} if model is None else {"model": model}
    return getattr(importlib.import_module(module), reader)(path, **given)


def refuse_several(folder: Path) -> None:
    """Refuse the folder of a run for each of several seeds, and name one of them."""
    runs = sorted(folder.glob("seed-*"))
    if runs:
        raise ArtifactError(f"{folder}: holds several runs; give one of its runs, e.g. {runs[0]}")
