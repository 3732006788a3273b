"""Episodes as users have them: arrays, or lists of episodes of unequal length.

What comes in is a mapping of columns (`observations`, `commands` or `actions`, `rewards`, and
perhaps `ended` and `own`), each with an entry for every episode, or a list of such mappings, one
for each episode. What goes out is whole and checked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tasid.learning.belief.episodes import Recorded
from tasid.runs.episode_log import EpisodeLog, check_size

_NEEDED = ("observations", "commands", "rewards")
_KNOWN = (*_NEEDED, "ended", "own")


def log_of_arrays(
    episodes: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    *,
    horizon: int,
    num_actions: int,
) -> EpisodeLog:
    """A log from columns of arrays, or from a list of episodes.

    An episode of T commands has T rewards and T + 1 observations. T is the horizon, unless the
    target ended the episode: then `ended` says so, True, or the number of steps after which it did.
    """
    columns = _columns(episodes)
    number = _number(columns)
    parts = [_episode(columns, i, horizon) for i in range(number)]
    shape = parts[0].observations.shape[1:]
    for i, part in enumerate(parts):
        if part.observations.shape[1:] != shape:
            raise ValueError(
                f"episodes: episode {i} has observations of shape {part.observations.shape[1:]}, "
                f"episode 0 of {shape}"
            )
    pictures = all(part.observations.dtype == np.uint8 for part in parts)
    dtype = "uint8" if pictures else "float32"
    check_size(number, horizon, shape, dtype)
    whole = Recorded(
        observations=np.empty((number, horizon + 1, *shape), dtype),
        commands=np.zeros((number, horizon), np.int32),
        rewards=np.zeros((number, horizon), np.float32),
        ended=np.array([part.ended for part in parts], np.int32),
        own=np.ones((number, horizon), np.bool_),
    )
    for i, part in enumerate(parts):
        end = part.ended
        whole.observations[i, : end + 1] = part.observations[: end + 1]
        whole.observations[i, end + 1 :] = whole.observations[i, end]  # the last one repeats
        whole.commands[i, :end] = np.clip(part.commands[:end], -1, np.iinfo(np.int32).max)
        whole.rewards[i, :end] = part.rewards[:end]
        whole.own[i, :end] = part.own[:end]
    try:
        return EpisodeLog(whole, num_actions, "ended" in columns)
    except ValueError as error:
        raise ValueError(f"episodes: {error}") from None


class _Episode(NamedTuple):
    """One of them, as it was given."""

    observations: NDArray[Any]
    commands: NDArray[Any]
    rewards: NDArray[Any]
    ended: int
    own: NDArray[Any]


def _episode(columns: Mapping[str, Any], i: int, horizon: int) -> _Episode:
    commands = _array(columns, "commands", i, kinds="iuf")
    steps = commands.shape[0]
    broken = ~np.isfinite(commands) | (commands != np.round(commands))
    if broken.any():
        h = int(broken.argmax())
        raise ValueError(
            f"episodes: episode {i}, step {h}: command {commands[h]} is no whole number"
        )
    if steps < 1 or steps > horizon:
        raise ValueError(
            f"episodes: episode {i} has {steps} commands, the horizon is {horizon} steps"
        )
    observations = _array(columns, "observations", i, kinds="biuf", dimensions=None)
    rewards = _array(columns, "rewards", i, kinds="biuf")
    own = _array(columns, "own", i, kinds="b") if "own" in columns else np.ones(steps, bool)
    for name, table, wanted in (
        ("observations", observations, steps + 1),
        ("rewards", rewards, steps),
        ("own flags", own, steps),
    ):
        if table.shape[0] != wanted:
            raise ValueError(
                f"episodes: episode {i} has {table.shape[0]} {name} for {steps} commands, must "
                f"be {wanted}" + _REMINDER * (name == "observations")
            )
    end = _end(columns.get("ended"), i, steps, horizon)
    paid = np.flatnonzero(np.nan_to_num(rewards[end:]) != 0)
    if paid.size:
        raise ValueError(
            f"episodes: episode {i}, step {end + int(paid[0])}: a reward, but the episode ended "
            f"after {end} steps"
        )
    return _Episode(observations, commands, rewards, end, own)


_REMINDER = ": the last one is what was seen after the last command"


def _columns(episodes: Any) -> dict[str, Any]:
    if isinstance(episodes, Mapping):
        return _named(episodes, "episodes")
    if isinstance(episodes, (str, bytes)) or not isinstance(episodes, Sequence):
        raise TypeError(
            f"episodes: {type(episodes).__name__} is neither a path, nor an EpisodeLog, nor a "
            "mapping of arrays, nor a list of such mappings"
        )
    if not episodes:
        raise ValueError("episodes: there are none")
    rows: list[dict[str, Any]] = []
    for i, one in enumerate(episodes):
        if not isinstance(one, Mapping):
            kind = type(one).__name__
            raise TypeError(f"episodes: episode {i} is of type {kind}, not a mapping")
        rows.append(_named(one, f"episodes: episode {i}"))
    for i, row in enumerate(rows):
        if row.keys() != rows[0].keys():
            odd = sorted(row.keys() ^ rows[0].keys())[0]
            raise ValueError(f"episodes: {odd!r} is in one of the episodes 0 and {i} only")
    return {name: [row[name] for row in rows] for name in rows[0]}


def _named(given: Mapping[str, Any], where: str) -> dict[str, Any]:
    columns = dict(given)
    if "actions" in columns and "commands" in columns:
        raise ValueError(f"{where}: 'actions' is another name for 'commands'; give one of them")
    if "actions" in columns:
        columns["commands"] = columns.pop("actions")
    for name in _NEEDED:
        if name not in columns:
            raise ValueError(
                f"{where}: no {name!r} among {', '.join(map(str, given)) or 'nothing'}"
            )
    for name in columns:
        if name not in _KNOWN:
            raise ValueError(f"{where}: {name!r} is none of {', '.join(_KNOWN)}")
    return columns


def _number(columns: Mapping[str, Any]) -> int:
    number = len(columns["commands"])
    for name, column in columns.items():
        if len(column) != number:
            raise ValueError(
                f"episodes: {name} of {len(column)} episodes, but commands of {number}"
            )
    if not number:
        raise ValueError("episodes: there are none")
    return number


def _array(
    columns: Mapping[str, Any], name: str, i: int, *, kinds: str, dimensions: int | None = 1
) -> NDArray[Any]:
    try:
        table = np.asarray(columns[name][i])
    except ValueError as error:
        raise ValueError(f"episodes: episode {i}: {name} of unequal shapes ({error})") from None
    if table.dtype.kind not in kinds:
        raise TypeError(
            f"episodes: episode {i}: {name} of {table.dtype}, which are no such numbers"
        )
    if table.ndim == 0 or (dimensions is not None and table.ndim != dimensions):
        raise ValueError(f"episodes: episode {i}: {name} of shape {table.shape}, must have steps")
    return table


def _end(column: Any, i: int, steps: int, horizon: int) -> int:
    """The number of steps after which the target ended the episode; H if it did not."""
    flag = False if column is None else column[i]
    if isinstance(flag, (bool, np.bool_)):
        if steps < horizon and not flag:
            raise ValueError(
                f"episodes: episode {i} has {steps} of {horizon} steps and no flag that it ended; "
                "give ended = True if the target ended it, and leave it out if it was broken off"
            )
        return steps if flag else horizon
    if not isinstance(flag, (int, np.integer)):
        raise TypeError(f"episodes: episode {i}: ended is {flag!r}, neither a flag nor a number")
    if not 1 <= flag <= horizon or (steps < horizon and flag > steps):
        raise ValueError(
            f"episodes: episode {i} ended after {flag} steps, but has {steps} of {horizon}"
        )
    return int(flag)
