"""tasid: from a map and an environment to a robust policy.

Everything is imported on first use: `import tasid` configures nothing and starts nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tasid.algorithms import Agent as Agent
    from tasid.algorithms import Policy as Policy
    from tasid.algorithms import Score as Score
    from tasid.algorithms import calibrate as calibrate
    from tasid.algorithms import estimate_eta as estimate_eta
    from tasid.algorithms import evaluate as evaluate
    from tasid.algorithms import load as load
    from tasid.envs import BlockMDP as BlockMDP
    from tasid.envs import Target as Target
    from tasid.envs import make as make
    from tasid.mdp import AbstractSimulator as AbstractSimulator
    from tasid.mdp import PerturbedMDP as PerturbedMDP
    from tasid.mdp import RobustPlan as RobustPlan
    from tasid.mdp import certify as certify
    from tasid.mdp import is_perturbation as is_perturbation
    from tasid.mdp import perturb as perturb
    from tasid.mdp import policy_value as policy_value
    from tasid.mdp import robust_dp as robust_dp
    from tasid.mdp import worst_case as worst_case
    from tasid.mdp import worst_case_value as worst_case_value
    from tasid.runs.learn import learn as learn

__version__ = "0.1.0"

_HOME = {
    "AbstractSimulator": "tasid.mdp",
    "PerturbedMDP": "tasid.mdp",
    "RobustPlan": "tasid.mdp",
    "certify": "tasid.mdp",
    "is_perturbation": "tasid.mdp",
    "perturb": "tasid.mdp",
    "policy_value": "tasid.mdp",
    "robust_dp": "tasid.mdp",
    "worst_case": "tasid.mdp",
    "worst_case_value": "tasid.mdp",
    "BlockMDP": "tasid.envs",
    "Target": "tasid.envs",
    "make": "tasid.envs",
    "Agent": "tasid.algorithms",
    "Policy": "tasid.algorithms",
    "Score": "tasid.algorithms",
    "calibrate": "tasid.algorithms",
    "estimate_eta": "tasid.algorithms",
    "evaluate": "tasid.algorithms",
    "load": "tasid.algorithms",
    "learn": "tasid.runs.learn",
}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'tasid' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
