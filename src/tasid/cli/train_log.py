"""`tasid train --from`: learn from a log instead of a target."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import typer

from tasid.cli.answers import answer, counted, print_learned, print_worst_case
from tasid.cli.arguments import refuse_given
from tasid.cli.worlds import eta_for, map_options, simulator_of

_OF_TARGETS = (
    "env from_policy resume episodes method starts algorithm epopt_epsilon seed env_seed settings "
    "reset evaluation_episodes certify certify_epsilon certify_episodes certify_attempt"
).split()


def train_from_log(context: typer.Context, file: Path) -> None:
    """Learn from recorded episodes, and answer as `tasid train` does, null for what is unknown."""
    from tasid.runs.episode_log import EpisodeLog
    from tasid.runs.learn_log import train_on_log

    given = SimpleNamespace(**context.params)
    refuse_given(context, _OF_TARGETS, "with --from, which learns from a log and plays nowhere")
    log = EpisodeLog.load(file)
    name, options = given.simulator, map_options(given.map_settings, given.start_state)
    if name is None:
        asked = options if given.horizon is None else {"horizon": given.horizon, **options}
        name, options = _recorded_map(log.environment, asked)
    steps = given.horizon or (log.horizon if "horizon" not in options else None)
    source = {"name": name, "options": dict(options), "horizon": steps}
    sim = simulator_of(name, steps, options)
    result = train_on_log(
        log,
        sim,
        given.out or Path("runs") / f"{file.name}-log",
        file=str(file),
        source=source,
        eta=eta_for(given.eta, sim),
        classes=given.classes,
        overwrite=given.overwrite,
    )
    answer(result, _print, as_json=given.as_json)


def _recorded_map(record: Any, given: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The map of the environment of ours that was recorded; others bring none."""
    from tasid.targets.registry import ENVIRONMENTS

    if record is None or record["name"] not in ENVIRONMENTS:
        raise ValueError("--simulator: the log names no environment that brings a map; say which")
    return record["name"], {**record["options"], **given}


def _print(result: dict[str, Any]) -> None:
    print(
        f"learned from {counted(result['logged_episodes'], 'recorded episodes')} in "
        f"{result['seconds']:.1f} s; no episode was played"
    )
    print(f"their return      {result['logged_return_mean']:.4f}")
    print(f"covered           {result['coverage']:.1%} of what the plan will meet")
    print_worst_case(result)
    print_learned(result)
