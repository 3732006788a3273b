"""`python -m reproduction NAME --size smoke|quick|full`, `… all`, `… train ENV --algorithm …`."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

# Jobs run in processes side by side; threads of each would only compete.
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

from reproduction.baselines import ALGORITHMS, BaselineConfig, train_baseline
from reproduction.pages import write_page
from reproduction.records import SIZES, Experiment, progress, run_experiment

DEFAULT_EPSILON = 0.1
"""EPOpt's ε in the command `train`; the experiment searches it."""


def experiments() -> dict[str, Experiment]:
    """All experiments by name."""
    from reproduction import belief, building, lock_page, minigrid, population, starts

    listed = (
        lock_page.EXPERIMENT,
        lock_page.READINGS,
        minigrid.EXPERIMENT,
        belief.EXPERIMENT,
        starts.EXPERIMENT,
        population.EXPERIMENT,
        building.EXPERIMENT,
    )
    return {experiment.name: experiment for experiment in listed}


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0, 2 for wrong usage or input, 130 after Ctrl-C."""
    options = _parser().parse_args(arguments)
    try:
        result = options.command(options)
    except KeyboardInterrupt:
        progress("interrupted; the same command continues")
        return 130
    except ValueError as error:
        progress(f"error: {error}")
        return 2
    if options.json:
        print(json.dumps(result, ensure_ascii=False))
    else:
        for key, value in result.items():
            if not isinstance(value, (list, dict)):
                print(f"{key:16} {value}")
    return 0


def reproduce(options: argparse.Namespace) -> dict[str, Any]:
    """Run one experiment, or all, and write their pages."""
    known = experiments()
    names = list(known) if options.name == "all" else [options.name]
    results = {}
    for name in names:
        default = (
            Path("results") / name
            if options.size == "full"
            else Path("runs") / f"{name}-{options.size}"
        )
        folder = default if options.out is None else Path(options.out)
        if options.out is not None and len(names) > 1:
            folder /= name
        ran = 0
        if not options.page_only:
            ran = run_experiment(
                known[name],
                options.size,
                folder,
                workers=options.workers,
                seeds=options.seeds,
                settings=options.settings,
                again=options.again,
            )
        path, page = write_page(known[name], options.size, folder)
        progress(f"{name}: {path}")
        results[name] = {
            "experiment": name,
            "size": options.size,
            "out": str(folder),
            "ran": ran,
            "page": str(path),
            "table": page.table,
        }
    return results[names[0]] if len(names) == 1 else {"experiments": list(results.values())}


def train(options: argparse.Namespace) -> dict[str, Any]:
    """Train a baseline in one environment and save its policy."""
    import tasid
    from tasid.policies.evaluate import summary, yardsticks
    from tasid.targets.registry import open_target

    given = {
        field.name: getattr(options, field.name)
        for field in fields(BaselineConfig)
        if getattr(options, field.name, None) is not None
    }
    if options.algorithm == "epopt":
        given.setdefault("epopt_epsilon", DEFAULT_EPSILON)
    config = BaselineConfig(**given, stop_when_solved=not options.no_stop)
    chosen = {"horizon": options.horizon, "eta": options.eta} | dict(options.set)
    chosen = {name: value for name, value in chosen.items() if value is not None}
    if not options.environment.startswith("gym:"):
        seed = options.seed if options.env_seed is None else options.env_seed
        chosen = {"seed": seed, **chosen}
    target = open_target(options.environment, **chosen)
    threshold = None
    if target.simulator is not None and isinstance(target, tasid.BlockMDP):
        eta = float(target.options.get("eta", 0.1))
        plan = tasid.robust_dp(target.simulator, eta=eta)
        threshold = options.solved * target.latent.robust_value(plan)
    folder = Path(
        options.out or f"runs/{options.environment.replace(':', '-')}-{options.algorithm}"
    )
    started = time.perf_counter()
    trained = train_baseline(
        config,
        target,
        seed=options.seed,
        threshold=threshold,
        checkpoint=folder / "unfinished",
        report=lambda row: progress(
            f"{row['stage']} {row['episodes']}: training {row['training']}, mean {row['mean']}"
        ),
    )
    seconds = time.perf_counter() - started
    saved = trained.policy.save(folder / "policy")
    score = tasid.evaluate(
        trained.policy, target, episodes=options.final_episodes, seed=options.seed
    )
    result = {
        "environment": options.environment,
        "algorithm": options.algorithm,
        "seed": options.seed,
        "episodes": trained.episodes,
        "source_episodes": config.source_episodes if config.randomized else 0,
        "solved_after": trained.solved_after,
        **summary(score, yardsticks(trained.policy, target)),
        "seconds": round(seconds, 2),
        "policy": str(saved),
        "rows": list(trained.rows),
    }
    (folder / "result.json").write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    return result


def _setting(text: str) -> tuple[str, Any]:
    """KEY=VALUE with a JSON value, or a string."""
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m reproduction", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="NAME")
    names = (
        "combination-lock", "readings", "minigrid", "belief", "starts", "population", "building"
    )  # fmt: skip
    for name in (*names, "all"):
        about = "all experiments" if name == "all" else f"the experiment {name!r}"
        command = commands.add_parser(name, help=about)
        command.set_defaults(command=reproduce, name=name)
        command.add_argument("--size", choices=SIZES, default="quick")
        command.add_argument("--workers", type=int, default=2, help="processes")
        command.add_argument("--seeds", type=int, nargs="+", help="run these seeds only")
        command.add_argument(
            "--settings", "--series", nargs="+", help="run settings that begin like this only"
        )
        command.add_argument(
            "--again", action="store_true", help="also replace records of other versions"
        )
        command.add_argument("--page-only", action="store_true", help="run nothing")
        command.add_argument("--out", help="folder; results/NAME for full, else runs/NAME-SIZE")
        command.add_argument("--json", action="store_true")
    command = commands.add_parser("train", help="train a baseline in one environment")
    command.set_defaults(command=train)
    command.add_argument("environment", metavar="ENV", help="a name of tasid.make, or gym:ID")
    command.add_argument("--algorithm", choices=ALGORITHMS, default="ppo")
    command.add_argument("--episodes", type=int, dest="target_episodes", help="in the target")
    command.add_argument("--source-episodes", type=int, help="of pre-training")
    command.add_argument("--rnd-coefficient", type=float)
    command.add_argument("--epopt-epsilon", type=float)
    command.add_argument("--evaluate-every", type=int)
    command.add_argument("--evaluation-episodes", type=int, help="at every checkpoint")
    command.add_argument("--updates-are", choices=("passes", "minibatches"))
    command.add_argument("--minibatch-of", choices=("transitions", "episodes"))
    command.add_argument("--gae-lambda", type=float)
    command.add_argument("--keep-rnd", action="store_const", const=True)
    command.add_argument("--keep-optimisers", action="store_const", const=True)
    command.add_argument("--no-stop", action="store_true", help="train on after it is solved")
    command.add_argument("--solved", type=float, default=0.95, help="share of the robust value")
    command.add_argument(
        "--final-episodes", type=int, default=10_000, help="of the last evaluation"
    )
    command.add_argument("--horizon", type=int)
    command.add_argument("--eta", type=float)
    command.add_argument("--set", type=_setting, action="append", default=[], metavar="KEY=VALUE")
    command.add_argument("--seed", type=int, default=0)
    command.add_argument("--env-seed", type=int)
    command.add_argument("--out")
    command.add_argument("--json", action="store_true")
    return parser


if __name__ == "__main__":
    sys.exit(main())
