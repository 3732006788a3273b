"""Oracle access to a target environment, and nothing more.

A learner may start episodes, act, observe and be paid. The state it carries from step to step is
opaque: latent states exist behind it, but nothing here reads them.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

State = Any
"""Whatever a target needs to go on with its episodes; never looked into by a learner."""


@runtime_checkable
class Target(Protocol):
    """A batch of episodes, advanced together.

    `traceable` targets are JAX pytrees whose methods may run inside a compiled loop. Every episode
    has a key of its own, and all randomness of the episode derives from it.

    Where episodes may end before the horizon, a method `finished(state) → bool [W]` tells: the last
    observation then repeats and nothing more is paid. Targets that are not traceable may say how
    many episodes they run at a time (`num_envs`) and what their observations are
    (`observation_dtype`); `failed(state)` gives for every episode None, or what went wrong so that
    it has to be run again, at most `retries` times; `settled(state)` is told when they are over;
    `with_horizon(H)` adapts them to a map.
    """

    @property
    def num_actions(self) -> int:
        """|A|."""

    @property
    def horizon(self) -> int:
        """H: how many actions an episode takes."""

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """The shape of one observation."""

    @property
    def traceable(self) -> bool:
        """May `reset` and `step` be traced by JAX?"""

    def reset(self, keys: jax.Array) -> tuple[State, jax.Array]:
        """Start one episode per key [W]; give the first observations [W, …]."""

    def step(
        self, state: State, actions: jax.Array, h: jax.Array, keys: jax.Array
    ) -> tuple[State, jax.Array, jax.Array]:
        """Take actions [W] at step h; give the next observations [W, …] and rewards [W]."""


class Collateral(str):
    """A trouble that another episode made: it has to be run again, and that is nobody's fault."""


class EpisodeFailed(ValueError):
    """One and the same episode went wrong again and again."""


def check_wrapped(target: Any) -> None:
    """Refuse what gives no oracle access, saying how to get it from a Gymnasium environment."""
    if hasattr(target, "num_actions"):
        return
    kind = type(target).__name__
    if hasattr(target, "action_space") or callable(target) or isinstance(target, str):
        raise TypeError(
            f"target: {kind} is not a target yet; wrap it with tasid.wrap(…), which takes a "
            "Gymnasium environment, its id, or a function that makes it"
        )
    raise TypeError(f"target: {kind} has no num_actions; a target has what tasid.Target says")


def for_horizon(target: Target, horizon: int) -> Target:
    """The target with episodes of so many steps, if it can be had."""
    check_wrapped(target)
    adapt = getattr(target, "with_horizon", None)
    return target if adapt is None or target.horizon == horizon else adapt(horizon)


def unfinished(target: Target, state: State, width: int) -> jax.Array:
    """Which episodes have not ended, bool [W]; all of them in targets that do not tell."""
    finished = getattr(target, "finished", None)
    return jnp.ones(width, bool) if finished is None else ~finished(state)


def episode_keys(seed_key: jax.Array, phase: Any, episodes: jax.Array) -> jax.Array:
    """Keys [W] that make an episode a pure function of (seed, phase, episode index)."""
    return keys_of_phase(jax.random.fold_in(seed_key, phase), episodes)


def keys_of_phase(phase_key: jax.Array, episodes: jax.Array) -> jax.Array:
    """Keys [W] of the episodes of one phase."""
    return jax.vmap(jax.random.fold_in, in_axes=(None, 0))(phase_key, episodes)


def check_seed(seed: int) -> None:
    """Refuse a seed of which JAX would not keep all bits."""
    if not 0 <= seed < 1 << 32:
        raise ValueError(f"seed: {seed} is not in 0 … {(1 << 32) - 1}")


def seed_key(seed: int | jax.Array) -> jax.Array:
    """The root key of a seed; threefry by name, so that a user's JAX defaults cannot change it."""
    if isinstance(seed, int):
        check_seed(seed)
    return jax.random.key(seed, impl="threefry2x32")


def stream(keys: jax.Array, number: Any) -> jax.Array:
    """An independent stream of every key in a batch."""
    return jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys, jnp.uint32(number))
