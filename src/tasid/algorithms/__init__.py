"""Floor 4 — algorithms, one file each, and the policies they return.

Names are imported on first use: a process that only acts needs no optimiser and no statistics.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tasid.algorithms.belief_policy import BeliefAgent as BeliefAgent
    from tasid.algorithms.belief_policy import BeliefPolicy as BeliefPolicy
    from tasid.algorithms.evaluate import Score as Score
    from tasid.algorithms.monitor import calibrate as calibrate
    from tasid.algorithms.monitor import estimate_eta as estimate_eta
    from tasid.algorithms.policy import Agent as Agent
    from tasid.algorithms.policy import Policy as Policy
    from tasid.algorithms.policy_files import load as load

_HOME = {
    "Agent": "policy",
    "BeliefAgent": "belief_policy",
    "BeliefPolicy": "belief_policy",
    "Policy": "policy",
    "Score": "evaluate",
    "calibrate": "monitor",
    "estimate_eta": "monitor",
    "load": "policy_files",
}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"tasid.algorithms.{_HOME[name]}"), name)
    raise AttributeError(f"module 'tasid.algorithms' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
