"""Acting on a belief: filter what is seen, then do what is best on average.

    a_h = argmax_a Σ_s b_h(s) Q̃_h(s, a),  Q̃ of Algorithm 1.

The robust correction of Algorithm 1 does not depend on the action, so this is QMDP with robust
values. A belief that is certain of s plays ρ_h(s), ties included.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tasid.beliefs.chain import Chain, at
from tasid.beliefs.features import AsSeen, FeatureMap
from tasid.beliefs.filter import BeliefFilter, Filtered
from tasid.maps import RobustPlan
from tasid.targets.device import on_device

if TYPE_CHECKING:
    from jaxtyping import Array, Float, Int

LANES = 32
"""Batches are padded to a multiple of this: the vector unit then treats every episode alike."""
_TIE = 1e-6
"""What an action that is as good as the plan's is held to be worse by, of the range of Q̃."""
_STRANGE = 2.0
"""Nats of surprise that an observation is worth, at least, that is like nothing ever seen."""


class Carried(NamedTuple):
    """What the policy remembers of its episodes; rows are padded to whole lanes."""

    belief: Float[Array, "M N"]
    """[M, N]."""
    commands: Int[Array, " N"]
    """The last commands, [N]."""
    doubt: Float[Array, " N"]
    """A running sum of surprises, never below 0, [N]."""


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["filter", "feature_map", "advantage"],
    meta_fields=[],
)
@dataclass(frozen=True)
class BeliefActor:
    """π as one pytree."""

    filter: BeliefFilter
    feature_map: FeatureMap | AsSeen
    advantage: Float[Array, "H M A"]
    """Q̃_h(s, a) − max Q̃_h(s, ·) by slot, [H, M, A]."""

    @property
    def chain(self) -> Chain:
        """The map."""
        return self.filter.chain

    def start(self, observations: jax.Array) -> Carried:
        """Before the first observation is looked at."""
        rows = -(-observations.shape[0] // LANES) * LANES
        belief = jnp.broadcast_to(self.chain.start[:, None], (self.chain.num_slots, rows))
        return Carried(belief, jnp.zeros(rows, jnp.int32), jnp.zeros(rows))

    def act(
        self, carry: Carried, observations: jax.Array, h: jax.Array
    ) -> tuple[Carried, jax.Array]:
        """Look at the observations [W, …] of step h, then choose actions [W]."""
        rows, padded = observations.shape[0], carry.commands.shape[0]
        pad = [(0, padded - rows)] + [(0, 0)] * (observations.ndim - 1)
        features = self.feature_map.exact(jnp.pad(observations, pad), h)
        seen = self.filter.look(features, h)
        now: Filtered = jax.lax.cond(
            h == 0,
            lambda: self.filter.first(seen),
            lambda: self.filter.step(carry.belief, carry.commands, seen, jnp.maximum(h - 1, 0)),
        )
        # However well it compares, what is like nothing ever seen speaks against all beliefs.
        surprise = jnp.where(seen.strange, jnp.maximum(now.surprise, _STRANGE), now.surprise)
        doubt = jnp.clip(carry.doubt + surprise, 0.0, 50.0)
        commands = self.choose(now.belief, h)
        return Carried(now.belief, commands, doubt), commands[:rows]

    def likeliest(self, carry: Carried, h: jax.Array) -> jax.Array:
        """The states that episodes are most likely in at step h, [N]."""
        belief = carry.belief
        slots = jnp.arange(self.chain.num_slots)[:, None]
        # argmax, but two plain reductions, which the compiler turns into vectors
        likely = belief == belief.max(axis=0, keepdims=True)
        first = jnp.where(likely, slots, belief.shape[0]).min(axis=0)
        return at(self.chain.states, h)[first]

    def choose(self, belief: jax.Array, h: jax.Array) -> jax.Array:
        """What is best for beliefs [M, N], [N]."""
        worth = (belief[:, None, :] * self.advantage[h][:, :, None]).sum(axis=0)
        return worth.argmax(axis=0).astype(jnp.int32)


def advantages(plan: RobustPlan, chain: Chain) -> jax.Array:
    """How much less than the plan's action each one is worth, by slot, [H, M, A]; never above 0."""
    sim, eta = plan.simulator, plan.eta
    table = np.zeros((sim.horizon, chain.num_slots, sim.num_actions), np.float32)
    value = np.zeros(sim.num_states)
    rows, states = np.arange(chain.num_slots), np.asarray(chain.states)
    for h in reversed(range(sim.horizon)):
        worth = sim.reward_at(h) + value[sim.successor_at(h)]
        most, least = worth.max(axis=1), worth.min(axis=1)
        value = (1 - eta) * most + eta * least
        here = np.maximum(at(states, h), 0)
        table[h] = np.minimum(worth - most[:, None], 0)[here]
        tie = _TIE * max(float((most - least).max()), 1e-9)
        best = table[h][rows, plan.actions[h, here]] = 0.0
        worse = np.minimum(table[h], -tie)
        worse[rows, plan.actions[h, here]] = best
        table[h] = worse
    return on_device(table)
