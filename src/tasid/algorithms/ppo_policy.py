"""A policy of PPO as a value: one network from the observation to the actions, and its file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tasid.learning.networks import Dense
from tasid.storage import ArtifactError, read_artifact, write_artifact

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
    network: Dense

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

    @property
    def num_actions(self) -> int:
        """|A|."""
        return self.actor.network.outputs

    def save(self, path: str | Path) -> Path:
        """Write a checked artifact directory; the same policy gives the same bytes."""
        network = self.actor.network
        metadata = {
            "network": {**asdict(network), "hidden": list(network.hidden)},
            "horizon": self.horizon,
            "observation_shape": list(self.observation_shape),
            "method": self.method,
            "environment": None if self.environment is None else dict(self.environment),
        }
        arrays = {"policy": np.asarray(self.actor.parameters)}
        return write_artifact(path, kind=KIND, metadata=metadata, arrays=arrays)


def load_ppo_policy(path: str | Path) -> PPOPolicy:
    """Read a policy written by `PPOPolicy.save`; every byte is verified, nothing is executed."""
    artifact = read_artifact(path, kind=KIND)
    meta = artifact.metadata
    try:
        fields = meta["network"]
        inputs, outputs, *hidden = (
            int(size) for size in (fields["inputs"], fields["outputs"], *fields["hidden"])
        )
        network = Dense(inputs, outputs, tuple(hidden))
        shape = tuple(int(n) for n in meta["observation_shape"])
        parameters = artifact.arrays["policy"]
        if min(inputs, outputs, *hidden) < 1 or int(np.prod(shape)) != inputs:
            raise ValueError(f"network has sizes {fields} for observations of shape {shape}")
        if parameters.shape != (network.num_parameters,) or parameters.dtype != np.float32:
            raise ValueError(
                f"policy is {parameters.dtype} {parameters.shape}, not float32 "
                f"({network.num_parameters},)"
            )
        actor = Greedy(jnp.asarray(parameters), network)
        return PPOPolicy(
            actor, int(meta["horizon"]), shape, str(meta["method"]), meta["environment"]
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ArtifactError(
            f"{path}: intact, but not a PPO policy of this version: {error}"
        ) from error
