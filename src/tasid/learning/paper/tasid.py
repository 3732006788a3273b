"""TASID (Algorithm 2): transfer from an abstract simulator using inverse dynamics.

Plan robustly on the map; then, step by step, learn which action really happened between two
observations, track the latent state by replaying those actions on the map, and act by the plan.

Guarantee (Theorem 2): if the target's latent MDP is an η-perturbation of the map, η < ½, and the
model class is realisable, the returned policy is ε-close to the robust one with latent access,
with a number of episodes that does not depend on the number of states.

This file is the algorithm; how a step's model is fitted is the business of `paper_method`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from tasid.maps import RobustPlan
from tasid.policies.decoder import WIDTH, Decoder, Tracked
from tasid.targets.batches import episode_tables
from tasid.targets.rollout import roll
from tasid.targets.streams import ACTING
from tasid.targets.target import Target, episode_keys, seed_key, stream, unfinished

if TYPE_CHECKING:
    from jaxtyping import Array, Bool, Int, Shaped


@dataclass(frozen=True)
class EpochEnded:
    """One pass over the training data of a step."""

    seed: int
    step: int
    epoch: int
    training_loss: float
    validation_loss: float


@dataclass(frozen=True)
class StepEnded:
    """One step's model is learned."""

    seed: int
    step: int
    steps: int
    episodes: int
    """Episodes spent on this step."""
    validation_loss: float
    epochs: int
    seconds_collecting: float
    seconds_fitting: float


Event = EpochEnded | StepEnded
Callback = Callable[[Event], None]
"""Progress bars, records and loggers are functions of events."""


class Explored(NamedTuple):
    """Transitions of one step, each from an episode of its own; all arrays are [n, …]."""

    x: Shaped[Array, "n ..."]
    x_next: Shaped[Array, "n ..."]
    states: Int[Array, " n"]
    """ŝ_h, where the policy believed to be."""
    command: Int[Array, " n"]
    """The action that was executed, drawn uniformly."""
    live: Bool[Array, " n"]
    """Had the episode not ended before this step? If it had, it counts, and teaches nothing."""
    cluster: Int[Array, " n"] | None = None
    """φ̂(x_0), where every cluster of starts has models of its own."""


class Fitted(NamedTuple):
    """How the fit of one step went."""

    validation_loss: float
    epochs: int
    history: Sequence[tuple[float, float]]
    """Training and validation loss of every epoch."""


class Learner(Protocol):
    """Fits the steps' models; the decoder is its product, extended step by step."""

    @property
    def decoder(self) -> Decoder:
        """The decoder so far."""

    @property
    def episodes(self) -> int:
        """How many episodes a step takes."""

    def learn(self, h: int, data: Explored) -> Fitted:
        """Fit the model of step h and give it to the decoder."""


@dataclass(frozen=True)
class Learned:
    """What a run of the algorithm returns: plan, decoder, and how each step went."""

    seed: int
    plan: RobustPlan
    decoder: Decoder
    episodes: int
    steps: tuple[StepEnded, ...]


def tasid(
    target: Target,
    plan: RobustPlan,
    learner: Learner,
    *,
    seed: int,
    callbacks: Sequence[Callback] = (),
) -> Learned:
    """Algorithm 2 from line 4 on.

    Line 1 made the `plan`; by line 3, the decoder that the `learner` starts with acts at the
    first step by the plan at the start state.
    """
    key, history = seed_key(seed), list[StepEnded]()
    steps = plan.simulator.horizon - 1

    for h in range(steps):
        # Lines 5–10: roll in with π, explore one step, remember the transition.
        started = time.perf_counter()
        data = collect(target, learner.decoder, key, h, episodes=learner.episodes)
        collected = time.perf_counter()
        # Lines 11–14: fit f_h; α_h, φ_{h+1} and π_{h+1} are the decoder with one model more.
        fitted = learner.learn(h, data)
        ended = StepEnded(
            seed=seed,
            step=h,
            steps=steps,
            episodes=learner.episodes,
            validation_loss=fitted.validation_loss,
            epochs=fitted.epochs,
            seconds_collecting=collected - started,
            seconds_fitting=time.perf_counter() - collected,
        )
        history.append(ended)
        _announce(callbacks, ended, fitted.history)

    episodes = sum(step.episodes for step in history)
    return Learned(seed, plan, learner.decoder, episodes, tuple(history))


def collect(target: Target, decoder: Decoder, key: jax.Array, h: int, *, episodes: int) -> Explored:
    """Fresh episodes 0 … episodes − 1 of step h."""
    arguments = decoder, key, jnp.int32(h)
    found: Explored = episode_tables(target, _explore, *arguments, episodes=episodes, width=WIDTH)
    return found


def _explore(target: Target, decoder: Decoder, key: jax.Array, h: Any, first: Any) -> Explored:
    """Lines 7–9 for one batch of fresh episodes of step h."""
    return explore(target, decoder, _draw_episodes(key, h, first), h)


def explore(target: Target, decoder: Decoder, keys: jax.Array, h: Any) -> Explored:
    """Lines 7–9: follow π for h steps, execute a uniformly random action, look again."""
    moment = roll(target, decoder, keys, steps=h)
    live = unfinished(target, moment.state, keys.shape[0])
    states, command = _command(decoder, moment.carry, moment.observations, keys, h)
    x = moment.observations
    _, x_next, _ = target.step(moment.state, command, h, keys)
    return Explored(x, x_next, states, command, live, moment.carry.cluster)


@jax.jit
def _draw_episodes(key: jax.Array, h: jax.Array, first: jax.Array) -> jax.Array:
    return episode_keys(key, h, first + jnp.arange(WIDTH))


@jax.jit
def _command(
    decoder: Decoder, memory: Tracked, observations: jax.Array, keys: jax.Array, h: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """ŝ_h, and an action drawn uniformly."""
    states = decoder.track(memory, observations, h)
    return states, random_actions(stream(keys, ACTING), decoder.num_actions)


def random_actions(keys: jax.Array, number: int) -> jax.Array:
    """One of so many actions for every key, uniformly, int32 [W]."""
    drawn = jax.vmap(jax.random.uniform)(keys)
    return jnp.minimum((drawn * number).astype(jnp.int32), number - 1)


def _announce(
    callbacks: Sequence[Callback], ended: StepEnded, history: Sequence[tuple[float, float]]
) -> None:
    for epoch, (training, validation) in enumerate(history):
        for callback in callbacks:
            callback(EpochEnded(ended.seed, ended.step, epoch, training, validation))
    for callback in callbacks:
        callback(ended)
