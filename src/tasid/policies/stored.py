"""Stored policies of any kind, read by the kind that is on file, and what they have in common.

That is checked: sight, a plan that fits its map, finite weights.

Digests say that a file is whole, not that it makes sense: whoever writes one can sign it, too.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tasid.files import ArtifactError, read_artifact
from tasid.files.manifest import MANIFEST_NAME
from tasid.maps import AbstractSimulator, RobustPlan
from tasid.maps.size import refuse_larger

if TYPE_CHECKING:
    from tasid.policies.belief_policy import BeliefPolicy
    from tasid.policies.policy import Policy
    from tasid.policies.ppo_policy import PPOPolicy

_ROWS = 128
"""As many observations as an agent may compute on at once."""
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


class WithPlan:
    """A policy that follows a plan on its map."""

    plan: RobustPlan

    @property
    def simulator(self) -> AbstractSimulator:
        """The map the policy tracks its state on."""
        return self.plan.simulator

    @property
    def num_actions(self) -> int:
        """|A|."""
        return self.simulator.num_actions

    @property
    def horizon(self) -> int:
        """H."""
        return self.simulator.horizon

    def _stored_plan(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Plan and map as metadata and arrays; its η has another name in every kind of policy."""
        metadata = {"simulator": self.simulator.metadata(), "start_value": self.plan.start_value}
        return metadata, {**self.simulator.arrays(), "plan.actions": self.plan.actions}


def stored_origin(policy: Any) -> dict[str, Any]:
    """How a policy of any kind was learned, and on what it looks."""
    return {
        "method": policy.method,
        "observation_shape": list(policy.observation_shape),
        "observation_dtype": policy.observation_dtype,
        "environment": None if policy.environment is None else dict(policy.environment),
    }


def checked_sight(meta: Mapping[str, Any]) -> tuple[tuple[int, ...], str]:
    """Shape and dtype of a stored policy's observations, of which agents make batches."""
    shape = tuple(int(n) for n in meta["observation_shape"])
    dtype = np.dtype(meta["observation_dtype"])
    if min(shape, default=1) < 1 or dtype.kind not in "biuf":
        raise ValueError(f"observations are of shape {shape} and dtype {dtype}")
    refuse_larger("observation_shape", (_ROWS, *shape), dtype.itemsize, "no target shows as much")
    return shape, dtype.name


def checked_plan(
    meta: Mapping[str, Any], arrays: dict[str, NDArray[Any]], *, eta: Any
) -> RobustPlan:
    """The plan of a stored policy, on its map."""
    simulator, actions = (
        AbstractSimulator.from_parts(meta["simulator"], arrays),
        arrays["plan.actions"],
    )
    if actions.shape != (simulator.horizon, simulator.num_states) or actions.dtype.kind not in "iu":
        raise ValueError(f"plan.actions has shape {actions.shape} and dtype {actions.dtype}")
    if actions.min(initial=0) < 0 or actions.max(initial=0) >= simulator.num_actions:
        raise ValueError("plan.actions names an action that the simulator does not have")
    value = float(meta["start_value"])
    if not math.isfinite(value):
        raise ValueError(f"start_value: {meta['start_value']!r} is not finite")
    return RobustPlan(simulator, share("eta", eta), actions, value, None, actions.size)


def share(name: str, value: Any) -> float:
    """A perturbation that can be learned under."""
    if not 0 <= float(value) < 0.5:
        raise ValueError(f"{name}: {value!r} is outside [0, 0.5)")
    return float(value)


def check_weights(arrays: Mapping[str, NDArray[Any]]) -> None:
    """Refuse what no fit ends with."""
    for name, array in arrays.items():
        if array.dtype != np.float32 or not np.isfinite(array).all():
            raise ValueError(f"{name}: not finite numbers of float32")
