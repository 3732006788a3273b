"""The practicable policy π = ρ ∘ φ as pure functions on a batch: decode, replay, act by the plan.

φ_h tracks the state by replaying decoded transitions on the map: ŝ_{h+1} is where the action
α_h(x_h, x_{h+1}) leads from ŝ_h. With several start states the first observation's cluster says
which it is. A batch always has the width it was compiled for, because
float32 products depend on the batch's shape and near-ties would flip.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
from numpy.typing import ArrayLike

from tasid.maps import RobustPlan
from tasid.models import Network
from tasid.models.networks import Clusterer

if TYPE_CHECKING:
    from jaxtyping import Array, Float, Int, Shaped

WIDTH = 128
"""The batch width at which policies run; an episode's slot is its index modulo this."""


class Tracked(NamedTuple):
    """What the policy remembers of its episodes."""

    states: Int[Array, " W"]
    """ŝ_{h−1}, [W]."""
    observations: Shaped[Array, "W ..."]
    """x_{h−1}, [W, …]."""
    path: Int[Array, "W H"]
    """ŝ_0 … ŝ_{h−1}, and zeros after that, [W, H]."""
    cluster: Int[Array, " W"] | None = None
    """φ̂(x_0), [W], where every cluster has models of its own."""


class Decoded(NamedTuple):
    """Decoded transitions, [W] each."""

    action: Int[Array, " W"]
    states: Int[Array, " W"]
    """Where the action leads on the map."""
    confidence: Float[Array, " W"]
    """The model's probability of the action."""


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["plan", "start_state", "successor", "models", "clusterer"],
    meta_fields=["network"],
)
@dataclass(frozen=True)
class Decoder:
    """Everything π needs at run time, as one pytree; the models of later steps may be blank."""

    plan: Int[Array, "H S"]
    """ρ as [H, S]."""
    start_state: Int[Array, "*N"]
    """The start, or that of every cluster, [N]."""
    successor: Int[Array, "*_ S A"]
    """The map, [S, A] or [H, S, A]."""
    models: Float[Array, "*_ H-1 P"]
    """Flat parameters of f_0 … f_{H−2}, [H−1, P]; [N, H−1, P] if clusters have their own."""
    network: Network
    clusterer: Clusterer | None = None
    """Tells start states apart by the first observation; None if there is one."""

    @classmethod
    def blank(cls, plan: RobustPlan, network: Network) -> Decoder:
        """A decoder that knows the plan and no model yet."""
        return cls(
            plan=jnp.asarray(plan.actions),
            start_state=jnp.int32(plan.simulator.starts[0]),
            successor=jnp.asarray(plan.simulator.successor, jnp.int32),
            models=jnp.zeros((plan.simulator.horizon - 1, network.num_parameters), jnp.float32),
            network=network,
        )

    def with_model(self, h: int, parameters: jax.Array) -> Decoder:
        """The decoder extended by the model of step h."""
        return replace(self, models=self.models.at[h].set(parameters))

    def with_models(self, models: ArrayLike) -> Decoder:
        """The decoder with all its models, [H−1, P] or [N, H−1, P]."""
        return replace(self, models=jnp.asarray(models, jnp.float32))

    def with_starts(self, clusterer: Clusterer, starts: ArrayLike) -> Decoder:
        """The decoder for episodes whose first observation's cluster says where they start."""
        return replace(self, clusterer=clusterer, start_state=jnp.asarray(starts, jnp.int32))

    @property
    def num_models(self) -> int:
        """How many steps have a model: H−1."""
        return int(self.models.shape[-2])

    @property
    def num_actions(self) -> int:
        """|A|."""
        return int(self.successor.shape[-1])

    def start(self, observations: jax.Array) -> Tracked:
        """Before the first decision, every episode is at the start, or at its cluster's."""
        cluster = None
        if self.clusterer is None:
            states = jnp.full(observations.shape[0], self.start_state)
        else:
            group = self.clusterer(observations)
            states = self.start_state[group]
            cluster = group if self.models.ndim == 3 else None
        path = jnp.zeros((observations.shape[0], self.plan.shape[0]), states.dtype)
        return Tracked(states, observations, path, cluster)

    def decode(self, memory: Tracked, observations: jax.Array, h: jax.Array) -> Decoded:
        """α_h and φ_{h+1} for the transition x_h → x_{h+1} just seen."""
        scores = self._scores(memory, observations, h)
        action = jnp.argmax(scores, axis=-1)
        confidence = jax.nn.softmax(scores, axis=-1).max(axis=-1)
        return Decoded(action, self.leads(memory.states, action, h), confidence)

    def leads(self, states: jax.Array, actions: jax.Array, h: jax.Array) -> jax.Array:
        """Where actions lead from states at step h, on the map."""
        table = self.successor if self.successor.ndim == 2 else self.successor[h]
        return table[states, actions]

    def _scores(self, memory: Tracked, observations: jax.Array, h: jax.Array) -> jax.Array:
        """Those of the step's model, or of the step's model of each episode's cluster."""
        if self.models.ndim == 2:
            return self.network.apply(self.models[h], memory.observations, observations)
        every = jax.vmap(self.network.apply, in_axes=(0, None, None))(
            self.models[:, h], memory.observations, observations
        )
        return every[memory.cluster, jnp.arange(observations.shape[0])]

    def track(self, memory: Tracked, observations: jax.Array, h: jax.Array) -> jax.Array:
        """ŝ_h [W] from the memory of step h−1 and the observations of step h."""
        if self.num_models == 0:
            return memory.states
        decoded = self.decode(memory, observations, jnp.maximum(h - 1, 0))
        return jnp.where(h == 0, memory.states, decoded.states)

    def act(
        self, memory: Tracked, observations: jax.Array, h: jax.Array
    ) -> tuple[Tracked, jax.Array]:
        """π_h: track, then act by the plan."""
        states = self.track(memory, observations, h)
        path = memory.path.at[:, h].set(states)
        memory = Tracked(states, observations, path, memory.cluster)
        return memory, self.plan[h, states].astype(jnp.int32)
