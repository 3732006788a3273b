"""Oracle access to a target environment, and nothing more.

A learner may start episodes, act, observe and be paid. The state it carries from step to step is
opaque: latent states exist behind it, but nothing here reads them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from tasid.maps import AbstractSimulator
from tasid.maps.size import check_seed
from tasid.targets.device import on_device

if TYPE_CHECKING:
    from tasid.targets.block import Latent

State = Any
"""Whatever a target needs to go on with its episodes; never looked into by a learner."""


class Target:
    """A batch of episodes, advanced together: six things to say, and some that can be left out.

    A target has `num_actions`, `horizon`, `observation_shape` and `traceable`, as fields,
    properties or attributes of the class, and the methods `reset` and `step`. Targets that are
    `traceable` are JAX pytrees whose methods may run inside a compiled loop. Every episode has a
    key of its own, and all randomness of the episode derives from it. The rest has a default.
    """

    if TYPE_CHECKING:  # at run time a property here would stand in the way of fields

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

        @property
        def simulator(self) -> AbstractSimulator | None:
            """The map that it brings along, if any."""

        @property
        def environment(self) -> Mapping[str, Any] | None:
            """Name and options that make it again, for the record, if it can be made again."""

        @property
        def ends_early(self) -> bool:
            """May episodes end before the horizon? Those of targets that have `finished` may."""

        @property
        def num_envs(self) -> int | None:
            """How many episodes it runs at a time, at most."""

        @property
        def retries(self) -> int:
            """How often an episode that `failed` is run again."""

        @property
        def elsewhere(self) -> Any:
            """Who plays whole episodes in the place of this process, if anybody does."""
    else:
        simulator = environment = num_envs = elsewhere = None
        ends_early, retries = False, 0

        def __init_subclass__(cls, **given: Any) -> None:
            super().__init_subclass__(**given)
            if "finished" in vars(cls) and "ends_early" not in vars(cls):
                cls.ends_early = True

    def reset(self, keys: jax.Array) -> tuple[State, jax.Array]:
        """Start one episode per key [W]; give the first observations [W, …]."""
        raise NotImplementedError

    def step(
        self, state: State, actions: jax.Array, h: jax.Array, keys: jax.Array
    ) -> tuple[State, jax.Array, jax.Array]:
        """Take actions [W] at step h; give the next observations [W, …] and rewards [W]."""
        raise NotImplementedError

    @property
    def observation_dtype(self) -> str:
        """What an observation's numbers are; float32 where JAX cannot tell."""
        if not self.traceable:
            return "float32"
        return np.dtype(jax.eval_shape(self.reset, seed_key(0)[None])[1].dtype).name

    def finished(self, state: State) -> Any:
        """Which episodes have ended, bool [W]: their last observation repeats, nothing is paid."""
        raise NotImplementedError

    def failed(self, state: State) -> Sequence[str | None]:
        """What went wrong, episode by episode, so that it has to be run again; () for nothing."""
        return ()

    def settled(self, state: State) -> None:
        """Called when these episodes are over."""

    def with_horizon(self, horizon: int) -> Target:
        """The same with episodes of so many steps, or itself if that cannot be chosen."""
        return self

    def latent_on(self, sim: AbstractSimulator) -> Latent | None:
        """What is hidden from learners, where it is known and this is its map: for evaluation."""
        return None


class Collateral(str):
    """A trouble that another episode made: it has to be run again, and that is nobody's fault."""


class EpisodeFailed(ValueError):
    """One and the same episode went wrong again and again."""


def check_wrapped(target: Any) -> None:
    """Refuse what gives no oracle access, saying how to get it from a Gymnasium environment."""
    if isinstance(target, Target):
        return
    kind = type(target).__name__
    if hasattr(target, "action_space") or callable(target) or isinstance(target, str):
        raise TypeError(
            f"target: {kind} is not a target yet; wrap it with tasid.wrap(…), which takes a "
            "Gymnasium environment, its id, or a function that makes it"
        )
    raise TypeError(f"target: {kind} is no target; make it a subclass of tasid.Target")


def for_horizon(target: Target, horizon: int) -> Target:
    """The target with episodes of so many steps, if it can be had."""
    check_wrapped(target)
    return target if target.horizon == horizon else target.with_horizon(horizon)


def unfinished(target: Target, state: State, width: int) -> jax.Array:
    """Which episodes have not ended, bool [W]; all of them in targets that do not tell."""
    return ~jnp.asarray(target.finished(state)) if target.ends_early else jnp.ones(width, bool)


def refuse_failures(target: Target, state: State) -> None:
    """Only `batches` can run a broken episode again; nobody else may take it for a whole one."""
    troubles = [why for why in target.failed(state) if why is not None]
    if troubles:
        raise EpisodeFailed(f"env: an episode failed {troubles[0]}")


def episode_keys(seed_key: jax.Array, phase: Any, episodes: jax.Array) -> jax.Array:
    """Keys [W] that make an episode a pure function of (seed, phase, episode index)."""
    return keys_of_phase(jax.random.fold_in(seed_key, phase), episodes)


def keys_of_phase(phase_key: jax.Array, episodes: jax.Array) -> jax.Array:
    """Keys [W] of the episodes of one phase."""
    return jax.vmap(jax.random.fold_in, in_axes=(None, 0))(phase_key, episodes)


def seed_key(seed: int | jax.Array) -> jax.Array:
    """The root key of a seed; threefry by name, so that a user's JAX defaults cannot change it."""
    if isinstance(seed, jax.Array):
        return jax.random.key(seed, impl="threefry2x32")
    check_seed(seed)
    return jax.random.wrap_key_data(on_device([0, seed], np.uint32), impl="threefry2x32")


def stream(keys: jax.Array, number: Any) -> jax.Array:
    """An independent stream of every key in a batch."""
    return jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys, jnp.uint32(number))
