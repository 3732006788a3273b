"""The one loop that makes episodes.

Episodes advance together in batches. A target that asks a real environment may have a log, and its
episodes may fail. Logged episodes are read instead of played; failed ones are played again from the
start. An episode then keeps its lane in a batch of the same width, and the lanes of the others are
idle: the policy computes the same bits as in a run without interruption.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tasid.episodes import Episodes
from tasid.keys import Keys, fold_in, uniforms
from tasid.policy import Policy
from tasid.targets.base import State, Target

if TYPE_CHECKING:
    from tasid.storage import EpisodeLog

EXPLORATION_STREAM = 1 << 28
"""Under an episode's key: the draws that decide where it explores."""

Trace = Callable[[State, Any, int], Any]


class EpisodeError(ValueError):
    """An episode failed more often than the target retries."""


class Batch(NamedTuple):
    """Episodes that advance together."""

    rows: NDArray[np.intp]
    """Their numbers among the episodes of the call, [n]."""
    lanes: NDArray[np.intp]
    """Positions in the batch that are played; the others are idle."""
    keys: Keys
    overrides: NDArray[np.int32]
    keep_from: int
    trace: Trace | None
    width: int


def rollout(
    target: Target,
    policy: Policy,
    keys: Keys,
    *,
    overrides: NDArray[np.int32] | None = None,
    steps: int | None = None,
    keep_from: int = 0,
    trace: Trace | None = None,
    width: int | None = None,
) -> Episodes:
    """Episodes of a policy, one per key.

    Parameters
    ----------
    target, policy
        Who reacts and who acts.
    keys
        One key per episode, [N, 2] (`tasid.keys.episode_keys`).
    overrides
        Actions [N, H] that are executed instead of the policy's; −1 where the policy chooses. The
        policy learns of them by `Policy.override`.
    steps
        Stop after this many steps; the horizon if None.
    keep_from
        Keep the observations from this step on; with more than `steps`, keep none.
    trace
        Called as `trace(state, memory, h)` after the policy acted at step h; what it returns, an
        array [n, …] or a tuple of them, is stacked into `Episodes.trace`. The log is not used then.
    width
        Episodes that advance together; `target.width` if None, at most `target.num_envs`.
    """
    steps = target.horizon if steps is None else steps
    if overrides is None:
        overrides = np.full((len(keys), steps), -1, np.int32)
    overrides = overrides[:, :steps]
    width = target.width if width is None else width
    width = width if target.num_envs is None else min(width, target.num_envs)
    log = target.log if trace is None else None
    ids = [(int(first), int(second)) for first, second in keys] if log is not None else []
    logged = np.zeros(len(keys), bool)
    rows: list[NDArray[np.intp]] = []
    parts: list[Episodes] = []
    if log is not None and not log.rows.keys().isdisjoint(ids):
        logged = np.array([episode in log.rows for episode in ids])
        rows.append(np.flatnonzero(logged))
        parts.append(_read(log, [ids[row] for row in rows[0]], overrides[logged], keep_from))
    batches = []
    for first in range(0, len(keys), width):
        here = np.arange(first, min(first + width, len(keys)))
        lanes = np.flatnonzero(~logged[here])
        if len(lanes):
            batch = Batch(here, lanes, keys[here], overrides[here], keep_from, trace, width)
            batches.append(batch)
    play = play_batches if target.cluster is None else target.cluster.play_batches
    for played, episodes in play(target, policy, batches):
        if log is not None:
            log.append(episodes, [ids[row] for row in played])
        rows.append(played)
        parts.append(episodes)
    order = np.concatenate(rows)
    everything = Episodes.concatenate(parts)
    return everything if (np.diff(order) > 0).all() else everything[np.argsort(order)]


def _read(
    log: EpisodeLog, ids: Sequence[tuple[int, int]], overrides: NDArray[np.int32], keep_from: int
) -> Episodes:
    """Logged episodes, which must match the request."""
    episodes = log.get(ids)
    steps = overrides.shape[1]
    frames = max(steps + 1 - keep_from, 0)
    kept = 0 if episodes.observations is None else episodes.observations.shape[1]
    executed = np.arange(steps) < episodes.lengths[:, None]
    if (
        (episodes.horizon, kept) != (steps, frames)
        or (episodes.explored != ((overrides >= 0) & executed)).any()
        or (episodes.actions != overrides)[episodes.explored].any()
    ):
        raise ValueError(
            f"{log.path}: its episodes were played with other settings; resume with the settings "
            "of the first run, or choose another folder"
        )
    return episodes


def play_batches(
    target: Target, policy: Policy, batches: Sequence[Batch]
) -> Iterator[tuple[NDArray[np.intp], Episodes]]:
    """Play batches in this process; yields row numbers and whole episodes as they finish.

    Episodes that have ended are yielded even if the batch is interrupted.
    """
    for batch in batches:
        lanes, attempts = batch.lanes, Counter[int]()
        while len(lanes):
            episodes, finished, failures, interruption = _play(target, policy, batch, lanes)
            if len(finished):
                all_finished = len(finished) == len(episodes)
                yield batch.rows[finished], episodes if all_finished else episodes[finished]
            if interruption is not None:
                raise interruption
            for lane, cause in failures.items():
                attempts[lane] += 1
                if attempts[lane] > target.retries:
                    raise EpisodeError(
                        f"env: an episode failed {attempts[lane]} times, last {cause}"
                    )
            lanes = np.array(list(failures), np.intp)


def _play(
    target: Target, policy: Policy, batch: Batch, lanes: NDArray[np.intp]
) -> tuple[Episodes, NDArray[np.intp], Mapping[int, str], BaseException | None]:
    """Play some lanes of a batch; JAX targets are padded to the full width and compile once.

    Returns all episodes, the lanes that hold whole ones, the lanes that have to be played again and
    why, and what interrupted.
    """
    n, steps = batch.overrides.shape
    keys, overrides = batch.keys, batch.overrides
    if n < batch.width and target.pads_batches:
        lanes = np.arange(batch.width)
        keys, overrides = (table[np.minimum(lanes, n - 1)] for table in (keys, overrides))
    padded, keep_from = len(keys), batch.keep_from

    def spread(values: NDArray[Any]) -> NDArray[Any]:
        if len(lanes) == padded:
            return values
        table = np.zeros((padded, *values.shape[1:]), values.dtype)
        table[lanes] = values
        return table

    state, observed = target.reset(keys[lanes])
    memory, observations = policy.init(padded), spread(observed)
    frames = max(steps + 1 - keep_from, 0)
    kept = np.empty((padded, frames, *observations.shape[1:]), observations.dtype)
    actions = np.zeros((padded, steps), np.int32)
    rewards = np.zeros((padded, steps), np.float32)
    lengths = np.full(padded, steps, np.int32)
    running = spread(np.ones(len(lanes), bool))
    traced: list[Any] = []
    h, interruption = 0, None
    try:
        while h < steps and (running.any() or batch.trace is not None):
            if h >= keep_from:
                kept[:, h - keep_from] = observations
            memory, chosen = policy.act(memory, observations, h)
            if (overrides[:, h] >= 0).any():
                chosen = np.where(overrides[:, h] >= 0, overrides[:, h], chosen).astype(np.int32)
                memory = policy.override(memory, chosen)
            if batch.trace is not None:
                traced.append(batch.trace(state, memory, h))
            state, observed, reward, done = target.step(state, chosen[lanes], h, keys[lanes])
            observations = spread(observed)
            actions[:, h] = np.where(running, chosen, 0)
            rewards[:, h] = np.where(running, spread(reward), 0)
            lengths[running & spread(done)] = h + 1
            running = running & ~spread(done)
            h += 1
    except BaseException as error:  # Ctrl-C too: episodes that have ended are not lost
        interruption = error
    kept[:, max(h - keep_from, 0) :] = observations[:, None]
    failures = {int(lanes[i]): cause for i, cause in target.failures(state).items()}
    finished = lanes[lanes < n] if interruption is None else lanes[~running[lanes]]
    episodes = Episodes(
        observations=kept[:n] if frames else None,
        actions=actions[:n],
        rewards=rewards[:n],
        lengths=lengths[:n],
        explored=((overrides >= 0) & (np.arange(steps) < lengths[:, None]))[:n],
        trace=_stacked(traced, n),
    )
    whole = np.array([lane for lane in finished if lane not in failures], np.intp)
    return episodes, whole, failures, interruption


def _stacked(traced: list[Any], n: int) -> Any:
    if not traced:
        return None
    if not isinstance(traced[0], tuple):
        return np.stack([np.asarray(values) for values in traced], axis=1)[:n]
    columns = zip(*traced, strict=True)
    return tuple(np.stack([np.asarray(v) for v in column], axis=1)[:n] for column in columns)


def exploration(keys: Keys, rate: float, num_actions: int, steps: int) -> NDArray[np.int32]:
    """Overrides [N, steps]: a uniformly random action with probability `rate`, else −1."""
    draws = uniforms(fold_in(keys, EXPLORATION_STREAM), steps)
    actions = (draws[..., 1] * num_actions).astype(np.int32)
    return np.where(draws[..., 0] < rate, actions, np.int32(-1))
