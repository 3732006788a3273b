"""Commands about policies and their episodes: evaluate, watch, record, report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from tasid.cli import options, output


def evaluate(
    policy: options.SavedPolicy,
    env: options.OtherEnv = None,
    env_seed: options.EnvSeed = None,
    settings: options.Settings = None,
    imports: options.Imports = None,
    episodes: Annotated[int | None, typer.Option(help="10000, or 1000 in gym:ID.", min=1)] = None,
    seed: options.EpisodeSeed = 0,
    as_json: options.Json = False,
) -> None:
    """Score a saved policy in its own environment or in another."""
    from tasid.policies import load
    from tasid.policies.evaluate import evaluate as score
    from tasid.policies.evaluate import summary, yardsticks

    loaded = load(policy)
    target = options.policy_target(loaded, env, env_seed, settings)
    number = episodes or (10_000 if target.pads_batches else 1_000)
    scored = score(loaded, target, episodes=number, seed=seed)
    promised = None if loaded.plan is None else loaded.plan.start_value
    result = summary(scored, yardsticks(loaded, target), worst_case=promised)
    result |= {"episodes": result.pop("evaluation_episodes"), "policy": str(policy)}
    output.answer(result, as_json=as_json)


def watch(
    policy: options.SavedPolicy,
    gif: Annotated[Path | None, typer.Option(help="Write an animation.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page that plays it.")] = None,
    kidnap_at: Annotated[int | None, typer.Option(help="Move the robot at this step.")] = None,
    env: options.OtherEnv = None,
    env_seed: options.EnvSeed = None,
    settings: options.Settings = None,
    imports: options.Imports = None,
    seed: options.EpisodeSeed = 0,
    episode: Annotated[int, typer.Option(help="Number of the episode.", min=0)] = 0,
    as_json: options.Json = False,
) -> None:
    """Watch one episode: observation, estimated state, action."""
    from tasid.policies import load
    from tasid.report.watch import watch as follow

    loaded = load(policy)
    target = options.policy_target(loaded, env, env_seed, settings)
    watched = follow(loaded, target, seed=seed, episode=episode, kidnap_at=kidnap_at)
    result = watched.summary() | {"seed": seed, "episode": episode, "policy": str(policy)}
    result["gif"] = None if gif is None else str(watched.save_gif(gif))
    result["html"] = None if html is None else str(watched.save_html(html))

    def words(result: Mapping[str, Any]) -> None:
        for h in range(watched.steps):
            print(" · ".join(text for text in watched.headline(h) if text))
        output.print_values({name: result[name] for name in ("return", "gif", "html")})

    output.answer(result, words, as_json=as_json)


def record(
    context: typer.Context,
    env: options.Env,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The log, a folder.")],
    episodes: Annotated[int, typer.Option(help="Episodes to play.", min=1)] = 100,
    policy: Annotated[
        str | None,
        typer.Option(help="Folder of a policy; plan (the default with a map), open loop; random."),
    ] = None,
    explore: Annotated[float, typer.Option(help="Share of random actions.", min=0, max=1)] = 0.3,
    simulator: options.Simulator = None,
    horizon: options.Horizon = None,
    eta: options.Eta = None,
    seed: options.Seed = 0,
    env_seed: options.EnvSeed = None,
    settings: options.Settings = None,
    imports: options.Imports = None,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
) -> None:
    """Play episodes and write them into a log, to learn from it later."""
    from tasid.learning.offline import record as play
    from tasid.planning import robust_dp
    from tasid.policies import load
    from tasid.policy import OpenLoopPolicy

    config = options.run_config(context.params, but=["episodes"])
    target = config.build_target()
    known = simulator is not None or target.simulator is not None
    sim = config.build_map(target) if known or policy == "plan" else None
    if steps := horizon or (sim.horizon if sim else 0):
        target = target.with_horizon(steps)
    actor: Any = None
    if policy == "plan" or (policy is None and sim is not None):
        assert sim is not None  # else `build_map` says that there is none
        actor = OpenLoopPolicy(target, robust_dp(sim, eta=config.eta))
    elif policy not in ("random", None):
        actor = load(policy)
    names = ("episodes", "explore", "seed", "overwrite")
    result = play(target, out, policy=actor, **{name: context.params[name] for name in names})
    output.answer(result, as_json=as_json)


def report(
    folder: Annotated[Path, typer.Argument(help="The folder of a run, or of several.")],
    as_json: options.Json = False,
) -> None:
    """Write the self-contained HTML page of a run."""
    from tasid.report.page import write_report

    page = str(write_report(folder))
    output.answer({"page": page}, as_json=as_json)
