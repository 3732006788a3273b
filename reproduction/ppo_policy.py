"""What PPO learned, as a policy that acts on the host."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from reproduction.networks import MLP
from reproduction.ppo import features
from tasid import Policy
from tasid.storage import ArtifactError, read_artifact, write_artifact

KIND = "ppo-policy"


class PPOPolicy(Policy):
    """Takes the most likely action, argmax π(· | x), whatever the step; it has no memory.

    Parameters
    ----------
    parameters
        Of the network `MLP(d, num_actions, hidden)`, [P].
    hidden
        Sizes of the hidden layers.
    observation_shape, observation_dtype, num_actions, horizon
        Of the target.
    method
        Name of the algorithm.
    environment
        Name and options of the environment, if it can be built again.
    """

    def __init__(
        self,
        parameters: NDArray[np.float32],
        *,
        hidden: tuple[int, ...],
        observation_shape: tuple[int, ...],
        observation_dtype: str,
        num_actions: int,
        horizon: int,
        method: str = "ppo",
        environment: Mapping[str, Any] | None = None,
    ) -> None:
        self.parameters = np.asarray(parameters, np.float32)
        self.network = MLP(math.prod(observation_shape), num_actions, tuple(hidden))
        self.observation_shape = tuple(observation_shape)
        self.observation_dtype = observation_dtype
        self.num_actions, self.horizon = num_actions, horizon
        self.method, self.environment = method, environment

    def init(self, n: int) -> NDArray[np.float32]:
        return np.zeros((n, 0), np.float32)

    def act(
        self, memory: NDArray[np.float32], observations: NDArray[Any], h: int
    ) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
        return memory, np.asarray(_greedy(self.network, self.parameters, observations))

    def save(self, path: str | Path) -> Path:
        """Write a checked artifact; `PPOPolicy.load` reads it."""
        metadata = {
            "hidden": list(self.network.hidden),
            "observation_shape": list(self.observation_shape),
            "observation_dtype": self.observation_dtype,
            "num_actions": self.num_actions,
            "horizon": self.horizon,
            "method": self.method,
            "environment": self.environment,
        }
        return write_artifact(
            path, kind=KIND, metadata=metadata, arrays={"parameters": self.parameters}
        )

    @classmethod
    def load(cls, path: str | Path) -> PPOPolicy:
        """Read a policy that `save` wrote."""
        artifact = read_artifact(path, kind=KIND)
        try:
            policy = cls(artifact.arrays["parameters"], **artifact.metadata)
        except (KeyError, TypeError, ValueError) as error:
            raise ArtifactError(f"{path}: not a policy of PPO ({error})") from error
        expected = (policy.network.num_parameters,)
        if policy.parameters.shape != expected:
            raise ArtifactError(
                f"{path}: parameters have shape {policy.parameters.shape}; the network of the "
                f"manifest has {expected}"
            )
        return policy


@partial(jax.jit, static_argnums=0)
def _greedy(network: MLP, parameters: jax.Array, observations: jax.Array) -> jax.Array:
    return jnp.argmax(network(parameters, features(observations)), axis=-1).astype(jnp.int32)
