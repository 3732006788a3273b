"""Our environments, Gymnasium's and maps by name, as the command line writes them."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import numpy as np

from tasid.keys import seed_key
from tasid.simulator import AbstractSimulator, SimulatorError, is_integer
from tasid.sources.grid import read_text

if TYPE_CHECKING:
    from tasid.targets.base import Target
    from tasid.targets.block import BlockMDP

ENVIRONMENTS = {
    "combination-lock": "tasid.worlds.combination_lock:combination_lock",
    "lava-crossing": "tasid.worlds.lava_crossing:lava_crossing",
    "building": "tasid.worlds.building:building",
}
"""Module and function that build each environment."""
GYM = "gym:"
"""Prefix of the names of Gymnasium environments."""
_KINDS: dict[Any, tuple[str, Callable[[Any], bool]]] = {
    int: ("an integer", is_integer),
    float: (
        "a finite number",
        lambda x: is_integer(x) or (isinstance(x, float | np.floating) and bool(np.isfinite(x))),
    ),
    bool: ("true or false", lambda x: isinstance(x, bool | np.bool_)),
    str: ("a string", lambda x: isinstance(x, str)),
    type(None): ("none", lambda x: x is None),
}
"""Types of options: in words, and whether a value is one."""


def make(name: str, **options: Any) -> BlockMDP:
    """Build an environment of ours.

    Parameters
    ----------
    name
        "combination-lock", "lava-crossing" or "building".
    options
        Arguments of the function that builds it; `seed` picks the instance.
    """
    build = builder(name)
    hints = get_type_hints(build)
    for option, value in options.items():
        if option not in inspect.signature(build).parameters:
            known = ", ".join(inspect.signature(build).parameters)
            raise TypeError(f"{name}: no option {option!r}; its options are: {known}")
        check_type(option, value, hints[option])
    seed_key(options.get("seed", 0))  # refuses what is no seed
    environment: BlockMDP = build(**options)
    return environment


def check_type(name: str, value: Any, hint: Any) -> None:
    """Refuse a value of another type than a hint of plain types allows."""
    kinds = get_args(hint) or (hint,)
    if all(kind in _KINDS for kind in kinds) and not any(_KINDS[k][1](value) for k in kinds):
        right = " or ".join(_KINDS[kind][0] for kind in kinds)
        raise ValueError(f"{name}: {value!r:.80} is not {right}")


def builder(name: str) -> Callable[..., BlockMDP]:
    """The function that builds an environment; its keyword arguments are the options."""
    if name not in ENVIRONMENTS:
        raise ValueError(f"name: no environment {name!r}; there are: {', '.join(ENVIRONMENTS)}")
    module, function = ENVIRONMENTS[name].split(":")
    build: Callable[..., BlockMDP] = getattr(importlib.import_module(module), function)
    return build


def open_target(name: str, **options: Any) -> Target:
    """An environment of ours, or `gym:ID` for any Gymnasium environment, wrapped."""
    if not name.startswith(GYM):
        return make(name, **options)
    from tasid.targets.gymnasium_target import wrap

    return wrap(name.removeprefix(GYM), **options)


def load_source(source: str, *, horizon: int | None = None, **options: Any) -> AbstractSimulator:
    """The simulator that a name stands for.

    Parameters
    ----------
    source
        A .txt, .yaml or .npz file, the folder of a saved simulator, `gym:ID` of an environment with
        a table `P`, or the name of one of our environments.
    options
        Arguments of the source's function, of `gymnasium.make` or of our environment.
    """
    path = Path(source)
    suffix = path.suffix.lower()
    if path.is_dir():
        if options:
            raise SimulatorError(f"{source}: a saved simulator takes no {next(iter(options))!r}")
        simulator = AbstractSimulator.load(path)
        return simulator if horizon is None else simulator.with_horizon(horizon)
    load: Callable[..., AbstractSimulator]
    if source.startswith(GYM):
        load = AbstractSimulator.from_toy_text
    elif suffix in (".yaml", ".yml"):
        load = AbstractSimulator.from_occupancy_map
    elif suffix == ".npz":
        load = AbstractSimulator.from_tables
    elif suffix == ".txt":
        load, source = AbstractSimulator.from_text_map, read_text(path)
    else:
        own = options if horizon is None else {"horizon": horizon, **options}
        return make(source, **own).simulator
    try:
        return load(source, horizon=horizon, **options)
    except TypeError as error:
        if "keyword" not in str(error):  # unexpected, or required and missing
            raise
        raise SimulatorError(f"{path}: {str(error).split('() ')[-1]}") from None
