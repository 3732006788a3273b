"""What arguments mean: options of environments, their maps, and what a policy was learned in."""

from __future__ import annotations

import sys
import tomllib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tasid.cli.answers import notice

if TYPE_CHECKING:
    from tasid.maps import AbstractSimulator
    from tasid.maps.sources.doors import LostDoor
    from tasid.policies import BeliefPolicy, Policy
    from tasid.policies.ppo_policy import PPOPolicy
    from tasid.targets import BlockMDP
    from tasid.targets.gym.target import GymTarget

USUAL_ETA = 0.1
_PLACES = {"start", "goal"}
_OF_WRAPPING = (
    "observe resize num_envs workers retries step_timeout reset_timeout on_bad_observation "
    "reset_options"
).split()
_NEVER_RECORDED = ("num_envs", "workers", "preprocess", "retries")


def environment_options(settings: list[str] | None, **given: Any) -> dict[str, Any]:
    """Options from --set KEY=VALUE (TOML values, or places as x,y) and the command's own flags."""
    options = {name: value for name, value in given.items() if value is not None}
    return options | _read("--set", settings)


def world_options(given: SimpleNamespace, *, seed: int) -> dict[str, Any]:
    """All options of the environment a command is to act in, its instance's seed included."""
    env, sensor = given.env, given.sensor
    ours = not env.startswith("gym:")
    if sensor is not None and env != "building":
        raise ValueError(f"--sensor: {sensor} with {env}; only the building has sensors to choose")
    flags = {"horizon": given.horizon, "eta": given.eta} if ours else {}
    options = environment_options(given.settings, **flags, sensor=sensor)
    if given.reset and ours:
        raise ValueError(f"--reset-option: {given.reset[0]} with {env}; only gym:ID has a reset()")
    if given.reset:
        options["reset_options"] = _read("--reset-option", given.reset)
    options = instance(env, given.env_seed) | options
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
    asked: SimpleNamespace, options: dict[str, Any]
) -> tuple[AbstractSimulator | None, dict[str, Any] | None]:
    """The map of --simulator and how to write it down; none for environments that bring theirs.

    A Gymnasium environment that is its own map takes its options too, and the likeliest successors.
    """
    env, simulator = asked.env, asked.simulator
    given = map_options(asked.map_settings, asked.start_state)
    if simulator is None:
        if env.startswith("gym:"):
            from tasid.maps.sources.by_name import check_id

            check_id(env.removeprefix("gym:"), argument="ENV")
            raise ValueError(f"--simulator: {env} brings no map; say which one it has")
        if given:
            raise ValueError(f"--map: {next(iter(given))} without --simulator")
        return None, None
    if simulator == env and simulator.startswith("gym:"):
        kept = {key: value for key, value in options.items() if key not in _OF_WRAPPING}
        given = {"deterministic": "most-likely", **kept, **given}
    source = {"name": simulator, "options": dict(given)}
    sim = simulator_of(simulator, asked.horizon, given)
    return sim, source | {"horizon": sim.horizon}


def world_of(
    policy: BeliefPolicy | Policy | PPOPolicy,
    env: str | None,
    env_seed: int | None,
    settings: list[str] | None,
) -> BlockMDP | GymTarget:
    """What the policy is to be tried in.

    The file may be a stranger's: a name that only the file says is looked up among the ids that
    are registered, and imports nothing.
    """
    from tasid.targets.registry import open_world

    name, options = _recorded(policy)
    if env is None and name is None:
        raise ValueError("policy: it records no environment; say which one with --env")
    if env is not None:
        options, name = (options if env == name else {}), env
    else:
        name = _registered(str(name))
    return open_world(name, **(options | environment_options(settings, **instance(name, env_seed))))


def _recorded(policy: BeliefPolicy | Policy | PPOPolicy) -> tuple[str | None, dict[str, Any]]:
    known = policy.environment
    if known is None:
        return None, {}
    try:
        name, options = known["name"], dict(known["options"])
    except (KeyError, TypeError, ValueError):
        name, options = None, {}
    strangers = [key for key in options if key in _NEVER_RECORDED or not isinstance(key, str)]
    if not isinstance(name, str) or strangers:
        raise ValueError(f"policy: records the environment {known!r:.200}, which no run does")
    return name, options


def _registered(name: str) -> str:
    from tasid.maps.sources.by_name import GYM, registered_id

    if not name.startswith(GYM):
        return name
    given = name.removeprefix(GYM)
    bare = registered_id(given)
    if bare is None:
        typed = name if ":" in given else f"{GYM}MODULE:{given}"
        raise ValueError(
            f"policy: records the environment {name}, which is not among the installed ones, and "
            "a name in a file imports nothing. If you know what it is, say so yourself: "
            f"--env {typed}, or --import FILE.py with a file that registers it"
        )
    return GYM + bare
