"""Environments of ours by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tasid.envs import building, combination_lock, lava_crossing
from tasid.envs.block import BlockMDP

if TYPE_CHECKING:
    from tasid.envs.gym_target import GymTarget

GYM = "gym:"
"""Names of Gymnasium environments begin with this where names of ours may stand, too."""

ENVIRONMENTS: dict[str, Callable[..., BlockMDP]] = {
    combination_lock.NAME: combination_lock.combination_lock,
    lava_crossing.NAME: lava_crossing.lava_crossing,
    building.NAME: building.building,
}


def make(name: str, **options: Any) -> BlockMDP:
    """Build an environment by name; `options` are its builder's, `seed` picks the instance."""
    builder = ENVIRONMENTS.get(name)
    if builder is None:
        raise ValueError(f"name: no environment {name!r}; there are: {', '.join(ENVIRONMENTS)}")
    known = inspect.signature(builder).parameters
    unknown = [option for option in options if option not in known]
    if unknown:
        raise TypeError(f"{name}: no option {unknown[0]!r}; its options are: {', '.join(known)}")
    return builder(**options)


def open_world(name: str, **options: Any) -> BlockMDP | GymTarget:
    """An environment of ours by name, or any Gymnasium environment as gym:ID, wrapped."""
    if not name.startswith(GYM):
        return make(name, **options)
    from tasid.envs.gym_wrap import wrap

    return wrap(name.removeprefix(GYM), **options)
