"""PPO (Schulman et al., 2017), the paper's baseline, with whole training iterations compiled.

An iteration collects a batch of whole episodes, computes advantages by GAE and makes several
passes of minibatch updates over the batch. With ρ = π(a|x) / π_old(a|x), and G = A + V(x) as the
critic's target, policy and critic are separate networks that descend

    L(π) = −E[min(ρ A, clip(ρ, 1−ε, 1+ε) A)] − c E[entropy of π(·|x)]        L(V) = ½ E[(V(x) − G)²]
    A_t = δ_t + γλ A_{t+1},   δ_t = r_t + γ V(x_{t+1}) − V(x_t),   V = 0 after the last step

What varies plugs in: the target of a batch may be drawn from a family, RND adds to the rewards, a
`Keep` says which episodes count. This file is one iteration; `tasid.baselines.training.ppo` makes
many.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tasid.baselines.families import Randomized
from tasid.baselines.rnd import RND
from tasid.models.fit import ADAM, Descent, NetworkState
from tasid.models.networks import Sight, sight_of
from tasid.policies.ppo_policy import flat
from tasid.targets.batches import in_batches
from tasid.targets.rollout import Moment, trace
from tasid.targets.streams import ACTING, SHUFFLING, STARTING, TRAINING
from tasid.targets.target import Target, episode_keys, stream

Keep = Callable[[jax.Array], jax.Array]
"""Which episodes of a batch to learn from, by their returns: float [B] → bool [B]; hashable."""


@dataclass(frozen=True)
class PPOConfig:
    """Hyper-parameters; the defaults are the paper's for the lock, where it states them.

    It does not say how advantages are estimated (here GAE with λ = 0.95), whether they are brought
    to mean 0 and deviation 1 over each batch (here they are; both are usual), what the critic is (a
    network like the policy's), nor whether one clip spans several networks (here each has its own).
    """

    batch: int = 100
    """Episodes per iteration."""
    passes: int = 4
    minibatch: int = 32
    """Transitions per update."""
    clip: float = 0.1
    discount: float = 0.999
    decay: float = 0.95
    """λ of GAE."""
    standardise: bool = True
    """Bring the advantages of every batch to mean 0 and standard deviation 1?"""
    entropy: float = 0.001
    hidden: tuple[int, ...] = (56, 56)
    descent: Descent = ADAM
    bonus: RND | None = None
    keep: Keep | None = None

    def networks(self, target: Target) -> tuple[Sight, Sight]:
        """Policy and critic for a target."""
        shape, hidden = target.observation_shape, self.hidden
        return sight_of(shape, target.num_actions, hidden), sight_of(shape, 1, hidden)


class PPOState(NamedTuple):
    """Everything that training goes on from."""

    batches: jax.Array
    """How many iterations were made."""
    policy: NetworkState
    critic: NetworkState
    bonus: Any


class Experience(NamedTuple):
    """A batch of whole episodes."""

    seen: jax.Array
    """x_0 … x_H as the networks take them, [H+1, B, d]."""
    actions: jax.Array
    rewards: jax.Array
    alive: jax.Array | None
    """False after an early end; None if there are no early ends. All three are [H, B]."""


class Rows(NamedTuple):
    """Transitions to learn from, in any order: [N, …]."""

    x: jax.Array
    x_next: jax.Array | None
    """None if nobody asks for it."""
    action: jax.Array
    log_prob: jax.Array
    """ln π_old(a | x)."""
    advantage: jax.Array
    value: jax.Array
    """The critic's target."""
    weight: jax.Array
    """1 for transitions that count, 0 for those that do not."""


def start(config: PPOConfig, target: Target, key: jax.Array) -> PPOState:
    """Fresh networks."""
    policy, critic = config.networks(target)
    keys = jax.random.split(jax.random.fold_in(key, STARTING), 3)
    return PPOState(
        jnp.int32(0),
        config.descent.start(policy.init(keys[0])),
        config.descent.start(critic.init(keys[1])),
        config.bonus and config.bonus.start(keys[2], policy.inputs),
    )


def iterate(
    config: PPOConfig, source: Target | Randomized, state: PPOState, key: jax.Array
) -> tuple[PPOState, jax.Array]:
    """One iteration; also gives the returns of its episodes [B]."""
    first = state.batches * config.batch
    target = source.target(key, first) if isinstance(source, Randomized) else source
    networks = config.networks(target)
    keys = episode_keys(key, TRAINING, first + jnp.arange(config.batch))
    experience = collect(target, networks[0], state.policy.parameters, keys)
    shuffling = jax.random.fold_in(jax.random.fold_in(key, SHUFFLING), state.batches)
    state = improve(config, networks, state, experience, shuffling)
    return state, experience.rewards.sum(axis=0)


# ---------------------------------------------------------------- collecting


@partial(
    jax.tree_util.register_dataclass, data_fields=["parameters", "keys"], meta_fields=["network"]
)
@dataclass(frozen=True)
class Sampling:
    """An actor that draws a ~ π(· | x); episode i draws from keys[i]."""

    parameters: jax.Array
    keys: jax.Array
    network: Sight

    def start(self, observations: jax.Array) -> tuple[()]:
        """There is nothing to remember."""
        return ()

    def act(
        self, carry: tuple[()], observations: jax.Array, h: jax.Array
    ) -> tuple[tuple[()], jax.Array]:
        """Invert the distribution by one uniform number an episode."""
        scores = self.network.apply(self.parameters, flat(observations))
        chances = jnp.cumsum(jax.nn.softmax(scores, axis=-1), axis=-1)
        drawn = jax.vmap(jax.random.uniform)(stream(self.keys, ACTING + h))
        below = (drawn[:, None] >= chances).sum(axis=-1)
        return carry, jnp.minimum(below, self.network.outputs - 1).astype(jnp.int32)


def collect(target: Target, network: Sight, policy: jax.Array, keys: jax.Array) -> Experience:
    """Whole episodes of the policy, one per key.

    Where episodes may end before the horizon, the target tells by a method
    `finished(state) → bool [B]`; what follows an end is no experience.
    """
    if target.traceable:
        return _collect(target, network, policy, keys)

    def run(seats: Target) -> Experience:
        found = _collect(seats, network, policy, keys)
        return jax.tree.map(lambda table: jnp.moveaxis(table, 1, 0), found)

    number = keys.shape[0]
    found: Experience = in_batches(target, run, rows=range(number), width=number)
    return jax.tree.map(lambda table: jnp.moveaxis(jnp.asarray(table), 0, 1), found)


def _collect(target: Target, network: Sight, policy: jax.Array, keys: jax.Array) -> Experience:
    def record(before: Moment, actions: jax.Array, after: Moment, h: jax.Array) -> Any:
        alive = ~jnp.asarray(target.finished(before.state)) if target.ends_early else None
        return flat(before.observations), actions, after.returns - before.returns, alive

    last, (seen, *rest) = trace(target, Sampling(policy, keys, network), keys, record=record)
    return Experience(jnp.concatenate([seen, flat(last.observations)[None]]), *rest)


# ---------------------------------------------------------------- learning


@partial(jax.jit, static_argnums=(0, 1))
def improve(
    config: PPOConfig,
    networks: tuple[Sight, Sight],
    state: PPOState,
    experience: Experience,
    key: jax.Array,
) -> PPOState:
    """Several passes of minibatch updates over one batch."""
    counts = _counts(config, experience)
    rewards, arrived = experience.rewards, None
    if config.bonus is not None:
        arrived = _flattened(experience.seen[1:])
        scored, added = config.bonus.score(state.bonus, arrived, counts.reshape(-1))
        state, rewards = state._replace(bonus=scored), rewards + added.reshape(counts.shape)
    rows = _rows(config, networks, state, experience._replace(rewards=rewards), counts)
    rows = rows._replace(x_next=arrived)
    everything = experience.alive is None and config.keep is None
    used = rows.weight.size if everything else counts.sum().astype(jnp.int32)

    def one_pass(number: jax.Array, now: PPOState) -> PPOState:
        batches = minibatches(jax.random.fold_in(key, number), rows, config.minibatch)

        def one(i: jax.Array, now: PPOState) -> PPOState:
            batch = jax.tree.map(lambda table: table[i], batches)
            return update(config, networks, now, batch)

        return jax.lax.fori_loop(0, -(-used // config.minibatch), one, now)

    state = jax.lax.fori_loop(0, config.passes, one_pass, state)
    return state._replace(batches=state.batches + 1)


def update(
    config: PPOConfig, networks: tuple[Sight, Sight], state: PPOState, batch: Rows
) -> PPOState:
    """One step of every network on one minibatch."""
    policy, critic = networks
    bonus = state.bonus
    if config.bonus is not None and batch.x_next is not None:
        bonus = config.bonus.learn(bonus, batch.x_next, batch.weight)
    return PPOState(
        state.batches,
        config.descent.step(state.policy, lambda p: policy_loss(config, policy, p, batch)),
        config.descent.step(state.critic, lambda p: critic_loss(critic, p, batch)),
        bonus,
    )


def policy_loss(config: PPOConfig, network: Sight, parameters: jax.Array, batch: Rows) -> jax.Array:
    """L(π) on a minibatch."""
    log_pi = jax.nn.log_softmax(network.apply(parameters, batch.x), axis=-1)
    ratio = jnp.exp(_of_action(log_pi, batch.action) - batch.log_prob)
    clipped = jnp.clip(ratio, 1.0 - config.clip, 1.0 + config.clip)
    gain = jnp.minimum(ratio * batch.advantage, clipped * batch.advantage)
    entropy = -(jnp.exp(log_pi) * log_pi).sum(axis=-1)
    return -weighted_mean(gain + config.entropy * entropy, batch.weight)


def critic_loss(network: Sight, parameters: jax.Array, batch: Rows) -> jax.Array:
    """L(V) on a minibatch."""
    error = network.apply(parameters, batch.x)[:, 0] - batch.value
    return 0.5 * weighted_mean(error * error, batch.weight)


def advantages(
    config: PPOConfig, rewards: jax.Array, values: jax.Array, alive: jax.Array
) -> jax.Array:
    """A_t of every step [H, B] from rewards and V(x_t); nothing follows an episode's last step."""
    onward = jnp.concatenate([alive[1:], jnp.zeros_like(alive[:1])])
    following = jnp.concatenate([values[1:], jnp.zeros_like(values[:1])])
    delta = rewards + config.discount * onward * following - values

    def back(later: jax.Array, now: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        error, on = now
        here = error + config.discount * config.decay * on * later
        return here, here

    return jax.lax.scan(back, jnp.zeros_like(values[0]), (delta, onward), reverse=True)[1]


def minibatches(key: jax.Array, rows: Rows, size: int) -> Rows:
    """The rows in a random order as [n, size, …], those that count first; weight 0 fills up."""
    order = shuffled(key, rows.weight > 0)
    missing = -order.shape[0] % size

    def cut(table: jax.Array) -> jax.Array:
        # Sorting the table once is cheaper than picking rows for every minibatch.
        picked = table.at[order].get(mode="promise_in_bounds")
        filled = jnp.pad(picked, [(0, missing), *[(0, 0)] * (table.ndim - 1)])
        return filled.reshape(-1, size, *table.shape[1:])

    return jax.tree.map(cut, rows)


def shuffled(key: jax.Array, counted: jax.Array) -> jax.Array:
    """A random order of rows [N] in which those that count come first.

    Whether it counts, a random number and the row's index are packed into one number a row, which
    sorts several times faster than pairs; rows with equal random numbers keep their order.
    """
    number = counted.shape[0]
    mask = jnp.uint32((1 << (number - 1).bit_length()) - 1)
    last = jnp.where(counted, jnp.uint32(0), jnp.uint32(1 << 31))
    drawn = (jax.random.bits(key, (number,), jnp.uint32) >> 1) & ~mask
    packed = last | drawn | jnp.arange(number, dtype=jnp.uint32)
    return (jnp.sort(packed) & mask).astype(jnp.int32)


def weighted_mean(values: jax.Array, weight: jax.Array) -> jax.Array:
    """The mean over rows of weight 1; 0 if there are none."""
    return (values * weight).sum() / jnp.maximum(weight.sum(), 1.0)


def _counts(config: PPOConfig, experience: Experience) -> jax.Array:
    """Which steps count, as 1 and 0, [H, B]."""
    counts = jnp.ones(experience.rewards.shape)
    if experience.alive is not None:
        counts = counts * experience.alive
    if config.keep is not None:
        counts = counts * config.keep(experience.rewards.sum(axis=0))[None]
    return counts


def _rows(
    config: PPOConfig,
    networks: tuple[Sight, Sight],
    state: PPOState,
    experience: Experience,
    counts: jax.Array,
) -> Rows:
    """The batch as rows, with the advantages that the critic so far gives them."""
    policy, critic = networks
    x, action = _flattened(experience.seen[:-1]), experience.actions.reshape(-1)
    weight, alive = counts.reshape(-1), experience.alive
    values = critic.apply(state.critic.parameters, x).reshape(counts.shape)
    living = jnp.ones_like(counts) if alive is None else alive.astype(jnp.float32)
    gained = advantages(config, experience.rewards, values, living)
    advantage = gained.reshape(-1)
    log_pi = jax.nn.log_softmax(policy.apply(state.policy.parameters, x), axis=-1)
    return Rows(
        x=x,
        x_next=None,
        action=action,
        log_prob=_of_action(log_pi, action),
        advantage=_standardised(advantage, weight) if config.standardise else advantage,
        value=(gained + values).reshape(-1),
        weight=weight,
    )


def _flattened(table: jax.Array) -> jax.Array:
    """[H, B, d] as [H·B, d]."""
    return table.reshape(-1, table.shape[-1])


def _of_action(table: jax.Array, action: jax.Array) -> jax.Array:
    """table[i, action[i]], written so that its gradient is no scatter."""
    chosen = action[:, None] == jnp.arange(table.shape[-1])[None]
    return jnp.where(chosen, table, 0.0).sum(axis=-1)


def _standardised(values: jax.Array, weight: jax.Array) -> jax.Array:
    centred = values - weighted_mean(values, weight)
    return centred / (jnp.sqrt(weighted_mean(centred * centred, weight)) + 1e-8)
