"""The practicable policy as a value: plan, models and map, to act with, to score and to keep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from tasid.algorithms.decoder import WIDTH, Decoder, Tracked
from tasid.learning.labels import labels_for
from tasid.learning.networks import network_from
from tasid.mdp import AbstractSimulator, RobustPlan
from tasid.storage import ArtifactError, read_artifact, write_artifact

_KIND = "policy"


@dataclass(frozen=True, eq=False)
class Policy:
    """A learned policy: immutable, and complete without the environment it was learned in."""

    plan: RobustPlan
    decoder: Decoder
    observation_shape: tuple[int, ...]
    method: str
    environment: Mapping[str, Any] | None = None
    """Name and options of the environment of ours it was learned in, to build it again."""

    @property
    def simulator(self) -> AbstractSimulator:
        """The map the policy tracks its state on."""
        return self.plan.simulator

    def agent(self, *, slot: int = 0) -> Agent:
        """A fresh agent that acts on one observation at a time.

        `slot` is the row of the fixed-width batch it computes in; an episode of a batched
        evaluation has slot = its index modulo that width.
        """
        return Agent(self, slot)

    def save(self, path: str | Path) -> Path:
        """Write a checked artifact directory; the same policy gives the same bytes."""
        metadata = {
            "simulator": self.simulator.metadata(),
            "eta": self.plan.eta,
            "start_value": self.plan.start_value,
            "method": self.method,
            "labels": self.decoder.labels.kind,
            "network": self.decoder.network.describe(),
            "observation_shape": list(self.observation_shape),
            "environment": None if self.environment is None else dict(self.environment),
        }
        arrays = {
            **self.simulator.arrays(),
            "plan.actions": self.plan.actions,
            "models": np.asarray(self.decoder.models),
        }
        return write_artifact(path, kind=_KIND, metadata=metadata, arrays=arrays)


def load(path: str | Path) -> Policy:
    """Read a policy written by `Policy.save`; every byte is verified, nothing is executed."""
    artifact = read_artifact(path, kind=_KIND)
    meta, arrays = artifact.metadata, artifact.arrays
    try:
        simulator = AbstractSimulator.from_parts(meta["simulator"], arrays)
        actions, models = arrays["plan.actions"], arrays["models"]
        network = network_from(meta["network"])
        labels = labels_for(meta["labels"], simulator)
        expected = (simulator.horizon - 1, network.num_parameters)
        if actions.shape != (simulator.horizon, simulator.num_states):
            raise ValueError(f"plan.actions has shape {actions.shape}")
        if actions.max(initial=0) >= simulator.num_actions:
            raise ValueError("plan.actions names an action that the simulator does not have")
        if models.shape != expected:
            raise ValueError(f"models has shape {models.shape}, not {expected}")
        plan = RobustPlan(
            simulator, float(meta["eta"]), actions, float(meta["start_value"]), None, actions.size
        )
        decoder = Decoder.blank(plan, labels, network).with_models(models)
        shape = tuple(int(n) for n in meta["observation_shape"])
        return Policy(plan, decoder, shape, str(meta["method"]), meta["environment"])
    except (KeyError, TypeError, ValueError) as error:
        raise ArtifactError(f"{path}: intact, but not a policy of this version: {error}") from error


class Agent:
    """Acts for real: one observation in (NumPy), one action out (int).

    It computes in one slot of the same fixed-width batch as compiled evaluation does, so both give
    the same actions.
    """

    def __init__(self, policy: Policy, slot: int) -> None:
        if not 0 <= slot < WIDTH:
            raise ValueError(f"slot: {slot} is not in 0 … {WIDTH - 1}")
        self._policy = policy
        self._slot = slot
        self._batch = np.zeros((WIDTH, *policy.observation_shape), np.float32)
        self.reset()

    def reset(self) -> None:
        """Begin a new episode."""
        self._step = 0
        self._memory: Tracked | None = None
        self._confidence = 1.0

    @property
    def step(self) -> int:
        """How many actions this episode has had."""
        return self._step

    @property
    def state(self) -> int:
        """Index of the state the agent believes it acted in last; the start before that."""
        if self._memory is None:
            return self._policy.simulator.start
        return int(self._memory.states[self._slot])

    @property
    def confidence(self) -> float:
        """The model's probability of the transition decoded last; 1 at the start."""
        return self._confidence

    def act(self, observation: ArrayLike) -> int:
        """Look at the observation of this step and choose the action."""
        horizon = self._policy.simulator.horizon
        if self._step >= horizon:
            raise ValueError(
                f"act: the episode is over, its horizon is {horizon} steps; call reset() first"
            )
        self._batch[self._slot] = self._checked(observation)
        observations = jnp.asarray(self._batch.copy())
        if self._memory is None:
            self._memory = self._policy.decoder.start(observations)
        self._memory, action, confidence = _agent_step(
            self._policy.decoder, self._memory, observations, jnp.int32(self._step)
        )
        self._confidence = float(confidence[self._slot])
        self._step += 1
        return int(action[self._slot])

    def _checked(self, observation: ArrayLike) -> np.ndarray:
        array = np.asarray(observation)
        expected = self._policy.observation_shape
        if array.shape != expected:
            raise ValueError(
                f"observation: shape {array.shape} at step {self._step}, but the policy was "
                f"learned on {expected}"
            )
        if array.dtype.kind not in "biuf":
            raise TypeError(f"observation: dtype {array.dtype} at step {self._step} is no number")
        if not np.isfinite(array).all():
            raise ValueError(f"observation: not finite at step {self._step}")
        return array.astype(np.float32)


@jax.jit
def _agent_step(
    decoder: Decoder, memory: Tracked, observations: jax.Array, h: jax.Array
) -> tuple[Tracked, jax.Array, jax.Array]:
    confidence = jnp.ones(observations.shape[0])
    if decoder.models.shape[0]:
        decoded = decoder.decode(memory, observations, jnp.maximum(h - 1, 0))
        confidence = jnp.where(h == 0, 1.0, decoded.confidence)
    memory, actions = decoder.act(memory, observations, h)
    return memory, actions, confidence
