"""`tasid.wrap`: any Gymnasium environment with Discrete actions as a target."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from tasid.maps.size import is_whole
from tasid.maps.sources.by_name import GYM, make_by_id
from tasid.targets.gym.lane import LaneMaker
from tasid.targets.gym.lanes import Lanes
from tasid.targets.gym.spaces import SMALLEST_PICTURE, Encoding, encoding_of, space_of
from tasid.targets.gym.target import GymTarget, check_horizon

_LANES = 8
"""How many environments a factory makes unless told otherwise."""
_MOST = 10_000
"""Environments side by side, and retries."""
_RETRIES = 2
_RENDERED = 64
"""Pixels in a row of a rendering, at most, unless told otherwise."""
RAY = "ray"
_CHOICES: dict[str, tuple[Any, ...]] = {
    "observe": ("observation", "render"),
    "workers": (True, False, RAY),
    "on_bad_observation": ("raise", "retry"),
}
_OURS = "tasid/"
"""Ids of ours begin with this; their horizon is an option of the environment, too."""

Env = gymnasium.Env[Any, Any]


def wrap(
    env: Env | Callable[[], Env] | str,
    *,
    num_envs: int | None = None,
    horizon: int | None = None,
    preprocess: Callable[[Any], Any] | None = None,
    observe: str = "observation",
    resize: int | tuple[int, int] | None = None,
    workers: bool | str = False,
    retries: int = _RETRIES,
    step_timeout: float | None = None,
    reset_timeout: float | None = None,
    on_bad_observation: str = "raise",
    reset_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> GymTarget:
    """Oracle access to any Gymnasium environment with Discrete actions.

    The data are the same whatever `num_envs` and `workers`.

    Args:
        env: An id, a function that makes environments, or a single environment.
        num_envs: How many run side by side; 8 if not given, 1 for a single environment.
        horizon: How many actions an episode takes; as many as the map says if not given.
        preprocess: Learners see what it makes of an observation.
        observe: "observation", or "render" for the picture that `render()` gives.
        resize: Scales pictures to so many pixels, or (rows, columns). What is rendered for people
            is scaled to 64 pixels in a row without being asked.
        workers: True runs environments in processes of their own; "ray" on any node of a cluster,
            the one that this program is connected to or one that is started here (docs/scale.md).
        retries: How often an episode is run again whose environment raised or, in a worker process,
            died; it is made anew before.
        step_timeout: Seconds after which a step in a worker process counts as failed.
        reset_timeout: The same for a reset, making the environment included.
        on_bad_observation: What is not finite or of another shape is an error ("raise"), or a
            reason to run the episode again ("retry").
        reset_options: Every episode begins with `env.reset(seed=…, options=reset_options)`; without
            them, `options` are not given at all.
        options: Go to `gymnasium.make`, for an id.
    """
    chosen = {"observe": observe, "workers": workers, "on_bad_observation": on_bad_observation}
    for argument, choice in chosen.items():
        if choice not in _CHOICES[argument]:
            known = ", ".join(map(str, _CHOICES[argument]))
            raise ValueError(f"{argument}: {choice!r} is none of {known}")
    if isinstance(env, str) and env.removeprefix(GYM).startswith(_OURS) and horizon is not None:
        options["horizon"] = horizon
    factory, name, single = _factory(env, observe, options)
    number = (1 if single else _LANES) if num_envs is None else num_envs
    _check_numbers(number, retries, single=single, workers=workers)
    _check_timeouts(step_timeout, reset_timeout, workers=workers)
    begins = _begins(reset_options)
    first = factory()
    if not isinstance(first, gymnasium.Env):
        raise TypeError(f"env: the factory gave {type(first).__name__}, not a gymnasium.Env")
    limit = None if first.spec is None else first.spec.max_episode_steps
    limit = getattr(first.unwrapped, "horizon", None) if limit is None else limit
    check_horizon(horizon, limit, name)
    size, start = _actions(first.action_space)
    maker = LaneMaker(
        factory,
        _encoding(first, preprocess, observe, resize, begins),
        num_actions=size,
        first_action=start,
        rendered=observe == "render",
        renewable=not single,
        begins=begins,
    )
    made = [first]
    if workers:
        made.pop().close()
    elif number > 1 and not isinstance(env, str):
        made.append(_another(factory, first))
    timeouts = {"step": step_timeout, "reset": reset_timeout}
    lanes = Lanes(maker, number, made=made, workers=workers is True, timeouts=timeouts)
    asked = {**options, "observe": observe, "resize": resize, "reset_options": reset_options}
    kept = {key: value for key, value in asked.items() if value not in (None, "observation")}
    target = GymTarget(
        lanes=lanes,
        name=name,
        limit=limit,
        horizon=horizon or limit or 0,
        retries=retries,
        environment=_record(env, kept) if preprocess is None else None,
        tolerant=on_bad_observation == "retry",
    )
    if workers == RAY:
        from tasid.targets.ray.crew import Crew

        alone = replace(target, lanes=Lanes(maker, 1))
        target.elsewhere = Crew(alone, number)
    return target


def _factory(
    env: Env | Callable[[], Env] | str, observe: str, options: dict[str, Any]
) -> tuple[Callable[[], Env], str, bool]:
    """What makes environments, what to call them, and whether there is only one."""
    if isinstance(env, str):
        name = env.removeprefix(GYM)
        made = {"render_mode": "rgb_array", **options} if observe == "render" else options
        return partial(make_by_id, name, made, argument="env"), name, False
    if options:
        raise TypeError(f"{next(iter(options))}: only an id takes options; {env!r} is made already")
    if isinstance(env, gymnasium.Env):
        return lambda: env, str(env), True
    if not callable(env):
        raise TypeError(
            f"env: {type(env).__name__} is neither an environment's id, nor a function that makes "
            "environments, nor a gymnasium.Env"
        )
    return env, getattr(env, "__name__", type(env).__name__), False


def _another(factory: Callable[[], Env], first: Env) -> Env:
    """A second environment; episodes side by side in one and the same would be mixed up."""
    second = factory()
    if second.unwrapped is first.unwrapped:
        raise ValueError(
            "env: the function gave the same environment twice; give a function that makes a new "
            "one every time, or the environment itself"
        )
    return second


def _begins(options: Any) -> dict[str, Any]:
    if options is None:
        return {}
    if not isinstance(options, Mapping) or not all(isinstance(key, str) for key in options):
        raise TypeError(f"reset_options: {options!r:.80} is not a mapping of names to values")
    return {"options": dict(options)}


def _actions(space: gymnasium.Space[Any]) -> tuple[int, int]:
    if not isinstance(space, spaces.Discrete):
        kind = "continuous actions" if isinstance(space, spaces.Box) else "several actions at once"
        raise ValueError(
            f"env: its action space is {space} ({kind}); a map has Discrete actions, so wrap it in "
            "a gymnasium.ActionWrapper with a Discrete action_space first"
        )
    return int(space.n), int(space.start)


def _encoding(
    env: Env,
    preprocess: Callable[[Any], Any] | None,
    observe: str,
    resize: int | tuple[int, int] | None,
    begins: Mapping[str, Any],
) -> Encoding:
    """Whatever no space declares is found out by looking once."""
    if observe == "observation" and preprocess is None:
        return encoding_of(env.observation_space, resize=resize)
    if observe == "render" and env.render_mode != "rgb_array":
        raise ValueError(
            f"observe: 'render', but the environment was made with render_mode={env.render_mode!r};"
            " make it with render_mode='rgb_array'"
        )
    raw, _ = env.reset(seed=0, **deepcopy(begins))
    if observe == "render":
        raw = env.render()
        if not isinstance(raw, np.ndarray):
            raise ValueError(f"observe: 'render', but render() gives {type(raw).__name__}")
        if preprocess is None and resize is None:
            resize = _smaller(raw.shape)
    shown = raw if preprocess is None else preprocess(raw)
    space = space_of(shown, "render" if preprocess is None else "preprocess")
    return encoding_of(space, preprocess=preprocess, resize=resize)


def _smaller(shape: tuple[int, ...]) -> tuple[int, int] | None:
    """What a large rendering is scaled to, its proportions kept as far as it stays a picture."""
    longer = max(shape[:2])
    if longer <= _RENDERED:
        return None
    rows, columns = (max(round(n * _RENDERED / longer), SMALLEST_PICTURE) for n in shape[:2])
    return rows, columns


def _record(env: Any, options: dict[str, Any]) -> dict[str, Any] | None:
    """How to make the target again, where that can be written down."""
    if not isinstance(env, str):
        return None
    try:
        plain = json.loads(json.dumps(options))
    except (TypeError, ValueError):
        return None
    return {"name": GYM + env.removeprefix(GYM), "options": plain}


def _check_numbers(num_envs: Any, retries: Any, *, single: bool, workers: bool | str) -> None:
    for name, number, least in (("num_envs", num_envs, 1), ("retries", retries, 0)):
        if not is_whole(number) or number < least:
            raise ValueError(f"{name}: {number!r} is not a whole number, {least} or more")
        if number > _MOST:
            raise ValueError(f"{name}: {number} is above {_MOST}")
    if single and (num_envs > 1 or workers):
        raise ValueError(
            f"num_envs: {num_envs}{' in worker processes' if workers else ''}, but a single "
            "environment was given; give a function that makes environments, or an id"
        )


def _check_timeouts(step: Any, reset: Any, *, workers: bool | str) -> None:
    for name, seconds in (("step_timeout", step), ("reset_timeout", reset)):
        if seconds is None:
            continue
        number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
        if not number or not 0 < seconds < float("inf"):
            raise ValueError(f"{name}: {seconds!r} is no number of seconds above 0")
        if workers is not True:
            raise ValueError(
                f"{name}: {seconds} without workers=True; only a process of its own can be ended"
            )
