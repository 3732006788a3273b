"""`tasid train --from`: learn from a log instead of a target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from tasid.cli.answers import print_json
from tasid.cli.arguments import eta_for, map_options, simulator_of

_OF_TARGETS = (
    "env",
    "from_policy",
    "resume",
    "episodes",
    "method",
    "starts",
    "algorithm",
    "epopt_epsilon",
    "seed",
    "env_seed",
    "settings",
    "reset",
    "evaluation_episodes",
    "certify",
    "certify_epsilon",
    "certify_episodes",
    "certify_attempt",
)


def train_from_log(
    context: typer.Context,
    file: Path,
    *,
    simulator: str | None,
    map_settings: list[str] | None,
    start_state: str | None,
    horizon: int | None,
    eta: float | None,
    classes: str | None,
    out: Path | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Learn from recorded episodes, and answer as `tasid train` does, null for what is unknown."""
    from tasid.runs.episode_log import EpisodeLog
    from tasid.runs.train_log import LogOrder, train_on_log

    _refuse_flags_of_targets(context)
    log = EpisodeLog.load(file)
    name, given = simulator, map_options(map_settings, start_state)
    if name is None:
        asked = given if horizon is None else {"horizon": horizon, **given}
        name, given = _recorded_map(log.environment, asked)
    steps = horizon or (log.horizon if "horizon" not in given else None)
    source = {"name": name, "options": dict(given), "horizon": steps}
    sim = simulator_of(name, steps, given)
    order = LogOrder(str(file), log, sim, source, eta_for(eta, sim), classes)
    result = train_on_log(order, out or Path("runs") / f"{file.name}-log", overwrite=overwrite)
    if as_json:
        print_json(result)
    else:
        _print(result)


def _recorded_map(record: Any, given: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The map of the environment of ours that was recorded; others bring none."""
    from tasid.targets.registry import ENVIRONMENTS

    if record is None or record["name"] not in ENVIRONMENTS:
        raise ValueError("--simulator: the log names no environment that brings a map; say which")
    return record["name"], {**record["options"], **given}


def _refuse_flags_of_targets(context: typer.Context) -> None:
    for name in _OF_TARGETS:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            flag = {"env": "ENV", "settings": "--set", "reset": "--reset-option"}.get(
                name, f"--{name.replace('_', '-')}"
            )
            raise ValueError(f"{flag}: with --from, which learns from a log and plays nowhere")


def _print(result: dict[str, Any]) -> None:
    print(
        f"learned from {result['logged_episodes']} recorded episodes in {result['seconds']:.1f} s; "
        "no episode was played"
    )
    print(f"their return      {result['logged_return_mean']:.4f}")
    print(f"covered           {result['coverage']:.1%} of what the plan will meet")
    estimate = result["eta_estimate"]
    low, high = estimate["low"], estimate["high"]
    print(f"estimated η       {estimate['rate']:.4f}  (95 % interval {low:.4f} … {high:.4f})")
    print(f"model             {result['model']}")
    for warning in result["warnings"]:
        print(f"warning: {warning}")
    print(f"policy            {result['policy']}")
