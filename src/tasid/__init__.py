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
    "tasid.episodes": "Episodes",
    "tasid.learning.base": "Learner",
    "tasid.learning.belief": "BeliefConfig BeliefLearner",
    "tasid.learning.check": "check_target",
    "tasid.learning.discovery": "Discovery Undecided discover",
    "tasid.learning.learn": "learn",
    "tasid.learning.mixture": "DiscoveryConfig",
    "tasid.learning.offline": "learn_from_episodes record",
    "tasid.learning.paper": "TasidConfig TasidLearner",
    "tasid.planning": "PerturbedMDP RobustPlan certify is_perturbation optimal_value perturb "
    "policy_value robust_dp worst_case worst_case_value",
    "tasid.policies": "load",
    "tasid.policies.certify": "certify_return",
    "tasid.policies.evaluate": "evaluate",
    "tasid.policy": "Policy",
    "tasid.report.watch": "watch",
    "tasid.simulator": "AbstractSimulator",
    "tasid.storage": "EpisodeLog",
    "tasid.targets.base": "Target",
    "tasid.targets.block": "BlockMDP",
    "tasid.targets.gymnasium_target": "wrap",
    "tasid.targets.registry": "make",
}
_PLACES = {name: module for module, names in _MODULES.items() for name in names.split()}
__all__ = sorted(_PLACES)


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(importlib.import_module(_PLACES[name]), name)
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
