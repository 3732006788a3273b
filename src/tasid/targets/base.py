"""Targets: oracle access to an environment, and nothing more.

A learner starts episodes, acts, observes and collects rewards. The state that a target carries from
step to step is opaque to the learner. Everything random in an episode derives from its key
(`tasid.keys`).
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tasid.keys import Keys

if TYPE_CHECKING:
    import jax

    from tasid.simulator import AbstractSimulator
    from tasid.storage import EpisodeLog
    from tasid.targets.block import Latent

State = Any


class Target(abc.ABC):
    """A batch of episodes that advance together."""

    num_actions: int
    horizon: int
    observation_shape: tuple[int, ...]
    observation_dtype: str
    ends_early: bool = False
    """May episodes end before the horizon?"""
    simulator: AbstractSimulator | None = None
    """The map that comes with the target, if any."""
    environment: Mapping[str, Any] | None = None
    """Name and options that build the target again, if it can be built again."""
    width: int = 32
    """How many episodes advance together in learning."""
    pads_batches: bool = False
    """Are smaller batches padded to the full width?"""
    num_envs: int | None = None
    """Most episodes that can advance together; None if there is no limit."""
    retries: int = 0
    """How often a failed episode is played again."""
    log: EpisodeLog | None = None
    """Where `rollout` appends finished episodes, and reads them instead of playing them again."""
    cluster: Any = None
    """Plays batches in other processes (`tasid.targets.ray.Actors`), if not None."""

    def __repr__(self) -> str:
        where = (self.environment or {}).get("name")
        return (
            f"{type(self).__name__}(environment={where!r}, horizon={self.horizon}, "
            f"num_actions={self.num_actions}, observation_shape={self.observation_shape})"
        )

    @abc.abstractmethod
    def reset(self, keys: Keys) -> tuple[State, NDArray[Any]]:
        """Start one episode per key [n, 2]; returns the first observations [n, …]."""

    @abc.abstractmethod
    def step(
        self, state: State, actions: NDArray[np.int32], h: int, keys: Keys
    ) -> tuple[State, NDArray[Any], NDArray[np.float32], NDArray[np.bool_]]:
        """Take actions [n] at step h; returns observations [n, …], rewards [n], done [n]."""

    def failures(self, state: State) -> Mapping[int, str]:
        """Why episodes are unusable and must be played again, by position in the batch."""
        return {}

    def with_horizon(self, horizon: int) -> Target:
        """The same target with episodes of `horizon` steps; itself if that is fixed."""
        return self

    def with_log(self, path: Path) -> Target:
        """The same target with an episode log, where episodes cannot be generated again."""
        return self

    def latent_on(self, simulator: AbstractSimulator) -> Latent | None:
        """The true dynamics on the states of this map, where they are known: evaluation only."""
        return None


class JaxTarget(Target):
    """A target whose episodes advance in compiled JAX.

    A subclass is a registered pytree with pure functions `initial(keys)` and `transition(state,
    actions, h, keys)`, whose keys are JAX's; `reset` and `step` compile them once for every batch
    width.
    """

    pads_batches = True

    @abc.abstractmethod
    def initial(self, keys: jax.Array) -> tuple[State, jax.Array]:
        """Traceable `reset`."""

    @abc.abstractmethod
    def transition(
        self, state: State, actions: jax.Array, h: jax.Array, keys: jax.Array
    ) -> tuple[State, jax.Array, jax.Array]:
        """Traceable `step`: state, observations and rewards. Episodes last for all H steps."""

    def reset(self, keys: Keys) -> tuple[State, NDArray[Any]]:
        state, observations = compiled("initial")(self, keys)
        return state, np.asarray(observations)

    def step(
        self, state: State, actions: NDArray[np.int32], h: int, keys: Keys
    ) -> tuple[State, NDArray[Any], NDArray[np.float32], NDArray[np.bool_]]:
        state, observations, rewards = compiled("transition")(
            self, state, actions, np.int32(h), keys
        )
        return (
            state,
            np.asarray(observations),
            np.asarray(rewards, np.float32),
            np.zeros(len(actions), bool),
        )


_PROGRAMS: dict[str, Any] = {}


def compiled(name: str) -> Any:
    """`target.name(…)` under `jax.jit`, one function for targets of every type."""
    if name not in _PROGRAMS:
        import jax

        def program(target: JaxTarget, *inputs: Any) -> Any:
            *rest, data = inputs
            keys = jax.random.wrap_key_data(data, impl="threefry2x32")
            return getattr(target, name)(*rest, keys)

        _PROGRAMS[name] = jax.jit(program)
    return _PROGRAMS[name]


def stream(keys: Any, number: Any) -> Any:
    """Independent keys [n], one for each key of a batch; for use inside compiled code."""
    import jax
    import jax.numpy as jnp

    return jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys, jnp.uint32(number))
