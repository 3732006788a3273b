"""`tasid train`: learn a policy in an environment, for one seed or several, or from a log."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tasid.cli import options, output

if TYPE_CHECKING:
    from tasid.runs.config import RunConfig


def train(
    context: typer.Context,
    env: options.OptionalEnv = None,
    simulator: options.Simulator = None,
    horizon: options.Horizon = None,
    eta: options.Eta = None,
    episodes: Annotated[str | None, typer.Option(metavar="N|auto", help="To learn from.")] = None,
    method: Annotated[str | None, typer.Option(help="belief (default) or paper.")] = None,
    starts: Annotated[int | None, typer.Option(help="Number of start states.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seeds everything; 0 if not given.")] = None,
    env_seed: options.EnvSeed = None,
    seeds: Annotated[str | None, typer.Option(metavar="A-B", help="A run for each.")] = None,
    workers: Annotated[int, typer.Option(help="Processes for --seeds.", min=1)] = 2,
    cluster: Annotated[str | None, typer.Option(help="Ray for --seeds: HOST:PORT, local.")] = None,
    log: Annotated[Path | None, typer.Option("--from", help="Learn from this log.")] = None,
    from_policy: Annotated[Path | None, typer.Option(help="Continue from this policy.")] = None,
    certify: Annotated[bool, typer.Option("--certify", help="Bound the return below.")] = False,
    sensor: Annotated[str | None, typer.Option(help="lidar or camera.")] = None,
    settings: options.Settings = None,
    config: Annotated[Path | None, typer.Option(help="TOML or JSON.")] = None,
    imports: options.Imports = None,
    evaluation_episodes: Annotated[int | None, typer.Option(help="Of the final score.")] = None,
    out: Annotated[Path | None, typer.Option(help="The run folder.")] = None,
    overwrite: options.Overwrite = False,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run there.")] = False,
    as_json: options.Json = False,
) -> None:
    """Learn a robust policy and score it."""
    from tasid.runs.config import ConfigError, parse_value, read_config
    from tasid.runs.train import train as run

    params = context.params | {"episodes": episodes and parse_value(episodes)}
    requested = options.run_config(params, None if config is None else read_config(config))
    if seeds is not None:
        names = ("resume", "overwrite", "workers", "cluster")
        _train_seeds(requested, seeds, out, as_json, **{name: params[name] for name in names})
        return
    if cluster is not None:
        raise ConfigError(f"--cluster: {cluster}; it is for --seeds")
    folder = out or requested.default_folder
    try:
        callbacks = [output.progress()]
        done = run(requested, folder, resume=resume, overwrite=overwrite, callbacks=callbacks)
    except KeyboardInterrupt:
        if (folder / "config.json").exists():
            output.notice(f"{folder} keeps what was done; continue with --out {folder} --resume")
        raise
    output.answer(done.summary, as_json=as_json)


def _train_seeds(
    config: RunConfig, text: str, out: Path | None, as_json: bool, **settings: Any
) -> None:
    from tasid.runs.sweep import parse_seeds, train_seeds

    seeds = parse_seeds(text)
    folder = out or Path(str(config.default_folder).removesuffix(f"{config.seed}") + f"s{text}")
    ended: list[int] = []

    def progress(seed: int, result: Mapping[str, Any]) -> None:
        ended.append(seed)
        outcome = result.get("error") or f"return {output.number(result['return_mean'])}"
        output.notice(f"{len(ended)} of {len(seeds)}: seed {seed}, {outcome}")

    try:
        done = train_seeds(config, seeds, folder, progress=progress, **settings)
    except KeyboardInterrupt:
        output.notice(f"finished seeds are in {folder}; continue with --out {folder} --resume")
        raise
    output.answer(done.summary(), as_json=as_json)
    if done.errors:
        raise typer.Exit(1)
