"""`tasid train`: learn a policy in a target."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from tasid.cli.answers import print_json, print_scores
from tasid.cli.arguments import (
    Episodes,
    Eta,
    Horizon,
    Json,
    Seed,
    Settings,
    environment_options,
)


def train(
    env: Annotated[str, typer.Argument(help="An environment's name, e.g. combination-lock.")],
    horizon: Horizon = None,
    eta: Eta = 0.1,
    episodes: Annotated[
        str, typer.Option(metavar="N|auto", help="Episodes to learn from, or as evidence asks.")
    ] = "auto",
    method: Annotated[str, typer.Option(help="How to learn: outcome or paper.")] = "outcome",
    seed: Seed = 0,
    env_seed: Annotated[
        int | None, typer.Option(help="Instance of the environment; the seed if not given.")
    ] = None,
    settings: Settings = None,
    evaluation_episodes: Episodes = 10_000,
    out: Annotated[Path | None, typer.Option(help="Folder of the run.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace that run.")] = False,
    as_json: Json = False,
) -> None:
    """Learn a robust policy in a target environment and score it."""
    from tasid.runs.progress import Progress
    from tasid.runs.train import Order
    from tasid.runs.train import train as carry_out

    options = environment_options(settings, horizon=horizon, eta=eta)
    options.setdefault("seed", seed if env_seed is None else env_seed)
    order = Order(env, options, eta, _episodes(episodes), seed, method, evaluation_episodes)
    folder = out or Path("runs") / f"{env}-seed{seed}"
    with Progress(quiet=not sys.stderr.isatty()) as progress:
        result = carry_out(order, folder, overwrite=overwrite, callbacks=[progress])
    if as_json:
        print_json(result)
        return
    print(f"learned from {result['episodes']} episodes in {result['seconds']:.1f} s")
    print_scores(result)
    accuracy = result["decoder_accuracy"]
    if accuracy is not None:
        print(f"decoder accuracy  {accuracy:.4f}  (mean over steps)")
    estimate = result["eta_estimate"]
    if estimate is not None:
        low, high = estimate["low"], estimate["high"]
        print(f"estimated η       {estimate['rate']:.4f}  (95 % interval {low:.4f} … {high:.4f})")
    print(f"model             {result['model']}")
    for warning in result["warnings"]:
        print(f"warning: {warning}")
    print(f"policy            {result['policy']}")


def _episodes(text: str) -> int | Literal["auto"]:
    if text == "auto":
        return "auto"
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"--episodes: {text!r} is neither a whole number nor 'auto'") from None
