"""Arguments that several commands share, and how their text is read."""

from __future__ import annotations

import os
import sys
import tomllib
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tasid.cli import ranges
from tasid.cli.answers import notice

if TYPE_CHECKING:
    from tasid.maps import AbstractSimulator
    from tasid.maps.sources.doors import LostDoor
    from tasid.runs.executors.protocol import Executor

Json = Annotated[
    bool, typer.Option("--json", help="One JSON object on standard output, nothing else.")
]
Horizon = Annotated[int | None, typer.Option(help="Steps per episode H.", callback=ranges.steps)]
Eta = Annotated[
    float,
    typer.Option(help="Perturbation level η the plan guards against.", callback=ranges.finite),
]
EtaOrMaps = Annotated[
    float | None,
    typer.Option(
        help="Perturbation level η the plan guards against; the map's own if it has one, or 0.1.",
        callback=ranges.finite,
    ),
]
USUAL_ETA = 0.1
_PLACES = {"start", "goal"}
_OF_WRAPPING = {
    "observe",
    "resize",
    "num_envs",
    "workers",
    "retries",
    "step_timeout",
    "reset_timeout",
    "on_bad_observation",
    "reset_options",
}
Seed = Annotated[int, typer.Option(help="Seeds everything.", callback=ranges.seeds)]
Workers = Annotated[
    int | None,
    typer.Option(help="Jobs of a sweep at a time; as many as processors if not given."),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Do the jobs of a sweep on this Ray cluster: HOST:PORT, auto, or local.",
    ),
]
EpisodesSeed = Annotated[
    int, typer.Option(help="Draws the episodes, nothing else.", callback=ranges.seeds)
]
EnvSeed = Annotated[
    int | None, typer.Option(help="Instance of the environment.", callback=ranges.seeds)
]
InstanceSeed = Annotated[
    int | None,
    typer.Option(help="Instance of the environment; the seed if not given.", callback=ranges.seeds),
]
Sensor = Annotated[str | None, typer.Option(help="What a robot sees with: lidar, camera or both.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="An option of the environment; repeatable."),
]
Simulator = Annotated[
    str | None,
    typer.Option(metavar="SOURCE", help="The map, as for `tasid plan`; gym:ID needs one."),
]
MapSettings = Annotated[
    list[str] | None,
    typer.Option("--map", metavar="KEY=VALUE", help="An option of the map; repeatable."),
]
StartState = Annotated[
    str | None,
    typer.Option(
        metavar="STATE",
        help="Where episodes begin on the map, by label (3,4) or index; as --map start_state=….",
    ),
]
ResetOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--reset-option",
        metavar="KEY=VALUE",
        help="Given to reset() of gym:ID at every episode; repeatable.",
    ),
]
Episodes = Annotated[
    int | None,
    typer.Option(
        help="Episodes to evaluate on; 10 000, or 1000 in gym:ID, if not given.",
        callback=ranges.episodes,
    ),
]


def refuse_given(context: typer.Context, names: Sequence[str], why: str) -> None:
    """Refuse arguments that say something elsewhere and nothing here, if they were given."""
    spelled = {parameter.name: parameter.opts[0] for parameter in context.command.params}
    for name in names:
        source, flag = context.get_parameter_source(name), spelled[name]
        if source is not None and source.name == "COMMANDLINE":
            raise ValueError(f"{flag if flag.startswith('-') else flag.upper()}: {why}")


def refuse_sweep_flags(context: typer.Context) -> None:
    """Flags that say something to a sweep alone."""
    for name in ("workers", "cluster"):
        if context.params[name] is not None:
            raise ValueError(f"--{name}: {context.params[name]} without --seeds; it is for sweeps")


def executor_of(workers: int | None, cluster: str | None) -> Executor:
    """Who does the jobs of a sweep."""
    if cluster is not None:
        from tasid.runs.executors.cluster import RayCluster

        return RayCluster(cluster, workers=workers)
    from tasid.runs.executors.processes import Processes

    return Processes(os.cpu_count() or 1 if workers is None else workers)


def environment_options(settings: list[str] | None, **given: Any) -> dict[str, Any]:
    """Options from --set KEY=VALUE (TOML values, or places as x,y) and the command's own flags."""
    options = {name: value for name, value in given.items() if value is not None}
    return options | _read("--set", settings)


def reset_options(env: str, settings: list[str] | None) -> dict[str, Any]:
    """What --reset-option KEY=VALUE (TOML values) adds to the options of an environment."""
    if not settings:
        return {}
    if not env.startswith("gym:"):
        raise ValueError(f"--reset-option: {settings[0]} with {env}; only gym:ID has a reset()")
    return {"reset_options": _read("--reset-option", settings)}


def world_options(
    env: str,
    settings: list[str] | None,
    reset: list[str] | None,
    *,
    seed: int,
    env_seed: int | None,
    horizon: int | None,
    eta: float | None,
    sensor: str | None = None,
    **more: Any,
) -> dict[str, Any]:
    """All options of an environment to act in, its instance's seed included."""
    ours = not env.startswith("gym:")
    if sensor is not None and env != "building":
        raise ValueError(f"--sensor: {sensor} with {env}; only the building has sensors to choose")
    flags = {"horizon": horizon, "eta": eta} if ours else {}
    options = environment_options(settings, **flags, sensor=sensor, **more)
    options |= reset_options(env, reset)
    options = instance(env, env_seed) | options
    if ours:
        options.setdefault("eta", USUAL_ETA)
        options.setdefault("seed", seed)
    return options


def instance(env: str, env_seed: int | None) -> dict[str, Any]:
    """The option that --env-seed stands for; other environments than ours have no instances."""
    if env_seed is None:
        return {}
    if env.startswith("gym:"):
        raise ValueError(f"--env-seed: {env_seed} with {env}, whose episodes come from --seed")
    return {"seed": env_seed}


def map_options(settings: list[str] | None, start_state: str | None = None) -> dict[str, Any]:
    """Map options from --map KEY=VALUE (TOML values, or places as x,y)."""
    options = _read("--map", settings)
    if start_state is not None:
        options |= _read("--start-state", [f"start_state={start_state}"])
    return options


def _read(flag: str, settings: list[str] | None) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for setting in settings or ():
        key, equals, text = setting.partition("=")
        if not equals or not key.isidentifier():
            raise ValueError(f"{flag}: {setting!r} is not KEY=VALUE")
        try:
            options[key] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            options[key] = point(f"{flag} {key}", text) if _is_place(key, text) else text
    return options


def _is_place(key: str, text: str) -> bool:
    """Is it x,y rather than a name, which environments of others may have for a goal?"""
    return key in _PLACES and not text.strip().isidentifier()


def run_folder(env: str, *parts: str) -> Path:
    """Where a run goes if --out is not given."""
    return Path("runs") / "-".join([env.replace("/", "-").replace(":", "-"), *parts])


def point(flag: str, text: str | None) -> list[float | str] | None:
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


def simulator_of(source: str, horizon: int | None, options: dict[str, Any]) -> AbstractSimulator:
    from tasid.maps.sources import is_map, read_source

    if is_map(source):
        with _map_warnings_told():
            return read_source(source, horizon=horizon, **options)
    from tasid.targets import make
    from tasid.targets.registry import ENVIRONMENTS
    from tasid.targets.worlds.building.world import remarks

    if source not in ENVIRONMENTS:
        raise ValueError(
            f"source: {source!r} is neither a file or folder here nor an environment; "
            f"environments: {', '.join(ENVIRONMENTS)}"
        )
    if horizon is not None:
        options.setdefault("horizon", horizon)
    env = make(source, **options)
    for remark in remarks(env):
        notice(remark)
    return env.simulator


@contextmanager
def _map_warnings_told() -> Iterator[None]:
    """Warnings of maps as lines of ours, before the error they explain if there is one."""
    from tasid.maps.sources import MapWarning

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", MapWarning)
        try:
            yield
        finally:
            for warning in caught:
                print(f"tasid: warning: {warning.message}", file=sys.stderr)


def lost_doors_of(source: str, options: dict[str, Any]) -> list[LostDoor] | None:
    """What an occupancy map lost at this cell size and radius; None for other sources."""
    if Path(source).suffix.lower() not in (".yaml", ".yml"):
        return None
    from tasid.maps.sources.occupancy_map import lost_doors

    named = ("cell_size", "robot_radius", "unknown", "headings")
    return lost_doors(source, **{name: options[name] for name in named if name in options})


def implied_eta(sim: AbstractSimulator | None) -> float:
    """The η of the environment that the map was made from, if the map knows it; else 0."""
    known = None if sim is None or sim.origin is None else sim.origin.implied_eta
    return known or 0.0


def eta_for(eta: float | None, sim: AbstractSimulator | None) -> float:
    """As given; else what the map says of the environment it was made from, if anything slips."""
    if eta is not None:
        return eta
    implied = implied_eta(sim)
    if implied >= 0.5:
        raise ValueError(
            f"--eta: on this map the environment does something else with probability {implied:g}, "
            "and from 0.5 on nobody can tell what happened; make it slip less, or give an --eta "
            "below 0.5 to try all the same"
        )
    return implied or USUAL_ETA


def map_for(
    env: str,
    options: dict[str, Any],
    simulator: str | None,
    settings: list[str] | None,
    horizon: int | None,
    start_state: str | None = None,
) -> tuple[AbstractSimulator | None, dict[str, Any] | None]:
    """The map of --simulator and how to write it down; none for environments that bring theirs.

    A Gymnasium environment that is its own map takes its options too, and the likeliest successors.
    """
    given = map_options(settings, start_state)
    if simulator is None:
        if env.startswith("gym:"):
            from tasid.maps.sources.gym_id import check_id

            check_id(env.removeprefix("gym:"), argument="ENV")
            raise ValueError(f"--simulator: {env} brings no map; say which one it has")
        if given:
            raise ValueError(f"--map: {next(iter(given))} without --simulator")
        return None, None
    if simulator == env and simulator.startswith("gym:"):
        kept = {key: value for key, value in options.items() if key not in _OF_WRAPPING}
        given = {"deterministic": "most-likely", **kept, **given}
    source = {"name": simulator, "options": dict(given)}
    sim = simulator_of(simulator, horizon, given)
    return sim, source | {"horizon": sim.horizon}
