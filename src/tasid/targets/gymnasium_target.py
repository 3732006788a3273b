"""`wrap`: any Gymnasium environment with Discrete actions as a target.

An episode is `env.reset(seed=…)` with a seed below 2³¹ derived from its key, then one `env.step`
per action. After termination its last observation repeats, rewards are 0 and the environment is
left alone until its next `reset`. Truncation before the horizon is an error: such an episode is
neither over nor whole. An episode whose environment raised is played again from the start.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from traceback import walk_tb
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from tasid.keys import Keys
from tasid.simulator import is_integer
from tasid.targets.base import Target
from tasid.targets.spaces import MIN_PICTURE, Encoder, ObservationError, encoder, sample_space

if TYPE_CHECKING:
    from tasid.simulator import AbstractSimulator
    from tasid.targets.block import Latent

Env = gymnasium.Env[Any, Any]

RENDERED_PIXELS = 64
"""Longer side to which rendered pictures are reduced unless `resize` is given."""


def wrap(
    env: Env | Callable[[], Env] | str,
    num_envs: int | None = None,
    *,
    horizon: int | None = None,
    observe: str = "observation",
    preprocess: Callable[[Any], Any] | None = None,
    resize: int | tuple[int, int] | None = None,
    workers: str | None = None,
    retries: int = 2,
    cluster: str | None = None,
    envs_per_actor: int = 1,
    **options: Any,
) -> GymTarget:
    """Oracle access to a Gymnasium environment with Discrete actions.

    Parameters
    ----------
    env
        An id (also gym:ID), a function that makes environments, or an environment.
    num_envs
        Number of environments; 8 by default, 1 if `env` is an environment.
    horizon
        Actions per episode; by default the environment's step limit, then the map's horizon.
    observe
        "observation", or "render" for the picture that `render()` returns.
    preprocess
        Function from raw observations to arrays of one shape, applied first.
    resize
        Pixels or (rows, columns) to which pictures are reduced by averaging. Rendered pictures are
        reduced to 64 pixels along the longer side by default.
    workers
        None: environments in this process; "ray": in processes of their own, actors of a Ray
        cluster or of this machine, which play whole episodes.
    retries
        How often an episode is played again whose environment raised.
    cluster
        Ray's address, HOST:PORT or "auto"; None uses the program's own connection or starts a
        cluster on this machine.
    envs_per_actor
        Environments in each Ray actor, which is how many of its episodes advance together.
    **options
        Passed to `gymnasium.make`, for an id.
    """
    workers = workers or None
    single = isinstance(env, gymnasium.Env)
    num_envs = (1 if single else 8) if num_envs is None else num_envs
    for name, value, valid, expected in (
        ("observe", observe, observe in ("observation", "render"), "'observation' or 'render'"),
        ("workers", workers, workers in (None, "ray"), "None or 'ray'"),
        ("num_envs", num_envs, _is_whole(num_envs, least=1), "a positive integer"),
        ("envs_per_actor", envs_per_actor, _is_whole(envs_per_actor, least=1), "positive"),
        ("retries", retries, _is_whole(retries, least=0), "0, 1, 2, …"),
    ):
        if not valid:
            raise ValueError(f"{name}: {value!r} is not {expected}")
    if single and (num_envs > 1 or workers is not None):
        raise ValueError(
            f"num_envs: {num_envs} (workers={workers!r}), but env is a single environment; pass a "
            "function that makes environments, or an id"
        )
    make, first = _first(env, observe, options, horizon)
    if not isinstance(first.action_space, spaces.Discrete):
        raise ValueError(
            f"env: its action space is {first.action_space}; maps have Discrete actions, so wrap "
            "it in a gymnasium.ActionWrapper with a Discrete action_space"
        )
    rendered, start = observe == "render", int(first.action_space.start)
    lane = Lane(make, _encoder(first, preprocess, observe, resize), start, rendered, not single)
    lanes = [replace(lane) for _ in range(num_envs)]
    if workers == "ray":
        lanes = lanes[:envs_per_actor]
        first.close()
    else:  # environments that are made already are used
        lanes[0] = replace(lane, env=first)
        if num_envs > 1 and not isinstance(env, str):
            lanes[1] = replace(lane, env=(second := make()))
            if second.unwrapped is first.unwrapped:
                raise ValueError(
                    "env: the function returned the same environment twice; it must make a new one "
                    "every time (or pass the environment itself)"
                )
    limit = None if first.spec is None else first.spec.max_episode_steps
    target = GymTarget(
        lane=lane,
        lanes=lanes,
        name=str(getattr(env, "__name__", env)).removeprefix("gym:"),
        num_actions=int(first.action_space.n),
        limit=getattr(first.unwrapped, "horizon", None) if limit is None else limit,
        retries=retries,
        environment=_record(env, options, observe, resize) if preprocess is None else None,
    )
    target = target.with_horizon(target.limit or 0 if horizon is None else horizon)
    if workers == "ray":
        from tasid.targets.ray import Actors

        target.cluster = Actors(copy.copy(target), -(-num_envs // envs_per_actor), cluster)
    return target


class GymTarget(Target):
    """Oracle access to a Gymnasium environment, made by `wrap`.

    Close it, or use it in a `with` block, if its environments hold resources.

    Attributes
    ----------
    limit
        Steps after which the environment truncates episodes, if that is known.
    horizon
        Actions per episode; 0 if neither `wrap` nor the environment says.
    width
        Equal to `num_envs`: in full batches no lane is idle.
    """

    ends_early = True

    def __init__(
        self,
        *,
        lane: Lane,
        lanes: Sequence[Lane],
        name: str,
        num_actions: int,
        limit: int | None,
        retries: int,
        environment: Mapping[str, Any] | None,
    ) -> None:
        self.lanes, self.name, self.limit, self.horizon = lanes, name, limit, 0
        self.num_actions, self.retries, self.environment = num_actions, retries, environment
        self.num_envs = self.width = len(lanes)
        self.observe, self.make_env = lane.encoder, lane.factory
        self.observation_shape, self.observation_dtype = lane.encoder.shape, lane.encoder.dtype

    def with_horizon(self, horizon: int) -> GymTarget:
        if horizon == self.horizon:
            return self
        if not _is_whole(horizon, least=1):
            raise ValueError(f"horizon: {horizon!r} is not a positive number of steps")
        if self.limit is not None and horizon > self.limit:
            raise ValueError(
                f"horizon: {horizon}, but {self.name} truncates episodes after {self.limit} steps; "
                f"make it with max_episode_steps={horizon}"
            )
        target = copy.copy(self)
        target.horizon = horizon
        return target

    def with_log(self, path: Path) -> GymTarget:
        """The same target with the episode log in this folder, which is created if needed."""
        from tasid.storage import MANIFEST, EpisodeLog

        target = copy.copy(self)
        if (path / MANIFEST).exists():
            target.log = EpisodeLog.open(path)
        else:
            names = ("observation_shape", "observation_dtype", "horizon", "num_actions")
            target.log = EpisodeLog.create(path, {name: getattr(self, name) for name in names})
        return target

    def reset(self, keys: Keys) -> tuple[GymState, NDArray[Any]]:
        n = len(keys)
        if n > len(self.lanes):
            raise ValueError(
                f"keys: {n} episodes at a time in {len(self.lanes)} environments; wrap with "
                f"num_envs={n}"
            )
        observations = np.zeros((n, *self.observation_shape), self.observation_dtype)
        state = GymState(episode_seeds(keys), observations, np.ones(n, bool))
        self._ask(state, "reset", state.seeds, 0)
        return state, state.observations.copy()

    def step(
        self, state: GymState, actions: NDArray[np.int32], h: int, keys: Keys
    ) -> tuple[GymState, NDArray[Any], NDArray[np.float32], NDArray[np.bool_]]:
        rewards = self._ask(state, "step", actions, h + 1)
        return state, state.observations.copy(), rewards, ~state.running

    def failures(self, state: GymState) -> Mapping[int, str]:
        return state.failures

    def _ask(
        self, state: GymState, method: str, arguments: NDArray[Any], steps: int
    ) -> NDArray[np.float32]:
        """Ask the environments of running episodes one after the other; returns rewards [n]."""
        rewards = np.zeros(len(state.seeds), np.float32)
        for i in np.flatnonzero(state.running).tolist():
            where = f"after {steps} steps of the episode with seed {state.seeds[i]}"
            try:
                answer = self.lanes[i].ask(method, int(arguments[i]))
            except ObservationError as error:
                raise ValueError(f"{self.name}: {where}, {method}: {error}") from None
            except (Exception, SystemExit) as error:
                self.lanes[i].renew()
                state.failures[i] = f"{where}, {method}: {describe(error)}"
                state.running[i] = False
                continue
            state.observations[i], rewards[i], terminated, truncated = answer
            state.running[i] = not (terminated or truncated)
            if truncated and not terminated and steps < self.horizon:
                raise ValueError(
                    f"{self.name}: truncated before the horizon: {where}, but horizon="
                    f"{self.horizon}; raise the environment's limit (max_episode_steps="
                    f"{self.horizon}), or shorten the map's horizon"
                )
        return rewards

    def latent_on(self, simulator: AbstractSimulator) -> Latent | None:
        """The dynamics of a toy-text environment, if its table `P` gives this very map."""
        from tasid.planning import PerturbedMDP
        from tasid.targets.block import Latent

        env = self.make_env()
        if not isinstance(getattr(env.unwrapped, "P", None), dict):
            return None
        true, intended = (
            type(simulator).from_toy_text(env, horizon=simulator.horizon, **options)
            for options in ({}, {"deterministic": "most-likely"})
        )
        if not (true.same_tables(simulator) or intended.same_tables(simulator)):
            return None
        actions = np.eye(self.num_actions)
        return Latent(PerturbedMDP(true, np.tile(actions, (true.num_states, 1, 1))))

    def close(self) -> None:
        """Close all environments."""
        for lane in self.lanes:
            lane.close()
        if self.cluster is not None:
            self.cluster.close()

    def __enter__(self) -> GymTarget:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(eq=False)
class Lane:
    """An environment in which episodes are played one after the other."""

    factory: Callable[[], Env]
    encoder: Encoder
    first_action: int
    rendered: bool
    """Are observations pictures by `render()`?"""
    renewable: bool
    """Does the factory make new environments, or return the same one?"""
    env: Env | None = None
    """Created when first needed if None."""

    def ask(self, method: str, argument: int) -> tuple[NDArray[Any], float, bool, bool]:
        """`reset` with a seed or `step` with an action: observation, reward, ends."""
        if self.env is None:
            self.env = self.factory()
        reward: Any = 0.0
        terminated = truncated = False
        if method == "reset":
            raw, _ = self.env.reset(seed=argument)
        else:
            raw, reward, terminated, truncated, _ = self.env.step(argument + self.first_action)
        if self.rendered:
            raw = self.env.render()
        if not math.isfinite(reward):
            raise ObservationError(f"reward: {reward!r} is not a finite number")
        return self.encoder(raw), float(reward), bool(terminated), bool(truncated)

    def renew(self) -> None:
        """After an exception: close the environment if a new one can be made."""
        if self.renewable:
            self.close()

    def close(self) -> None:
        """Close the environment; the next request creates a new one."""
        if self.env is not None:
            with suppress(Exception, SystemExit):  # it may be broken already
                self.env.close()
        self.env = None


@dataclass
class GymState:
    """A batch of episodes in progress, [n] each."""

    seeds: NDArray[np.int64]
    observations: NDArray[Any]
    running: NDArray[np.bool_]
    failures: dict[int, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.seeds)


def episode_seeds(keys: Keys) -> NDArray[np.int64]:
    """A seed below 2³¹ for every key, because some environments refuse larger ones."""
    seeds: NDArray[np.int64] = np.bitwise_xor.reduce(keys, axis=-1).astype(np.int64) & 0x7FFFFFFF
    return seeds


def _is_whole(number: Any, *, least: int) -> bool:
    return is_integer(number) and least <= number <= 10_000


def _first(
    env: Any, observe: str, options: Mapping[str, Any], horizon: int | None
) -> tuple[Callable[[], Env], Env]:
    """The function that makes environments, and a first environment."""
    make, what = env, "making an environment"
    if isinstance(env, str):
        what = name = env.removeprefix("gym:")
        render = {"render_mode": "rgb_array"} if observe == "render" else {}
        own = {"horizon": horizon} if name.startswith("tasid/") and horizon is not None else {}
        make = partial(gymnasium.make, name, **{**render, **options, **own})
    elif options:
        raise TypeError(f"{next(iter(options))}: only an id takes options; env is made already")
    elif isinstance(env, gymnasium.Env):
        return lambda: env, env
    elif not callable(env):
        raise TypeError(
            f"env: {type(env).__name__} is neither a gymnasium.Env, nor an id, nor a function that "
            "makes environments"
        )
    try:
        first = make()
    except (Exception, SystemExit) as error:
        raise ValueError(f"env: {what} failed: {describe(error)}") from error
    if not isinstance(first, gymnasium.Env):
        raise TypeError(f"env: the function returned {type(first).__name__}, not a gymnasium.Env")
    # The spec carries registrations of this program into other processes.
    spec: Any = first.spec
    return partial(gymnasium.make, spec) if isinstance(env, str) else make, first


def _encoder(
    env: Env,
    preprocess: Callable[[Any], Any] | None,
    observe: str,
    resize: int | tuple[int, int] | None,
) -> Encoder:
    """The encoder of the observation space; without a declared space, of a first observation."""
    if observe == "observation" and preprocess is None:
        return encoder(env.observation_space, resize=resize)
    if observe == "render" and env.render_mode != "rgb_array":
        raise ValueError(
            f"observe: 'render', but the environment has render_mode={env.render_mode!r}; make it "
            "with render_mode='rgb_array'"
        )
    try:
        raw, _ = env.reset(seed=0)
        raw = env.render() if observe == "render" else raw
        sample = raw if preprocess is None else preprocess(raw)
    except (Exception, SystemExit) as error:
        raise ValueError(f"env: its first observation failed: {describe(error)}") from error
    space = sample_space(sample, "render" if preprocess is None else "preprocess")
    scale = RENDERED_PIXELS / max((*space.shape[:2], 1))
    if preprocess is None and resize is None and scale < 1:
        rows, columns = (max(round(n * scale), MIN_PICTURE) for n in space.shape[:2])
        resize = (rows, columns)
    return encoder(space, preprocess=preprocess, resize=resize)


def _record(
    env: Any, options: Mapping[str, Any], observe: str, resize: Any
) -> dict[str, Any] | None:
    """Name and options that build the target again, if they can be stored as JSON."""
    if not isinstance(env, str):
        return None
    render = {"observe": observe} if observe == "render" else {}
    size = {} if resize is None else {"resize": resize}
    try:
        stored = json.loads(json.dumps({**options, **render, **size}, allow_nan=False))
    except (TypeError, ValueError):
        return None
    return {"name": f"gym:{env.removeprefix('gym:')}", "options": stored}


def describe(error: BaseException) -> str:
    """Type, message and innermost line of user code of an exception."""
    message = f"{type(error).__name__}: {error}"
    for frame, line in reversed(list(walk_tb(error.__traceback__))):
        file = Path(frame.f_code.co_filename)
        library = "site-packages" in file.parts or file.is_relative_to(Path(__file__).parents[1])
        if file.is_file() and not library:
            return f"{message} ({file.name}, line {line})"
    return message
