"""Proximal policy optimisation (Schulman et al., 2017), the paper's baseline, compiled.

An iteration collects a batch of whole episodes, estimates advantages by GAE and updates policy and
critic, two separate networks. With ρ = π(a|x) / π_old(a|x) and the critic's target G = A + V(x),

    L(π) = −E[min(ρ A, clip(ρ, 1−ε, 1+ε) A)] − c E[entropy of π(·|x)]        L(V) = ½ E[(V(x) − G)²]
    A_t = δ_t + γλ A_{t+1},   δ_t = r_t + γ V(x_{t+1}) − V(x_t),   V = 0 after the last step

RND adds its bonus to the rewards. EPOpt (Rajeswaran et al., 2017) learns from the worst episodes of
the batch only. The policy gets the observation and nothing else, no step number in particular.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from reproduction.networks import MLP, Adam, Trained, jax_key, weighted_mean
from reproduction.rnd import RND
from tasid import Policy
from tasid.keys import Keys
from tasid.targets.base import JaxTarget, Target, stream
from tasid.targets.rollout import rollout

ACTION_STREAM = (1 << 28) + 64
"""Under an episode's key: plus h, the draw of the policy's action at step h."""


@dataclass(frozen=True)
class PPOConfig:
    """Hyper-parameters; the defaults are the paper's for the lock, where it states them.

    The paper does not state the advantage estimator, its standardisation or the critic.
    """

    batch_episodes: int = 100
    """Episodes per iteration."""
    updates: int = 4
    """Updates per batch (the paper's Table 2)."""
    updates_are: str = "passes"
    """What `updates` counts: "passes" over the batch, or "minibatches" of one pass."""
    minibatch: int = 32
    minibatch_of: str = "transitions"
    """What `minibatch` counts: "transitions", or "episodes" (as many transitions as they have)."""
    clip: float = 0.1
    discount: float = 0.999
    gae_lambda: float = 0.95
    standardise: bool = True
    """Scale the advantages of each batch to mean 0 and standard deviation 1?"""
    entropy: float = 0.001
    hidden: tuple[int, ...] = (56, 56)
    adam: Adam = field(default_factory=Adam)
    """Of policy and critic, each with its own gradient norm."""
    rnd: RND | None = None
    epopt_epsilon: float = 1.0
    """Share of the worst episodes of each batch to learn from; 1 is all of them."""


class TrainState(NamedTuple):
    """Everything that training continues from."""

    iteration: jax.Array
    policy: Trained
    critic: Trained
    rnd: Any


class Batch(NamedTuple):
    """Whole episodes, steps first."""

    observations: jax.Array
    """x_0 … x_H as the networks take them, [H+1, B, d]."""
    actions: jax.Array
    """[H, B]."""
    rewards: jax.Array
    """[H, B]."""
    valid: jax.Array
    """1 until the episode ended, then 0, [H, B]."""


class Transitions(NamedTuple):
    """Rows to learn from, [n, …]."""

    x: jax.Array
    x_next: jax.Array
    action: jax.Array
    log_prob: jax.Array
    """ln π_old(a | x)."""
    advantage: jax.Array
    value: jax.Array
    """The critic's target G."""
    weight: jax.Array
    """1 for transitions to learn from, else 0."""


@dataclass(frozen=True)
class PPO:
    """The algorithm for one kind of target; hashable, a static argument of `jit`."""

    config: PPOConfig
    num_inputs: int
    num_actions: int
    horizon: int

    @classmethod
    def of(cls, config: PPOConfig, target: Target) -> PPO:
        """For the observations, actions and episodes of a target."""
        inputs = math.prod(target.observation_shape)
        return cls(config, inputs, target.num_actions, target.horizon)

    @property
    def policy(self) -> MLP:
        """From an observation to the logits of actions."""
        return MLP(self.num_inputs, self.num_actions, self.config.hidden)

    @property
    def critic(self) -> MLP:
        """From an observation to its value."""
        return MLP(self.num_inputs, 1, self.config.hidden)

    def init(self, key: jax.Array) -> TrainState:
        """Fresh networks."""
        keys, adam = jax.random.split(key, 3), self.config.adam
        return TrainState(
            jnp.int32(0),
            adam.init(self.policy.init(keys[0])),
            adam.init(self.critic.init(keys[1])),
            self.config.rnd and self.config.rnd.init(keys[2], self.num_inputs),
        )

    def iterate(
        self, state: TrainState, target: Target, keys: Keys, shuffle_key: jax.Array
    ) -> tuple[TrainState, NDArray[np.float32]]:
        """One iteration on the episodes of these keys [B, 2]; also their returns [B]."""
        if isinstance(target, JaxTarget):
            batch = self._collect(target, state.policy.parameters, keys)
        else:
            batch = self._collect_on_host(target, state.policy.parameters, keys)
        return self.improve(state, batch, shuffle_key), np.asarray(batch.rewards.sum(axis=0))

    @partial(jax.jit, static_argnums=0)
    def _collect(self, target: JaxTarget, policy: jax.Array, data: Keys) -> Batch:
        keys = jax_key(data)

        def step(carry: Any, h: jax.Array) -> tuple[Any, Any]:
            state, observations = carry
            x = features(observations)
            actions = self.sample(policy, x, keys, h)
            state, observations, rewards = target.transition(state, actions, h, keys)
            return (state, observations), (x, actions, rewards)

        steps = jnp.arange(self.horizon, dtype=jnp.int32)
        (_, last), (x, actions, rewards) = jax.lax.scan(step, target.initial(keys), steps)
        x = jnp.concatenate([x, features(last)[None]])
        return Batch(x, actions, rewards, jnp.ones_like(rewards))

    def _collect_on_host(self, target: Target, policy: jax.Array, keys: Keys) -> Batch:
        episodes = rollout(target, _Sampling(self, policy, keys), keys, width=len(keys))
        observations = np.moveaxis(np.asarray(episodes.observations), 1, 0)
        return Batch(
            jnp.stack([features(x) for x in observations]),
            jnp.asarray(episodes.actions.T),
            jnp.asarray(episodes.rewards.T),
            jnp.asarray(episodes.valid[:, 1:].T, jnp.float32),
        )

    @partial(jax.jit, static_argnums=0)
    def sample(self, policy: jax.Array, x: jax.Array, keys: jax.Array, h: jax.Array) -> jax.Array:
        """a ~ π(· | x) by inverting the distribution, one uniform number per episode."""
        cumulative = jnp.cumsum(jax.nn.softmax(self.policy(policy, x), axis=-1), axis=-1)
        draws = jax.vmap(jax.random.uniform)(stream(keys, ACTION_STREAM + h))
        actions = (draws[:, None] >= cumulative).sum(axis=-1)
        return jnp.minimum(actions, self.num_actions - 1).astype(jnp.int32)

    @partial(jax.jit, static_argnums=0)
    def improve(self, state: TrainState, batch: Batch, key: jax.Array) -> TrainState:
        """All updates on one batch."""
        config = self.config
        weight = batch.valid
        if config.epopt_epsilon < 1.0:
            weight = weight * worst_episodes(batch.rewards.sum(axis=0), config.epopt_epsilon)
        if config.rnd is not None:
            rnd, bonus = config.rnd.bonus(
                state.rnd, _rows(batch.observations[1:]), weight.reshape(-1)
            )
            batch = batch._replace(rewards=batch.rewards + bonus.reshape(weight.shape))
            state = state._replace(rnd=rnd)
        rows = self._transitions(state, batch, weight)
        steps = self.horizon if config.minibatch_of == "episodes" else 1
        size = min(config.minibatch * steps, weight.size)
        available = -(-rows.weight.sum().astype(jnp.int32) // size)
        passes, minibatches = config.updates, available
        if config.updates_are == "minibatches":
            passes, minibatches = 1, jnp.minimum(config.updates, available)

        def one_pass(number: jax.Array, state: TrainState) -> TrainState:
            shuffled = shuffle(jax.random.fold_in(key, number), rows, size)

            def update(i: jax.Array, state: TrainState) -> TrainState:
                return self._update(state, jax.tree.map(lambda table: table[i], shuffled))

            return jax.lax.fori_loop(0, minibatches, update, state)

        state = jax.lax.fori_loop(0, passes, one_pass, state)
        return state._replace(iteration=state.iteration + 1)

    def _transitions(self, state: TrainState, batch: Batch, weight: jax.Array) -> Transitions:
        """The batch as rows, with advantages by the critic so far."""
        x, actions, weights = _rows(batch.observations[:-1]), batch.actions.ravel(), weight.ravel()
        values = self.critic(state.critic.parameters, x).reshape(weight.shape)
        advantages = gae(
            batch.rewards, values, batch.valid, self.config.discount, self.config.gae_lambda
        )
        log_pi = jax.nn.log_softmax(self.policy(state.policy.parameters, x), axis=-1)
        advantage = advantages.ravel()
        if self.config.standardise:
            centred = advantage - weighted_mean(advantage, weights)
            advantage = centred / (jnp.sqrt(weighted_mean(centred**2, weights)) + 1e-8)
        return Transitions(
            x=x,
            x_next=_rows(batch.observations[1:]),
            action=actions,
            log_prob=_select(log_pi, actions),
            advantage=advantage,
            value=(advantages + values).ravel(),
            weight=weights,
        )

    def _update(self, state: TrainState, rows: Transitions) -> TrainState:
        """One step of every network on one minibatch."""
        config = self.config
        if config.rnd is not None:
            state = state._replace(rnd=config.rnd.train(state.rnd, rows.x_next, rows.weight))
        return state._replace(
            policy=config.adam.step(state.policy, partial(self.policy_loss, rows)),
            critic=config.adam.step(state.critic, partial(self.critic_loss, rows)),
        )

    def policy_loss(self, rows: Transitions, parameters: jax.Array) -> jax.Array:
        """L(π) on a minibatch."""
        log_pi = jax.nn.log_softmax(self.policy(parameters, rows.x), axis=-1)
        ratio = jnp.exp(_select(log_pi, rows.action) - rows.log_prob)
        clipped = jnp.clip(ratio, 1.0 - self.config.clip, 1.0 + self.config.clip)
        gain = jnp.minimum(ratio * rows.advantage, clipped * rows.advantage)
        entropy = -(jnp.exp(log_pi) * log_pi).sum(axis=-1)
        return -weighted_mean(gain + self.config.entropy * entropy, rows.weight)

    def critic_loss(self, rows: Transitions, parameters: jax.Array) -> jax.Array:
        """L(V) on a minibatch."""
        error = self.critic(parameters, rows.x)[:, 0] - rows.value
        return 0.5 * weighted_mean(error**2, rows.weight)


class _Sampling(Policy):
    """Acts by sampling, for targets that are stepped on the host."""

    def __init__(self, ppo: PPO, parameters: jax.Array, keys: Keys) -> None:
        self.ppo, self.parameters = ppo, parameters
        self.keys = jax_key(keys)

    def init(self, n: int) -> None:
        return None

    def act(self, memory: None, observations: NDArray[Any], h: int) -> Any:
        x = features(observations)
        return None, np.asarray(self.ppo.sample(self.parameters, x, self.keys, np.int32(h)))

    def save(self, path: str | Path) -> Path:
        raise NotImplementedError("a policy that is still being trained is saved by its trainer")


def gae(
    rewards: jax.Array, values: jax.Array, valid: jax.Array, discount: float, gae_lambda: float
) -> jax.Array:
    """Generalised advantage estimates A_t [H, B]; nothing follows the last step of an episode."""
    continues = jnp.concatenate([valid[1:], jnp.zeros_like(valid[:1])])
    next_values = jnp.concatenate([values[1:], jnp.zeros_like(values[:1])])
    deltas = rewards + discount * continues * next_values - values

    def backward(following: jax.Array, step: Any) -> tuple[jax.Array, jax.Array]:
        delta, continued = step
        advantage = delta + discount * gae_lambda * continued * following
        return advantage, advantage

    initial = jnp.zeros_like(values[0])
    return jax.lax.scan(backward, initial, (deltas, continues), reverse=True)[1]


def worst_episodes(returns: jax.Array, epsilon: float) -> jax.Array:
    """EPOpt's selection: True where a return is at or below the ε-quantile of returns [B].

    The quantile is the ⌈εB⌉-th smallest return; ties with it are selected too.
    """
    # Slightly less than εB, so that 0.55 · 100 = 55.00000000000001 means 55.
    rank = max(1, math.ceil(epsilon * returns.shape[0] - 1e-9))
    return returns <= jnp.sort(returns)[rank - 1]


def shuffle(key: jax.Array, rows: Transitions, size: int) -> Transitions:
    """Rows in random order as minibatches [k, size, …]; rows of weight 0 come last."""
    order = jnp.argsort(jax.random.uniform(key, rows.weight.shape) + (rows.weight == 0))
    padding = -order.size % size

    def cut(table: jax.Array) -> jax.Array:
        padded = jnp.pad(table[order], [(0, padding), *[(0, 0)] * (table.ndim - 1)])
        return padded.reshape(-1, size, *table.shape[1:])

    return jax.tree.map(cut, rows)


def features(observations: Any) -> jax.Array:
    """Observations [n, …] as the networks take them: float32 [n, d], images divided by 255."""
    scale = 255.0 if observations.dtype == np.uint8 else 1.0
    return jnp.asarray(observations, jnp.float32).reshape(len(observations), -1) / scale


def _rows(table: jax.Array) -> jax.Array:
    """[H, B, d] as [H·B, d]."""
    return table.reshape(-1, table.shape[-1])


def _select(table: jax.Array, actions: jax.Array) -> jax.Array:
    """table[i, actions[i]], written so that its gradient is no scatter."""
    chosen = actions[:, None] == jnp.arange(table.shape[-1])[None]
    return jnp.where(chosen, table, 0.0).sum(axis=-1)
