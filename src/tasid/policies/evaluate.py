"""Scoring any policy in a target by Monte Carlo, compiled where the target allows it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tasid.beliefs.actor import BeliefActor
from tasid.maps.size import check_count
from tasid.policies.decoder import WIDTH
from tasid.targets.batches import batch_tables, episode_tables
from tasid.targets.rollout import Actor, Moment, roll, trace
from tasid.targets.streams import EVALUATION
from tasid.targets.target import State, Target, for_horizon, keys_of_phase, seed_key

if TYPE_CHECKING:
    from jaxtyping import Array, Float, Int


class Scorable(Protocol):
    """What a policy of any kind has to have."""

    @property
    def actor(self) -> Actor:
        """Acts on batches; a pytree."""

    @property
    def num_actions(self) -> int:
        """|A|."""

    @property
    def horizon(self) -> int:
        """H."""

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """The shape of one observation."""


@dataclass(frozen=True, eq=False)
class Score:
    """Returns of whole episodes."""

    returns: NDArray[np.float64]
    """One number per episode."""

    @property
    def mean(self) -> float:
        """The mean return."""
        return float(self.returns.mean())

    @property
    def ci95(self) -> tuple[float, float]:
        """A 95 % interval of the mean (normal approximation)."""
        if self.returns.size < 2:
            return (-math.inf, math.inf)
        half = 1.96 * float(self.returns.std(ddof=1)) / math.sqrt(self.returns.size)
        return (self.mean - half, self.mean + half)


def evaluate(policy: Scorable, env: Target, *, episodes: int = 10_000, seed: int = 0) -> Score:
    """Follow the policy for whole episodes; episode i is the same for any number of episodes.

    Args:
        policy: One that was learned, or anything with the members of `Scorable`.
        env: The target to score it in.
        episodes: How many.
        seed: Draws them.
    """
    if not hasattr(policy, "actor"):
        raise TypeError(f"policy: {type(policy).__name__} is none; give one that was learned")
    check_count("episodes", episodes)
    target = for_horizon(env, policy.horizon)
    check_fit(policy, target)
    return played(target, policy.actor, jax.random.fold_in(seed_key(seed), EVALUATION), episodes)


def played(target: Target, actor: Actor, phase_key: jax.Array, episodes: int) -> Score:
    """The first episodes of a phase, followed by an actor."""
    run = _run_of(target, actor)
    table = episode_tables(target, run, actor, phase_key, episodes=episodes, width=WIDTH)
    return Score(np.asarray(table.returns, np.float64))


def batch_returns(
    target: Target, actor: Actor, phase_key: jax.Array, episodes: range
) -> NDArray[np.float64]:
    """Returns of episodes that share a batch: their numbers divided by the width are the same."""
    first = episodes.start - episodes.start % WIDTH
    rows = range(episodes.start - first, episodes.stop - first)
    run = _run_of(target, actor)
    table = batch_tables(target, run, actor, phase_key, first, rows=rows, width=WIDTH)
    return np.asarray(table.returns, np.float64)


def check_fit(policy: Scorable, target: Target) -> None:
    """Refuse a target that this policy cannot act in, saying what differs."""
    for what, of_policy, of_target in (
        ("actions", policy.num_actions, target.num_actions),
        ("horizon", policy.horizon, target.horizon),
        ("observation shape", policy.observation_shape, target.observation_shape),
    ):
        if of_policy != of_target:
            raise ValueError(
                f"env: its {what} is {of_target}, but the policy was learned with {of_policy}"
            )


class Followed(NamedTuple):
    """Whole episodes of an actor."""

    returns: Float[Array, " W"]
    states: State = None
    """The target's own at every step, [W, H]; None where they are more than a number each."""
    believed: Int[Array, "W H"] | None = None
    """The likeliest state at every step, [W, H], of those who have beliefs."""


def _run_of(target: Target, actor: Actor) -> Callable[..., Followed]:
    """Where diagnoses follow beliefs, too, so do scores: it is compiled once."""
    beliefs = target.traceable and isinstance(actor, BeliefActor)
    return follow_beliefs if beliefs else _follow


def _follow(target: Any, actor: Any, phase_key: jax.Array, first: Any) -> Followed:
    keys = keys_of_phase(phase_key, first + jnp.arange(WIDTH))
    return Followed(roll(target, actor, keys, steps=target.horizon).returns)


def follow_beliefs(target: Any, actor: BeliefActor, phase_key: jax.Array, first: Any) -> Followed:
    """With the target's states, as opaque as they are, and those they were taken for."""
    keys = keys_of_phase(phase_key, first + jnp.arange(WIDTH))

    def record(before: Moment, actions: jax.Array, after: Moment, h: jax.Array) -> Any:
        plain = isinstance(before.state, jax.Array) and before.state.ndim == 1
        believed = actor.likeliest(after.carry, h)[: actions.shape[0]]
        return before.state if plain else None, believed

    last, tables = trace(target, actor, keys, record=record)
    states, believed = jax.tree.map(lambda table: jnp.swapaxes(table, 0, 1), tables)
    return Followed(last.returns, states, believed)
