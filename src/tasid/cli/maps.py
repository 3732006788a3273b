"""Commands about maps: plan, check, discover, budget."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from tasid.cli import options, output


def plan(
    source: options.Source,
    eta: options.Eta = None,
    horizon: options.Horizon = None,
    png: Annotated[Path | None, typer.Option(help="Draw the routes to this file.")] = None,
    env_seed: options.EnvSeed = None,
    settings: options.Settings = None,
    imports: options.Imports = None,
    as_json: options.Json = False,
) -> None:
    """Plan robustly on a map (Algorithm 1): value and route."""
    from tasid.planning import certify, policy_value, robust_dp, simulator_problems
    from tasid.runs.config import DEFAULT_ETA
    from tasid.targets.registry import ENVIRONMENTS, load_source, make

    given = options.apply_settings(settings, {}, tables=["options", "map"])
    chosen, optimal = given.get("options", {}) | given.get("map", {}), None
    if source in ENVIRONMENTS:
        own = {"seed": env_seed, "eta": eta, "horizon": horizon}
        target = make(source, **{k: v for k, v in own.items() if v is not None} | chosen)
        sim, optimal = target.simulator, target.latent.optimal_value()
    else:
        sim = load_source(source, horizon=horizon, **chosen)
    robust = robust_dp(sim, eta=DEFAULT_ETA if eta is None else eta)
    start = int(sim.starts[sim.start_probabilities.argmax()])
    result: dict[str, Any] = {
        "worst_case_value": robust.start_value,
        "nominal_value": policy_value(sim, robust),
        "best_nominal_value": robust_dp(sim, eta=0.0).start_value,
        "optimal_value": optimal,
        "certificate_gap": certify(robust).gap,
        "states": sim.num_states,
        "actions": sim.num_actions,
        "horizon": sim.horizon,
        "eta": robust.eta,
        "route": [step._asdict() for step in robust.route(start)],
        "warnings": simulator_problems(sim),
        "png": None,
    }
    if png is not None:
        from tasid.report.maps import save_plan

        result["png"] = str(save_plan(robust, png))
    output.answer(result, _print_plan, as_json=as_json)


def _print_plan(result: Mapping[str, Any]) -> None:
    output.print_values(result)
    states = [str(state) for state, _ in groupby(step["state"] for step in result["route"])]
    print(f"route  {' → '.join([*states[:40], *['…'] * (len(states) > 40)])}")


def check(
    context: typer.Context,
    env: options.Env,
    simulator: options.Simulator = None,
    horizon: options.Horizon = None,
    eta: options.Eta = None,
    episodes: Annotated[int, typer.Option(help="Episodes per test.", min=2, max=10**6)] = 160,
    seed: options.Seed = 0,
    env_seed: options.EnvSeed = None,
    settings: options.Settings = None,
    imports: options.Imports = None,
    as_json: options.Json = False,
) -> None:
    """Compare an environment with a map; exit with 1 on problems."""
    from tasid.learning.check import check_target

    config = options.run_config(context.params, but=["episodes"])
    target = config.build_target()
    sim = config.build_map(target)
    report = check_target(target, sim, eta=config.eta, episodes=episodes, seed=seed).to_json()
    output.answer(report, _print_check, as_json=as_json)
    if not report["ok"]:
        raise typer.Exit(1)


def _print_check(report: Mapping[str, Any]) -> None:
    for finding in report["findings"]:
        mark = "ok" if finding["status"] == "ok" else "PROBLEM"
        print(f"{mark:<9}{finding['name']}: {finding['text']}")
    print("fits" if report["ok"] else f"does not fit: {len(report['problems'])} problem(s)")


def discover(
    context: typer.Context,
    env: options.Env,
    out: Annotated[Path, typer.Option(help="The map, a folder for --simulator.")] = Path("map"),
    eta: options.Eta = None,
    horizon: options.Horizon = None,
    episodes: Annotated[int | None, typer.Option(help="The most to play.", min=1)] = None,
    seed: options.Seed = 0,
    env_seed: options.EnvSeed = None,
    settings: options.Settings = None,
    imports: options.Imports = None,
    force: Annotated[bool, typer.Option("--force", help="Write a map that is unsure.")] = False,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
) -> None:
    """Explore an environment without a map, and write its map."""
    from tasid.learning.discovery import discover as explore
    from tasid.report.page import write_report
    from tasid.storage import ArtifactError, read_json, write_json, writer_lock

    config = options.run_config(context.params, but=["episodes"])
    with writer_lock(out):
        stored, requested = out / "config.json", config.to_dict()
        unfinished = {".lock", "config.json", "episodes", "discovery"}  # the same command continues
        same = not (out / "episodes").exists() or (
            stored.exists() and read_json(stored) == requested
        )
        if overwrite:
            shutil.rmtree(out / "episodes", ignore_errors=True)
        elif not (same and unfinished.issuperset(path.name for path in out.iterdir())):
            raise ArtifactError(
                f"out: {out} holds something else; choose another folder, or --overwrite"
            )
        write_json(stored, requested)
        found = explore(
            config.build_target().with_log(out / "episodes"),
            eta=config.eta,
            horizon=horizon,
            episodes=episodes or "auto",
            seed=seed,
            force=force,
            callbacks=[output.progress()],
        )
    found.save(out)
    result = {**found.summary(), "map": str(out), "page": str(write_report(out))}
    output.answer(result, as_json=as_json)


def budget(
    horizon: Annotated[int, typer.Option(help="Steps per episode H.")] = 40,
    actions: Annotated[int, typer.Option(help="Number of actions |A|.")] = 10,
    eta: Annotated[float, typer.Option(help="Perturbation level η.")] = 0.1,
    epsilon: Annotated[float, typer.Option(help="Loss ε against the robust policy.")] = 0.5,
    delta: Annotated[float, typer.Option(help="Failure probability δ.")] = 0.1,
    log_class_size: Annotated[
        float | None, typer.Option(help="ln|F|; the paper's network.")
    ] = None,
    return_range: Annotated[float | None, typer.Option(help="Range G of returns; H.")] = None,
    as_json: options.Json = False,
) -> None:
    """Episode counts of the theory beside what practice needs."""
    from tasid import theory

    if log_class_size is None:
        log_class_size = theory.lock_class_size(horizon, actions)
    setting = theory.Setting(
        horizon=horizon,
        actions=actions,
        eta=eta,
        log_class_size=log_class_size,
        delta=delta,
        return_range=return_range,
    )
    readings = {
        reading: vars(theory.decoding_budget(setting, epsilon=epsilon, reading=reading))
        for reading in get_args(theory.Reading)
    }
    of_lock = actions == 10 and eta == 0.1
    measured = {"paper": theory.PAPER_EPISODES, "belief": theory.BELIEF_EPISODES}
    result = {
        **vars(setting),
        "return_range": float(setting.range),
        "epsilon": epsilon,
        "n_decode": readings["algorithm"]["n_decode"],
        "n_total": readings["algorithm"]["n_total"],
        "readings": readings,
        "practice": {name: n.get(horizon) if of_lock else None for name, n in measured.items()},
    }
    output.answer(result, as_json=as_json)
