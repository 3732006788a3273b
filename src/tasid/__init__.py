"""tasid: from a map and an environment to a robust policy.

Names are imported on first use: `import tasid` configures nothing and starts nothing. The Gymnasium
ids are registered as soon as Gymnasium itself is imported.
"""

from __future__ import annotations

import importlib
import sys
from importlib.util import find_spec
from typing import Any

__version__ = "0.2.0"

_MODULES = {
    "AbstractSimulator": "tasid.simulator",
    "BeliefConfig": "tasid.learning.belief",
    "BeliefLearner": "tasid.learning.belief",
    "BlockMDP": "tasid.targets.block",
    "EpisodeLog": "tasid.storage",
    "Episodes": "tasid.episodes",
    "Learner": "tasid.learning.base",
    "PerturbedMDP": "tasid.planning",
    "Policy": "tasid.policy",
    "RobustPlan": "tasid.planning",
    "Target": "tasid.targets.base",
    "TasidConfig": "tasid.learning.paper",
    "TasidLearner": "tasid.learning.paper",
    "Discovery": "tasid.learning.discovery",
    "DiscoveryConfig": "tasid.learning.mixture",
    "Undecided": "tasid.learning.discovery",
    "certify": "tasid.planning",
    "certify_return": "tasid.policies.certify",
    "check_target": "tasid.learning.check",
    "discover": "tasid.learning.discovery",
    "evaluate": "tasid.policies.evaluate",
    "is_perturbation": "tasid.planning",
    "learn": "tasid.learning.learn",
    "learn_from_episodes": "tasid.learning.offline",
    "load": "tasid.policies",
    "make": "tasid.targets.registry",
    "optimal_value": "tasid.planning",
    "perturb": "tasid.planning",
    "policy_value": "tasid.planning",
    "record": "tasid.learning.offline",
    "robust_dp": "tasid.planning",
    "watch": "tasid.report.watch",
    "worst_case": "tasid.planning",
    "worst_case_value": "tasid.planning",
    "wrap": "tasid.targets.gymnasium_target",
}
__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'tasid' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def _register_environments() -> None:
    registration = importlib.import_module("gymnasium.envs.registration")
    for world in ("combination-lock", "lava-crossing", "building"):
        name = f"tasid/{world.title().replace('-', '')}-v0"
        if name not in registration.registry:
            registration.register(
                name,
                entry_point="tasid.worlds.gymnasium_envs:BlockEnv",
                kwargs={"world": world},
            )


class _RegisterWithGymnasium:
    """An import hook: importing Gymnasium here would slow every command down."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != "gymnasium":
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_register(module: Any) -> None:
                execute(module)
                _register_environments()

            spec.loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec


if "gymnasium" in sys.modules:
    _register_environments()
else:
    sys.meta_path.insert(0, _RegisterWithGymnasium())
