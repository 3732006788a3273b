"""Options that several commands share, and what they mean."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tasid.policy import Policy
    from tasid.runs.config import RunConfig
    from tasid.targets.base import Target


def _import(names: Sequence[str] | None) -> Sequence[str] | None:
    """Import the files and modules of --import as soon as they are read."""
    if names:
        from tasid.runs.config import import_modules

        import_modules(names)
    return names


Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]
Env = Annotated[str, typer.Argument(help="An environment, e.g. combination-lock, or gym:ID.")]
OptionalEnv = Annotated[str | None, typer.Argument(help="An environment, or gym:ID.")]
Source = Annotated[
    str,
    typer.Argument(
        help="A .txt text map, .yaml occupancy map, .npz tables, folder of a saved simulator, "
        "gym:ID or environment."
    ),
]
Horizon = Annotated[int | None, typer.Option(help="Steps per episode H.")]
Eta = Annotated[float | None, typer.Option(help="Perturbation level η; 0.1 if not given.")]
Simulator = Annotated[
    str | None, typer.Option(metavar="SOURCE", help="The map, as for `tasid plan`.")
]
Seed = Annotated[int, typer.Option(help="Seeds everything.", min=0)]
EpisodeSeed = Annotated[int, typer.Option(help="Seeds the episodes, nothing else.", min=0)]
EnvSeed = Annotated[
    int | None, typer.Option(help="Instance of the environment, if not that of the seed or policy.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="An option of the environment; learner.KEY: a hyper-parameter; map.KEY: an option of "
        "the map. Repeatable.",
    ),
]
Imports = Annotated[
    list[str] | None,
    typer.Option(
        "--import",
        metavar="FILE.py",
        help="Import this file or module first, to register environments. Repeatable.",
        callback=_import,
    ),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")]
SavedPolicy = Annotated[Path, typer.Argument(help="Folder of a policy or of its run.")]
OtherEnv = Annotated[str | None, typer.Option(help="Another environment than the recorded one.")]


def run_config(
    params: Mapping[str, Any], base: Mapping[str, Any] | None = None, *, but: Sequence[str] = ()
) -> RunConfig:
    """A config from the parameters of a command, all `but` some, on top of those in `base`."""
    from tasid.runs.config import RunConfig

    names = [field.name for field in dataclasses.fields(RunConfig) if field.name not in but]
    given = {**params, "environment": params["env"]}
    chosen = {k: v for k in names if (v := given.get(k)) is not None and v is not False}
    paths = {name: str(value) for name, value in chosen.items() if isinstance(value, Path)}
    fields = {**(base or {}), **chosen, **paths}
    if params.get("sensor") is not None:
        fields["options"] = {**fields.get("options", {}), "sensor": params["sensor"]}
    return RunConfig.from_dict(apply_settings(params["settings"], fields))


def apply_settings(
    settings: Sequence[str] | None,
    fields: Mapping[str, Any],
    tables: Sequence[str] = ("options", "map", "learner", "certificate"),
) -> dict[str, Any]:
    """Fields of a config with settings KEY=VALUE put into their tables."""
    from tasid.runs.config import ConfigError, parse_value

    result = copy.deepcopy(dict(fields))
    for setting in settings or ():
        name, equals, text = setting.partition("=")
        path = name.split(".") if "." in name else ["options", name]
        if not equals or path[0] not in tables or not all(key.isidentifier() for key in path):
            raise ConfigError(
                f"--set: {setting!r:.80} is not KEY=VALUE, where KEY is an option of the "
                f"environment or begins with {'., '.join(tables)}."
            )
        table = result
        for key in path[:-1]:
            table = table.setdefault(key, {})
        table[path[-1]] = parse_value(text)
    return result


def policy_target(
    policy: Policy, env: str | None, env_seed: int | None, settings: Sequence[str] | None
) -> Target:
    """The environment in which a policy was learned, or another.

    A policy may come from a stranger: an environment that only the file names must be registered
    already. No module is imported for it, and it cannot choose how environments are run.
    """
    from tasid.runs.config import ConfigError
    from tasid.targets.registry import ENVIRONMENTS, GYM, open_target

    recorded = policy.environment or {}
    name, options = recorded.get("name"), recorded.get("options") or {}
    if not isinstance(options, Mapping):
        raise ConfigError(f"policy: records the environment {recorded!r:.100}, which is not valid")
    if env is None and name is None:
        raise ConfigError("policy: it records no environment; name one with --env")
    if env is None and name not in ENVIRONMENTS:
        import gymnasium

        unsafe = {"workers", "preprocess", "cluster"}
        if str(name).removeprefix(GYM) not in gymnasium.registry or not unsafe.isdisjoint(options):
            raise ConfigError(
                f"policy: records the environment {name!r:.80}, which is not installed; if you "
                "trust it, name it with --env, or register it with --import FILE.py"
            )
    chosen = dict(options) if env in (None, name) else {}
    chosen = apply_settings(settings, {"options": chosen}, tables=["options"])["options"]
    if env_seed is not None:
        chosen["seed"] = env_seed
    return open_target(env or str(name), **chosen)
