"""The environment of a saved policy: the recorded one, or the one that the user names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tasid.cli.arguments import environment_options, instance

if TYPE_CHECKING:
    from tasid.policies import BeliefPolicy, Policy
    from tasid.policies.ppo_policy import PPOPolicy
    from tasid.targets import BlockMDP
    from tasid.targets.gym.target import GymTarget

SavedPolicy = Annotated[Path, typer.Argument(help="A policy's folder, or a run's.")]
OtherEnv = Annotated[str | None, typer.Option(help="Another environment than the recorded one.")]
_NEVER_RECORDED = ("num_envs", "workers", "preprocess", "retries")


def world_of(
    policy: BeliefPolicy | Policy | PPOPolicy,
    env: str | None,
    env_seed: int | None,
    settings: list[str] | None,
) -> BlockMDP | GymTarget:
    """What the policy is to be tried in.

    The file may be a stranger's: a name that only the file says is looked up among the ids that
    are registered, and imports nothing.
    """
    from tasid.targets.registry import open_world

    name, options = _recorded(policy)
    if env is None and name is None:
        raise ValueError("policy: it records no environment; say which one with --env")
    if env is not None:
        options, name = (options if env == name else {}), env
    else:
        name = _registered(str(name))
    return open_world(name, **(options | environment_options(settings, **instance(name, env_seed))))


def _recorded(policy: BeliefPolicy | Policy | PPOPolicy) -> tuple[str | None, dict[str, Any]]:
    known = policy.environment
    if known is None:
        return None, {}
    try:
        name, options = known["name"], dict(known["options"])
    except (KeyError, TypeError, ValueError):
        name, options = None, {}
    strangers = [key for key in options if key in _NEVER_RECORDED or not isinstance(key, str)]
    if not isinstance(name, str) or strangers:
        raise ValueError(f"policy: records the environment {known!r:.200}, which no run does")
    return name, options


def _registered(name: str) -> str:
    from tasid.maps.sources.gym_id import GYM, registered_id

    if not name.startswith(GYM):
        return name
    given = name.removeprefix(GYM)
    bare = registered_id(given)
    if bare is None:
        typed = name if ":" in given else f"{GYM}MODULE:{given}"
        raise ValueError(
            f"policy: records the environment {name}, which is not among the installed ones, and "
            "a name in a file imports nothing. If you know what it is, say so yourself: "
            f"--env {typed}, or --import FILE.py with a file that registers it"
        )
    return GYM + bare
