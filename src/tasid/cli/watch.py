"""`tasid watch`: one episode of a saved policy, as words and as pictures."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tasid.cli import arguments, worlds
from tasid.cli.answers import answer
from tasid.cli.imports import import_all

if TYPE_CHECKING:
    from tasid.runs.watch import Episode


def watch(
    policy: arguments.SavedPolicy,
    gif: Annotated[Path | None, typer.Option(help="Play the episode in this file.")] = None,
    png: Annotated[Path | None, typer.Option(help="Draw its frames side by side.")] = None,
    html: Annotated[
        Path | None, typer.Option(help="A page to play it on, over the floor plan.")
    ] = None,
    carried_after: Annotated[
        int | None,
        typer.Option(
            help="Carry the agent elsewhere after so many steps.", callback=arguments.steps
        ),
    ] = None,
    frames: Annotated[
        int, typer.Option(help="Most frames of the PNG.", callback=arguments.within(1, 1_000))
    ] = 12,
    env: arguments.OtherEnv = None,
    env_seed: arguments.EnvSeed = None,
    settings: arguments.Settings = None,
    imports: arguments.Imports = None,
    seed: arguments.EpisodesSeed = 0,
    episode: Annotated[
        int,
        typer.Option(
            help="Which of them, from 0.", callback=arguments.within(0, arguments.MOST_EPISODES)
        ),
    ] = 0,
    as_json: arguments.Json = False,
) -> None:
    """Watch one episode: observation, belief, action, confidence."""
    from tasid.policies import load
    from tasid.policies.ppo_policy import PPOPolicy
    from tasid.runs.watch import watch_episode

    import_all(imports)
    loaded = load(policy)
    if isinstance(loaded, PPOPolicy):
        raise ValueError(
            f"policy: {policy} is a baseline's; it has no map and believes nothing that could be "
            "shown, but `tasid evaluate` scores it and `tasid report` draws its page"
        )
    world = worlds.world_of(loaded, env, env_seed, settings)
    seen = watch_episode(loaded, world, seed=seed, episode=episode, carried_after=carried_after)
    result = _summary(seen) | {"seed": seed, "episode": episode, "policy": str(policy)}
    if gif is not None:
        from tasid.report.figures.filmstrip import episode_gif

        result["gif"] = str(episode_gif(seen, gif))
    if png is not None:
        from tasid.report.figures.filmstrip import episode_strip

        result["png"] = str(episode_strip(seen, png, frames=frames))
    if html is not None:
        from tasid.report.pages.player import episode_page

        result["html"] = str(episode_page([seen], html))
    answer(result, partial(_tell, seen), as_json=as_json)


def _summary(seen: Episode) -> dict[str, Any]:
    return {
        "return": seen.total,
        "steps": seen.steps,
        "horizon": seen.policy.horizon,
        "lost_steps": int(seen.lost[: seen.steps].sum()),
        "tracked": seen.tracked,
        "actions": seen.actions[: seen.steps].tolist(),
        "states": [seen.policy.simulator.states[s] for s in seen.states[: seen.steps].tolist()],
        "confidence": [round(c, 6) for c in seen.confidence[: seen.steps].tolist()],
        "beliefs": None if seen.beliefs is None else [_likely(seen, h) for h in range(seen.steps)],
    }


def _likely(seen: Episode, h: int, least: float = 0.01) -> list[list[Any]]:
    """The states with at least this probability at step h, likeliest first, each with its own."""
    if seen.beliefs is None:
        return []
    belief, states = seen.beliefs[h], seen.policy.simulator.states
    pairs = zip(belief.states.tolist(), belief.probabilities.tolist(), strict=True)
    return [[states[state], round(p, 6)] for state, p in pairs if p >= least]


def _tell(seen: Episode, result: dict[str, Any]) -> None:
    states = seen.policy.simulator.states
    for h in range(seen.steps):
        believed = int(seen.states[h])
        line = f"{h:>4}  {states[believed]!s:<18} {seen.action_name(h):<18} "
        line += f"{seen.confidence[h]:.2f}{'  lost' if seen.lost[h] else ''}"
        others = _likely(seen, h, 0.05)[1:3]
        if others:
            line += "  or " + ", ".join(f"{state!s} {p:.2f}" for state, p in others)
        if seen.truth is not None and int(seen.truth[h]) != believed:
            line += f"  (truly {states[int(seen.truth[h])]!s})"
        if seen.rewards[h]:
            line += f"  {seen.rewards[h]:+.4g}"
        print(line)
    print(f"return {seen.total:.4g} in {seen.steps} steps of {seen.policy.horizon}", end="")
    print("" if seen.tracked is None else f", position right in {seen.tracked:.0%} of them")
    for kind in ("gif", "png", "html"):
        if kind in result:
            print(f"{kind} {result[kind]}")
