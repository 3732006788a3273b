"""Whole episodes, played by a policy with a little exploration, kept as they came."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tasid.beliefs.actor import LANES, Carried
from tasid.beliefs.chain import Chain
from tasid.beliefs.episodes import Episodes, payment_numbers
from tasid.beliefs.features import AsSeen, FeatureMap
from tasid.targets.batches import episode_tables
from tasid.targets.device import on_device
from tasid.targets.rollout import Actor, Moment, trace
from tasid.targets.streams import ACTING, BATCH
from tasid.targets.target import Target, keys_of_phase, stream, unfinished

if TYPE_CHECKING:
    from jaxtyping import Bool, Float32, Int32, Shaped

CHUNK = 64
"""How many episodes are smoothed at a time."""


class Recorded(NamedTuple):
    """Episodes as they came, NumPy, episodes first."""

    observations: Shaped[np.ndarray, "N H+1 *x"]
    """x_0 … x_H, [N, H+1, …]; repeated after an end."""
    commands: Int32[np.ndarray, "N H"]
    """[N, H]."""
    rewards: Float32[np.ndarray, "N H"]
    """[N, H]."""
    ended: Int32[np.ndarray, " N"]
    """The number of steps after which the target ended the episode, [N]; H if it did not."""
    own: Bool[np.ndarray, "N H"]
    """Was the command the policy's own choice? [N, H]"""

    @property
    def returns(self) -> NDArray[np.float64]:
        """[N]."""
        return self.rewards.sum(axis=1, dtype=np.float64)

    @property
    def longest_repetition(self) -> int:
        """How often at most an observation was the one before, to the last bit."""
        seen, longest = self.observations, 0
        run = np.zeros(self.number, np.int64)
        for h in range(1, seen.shape[1]):
            same = (seen[:, h] == seen[:, h - 1]).reshape(self.number, -1).all(axis=1)
            run = np.where(same & (h <= self.ended), run + 1, 0)
            longest = max(longest, int(run.max(initial=0)))
        return longest

    def rows(self, which: slice | NDArray[Any]) -> Recorded:
        """Some of the episodes."""
        tables: list[Any] = [table[which] for table in self]
        return Recorded(*tables)

    @property
    def number(self) -> int:
        """N."""
        return len(self.commands)


def joined(parts: Sequence[Recorded]) -> Recorded:
    """All episodes one after the other."""
    return Recorded(*(np.concatenate(column) for column in zip(*parts, strict=True)))


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["inner", "keys", "explore"],
    meta_fields=["num_actions"],
)
@dataclass(frozen=True)
class Exploring:
    """An actor that now and then commands a random action, and knows that it did."""

    inner: Any
    """Any actor; one that remembers its commands, as beliefs do, is told what was commanded."""
    keys: jax.Array
    explore: jax.Array
    num_actions: int

    def start(self, observations: jax.Array) -> tuple[Any, jax.Array]:
        """The inner memory, and whether the last command was the policy's own."""
        return self.inner.start(observations), jnp.ones(self.keys.shape[0], bool)

    def act(
        self, carry: tuple[Any, jax.Array], observations: jax.Array, h: jax.Array
    ) -> tuple[tuple[Any, jax.Array], jax.Array]:
        """The inner action, or an experiment."""
        inner, own = self.inner.act(carry[0], observations, h)
        drawn = jax.vmap(partial(jax.random.uniform, shape=(2,)))(stream(self.keys, ACTING + h))
        number = self.num_actions
        random = jnp.minimum((drawn[:, 1] * number).astype(jnp.int32), number - 1)
        tried = drawn[:, 0] < self.explore
        actions = jnp.where(tried, random, own)
        if isinstance(inner, Carried):
            inner = inner._replace(commands=inner.commands.at[: actions.shape[0]].set(actions))
        return (inner, ~tried), actions


def play(
    target: Target,
    actor: Actor,
    key: jax.Array,
    *,
    first: int,
    episodes: int,
    explore: float,
    phase: int = BATCH,
) -> Recorded:
    """Episodes number `first` … of a phase."""
    arguments = actor, jax.random.fold_in(key, phase), np.float32(explore), np.int32(first)
    table = episode_tables(target, _whole, *arguments, episodes=episodes, width=LANES)
    return _recorded(table, target.horizon)


def _whole(
    target: Any, actor: Actor, phase_key: jax.Array, explore: Any, start: Any, first: Any
) -> Any:
    """Tables [W, …] of whole episodes."""
    keys = keys_of_phase(phase_key, start + first + jnp.arange(LANES))
    exploring = Exploring(actor, keys, jnp.asarray(explore, jnp.float32), target.num_actions)

    def record(before: Moment, actions: jax.Array, after: Moment, h: jax.Array) -> Any:
        live = unfinished(target, after.state, LANES)
        reward = after.returns - before.returns
        return before.observations, actions, reward, live, after.carry[1]

    last, (seen, actions, rewards, live, own) = trace(target, exploring, keys, record=record)
    seen = jnp.concatenate([seen, last.observations[None]])
    tables = seen, actions, rewards, live, own
    return tuple(jnp.swapaxes(table, 0, 1) for table in tables)


def _recorded(table: Any, horizon: int) -> Recorded:
    seen, actions, rewards, live, own = table
    ended = np.where(live.all(axis=1), horizon, live.argmin(axis=1) + 1)
    return Recorded(
        seen,
        actions.astype(np.int32),
        rewards.astype(np.float32),
        ended.astype(np.int32),
        own.astype(bool),
    )


def as_chunks(
    recorded: Recorded, chain: Chain, feature_map: FeatureMap | AsSeen, *, tells: bool
) -> list[Episodes]:
    """What the smoother reads, in chunks of one width."""
    return [
        _chunk(recorded.rows(slice(first, first + CHUNK)), chain, feature_map, tells)
        for first in range(0, recorded.number, CHUNK)
    ]


def _chunk(
    recorded: Recorded, chain: Chain, feature_map: FeatureMap | AsSeen, tells: bool
) -> Episodes:
    number = recorded.number

    def padded(table: NDArray[Any]) -> NDArray[Any]:
        return np.pad(table, [(0, CHUNK - number)] + [(0, 0)] * (table.ndim - 1))

    paid = payment_numbers(recorded.rewards, np.asarray(chain.payments))
    return Episodes(
        features=_features(feature_map, on_device(padded(recorded.observations))),
        commands=on_device(padded(recorded.commands).T),
        paid=on_device(padded(paid).T),
        ended=on_device(padded(recorded.ended)),
        tells=on_device(tells),
        own=on_device(padded(recorded.own).T, np.float32),
        weight=on_device(padded(np.ones(number, np.float32))),
    )


@jax.jit
def _features(feature_map: FeatureMap | AsSeen, observations: jax.Array) -> jax.Array:
    return feature_map.whole(observations)
