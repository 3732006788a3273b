"""`tasid evaluate`: score a saved policy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tasid.cli.answers import notice, print_json, print_scores
from tasid.cli.arguments import EnvSeed, Episodes, EpisodesSeed, Json, Settings
from tasid.cli.imports import Imports, import_all
from tasid.cli.recorded import world_of


def evaluate(
    policy: Annotated[Path, typer.Argument(help="A policy's folder, or a run's.")],
    env: Annotated[
        str | None, typer.Option(help="Another environment than the recorded one.")
    ] = None,
    env_seed: EnvSeed = None,
    settings: Settings = None,
    imports: Imports = None,
    episodes: Episodes = None,
    seed: EpisodesSeed = 0,
    as_json: Json = False,
) -> None:
    """Score a saved policy in the environment it was learned in, or in another."""
    from tasid.checks.scoring import score
    from tasid.policies import load
    from tasid.policies.ppo_policy import PPOPolicy
    from tasid.targets import BlockMDP

    import_all(imports)
    loaded = load(policy)
    world = world_of(loaded, env, env_seed, settings)
    number = episodes if episodes is not None else 10_000 if world.traceable else 1_000
    _, result = score(loaded, world, episodes=number, seed=seed)
    planned = None if isinstance(loaded, PPOPolicy) else loaded.simulator
    if isinstance(world, BlockMDP) and planned is not None and not world.brings(planned):
        notice(
            "the policy's map is not this environment's: its plan is another one here, and so are "
            "the robust value and all that is held against it"
        )
    result |= {"episodes": result.pop("evaluation_episodes"), "policy": str(policy)}
    if as_json:
        print_json(result)
    else:
        print_scores(result)
