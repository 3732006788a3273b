"""`tasid evaluate`: score a saved policy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tasid.cli.answers import print_json, print_scores
from tasid.cli.arguments import Episodes, Json, Settings, environment_options


def evaluate(
    policy: Annotated[Path, typer.Argument(help="A policy's folder, or a run's.")],
    env: Annotated[
        str | None, typer.Option(help="Another environment than the recorded one.")
    ] = None,
    env_seed: Annotated[int | None, typer.Option(help="Another instance of it.")] = None,
    settings: Settings = None,
    episodes: Episodes = None,
    seed: Annotated[int, typer.Option(help="Draws the episodes, nothing else.")] = 0,
    as_json: Json = False,
) -> None:
    """Score a saved policy in the environment it was learned in, or in another."""
    from tasid.algorithms import load
    from tasid.envs import BlockMDP
    from tasid.envs.registry import open_world
    from tasid.runs.scoring import score

    loaded = load(policy / "policy" if (policy / "policy").is_dir() else policy)
    recorded = loaded.environment
    if recorded is None and env is None:
        raise ValueError("policy: it records no environment; say which one with --env")
    name = env or str(recorded["name"])  # type: ignore[index]
    options = dict(recorded["options"]) if recorded and recorded["name"] == name else {}
    options |= environment_options(settings, seed=env_seed)
    world = open_world(name, **options)
    number = episodes if episodes is not None else 10_000 if isinstance(world, BlockMDP) else 1_000
    _, result = score(loaded, world, episodes=number, seed=seed)
    result = {**result, "episodes": result.pop("evaluation_episodes"), "policy": str(policy)}
    if as_json:
        print_json(result)
    else:
        print_scores(result)
