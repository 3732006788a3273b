"""Maps by name, as a command line has them, and Gymnasium's environments by id.

A map is a file, a saved simulator or gym:ID; an id is made, or refused with what would be right.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from inspect import signature
from pathlib import Path
from typing import Any

from tasid.maps.simulator import AbstractSimulator
from tasid.maps.size import MapError, is_whole, raised

GYM = "gym:"
"""Names of Gymnasium environments begin with this where other names may stand, too."""
_NEAREST = 3
_OWN = "; ids that a module registers are written module:id, or need --import FILE.py"
_RELAYS = ("GymV21Environment", "GymV26Environment")


def is_map(source: str) -> bool:
    """Whether `read_source` is the one to ask: an existing path, or gym:ID."""
    return source.startswith(GYM) or Path(source).exists()


def read_source(
    source: str, *, horizon: int | None = None, start_state: Any = None, **options: Any
) -> AbstractSimulator:
    """The simulator of a .txt, .yaml or .npz file, a saved simulator's folder, or gym:ID.

    Episodes begin in `start_state`, a label or an index, if one is given. Other options are those
    of the source's own function; for gym:ID they go to `gymnasium.make`, all but `deterministic`.
    """
    sim = _read(source, horizon, options)
    if start_state is None:
        return sim
    explored = None if sim.origin is None else sim.origin.explored
    if explored is not None:
        raise MapError(
            f"start_state: {_spelled(start_state):.80} on a map that was explored {explored} steps "
            "far from its own start; make it again from its source with the other one"
        )
    return sim.with_start(_index(sim, start_state))


def _index(sim: AbstractSimulator, state: Any) -> int:
    """A state by its label, as a command line spells it (3,4 or 3,4,E for a tuple), or index."""
    wanted = _spelled(state)
    for index, label in enumerate(sim.states):
        if _spelled(label) == wanted:
            return index
    if is_whole(state) and 0 <= state < sim.num_states:
        return int(state)
    first = ", ".join(map(_spelled, sim.states[:3]))
    raise MapError(
        f"start_state: {wanted:.80} is neither the label of a state ({first}, …) nor an index, "
        f"0 … {sim.num_states - 1}"
    )


def _spelled(label: Any) -> str:
    parts = label if isinstance(label, (tuple, list)) else str(label).split(",")
    return ",".join(str(part).strip() for part in parts)


def _read(source: str, horizon: int | None, options: dict[str, Any]) -> AbstractSimulator:
    if source.startswith(GYM):
        return _toy_text(source.removeprefix(GYM), horizon, options)
    path = Path(source)
    if path.is_dir():
        _refuse_others(source, options, ())
        loaded = AbstractSimulator.load(path)
        return loaded if horizon is None else loaded.with_horizon(horizon)
    kind = path.suffix.lower()
    if kind not in (".txt", ".yaml", ".yml", ".npz"):
        raise MapError(
            f"source: {source!r} is not a map; maps are .txt (drawn), .yaml (occupancy map), "
            ".npz (tables) or the folder of a saved simulator"
        )
    if kind == ".npz":
        return _called(AbstractSimulator.from_tables, source, path, horizon, options)
    if kind == ".txt":
        from tasid.maps.sources.text_map import from_text_map

        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise MapError(f"{path}: not a text file") from None
        try:
            return _called(from_text_map, source, text, horizon, options)
        except MapError as error:  # of the text, which has a name here
            name, _, trouble = str(error).partition("text: ")
            if name:
                raise
            raise MapError(f"{source}: {trouble}") from None
    from tasid.maps.sources.occupancy_map import from_occupancy_map

    for name in ("start", "goal"):
        if options.get(name) is None:
            raise MapError(f"{name}: an occupancy map needs one, as x,y in metres")
    return _called(from_occupancy_map, source, path, horizon, options)


def _called(
    make: Callable[..., AbstractSimulator],
    source: str,
    given: Any,
    horizon: int | None,
    options: dict[str, Any],
) -> AbstractSimulator:
    _refuse_others(source, options, tuple(signature(make).parameters)[1:])
    return make(given, horizon=horizon, **options)


def _refuse_others(source: str, options: dict[str, Any], known: tuple[str, ...]) -> None:
    for name in options:
        if name not in known:
            others = ", ".join(k for k in known if k != "horizon") or "none"
            raise MapError(f"{name}: not an option of {source}; its options: {others}")


def _toy_text(name: str, horizon: int | None, options: dict[str, Any]) -> AbstractSimulator:
    deterministic = options.pop("deterministic", "refuse")
    env = make_by_id(name, options, argument="source")
    try:
        if horizon is None and env.spec is not None:
            horizon = env.spec.max_episode_steps
        if horizon is None:
            raise MapError(f"horizon: {name} has no step limit of its own; give one")
        return AbstractSimulator.from_toy_text(env, horizon=horizon, deterministic=deterministic)
    finally:
        env.close()


def make_by_id(name: str, options: Mapping[str, Any], *, argument: str) -> Any:
    """The environment of an id, or of module:id; `argument` is what a message names."""
    import gymnasium

    try:
        return gymnasium.make(name, **options)
    except gymnasium.error.UnregisteredEnv:
        raise MapError(
            f"{argument}: Gymnasium makes no {name!r} of this: no such id{_nearest(name)}"
        ) from None
    except (gymnasium.error.Error, TypeError, ValueError, ImportError) as error:
        known = _as_file(name.rpartition(":")[0], error)
        raise MapError(
            f"{argument}: Gymnasium makes no {name!r} of this ({error}){known}"
        ) from None
    except Exception as error:  # whatever code of the user's does when it is run
        raise MapError(f"{argument}: {name!r} cannot be made: {raised(error)}") from error


def _as_file(module: str, error: Exception) -> str:
    """What to do about a module that is a file in this folder, where commands do not look."""
    file = Path(f"{module}.py")
    unknown = f"No module named {module!r}" in str(error)
    return f"; {file} is run by --import {file}" if unknown and file.is_file() else ""


def check_id(name: str, *, argument: str) -> None:
    """Refuse an id that nobody registered; module:id may register itself when it is made."""
    import gymnasium

    if ":" in name or name in gymnasium.registry:
        return
    try:
        gymnasium.spec(name)
    except gymnasium.error.UnregisteredEnv:
        raise MapError(f"{argument}: {name!r}: no such id{_nearest(name)}") from None
    except gymnasium.error.Error as error:
        raise MapError(f"{argument}: {name!r}: no such id ({error})") from None


def _nearest(name: str) -> str:
    """Ids that look like this one, and where Minigrid's are."""
    import gymnasium

    bare = name.rpartition(":")[2]
    if bare.startswith("MiniGrid-") and importlib.util.find_spec("minigrid"):
        return f"; Minigrid's are known once it is imported: minigrid:{bare}"
    folded = {known.casefold(): known for known in gymnasium.registry}
    near = get_close_matches(bare.casefold(), folded, n=_NEAREST, cutoff=0.5)
    if near:
        return f"; nearest: {', '.join(folded[one] for one in near)}{_OWN}"
    return _OWN


def registered_id(name: str) -> str | None:
    """The id, if it is registered already: nothing is imported to find out.

    Of module:id the id alone counts. Ids that make others by their names are left out.
    """
    import gymnasium

    bare = name.rpartition(":")[2]
    return bare if bare in gymnasium.registry and not bare.startswith(_RELAYS) else None
