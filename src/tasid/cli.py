"""The command line: thin, quick to answer, and plain about mistakes.

Heavy modules are imported inside the commands, so that `--help` is instant.
"""

from __future__ import annotations

import json
import os
import sys
import tomllib
import warnings
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from tasid.mdp import AbstractSimulator

app = typer.Typer(
    name="tasid",
    help="From a map and an environment to a robust policy.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Json = Annotated[
    bool, typer.Option("--json", help="One JSON object on standard output, nothing else.")
]
Horizon = Annotated[int | None, typer.Option(help="Steps per episode H.")]
Eta = Annotated[float, typer.Option(help="Perturbation level η the plan guards against.")]
Seed = Annotated[int, typer.Option(help="Seeds everything.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="An option of the environment; repeatable."),
]
Episodes = Annotated[int, typer.Option(help="Episodes to evaluate on.")]


@app.command()
def plan(
    source: Annotated[
        str,
        typer.Argument(
            help="A map (.txt drawn, .yaml occupancy map, .npz tables, a saved simulator's "
            "folder, gym:ID) or an environment's name."
        ),
    ],
    eta: Eta = 0.1,
    horizon: Horizon = None,
    png: Annotated[Path | None, typer.Option(help="Draw the route to this file.")] = None,
    env_seed: Annotated[int | None, typer.Option(help="Instance of the environment.")] = None,
    start: Annotated[str | None, typer.Option(help="Start of a .yaml map: x,y[,N|E|S|W].")] = None,
    goal: Annotated[str | None, typer.Option(help="Goal of a .yaml map: x,y in metres.")] = None,
    cell_size: Annotated[float | None, typer.Option(help="Cells of a .yaml map, metres.")] = None,
    robot_radius: Annotated[float | None, typer.Option(help="Walls grow by it, metres.")] = None,
    hazard: Annotated[
        list[str] | None,
        typer.Option(help="Zone of a .yaml map: x,y,radius or x,y,x,y; repeatable."),
    ] = None,
    moves: Annotated[str | None, typer.Option(help="How one moves: compass, turn.")] = None,
    deterministic: Annotated[
        str | None, typer.Option(help="Chances in a gym:ID map: refuse, most-likely.")
    ] = None,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Plan robustly on a map: value and route of Algorithm 1."""
    from tasid.mdp import certify, policy_value, robust_dp

    options = _options(
        settings,
        start=_point("--start", start),
        goal=_point("--goal", goal),
        cell_size=cell_size,
        robot_radius=robot_radius,
        hazards=[_point("--hazard", zone) for zone in hazard] if hazard else None,
        moves=moves,
        deterministic=deterministic,
        seed=env_seed,
    )
    sim = _simulator(source, horizon, options)
    robust = robust_dp(sim, eta=eta)
    nominal = robust_dp(sim, eta=0.0)
    likeliest = int(sim.starts[sim.start_probabilities.argmax()])
    route = robust.route(likeliest)
    result = {
        "worst_case_value": robust.start_value,
        "nominal_value": policy_value(sim, robust),
        "best_nominal_value": nominal.start_value,
        "certificate_gap": certify(robust).gap,
        "states": sim.num_states,
        "actions": sim.num_actions,
        "horizon": sim.horizon,
        "eta": eta,
        "route": [
            {"step": s.step, "state": s.state, "action": s.action, "reward": s.reward}
            for s in route
        ],
    }
    if sim.origin is not None and sim.origin.implied_eta is not None:
        result["implied_eta"] = sim.origin.implied_eta
    if png is not None:
        from tasid.report import plan_picture

        plan_picture(robust, png)
        result["png"] = str(png)
    if as_json:
        _print_json(result)
        return
    print(f"{sim.num_states} states, {sim.num_actions} actions, horizon {sim.horizon}, η = {eta}")
    print(f"worst-case value of the robust plan   {robust.start_value:.6g}")
    print(f"its value if nothing is perturbed     {result['nominal_value']:.6g}")
    print(f"best value if nothing is perturbed    {nominal.start_value:.6g}")
    print(f"proof of optimality (saddle gap)      {result['certificate_gap']:.1e}")
    if "implied_eta" in result:
        print(f"η of the environment on this map      {result['implied_eta']:.6g}")
    print("route " + " → ".join(str(state) for state, _ in groupby(step.state for step in route)))
    if png is not None:
        print(f"picture {png}")


@app.command()
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
    _cache_compilations()
    from tasid.runs.progress import Progress
    from tasid.runs.train import Order
    from tasid.runs.train import train as carry_out

    options = _options(settings, horizon=horizon, eta=eta)
    options.setdefault("seed", seed if env_seed is None else env_seed)
    order = Order(env, options, eta, _episodes(episodes), seed, method, evaluation_episodes)
    folder = out or Path("runs") / f"{env}-seed{seed}"
    with Progress(quiet=not sys.stderr.isatty()) as progress:
        result = carry_out(order, folder, overwrite=overwrite, callbacks=[progress])
    if as_json:
        _print_json(result)
        return
    print(f"learned from {result['episodes']} episodes in {result['seconds']:.1f} s")
    _print_scores(result)
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


@app.command()
def evaluate(
    policy: Annotated[Path, typer.Argument(help="A policy's folder, or a run's.")],
    env: Annotated[
        str | None, typer.Option(help="Another environment than the recorded one.")
    ] = None,
    env_seed: Annotated[int | None, typer.Option(help="Another instance of it.")] = None,
    settings: Settings = None,
    episodes: Episodes = 10_000,
    seed: Annotated[int, typer.Option(help="Draws the episodes, nothing else.")] = 0,
    as_json: Json = False,
) -> None:
    """Score a saved policy in the environment it was learned in, or in another."""
    _cache_compilations()
    from tasid.algorithms import load
    from tasid.envs import make
    from tasid.runs.scoring import score

    loaded = load(policy / "policy" if (policy / "policy").is_dir() else policy)
    recorded = loaded.environment
    if recorded is None and env is None:
        raise ValueError("policy: it records no environment; say which one with --env")
    name = env or str(recorded["name"])  # type: ignore[index]
    options = dict(recorded["options"]) if recorded and recorded["name"] == name else {}
    options |= _options(settings, seed=env_seed)
    target = make(name, **options)
    _, result = score(loaded, target, episodes=episodes, seed=seed)
    result = {**result, "episodes": result.pop("evaluation_episodes"), "policy": str(policy)}
    if as_json:
        _print_json(result)
    else:
        _print_scores(result)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="A run's folder.")], as_json: Json = False
) -> None:
    """Write the self-contained HTML page of a run."""
    from tasid.report import build_report

    page = build_report(folder)
    if as_json:
        _print_json({"page": str(page)})
    else:
        print(f"report            {page}")


@app.command()
def budget(
    horizon: Annotated[int, typer.Option(help="Steps per episode H.")] = 40,
    actions: Annotated[int, typer.Option(help="Number of actions |A|.")] = 10,
    eta: Annotated[float, typer.Option(help="Perturbation level η.")] = 0.1,
    epsilon: Annotated[float, typer.Option(help="Loss ε against the robust policy.")] = 0.5,
    delta: Annotated[float, typer.Option(help="Probability δ of failing.")] = 0.1,
    log_class_size: Annotated[
        float | None,
        typer.Option(help="ln|F|; if not given, of the paper's network on the lock, 32 bits each."),
    ] = None,
    return_range: Annotated[
        float | None, typer.Option(help="Length G of an interval of all returns; H if not given.")
    ] = None,
    outcomes: Annotated[
        int | None, typer.Option(help="Most outcomes k of a state; the lock's if not given.")
    ] = None,
    weight: Annotated[
        float | None, typer.Option(help="Least share w of roll-ins by the policy itself.")
    ] = None,
    starts: Annotated[int | None, typer.Option(help="Number of start states N.")] = None,
    min_probability: Annotated[
        float | None, typer.Option(help="Least start probability μ; 1/N if not given.")
    ] = None,
    margin: Annotated[float | None, typer.Option(help="Margin Γ between start states.")] = None,
    complexity: Annotated[float | None, typer.Option(help="Complexity C of clustering.")] = None,
    as_json: Json = False,
) -> None:
    """Count the episodes that the theory asks for, beside what practice needs."""
    from tasid.runs.budget_table import budget_table, in_words, question

    asked = question(
        horizon=horizon,
        actions=actions,
        eta=eta,
        epsilon=epsilon,
        delta=delta,
        log_class_size=log_class_size,
        return_range=return_range,
        outcomes=outcomes,
        weight=weight,
        starts=starts,
        min_probability=min_probability,
        margin=margin,
        complexity=complexity,
    )
    table = budget_table(asked)
    if as_json:
        _print_json(table)
    else:
        print("\n".join(in_words(table)))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; bad input is one clear message and exit code 2."""
    try:
        app(args=arguments, prog_name="tasid")
    except KeyboardInterrupt:
        _fail("interrupted", 130)
    except (ValueError, TypeError, OSError) as error:
        if os.environ.get("TASID_TRACEBACK"):
            raise
        _fail(str(error), 2)


def _fail(message: str, code: int) -> None:
    print(f"tasid: {message}", file=sys.stderr)
    raise SystemExit(code)


def _print_json(value: dict[str, Any]) -> None:
    print(json.dumps(value, allow_nan=False))


def _print_scores(result: dict[str, Any]) -> None:
    low, high = result["return_ci95"]
    interval = "" if low is None else f"  (95 % interval {low:.4f} … {high:.4f})"
    print(f"return            {result['return_mean']:.4f}{interval}")
    if result["robust_value"] is None:
        return
    print(f"robust value      {result['robust_value']:.4f}  (exact, with the latent state in view)")
    print(f"blind value       {result['blind_value']:.4f}  (exact, best without looking)")
    for name in ("ratio", "skill"):
        value = result[name]
        print(f"{name:<17} " + ("unknown" if value is None else f"{value:.4f}"))
    if result["blind_value"] > 0.5 * result["robust_value"]:
        print("note: here a blind policy earns over half the robust value: weak evidence of skill")


def _episodes(text: str) -> int | Literal["auto"]:
    if text == "auto":
        return "auto"
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"--episodes: {text!r} is neither a whole number nor 'auto'") from None


def _options(settings: list[str] | None, **given: Any) -> dict[str, Any]:
    """Environment options from --set KEY=VALUE (TOML values) and from the command's own flags."""
    options = {name: value for name, value in given.items() if value is not None}
    for setting in settings or ():
        key, equals, text = setting.partition("=")
        if not equals or not key.isidentifier():
            raise ValueError(f"--set: {setting!r} is not KEY=VALUE")
        try:
            options[key] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            options[key] = text
    return options


def _point(flag: str, text: str | None) -> list[float | str] | None:
    """Numbers between commas, the last of them perhaps a heading."""
    if text is None:
        return None
    *numbers, last = text.split(",")
    try:
        head: list[float | str] = [float(part) for part in numbers]
        return [*head, last.strip() if last.strip().isalpha() else float(last)]
    except ValueError:
        raise ValueError(
            f"{flag}: {text!r} should be numbers with commas between, 1.5,-2"
        ) from None


def _simulator(source: str, horizon: int | None, options: dict[str, Any]) -> AbstractSimulator:
    from tasid.mdp.sources import MapWarning, is_map, read_source

    if is_map(source):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", MapWarning)
            sim = read_source(source, horizon=horizon, **options)
        for warning in caught:
            print(f"tasid: warning: {warning.message}", file=sys.stderr)
        return sim
    from tasid.envs import make
    from tasid.envs.registry import ENVIRONMENTS

    if source not in ENVIRONMENTS:
        raise ValueError(
            f"source: {source!r} is neither a file or folder here nor an environment; "
            f"environments: {', '.join(ENVIRONMENTS)}"
        )
    if horizon is not None:
        options.setdefault("horizon", horizon)
    return make(source, **options).simulator


def _cache_compilations() -> None:
    """Keep compiled code between runs; only the command line may set this, never an import."""
    import jax

    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    jax.config.update("jax_compilation_cache_dir", str(Path(home) / "tasid" / "xla"))


if __name__ == "__main__":
    main()
