"""The policy π = ρ ∘ φ of Algorithm 2: decode shadow actions, replay them on the map, act by plan.

The state decoder φ tracks the state: ŝ_{h+1} is where the decoded shadow action α_h(x_h, x_{h+1})
leads from ŝ_h on the map. The first state is the start; with several starts, the group of the first
observation tells which.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tasid.planning.robust_dp import RobustPlan, robust_dp
from tasid.policy import Estimate, Policy
from tasid.simulator import AbstractSimulator
from tasid.storage import Artifact, ArtifactError, write_artifact

if TYPE_CHECKING:
    from tasid.networks import FlatModel

KIND = "decoder-policy"


@dataclass(frozen=True, eq=False)
class Clusterer:
    """φ̂: X → [N], the group of a first observation, a network with one hidden layer.

    The hidden units are prototypes, softmax(features · weights + bias); each votes for groups.
    """

    weights: NDArray[np.float32]
    """[D, M]."""
    bias: NDArray[np.float32]
    """[M]."""
    votes: NDArray[np.float32]
    """[M, N]."""

    def __call__(self, observations: NDArray[Any]) -> NDArray[np.intp]:
        """Groups [n] of first observations [n, …]."""
        units = start_features(observations) @ self.weights + self.bias
        units = np.exp(units - units.max(axis=1, keepdims=True))
        groups: NDArray[np.intp] = (units @ self.votes).argmax(axis=1)
        return groups


def start_features(observations: NDArray[Any], pool: int = 4) -> NDArray[np.float32]:
    """Inputs of a `Clusterer` [n, D]: means over pool × pool pixels of images, else all numbers."""
    n = len(observations)
    if observations.ndim != 4 or min(observations.shape[1:3]) < pool:
        return observations.reshape(n, -1).astype(np.float32)
    high, wide = (length // pool for length in observations.shape[1:3])
    blocks = observations[:, : high * pool, : wide * pool].reshape(n, high, pool, wide, pool, -1)
    return (blocks.mean(axis=(2, 4), dtype=np.float32) / np.float32(255)).reshape(n, -1)


class Tracked(NamedTuple):
    """What the policy remembers of its episodes."""

    states: NDArray[np.intp]
    """ŝ_h, [n]."""
    observations: NDArray[Any]
    """x_h, [n, …]."""
    actions: NDArray[np.int32]
    """a_h, [n]."""
    confidence: NDArray[np.float64]
    """Probability of the shadow action decoded last, [n]."""
    doubt: NDArray[np.float64]
    """Log-odds that the tracked state is wrong, never below 0, [n]."""
    cluster: NDArray[np.intp]
    """φ̂(x_0), [n]; 0 with one start."""


@dataclass(frozen=True, eq=False, repr=False)
class DecoderPolicy(Policy):
    """The practicable policy that Algorithms 2 and 3 return."""

    plan: RobustPlan = field()  # hides the default of the base class
    """The robust plan ρ on a deterministic map."""
    network: FlatModel
    """The model class of all steps."""
    models: NDArray[np.float32]
    """Parameters of f_0 … f_{H−2} for every group of starts, [N, H−1, P]; N = 1 with one start."""
    starts: NDArray[np.integer[Any]]
    """The start state of every group, [N]."""
    clusterer: Clusterer | None = None
    """φ̂; None with one start."""
    observation_dtype: str = "float32"
    environment: Mapping[str, Any] | None = None
    lost_at: float = 4.0
    """Doubt from which `estimate` calls an episode lost."""
    method: str = "paper"

    @property
    def horizon(self) -> int:  # type: ignore[override]
        return self.plan.simulator.horizon

    @property
    def num_actions(self) -> int:  # type: ignore[override]
        return self.plan.simulator.num_actions

    @property
    def observation_shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return self.network.observation_shape

    def init(self, n: int) -> Tracked:
        simulator, zeros = self.plan.simulator, np.zeros(n, np.intp)
        likeliest = simulator.start_probabilities.argmax()
        return Tracked(
            states=zeros + simulator.starts[likeliest],
            observations=zeros,
            actions=zeros.astype(np.int32),
            confidence=zeros + simulator.start_probabilities[likeliest],
            doubt=np.zeros(n),
            cluster=zeros,
        )

    def act(
        self, memory: Tracked, observations: NDArray[Any], h: int
    ) -> tuple[Tracked, NDArray[np.int32]]:
        if h == 0:
            cluster = memory.cluster if self.clusterer is None else self.clusterer(observations)
            states: Any = self.starts[cluster]
            confidence, doubt = np.ones(len(cluster)), memory.doubt
        else:
            cluster = memory.cluster
            shadow, confidence = self._decode(memory, observations, h - 1)
            successors = self.plan.simulator.successor_at(h - 1)[memory.states]
            states = successors[np.arange(len(shadow)), shadow]
            doubt = self._doubt(memory, successors, states)
        actions = self.plan.actions[h, states].astype(np.int32)
        return Tracked(states, observations, actions, confidence, doubt, cluster), actions

    def override(self, memory: Tracked, actions: NDArray[np.int32]) -> Tracked:
        return memory._replace(actions=actions)

    def estimate(self, memory: Tracked, h: int) -> Estimate:
        return Estimate(memory.states, memory.confidence, memory.doubt >= self.lost_at)

    def _decode(
        self, memory: Tracked, observations: NDArray[Any], h: int
    ) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        """α_h(x_h, x_{h+1}) = argmax_a f_h(a | x_h, x_{h+1}) and its probability, [n] each."""
        n = len(observations)
        # Widths are powers of two, so that batches of all sizes share few compiled programs.
        missing = (1 << (n - 1).bit_length()) - n
        padding = [(0, missing)] + [(0, 0)] * (observations.ndim - 1)
        x, x_next = memory.observations, observations
        if missing:
            x, x_next = np.pad(x, padding), np.pad(x_next, padding)
        shadow, confidence = np.zeros(n, np.intp), np.zeros(n)
        for k in np.unique(memory.cluster):
            decode = _predicted if hasattr(self.network.model, "copies") else _compiled()
            results = decode(self.network, self.models[k, h], x, x_next)
            members = memory.cluster == k
            shadow[members], confidence[members] = (np.asarray(r)[:n][members] for r in results)
        return shadow, confidence

    def _doubt(
        self, memory: Tracked, successors: NDArray[np.int32], states: NDArray[np.int32]
    ) -> NDArray[np.float64]:
        """A running sum of log-odds: outcomes that were not intended speak against the state.

        If the tracked state is right, the outcome is unintended with probability η; if it is wrong,
        about half the time. States with a single successor say nothing.
        """
        eta = max(self.plan.eta, 0.02)
        intended = successors[np.arange(len(states)), memory.actions] == states
        odds = np.where(intended, math.log(0.5 / (1 - eta)), math.log(0.5 / eta))
        odds[(successors == successors[:, :1]).all(axis=1)] = 0.0
        return np.maximum(0.0, memory.doubt + odds)

    def save(self, path: str | Path) -> Path:
        metadata = {
            "simulator": self.plan.simulator.metadata(),
            "network": self.network.describe(),
            "eta": self.plan.eta,
            "observation_shape": self.observation_shape,
            "observation_dtype": self.observation_dtype,
            "environment": self.environment,
            "lost_at": self.lost_at,
        }
        arrays = {**self.plan.simulator.arrays(), "models": self.models, "starts": self.starts}
        if self.clusterer is not None:
            arrays |= {f"clusterer.{name}": part for name, part in vars(self.clusterer).items()}
        return write_artifact(path, kind=KIND, metadata=metadata, arrays=arrays)


@cache
def _compiled() -> Any:
    """The decoder under `jax.jit`, one program for policies with the same network."""
    import jax

    def decode(network: FlatModel, parameters: Any, x: Any, x_next: Any) -> Any:
        prepared, size = network.prepare(x, x_next), min(len(x), network.pairs_at_once)
        parts = jax.tree.map(lambda table: table.reshape(-1, size, *table.shape[1:]), prepared)
        logits = jax.lax.map(lambda part: network.logits(parameters, part), parts)
        probabilities = jax.nn.softmax(logits.reshape(len(x), -1), axis=-1)
        return probabilities.argmax(axis=-1), probabilities.max(axis=-1)

    return jax.jit(decode, static_argnums=0)


def _predicted(network: FlatModel, parameters: Any, x: Any, x_next: Any) -> Any:
    """The decoder of a model that cannot be compiled."""
    probabilities = np.exp(network.apply(parameters, x, x_next))
    return probabilities.argmax(axis=-1), probabilities.max(axis=-1)


def load_decoder_policy(artifact: Artifact, path: str | Path, model: Any = None) -> DecoderPolicy:
    """The policy of an artifact; `model` is the user's own model of pairs, if there is one."""
    from tasid.networks import FlatModel, model_from

    meta, arrays = artifact.metadata, artifact.arrays
    try:
        simulator = AbstractSimulator.from_parts(meta["simulator"], arrays)
        shape, groups = tuple(int(n) for n in meta["observation_shape"]), arrays["starts"].size
        network = FlatModel(model_from(meta["network"], model), shape, simulator.num_actions)
        models, clusterer = arrays["models"], None
        size = groups, simulator.horizon - 1, network.num_parameters
        if models.shape != size or not np.isfinite(models).all():
            raise ValueError(f"models: not finite, or of shape {models.shape}, not {size}")
        if groups > 1:
            clusterer = Clusterer(*(arrays[f"clusterer.{n}"] for n in ("weights", "bias", "votes")))
            clusterer(np.zeros((1, *shape), meta["observation_dtype"]))  # refuses what does not fit
        simulator.intended(0)[arrays["starts"]]  # refuses states that are not on the map
        return DecoderPolicy(
            robust_dp(simulator, eta=meta["eta"]),
            network,
            models,
            starts=arrays["starts"],
            clusterer=clusterer,
            observation_dtype=np.dtype(meta["observation_dtype"]).name,
            environment=meta["environment"],
            lost_at=float(meta["lost_at"]),
        )
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise ArtifactError(f"{path}: intact, but not a policy of this version: {error}") from error
