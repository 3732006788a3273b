"""What stored policies have in common, checked: a plan that fits its map, and finite weights.

Digests say that a file is whole, not that it makes sense: whoever writes one can sign it, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasid.maps import AbstractSimulator, RobustPlan


def stored_plan(
    simulator: AbstractSimulator, actions: NDArray[Any], *, eta: Any, start_value: Any
) -> RobustPlan:
    """The plan of a stored policy."""
    if actions.shape != (simulator.horizon, simulator.num_states) or actions.dtype.kind not in "iu":
        raise ValueError(f"plan.actions has shape {actions.shape} and dtype {actions.dtype}")
    if actions.min(initial=0) < 0 or actions.max(initial=0) >= simulator.num_actions:
        raise ValueError("plan.actions names an action that the simulator does not have")
    value = float(start_value)
    if not math.isfinite(value):
        raise ValueError(f"start_value: {start_value!r} is not finite")
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
