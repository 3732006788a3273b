"""`tasid evaluate`: score a saved policy."""

from __future__ import annotations

from tasid.cli import arguments, worlds
from tasid.cli.answers import answer, notice, print_scores
from tasid.cli.imports import import_all


def evaluate(
    policy: arguments.SavedPolicy,
    env: arguments.OtherEnv = None,
    env_seed: arguments.EnvSeed = None,
    settings: arguments.Settings = None,
    imports: arguments.Imports = None,
    episodes: arguments.Episodes = None,
    seed: arguments.EpisodesSeed = 0,
    as_json: arguments.Json = False,
) -> None:
    """Score a saved policy in the environment it was learned in, or in another."""
    from tasid.checks.scoring import score
    from tasid.policies import load
    from tasid.policies.ppo_policy import PPOPolicy
    from tasid.targets import BlockMDP

    import_all(imports)
    loaded = load(policy)
    world = worlds.world_of(loaded, env, env_seed, settings)
    number = episodes if episodes is not None else 10_000 if world.traceable else 1_000
    _, result = score(loaded, world, episodes=number, seed=seed)
    planned = None if isinstance(loaded, PPOPolicy) else loaded.simulator
    if isinstance(world, BlockMDP) and planned is not None and not world.brings(planned):
        notice(
            "the policy's map is not this environment's: what it earns is held against the robust "
            "plan for this environment's own map"
        )
    result |= {"episodes": result.pop("evaluation_episodes"), "policy": str(policy)}
    answer(result, print_scores, as_json=as_json)
