"""Block MDPs: a latent MDP behind an emission process.

The latent MDP is an η-perturbation of a map: the commanded action a becomes a' ~ ξ_h(· | s, a),
the next state is T°_h(s, a'), the reward R°_h(s, a'), and the learner observes x' ~ q(· | s').
Episodes may differ in circumstances that stay the same from their first to their last step, such as
the light.

A `BlockMDP` is a pytree of tables. Instances of one shape share one compiled program; map, options
and the latent world stay on the host. `BlockMDP.latent` opens the door to the true states: it is
for evaluation, never for learning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from tasid.keys import Keys
from tasid.planning import (
    PerturbedMDP,
    RobustPlan,
    blind_value,
    optimal_value,
    policy_value,
    robust_dp,
)
from tasid.policy import Policy
from tasid.simulator import AbstractSimulator
from tasid.targets.base import JaxTarget, State, compiled, stream

# Streams of random numbers under an episode's key. Emissions have odd numbers: 1 for the first
# observation and 3 + 2h for the one after step h; the outcome of step h has number 2 + 2h.
_START, _FIRST_EMISSION, _OUTCOME = 0, 1, 2
_PLACED_EMISSION = 1 << 26
_CIRCUMSTANCES = 1 << 27
_BRANCH = 1 << 29


class Emission(Protocol):
    """q(x | s): a pytree that draws observations."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of an observation."""

    dtype: str
    """Type of its numbers."""

    @property
    def bounds(self) -> tuple[float, float]:
        """Smallest and largest number in an observation."""

    def __call__(self, keys: jax.Array, states: jax.Array, circumstances: Any) -> jax.Array:
        """Observations [n, …] of states [n], in the circumstances of their episodes or None."""


class Circumstances(Protocol):
    """What stays the same throughout an episode and differs between episodes: a pytree."""

    def draw(self, keys: jax.Array) -> Any:
        """Circumstances of n episodes, a tuple of arrays [n, …]."""


@jax.tree_util.register_pytree_node_class
class BlockMDP(JaxTarget):
    """A target that is a block MDP, with the map a user would have.

    Parameters
    ----------
    world
        The latent MDP.
    emission
        q(x | s).
    name, options
        `tasid.make(name, **options)` builds the same instance.
    simulator
        The user's map if it is not the one that `world` perturbs.
    circumstances
        What differs between episodes, if anything does.
    """

    simulator: AbstractSimulator
    environment: Mapping[str, Any]
    _TABLES = (
        "successor",
        "reward",
        "outcome",
        "branch",
        "starts",
        "start_outcome",
        "emission",
        "circumstances",
    )

    def __init__(
        self,
        world: PerturbedMDP,
        emission: Emission,
        *,
        name: str,
        options: Mapping[str, Any],
        simulator: AbstractSimulator | None = None,
        circumstances: Circumstances | None = None,
    ) -> None:
        sim = world.simulator
        self.simulator = sim if simulator is None else simulator
        self.name, self.options = name, dict(options)
        self.environment = {"name": name, "options": self.options}
        self.horizon, self.num_actions = sim.horizon, sim.num_actions
        self.observation_shape, self.observation_dtype = emission.shape, emission.dtype
        self._world = world
        self.successor = on_device(sim.successor, np.int32)
        self.reward = on_device(sim.reward, np.float32)
        self.outcome = on_device(np.cumsum(world.xi, axis=-1), np.float32)
        """ξ summed along a', [S, A, A] or [H, S, A, A], to be inverted by a uniform number."""
        self.branch: Any = None
        """Probabilities of successors summed along B on stochastic maps, [S, A, B]."""
        if sim.probabilities is not None:
            if not sim.reward_per_transition:
                reward = np.broadcast_to(sim.reward[..., None], sim.successor.shape)
                self.reward = on_device(reward, np.float32)
            self.branch = on_device(np.cumsum(sim.probabilities, axis=-1), np.float32)
        self.starts = on_device(sim.starts, np.int32)
        self.start_outcome = on_device(np.cumsum(sim.start_probabilities), np.float32)
        self.emission, self.circumstances = emission, circumstances

    def tree_flatten(self) -> tuple[tuple[Any, ...], None]:
        """The tables; nothing else takes part in compilation."""
        return tuple(getattr(self, name) for name in self._TABLES), None

    @classmethod
    def tree_unflatten(cls, aux: None, tables: Sequence[Any]) -> BlockMDP:
        """The compiled side of a target: its tables without map, options and latent world."""
        target = object.__new__(cls)
        target.__dict__.update(zip(cls._TABLES, tables, strict=True))
        return target

    @property
    def observation_bounds(self) -> tuple[float, float]:
        """Smallest and largest number in an observation."""
        return self.emission.bounds

    def initial(self, keys: jax.Array) -> tuple[State, jax.Array]:
        """s_0 ~ μ, x_0 ~ q(· | s_0)."""
        uniform = jax.vmap(jax.random.uniform)(stream(keys, _START))
        states = self.starts[_invert(self.start_outcome, uniform)]
        return states, self.emission(stream(keys, _FIRST_EMISSION), states, self._draw(keys))

    def transition(
        self, state: State, actions: jax.Array, h: jax.Array, keys: jax.Array
    ) -> tuple[State, jax.Array, jax.Array]:
        """a' ~ ξ_h(· | s, a), s' = T°_h(s, a'), r = R°_h(s, a'), x' ~ q(· | s')."""
        uniform = jax.vmap(jax.random.uniform)(stream(keys, _OUTCOME + 2 * h))
        happened = _invert(_at(self.outcome, 3, h, state, actions), uniform)
        chosen: tuple[jax.Array, ...] = (state, happened)
        if self.branch is not None:
            uniform = jax.vmap(jax.random.uniform)(stream(keys, _BRANCH + h))
            chosen = *chosen, _invert(_at(self.branch, 3, h, state, happened), uniform)
        rewards = _at(self.reward, len(chosen), h, *chosen)
        state = _at(self.successor, len(chosen), h, *chosen)
        of_step = stream(keys, _FIRST_EMISSION + 2 * (h + 1))
        return state, self.emission(of_step, state, self._draw(keys)), rewards

    def placed(self, states: jax.Array, keys: jax.Array) -> tuple[State, jax.Array]:
        """Traceable `place`."""
        return states, self.emission(stream(keys, _PLACED_EMISSION), states, self._draw(keys))

    def place(self, states: ArrayLike, keys: Keys) -> tuple[State, NDArray[Any]]:
        """Episodes [n] that are moved to these states (one or [n]), and observations there."""
        states = np.broadcast_to(np.asarray(states, np.int32), len(keys))
        state, observations = compiled("placed")(self, states, keys)
        return state, np.asarray(observations)

    def _draw(self, keys: jax.Array) -> Any:
        """Circumstances, drawn again from the same key at every step instead of being carried."""
        if self.circumstances is None:
            return None
        return self.circumstances.draw(stream(keys, _CIRCUMSTANCES))

    @property
    def latent(self) -> Latent:
        """The door to the true states, for evaluation only."""
        return Latent(self._world, self)

    def latent_on(self, simulator: AbstractSimulator) -> Latent | None:
        """`latent` if the map has the states of this target, in the same order."""
        own = self.simulator
        same = simulator is own or (
            np.array_equal(simulator.successor, own.successor)
            or (simulator.labels is not None and simulator.labels == own.labels)
        )
        return self.latent if same and simulator.num_actions == own.num_actions else None


@dataclass(frozen=True, eq=False)
class Latent:
    """The true dynamics and states of a target: for evaluation and diagnosis only."""

    world: PerturbedMDP
    """The latent MDP."""
    _target: BlockMDP | None = None
    """The block MDP; None for other targets whose dynamics are known."""

    def robust_value(self, plan: RobustPlan) -> float:
        """Exact value of the plan here for an oracle that sees the true state."""
        return policy_value(self.world, plan)

    def optimal_value(self) -> float:
        """Exact value of the best policy for an oracle that sees the true state."""
        return optimal_value(self.world)

    def open_loop_value(self) -> float:
        """Exact value of the best constant action or of the open-loop nominal plan."""
        return blind_value(self.world)

    def states(self, state: State) -> NDArray[np.int32]:
        """The true states [n] inside the target's opaque state; [n, 0] if it does not have them."""
        known = self._target is not None
        return np.asarray(state) if known else np.zeros((len(state), 0), np.int32)

    def oracle_target(self) -> BlockMDP:
        """The same target with the true state as observation, int32 []; same keys, same states."""
        target = self._target
        assert target is not None, "only block MDPs have an oracle target"
        return BlockMDP(
            self.world,
            _StateEmission(),
            name=target.name,
            options=target.options,
            simulator=target.simulator,
            circumstances=target.circumstances,
        )

    def robust_policy(self, plan: RobustPlan | None = None) -> OraclePolicy:
        """ρ∘φ* of the paper: a plan that acts on the true state.

        Without a plan, the robust plan for the η of this environment.
        """
        if plan is None:
            assert self._target is not None
            plan = robust_dp(self._target.simulator, eta=self._target.options.get("eta", 0.1))
        return OraclePolicy(plan)


class OraclePolicy(Policy):
    """A plan that acts on the true state."""

    observation_shape = ()
    observation_dtype = "int32"
    method = "oracle"
    plan: RobustPlan

    def __init__(self, plan: RobustPlan) -> None:
        self.plan = plan
        self.horizon, self.num_actions = plan.simulator.horizon, plan.simulator.num_actions

    def view(self, target: Any) -> BlockMDP:
        """The target with true states as observations; a target with them is left as it is."""
        assert isinstance(target, BlockMDP), "an oracle acts in environments with true states"
        return target.latent.oracle_target() if target.observation_shape else target

    def init(self, n: int) -> None:
        """Nothing is remembered."""

    def act(
        self, memory: None, observations: NDArray[Any], h: int
    ) -> tuple[None, NDArray[np.int32]]:
        """ρ_h(s)."""
        return None, self.plan.actions[h][observations].astype(np.int32)

    def save(self, path: str | Path) -> Path:
        """Refused: it has no observations to act on outside of environments with true states."""
        raise TypeError(f"save: {path}: an oracle policy reads true states; save its plan instead")


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class _StateEmission:
    """x = s."""

    shape = ()
    dtype = "int32"
    bounds = (0, np.iinfo(np.int32).max)

    def __call__(self, keys: jax.Array, states: jax.Array, circumstances: Any) -> jax.Array:
        return states


def on_device(table: ArrayLike, dtype: DTypeLike | None = None) -> jax.Array:
    """A copy of a table for compiled code; unlike `jnp.asarray` it compiles nothing."""
    return jax.device_put(np.array(table, dtype))


def _at(table: jax.Array, static_ndim: int, h: jax.Array, *index: jax.Array) -> jax.Array:
    """Entries of a table that is the same at every step, or has a leading axis of steps."""
    return table[index] if table.ndim == static_ndim else table[(h, *index)]


def _invert(cumulative: jax.Array, uniform: jax.Array) -> jax.Array:
    """Indices [n] drawn from distributions that are summed up along the last axis."""
    index = (uniform[:, None] >= cumulative).sum(axis=-1)
    return jnp.minimum(index, cumulative.shape[-1] - 1)
