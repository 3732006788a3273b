"""tasid: from a map and an environment to a robust policy.

Everything is imported on first use: `import tasid` configures nothing and starts nothing. Our
Gymnasium ids are registered when Gymnasium is imported, or at once if it has been.
"""

from __future__ import annotations

import importlib
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tasid.algorithms import Policy as Policy
    from tasid.algorithms import Score as Score
    from tasid.algorithms import calibrate as calibrate
    from tasid.algorithms import estimate_eta as estimate_eta
    from tasid.algorithms import load as load
    from tasid.algorithms.evaluate import evaluate as evaluate
    from tasid.envs import BlockMDP as BlockMDP
    from tasid.envs import Target as Target
    from tasid.envs import make as make
    from tasid.envs.gym_wrap import wrap as wrap
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
    from tasid.report.watch import watch as watch
    from tasid.runs.certify import certify_return as certify_return
    from tasid.runs.check import check_target as check_target
    from tasid.runs.learn import learn as learn
    from tasid.runs.learn_log import learn_from_episodes as learn_from_episodes

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
    "wrap": "tasid.envs.gym_wrap",
    "Policy": "tasid.algorithms",
    "Score": "tasid.algorithms",
    "calibrate": "tasid.algorithms",
    "estimate_eta": "tasid.algorithms",
    "evaluate": "tasid.algorithms.evaluate",
    "load": "tasid.algorithms",
    "watch": "tasid.report.watch",
    "certify_return": "tasid.runs.certify",
    "check_target": "tasid.runs.check",
    "learn": "tasid.runs.learn",
    "learn_from_episodes": "tasid.runs.learn_log",
}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'tasid' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def _register() -> None:
    registration = importlib.import_module("gymnasium.envs.registration")
    vectors = {
        "CombinationLock": "lock_vector",
        "LavaCrossing": "lava_vector",
        "Building": "building_vector",
    }
    for name, vector in vectors.items():
        if f"tasid/{name}-v0" not in registration.registry:
            registration.register(
                f"tasid/{name}-v0",
                entry_point=f"tasid.envs.gym_ours:{name}Env",
                vector_entry_point=f"tasid.envs.gym_ours:{vector}",
            )


class _RegisterLater:
    """A finder that notices the import of Gymnasium, which here would cost every command time."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != "gymnasium":
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_and_register(module: Any) -> None:
                execute(module)
                _register()

            spec.loader.exec_module = exec_and_register  # type: ignore[method-assign]
        return spec


if "gymnasium" in sys.modules:
    _register()
else:
    sys.meta_path.insert(0, _RegisterLater())
