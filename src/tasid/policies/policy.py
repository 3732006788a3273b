"""The practicable policy as a value: plan, models and map, to act with, to score and to keep."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from tasid.files import ArtifactError, read_artifact, write_artifact
from tasid.maps import AbstractSimulator, RobustPlan
from tasid.models.networks import Clusterer, ClusterNetwork, network_from
from tasid.policies.decoder import WIDTH, Decoded, Decoder, Tracked
from tasid.policies.sight import LookingInSlot
from tasid.policies.stored import (
    WithPlan,
    check_weights,
    checked_plan,
    checked_sight,
    stored_origin,
)

_KIND = "policy"
LOST = 4.0
"""Log-odds at which an agent calls itself lost."""


@dataclass(frozen=True, eq=False)
class Policy(WithPlan):
    """A learned policy: immutable, and complete without the environment it was learned in."""

    plan: RobustPlan
    decoder: Decoder
    observation_shape: tuple[int, ...]
    observation_dtype: str
    """What an observation's numbers are: float32 vectors, uint8 images."""
    method: str
    environment: Mapping[str, Any] | None = None
    """Name and options of the environment it was learned in, ours or gym:ID, to build it again."""

    @property
    def actor(self) -> Decoder:
        """What acts on batches."""
        return self.decoder

    def agent(self, *, slot: int = 0) -> Agent:
        """A fresh agent that acts on one observation at a time.

        `slot` is the row of the fixed-width batch it computes in; an episode of a batched
        evaluation has slot = its index modulo that width.
        """
        return Agent(self, slot)

    def save(self, path: str | Path) -> Path:
        """Write a checked artifact directory; the same policy gives the same bytes."""
        plan, arrays = self._stored_plan()
        known = {"eta": self.plan.eta, "network": self.decoder.network.describe()}
        metadata = {**plan, **stored_origin(self), **known}
        arrays["models"] = np.asarray(self.decoder.models)
        clusterer = self.decoder.clusterer
        if clusterer is not None:
            metadata["clusterer"] = clusterer.network.describe()
            arrays["clusterer.parameters"] = np.asarray(clusterer.parameters)
            arrays["clusterer.starts"] = np.asarray(self.decoder.start_state)
        return write_artifact(path, kind=_KIND, metadata=metadata, arrays=arrays)


def load(path: str | Path) -> Policy:
    """Read a policy written by `Policy.save`; every byte is verified, nothing is executed."""
    artifact = read_artifact(path, kind=_KIND)
    meta, arrays = artifact.metadata, artifact.arrays
    if meta.get("method") == "outcome":
        raise ArtifactError(
            f"{path}: a policy of the method 'outcome', which is gone; learn it again with 'belief'"
        )
    try:
        plan = checked_plan(meta, arrays, eta=meta["eta"])
        simulator, models = plan.simulator, arrays["models"]
        network = network_from(meta["network"])
        expected = (simulator.horizon - 1, network.num_parameters)
        check_weights({"models": models})
        if network.num_labels != simulator.num_actions:
            raise ValueError(f"the network tells {network.num_labels} actions apart")
        clusterer = _clusterer(meta, arrays, simulator)
        each = () if clusterer is None else (clusterer.network.clusters, *expected)
        if models.shape not in (expected, each):
            raise ValueError(f"models has shape {models.shape}, not {expected}")
        decoder = Decoder.blank(plan, network).with_models(models)
        if clusterer is not None:
            decoder = decoder.with_starts(clusterer, arrays["clusterer.starts"])
        shape, dtype = checked_sight(meta)
        return Policy(plan, decoder, shape, dtype, str(meta["method"]), meta["environment"])
    except (KeyError, TypeError, ValueError) as error:
        raise ArtifactError(f"{path}: intact, but not a policy of this version: {error}") from error


def _clusterer(
    meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray], simulator: AbstractSimulator
) -> Clusterer | None:
    """What tells several starts apart, checked."""
    if "clusterer" not in meta:
        return None
    network = ClusterNetwork.from_description(meta["clusterer"])
    parameters, starts = arrays["clusterer.parameters"], arrays["clusterer.starts"]
    check_weights({"clusterer.parameters": parameters})
    if parameters.shape != (network.dense.num_parameters,):
        raise ValueError(f"clusterer.parameters has shape {parameters.shape}")
    if network.observation_shape != tuple(meta["observation_shape"]):
        raise ValueError(f"the clusterer sees observations of {network.observation_shape}")
    if starts.shape != (network.clusters,) or not np.isin(starts, simulator.starts).all():
        raise ValueError(f"clusterer.starts are {starts.tolist()}, not starts of the simulator")
    return Clusterer(jnp.asarray(parameters), network)


class Agent(LookingInSlot):
    """Acts for real: one observation in (NumPy), one action out (int).

    It computes in one slot of the same fixed-width batch as compiled evaluation does, so both give
    the same actions.
    """

    _policy: Policy

    def __init__(self, policy: Policy, slot: int) -> None:
        super().__init__(policy, slot, width=WIDTH)
        self.reset()

    def reset(self) -> None:
        """Begin a new episode."""
        self._step = 0
        self._memory: Tracked | None = None
        simulator = self._policy.simulator
        likeliest = int(simulator.starts[simulator.start_probabilities.argmax()])
        self._state, self._action = likeliest, 0
        self._confidence, self._doubt = 1.0, 0.0

    @property
    def state(self) -> int:
        """Index of the state the agent believes it acted in last; the likeliest start before."""
        return self._state

    @property
    def confidence(self) -> float:
        """The model's probability of the transition decoded last; 1 at the start."""
        return self._confidence

    @property
    def lost(self) -> bool:
        """Does the tracked state no longer explain what is seen?

        A running sum of log-odds, never below 0, of what has been seen if the tracked state were
        wrong against right: outcomes that are not the intended ones. States with one outcome only
        say nothing.
        """
        return self._doubt >= LOST

    def act(self, observation: ArrayLike) -> int:
        """Look at the observation of this step and choose the action."""
        observations = jnp.asarray(self._looked(observation).copy())
        if self._memory is None:
            self._memory = self._policy.decoder.start(observations)
        self._memory, actions, decoded = _agent_step(
            self._policy.decoder, self._memory, observations, jnp.int32(self._step)
        )
        state = int(self._memory.states[self._slot])
        if decoded is not None and self._step:
            self._confidence = float(decoded.confidence[self._slot])
            self._suspect(state)
        self._state, self._action = state, int(actions[self._slot])
        self._step += 1
        return self._action

    def _suspect(self, state: int) -> None:
        """Weigh the step just decoded: from the last state by the last action to `state`."""
        successors = self._policy.simulator.successor_at(self._step - 1)[self._state]
        eta = max(self._policy.plan.eta, 0.02)
        if len(set(successors.tolist())) == 1:
            return  # training never had to tell what that looks like
        surprised = int(successors[self._action]) != state
        odds = math.log(0.5 / eta if surprised else 0.5 / (1 - eta))
        self._doubt = max(0.0, self._doubt + odds)


@jax.jit
def _agent_step(
    decoder: Decoder, memory: Tracked, observations: jax.Array, h: jax.Array
) -> tuple[Tracked, jax.Array, Decoded | None]:
    decoded = None
    if decoder.num_models:
        decoded = decoder.decode(memory, observations, jnp.maximum(h - 1, 0))
    memory, actions = decoder.act(memory, observations, h)
    return memory, actions, decoded
