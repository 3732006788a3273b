"""Maps by name, as a command line has them: a file, a saved simulator, or gym:ID."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Any

from tasid.maps.simulator import AbstractSimulator
from tasid.maps.sources.gym_id import GYM, make_by_id
from tasid.maps.sources.trouble import MapError


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
    if isinstance(state, int) and not isinstance(state, bool) and 0 <= state < sim.num_states:
        return state
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
            return _called(from_text_map, source, _text(path), horizon, options)
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


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise MapError(f"{path}: not a text file") from None


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
