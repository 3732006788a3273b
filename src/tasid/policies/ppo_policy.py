"""A policy of PPO as a value: one network from the observation to the actions, and its file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from tasid.files import ArtifactError, read_artifact, write_artifact
from tasid.maps.size import MOST_STEPS
from tasid.models.networks import Sight, sight_from
from tasid.policies.decoder import WIDTH
from tasid.policies.sight import LookingInSlot
from tasid.policies.stored import check_weights, checked_sight, stored_origin

KIND = "ppo-policy"
_BRIGHTEST = 255.0


def flat(observations: jax.Array) -> jax.Array:
    """Observations [N, …] as a network takes them: [N, d], images divided by 255."""
    scale = _BRIGHTEST if observations.dtype == jnp.uint8 else 1.0
    return observations.reshape(observations.shape[0], -1).astype(jnp.float32) / scale


@partial(jax.tree_util.register_dataclass, data_fields=["parameters"], meta_fields=["network"])
@dataclass(frozen=True)
class Greedy:
    """An actor without memory that takes the likeliest action."""

    parameters: jax.Array
    network: Sight

    def start(self, observations: jax.Array) -> tuple[()]:
        """There is nothing to remember."""
        return ()

    def act(
        self, carry: tuple[()], observations: jax.Array, h: jax.Array
    ) -> tuple[tuple[()], jax.Array]:
        """argmax π(· | x), whatever the step."""
        scores = self.network.apply(self.parameters, flat(observations))
        return carry, jnp.argmax(scores, axis=-1).astype(jnp.int32)


@dataclass(frozen=True, eq=False)
class PPOPolicy:
    """What PPO learned, complete without the environment it was learned in."""

    actor: Greedy
    horizon: int
    observation_shape: tuple[int, ...]
    method: str = "ppo"
    environment: Mapping[str, Any] | None = None
    """Name and options of the environment of ours it was learned in, to build it again."""

    observation_dtype: str = "float32"
    """What an observation's numbers are: float32 vectors, uint8 images."""

    @property
    def num_actions(self) -> int:
        """|A|."""
        return self.actor.network.outputs

    def agent(self, *, slot: int = 0) -> PPOAgent:
        """A fresh agent that acts on one observation at a time.

        `slot` is the row of the fixed-width batch it computes in; an episode of a batched
        evaluation has slot = its index modulo that width.
        """
        return PPOAgent(self, slot)

    def save(self, path: str | Path) -> Path:
        """Write a checked artifact directory; the same policy gives the same bytes."""
        known = {"network": self.actor.network.describe(), "horizon": self.horizon}
        metadata = {**stored_origin(self), **known}
        arrays = {"policy": np.asarray(self.actor.parameters)}
        return write_artifact(path, kind=KIND, metadata=metadata, arrays=arrays)


def load_ppo_policy(path: str | Path) -> PPOPolicy:
    """Read a policy written by `PPOPolicy.save`; every byte is verified, nothing is executed."""
    artifact = read_artifact(path, kind=KIND)
    meta = artifact.metadata
    try:
        network = sight_from(meta["network"])
        shape, dtype = checked_sight(meta)
        parameters = artifact.arrays["policy"]
        if int(np.prod(shape)) != network.inputs:
            raise ValueError(
                f"network takes {network.inputs} numbers, observations of shape {shape} have others"
            )
        if parameters.shape != (network.num_parameters,):
            raise ValueError(f"policy is {parameters.shape}, not ({network.num_parameters},)")
        check_weights({"policy": parameters})
        actor = Greedy(jnp.asarray(parameters), network)
        horizon = int(meta["horizon"])
        if not 1 <= horizon <= MOST_STEPS:
            raise ValueError(f"horizon {horizon} is not in 1 … {MOST_STEPS}")
        return PPOPolicy(actor, horizon, shape, str(meta["method"]), meta["environment"], dtype)
    except (KeyError, TypeError, ValueError) as error:
        raise ArtifactError(
            f"{path}: intact, but not a PPO policy of this version: {error}"
        ) from error


class PPOAgent(LookingInSlot):
    """Acts for real: one observation in (NumPy), one action out (int), the likeliest one."""

    state: Final = None
    """PPO knows no states."""
    lost: Final = False
    """Never: it does not know where it is in the first place."""

    def __init__(self, policy: PPOPolicy, slot: int) -> None:
        super().__init__(policy, slot, width=WIDTH)
        self.reset()

    def reset(self) -> None:
        """Begin a new episode."""
        self._step, self._confidence = 0, 1.0

    @property
    def confidence(self) -> float:
        """The probability that the policy gives to the action taken last; 1 at the start."""
        return self._confidence

    def act(self, observation: ArrayLike) -> int:
        """Look at the observation of this step and choose the action."""
        action, confidence = _act(self._policy.actor, jnp.asarray(self._looked(observation)))
        self._confidence = float(confidence[self._slot])
        self._step += 1
        return int(action[self._slot])


@jax.jit
def _act(actor: Greedy, observations: jax.Array) -> tuple[jax.Array, jax.Array]:
    _, actions = actor.act((), observations, jnp.int32(0))
    scores = actor.network.apply(actor.parameters, flat(observations))
    return actions, jax.nn.softmax(scores, axis=-1).max(axis=-1)
