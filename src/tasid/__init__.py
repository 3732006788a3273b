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
    from tasid.checks.certify import certify_return as certify_return
    from tasid.checks.check import check_target as check_target
    from tasid.learning.monitor import calibrate as calibrate
    from tasid.learning.monitor import estimate_eta as estimate_eta
    from tasid.maps import AbstractSimulator as AbstractSimulator
    from tasid.maps import PerturbedMDP as PerturbedMDP
    from tasid.maps import RobustPlan as RobustPlan
    from tasid.maps import certify as certify
    from tasid.maps import is_perturbation as is_perturbation
    from tasid.maps import perturb as perturb
    from tasid.maps import policy_value as policy_value
    from tasid.maps import robust_dp as robust_dp
    from tasid.maps import worst_case as worst_case
    from tasid.maps import worst_case_value as worst_case_value
    from tasid.policies import Policy as Policy
    from tasid.policies import Score as Score
    from tasid.policies import load as load
    from tasid.policies.evaluate import evaluate as evaluate
    from tasid.report.watch import watch as watch
    from tasid.runs.learn import learn as learn
    from tasid.runs.learn_log import learn_from_episodes as learn_from_episodes
    from tasid.targets import BlockMDP as BlockMDP
    from tasid.targets import Target as Target
    from tasid.targets import make as make
    from tasid.targets.gym.wrap import wrap as wrap

__version__ = "0.1.0"

_HOME = {
    "AbstractSimulator": "tasid.maps",
    "PerturbedMDP": "tasid.maps",
    "RobustPlan": "tasid.maps",
    "certify": "tasid.maps",
    "is_perturbation": "tasid.maps",
    "perturb": "tasid.maps",
    "policy_value": "tasid.maps",
    "robust_dp": "tasid.maps",
    "worst_case": "tasid.maps",
    "worst_case_value": "tasid.maps",
    "BlockMDP": "tasid.targets",
    "Target": "tasid.targets",
    "make": "tasid.targets",
    "wrap": "tasid.targets.gym.wrap",
    "Policy": "tasid.policies",
    "Score": "tasid.policies",
    "calibrate": "tasid.learning.monitor",
    "estimate_eta": "tasid.learning.monitor",
    "evaluate": "tasid.policies.evaluate",
    "load": "tasid.policies",
    "watch": "tasid.report.watch",
    "certify_return": "tasid.checks.certify",
    "check_target": "tasid.checks.check",
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
                entry_point=f"tasid.targets.gym.ours:{name}Env",
                vector_entry_point=f"tasid.targets.gym.ours:{vector}",
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
