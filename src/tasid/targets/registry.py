"""Environments of ours by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import numpy as np

from tasid.maps.size import check_seed, is_whole
from tasid.maps.sources.by_name import GYM
from tasid.targets.block import BlockMDP
from tasid.targets.worlds import combination_lock, lava_crossing
from tasid.targets.worlds.building import world as building

if TYPE_CHECKING:
    from tasid.targets.gym.target import GymTarget

_KINDS: dict[Any, tuple[str, Callable[[Any], bool]]] = {
    int: ("a whole number", is_whole),
    float: ("a number", lambda value: is_whole(value) or isinstance(value, (float, np.floating))),
    bool: ("true or false", lambda value: isinstance(value, int | np.integer) and value in (0, 1)),
    str: ("a text", lambda value: isinstance(value, str)),
    type(None): ("nothing", lambda value: value is None),
}
"""What a builder's option may be, in words, and whether a value is that."""

ENVIRONMENTS: dict[str, Callable[..., BlockMDP]] = {
    combination_lock.NAME: combination_lock.combination_lock,
    lava_crossing.NAME: lava_crossing.lava_crossing,
    building.NAME: building.building,
}


def make(name: str, **options: Any) -> BlockMDP:
    """Build an environment of ours.

    Args:
        name: "combination-lock", "lava-crossing" or "building".
        options: Its builder's; `seed` picks the instance.
    """
    builder = ENVIRONMENTS.get(name)
    if builder is None:
        raise ValueError(f"name: no environment {name!r}; there are: {', '.join(ENVIRONMENTS)}")
    known = inspect.signature(builder).parameters
    unknown = [option for option in options if option not in known]
    if unknown:
        raise TypeError(f"{name}: no option {unknown[0]!r}; its options are: {', '.join(known)}")
    hints = get_type_hints(builder)
    for option, value in options.items():
        _check_kind(option, value, hints[option])
    return builder(**options)


def _check_kind(option: str, value: Any, hint: Any) -> None:
    """Whole numbers, numbers, yes or no, and texts are what their builder says they are."""
    kinds = get_args(hint) or (hint,)
    if any(kind not in _KINDS for kind in kinds):
        return  # the builder's own to check
    if not any(_KINDS[kind][1](value) for kind in kinds):
        wanted = " or ".join(_KINDS[kind][0] for kind in kinds if kind is not type(None))
        raise ValueError(f"{option}: {value!r:.80} is not {wanted}")
    if option == "seed":
        check_seed(value)


def open_world(name: str, **options: Any) -> BlockMDP | GymTarget:
    """An environment of ours by name, or any Gymnasium environment as gym:ID, wrapped."""
    if not name.startswith(GYM):
        return make(name, **options)
    from tasid.targets.gym.wrap import wrap

    return wrap(name.removeprefix(GYM), **options)
