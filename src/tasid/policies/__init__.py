"""Policies as values: acting, saving and loading, evaluation, certificates.

Names are imported on first use: a process that only acts needs no optimiser and no statistics.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tasid.policies.belief_policy import BeliefAgent as BeliefAgent
    from tasid.policies.belief_policy import BeliefPolicy as BeliefPolicy
    from tasid.policies.evaluate import Score as Score
    from tasid.policies.policy import Agent as Agent
    from tasid.policies.policy import Policy as Policy
    from tasid.policies.stored import load as load

_HOME = {
    "Agent": "policy",
    "BeliefAgent": "belief_policy",
    "BeliefPolicy": "belief_policy",
    "Policy": "policy",
    "Score": "evaluate",
    "load": "stored",
}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"tasid.policies.{_HOME[name]}"), name)
    raise AttributeError(f"module 'tasid.policies' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
