"""Episodes with commands fixed in advance: what can be found out before anything is learned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from tasid.targets import Target
from tasid.targets.rollout import stepper
from tasid.targets.streams import BLIND
from tasid.targets.target import episode_keys, refuse_failures, seed_key, unfinished

_WIDTH = 128


@dataclass(frozen=True, eq=False)
class BlindEpisodes:
    """Episodes that were played, [n] or [n, T]."""

    commands: NDArray[np.int64]
    rewards: NDArray[np.float64]
    ended: NDArray[np.int64]
    """After how many steps the episode was over; T + 1 if it was not."""
    seen: dict[int, NDArray[Any]]
    """The observations of the steps that were asked for, [n, …]."""


def play(
    target: Target, commands: ArrayLike, *, seed: int, first: int = 0, keep: Iterable[int] = ()
) -> BlindEpisodes:
    """Play episodes number `first`, first + 1, … with the commands [n, T]."""
    table, kept = np.asarray(commands, dtype=np.int64), sorted(set(keep))
    room = _WIDTH if target.traceable else target.num_envs or _WIDTH
    parts = [
        _wave(target, table[start : start + room], seed, first + start, kept, room)
        for start in range(0, len(table), room)
    ]
    rewards, ended, seen = zip(*parts, strict=True)
    return BlindEpisodes(
        table,
        np.concatenate(rewards),
        np.concatenate(ended),
        {h: np.concatenate([one[h] for one in seen]) for h in kept},
    )


def _wave(
    target: Target, commands: NDArray[np.int64], seed: int, first: int, kept: list[int], room: int
) -> tuple[NDArray[np.float64], NDArray[np.int64], dict[int, NDArray[Any]]]:
    number, steps = commands.shape
    # Compiled code has one width; elsewhere an episode may cost something.
    width = room if target.traceable else number
    filled = np.zeros((width, steps), dtype=np.int64)
    filled[:number] = commands
    keys = episode_keys(seed_key(seed), BLIND, first + jnp.arange(width))
    rewards = np.zeros((number, steps))
    ended = np.full(number, steps + 1)
    seen = {}
    for h, observations, paid, over in _steps(target, filled, keys):
        if h in kept:
            seen[h] = np.asarray(observations)[:number]
        if paid is not None:
            rewards[:, h - 1] = np.asarray(paid)[:number]
        ended[np.asarray(over)[:number] & (ended > steps)] = h
    return rewards, ended, seen


def _steps(
    target: Target, commands: NDArray[np.int64], keys: jax.Array
) -> Iterator[tuple[int, Any, Any, NDArray[np.bool_]]]:
    """Before the first command and after each: observations, what was paid, what is over."""
    state, observations = target.reset(keys)
    yield 0, observations, None, _over(target, state, len(commands))
    advance = stepper(target)
    for h in range(commands.shape[1]):
        actions = jnp.asarray(commands[:, h], jnp.int32)
        state, observations, paid = advance(target, state, actions, jnp.int32(h), keys)
        refuse_failures(target, state)
        yield h + 1, observations, paid, _over(target, state, len(commands))


def _over(target: Target, state: Any, width: int) -> NDArray[np.bool_]:
    return ~np.asarray(unfinished(target, state, width))
