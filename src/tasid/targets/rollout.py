"""Driving an actor through a target: the one loop under learning, evaluation and diagnosis.

An actor is two functions on a batch of fixed width: `start(observations) → carry` and
`act(carry, observations, h) → (carry, actions)`. In a traceable target the loop is compiled;
elsewhere the same body runs step by step, and `batches` says how many at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from tasid.targets.target import State, Target, refuse_failures

if TYPE_CHECKING:
    from jaxtyping import Array, Float, Shaped

Carry = Any


class Actor(Protocol):
    """Something that chooses actions from observations, with a memory of its own; a pytree."""

    def start(self, observations: jax.Array) -> Carry:
        """The memory before the first decision."""

    def act(self, carry: Carry, observations: jax.Array, h: jax.Array) -> tuple[Carry, jax.Array]:
        """Look at the observations [W, …] of step h; remember, and choose actions [W]."""


class Moment(NamedTuple):
    """A batch of episodes between two actions."""

    state: State
    observations: Shaped[Array, "W ..."]
    carry: Carry
    returns: Float[Array, " W"]


def begin(target: Target, actor: Actor, keys: jax.Array) -> Moment:
    """Start an episode per key."""
    state, observations = target.reset(keys)
    carry = actor.start(observations) if target.traceable else _start(actor, observations)
    return Moment(state, observations, carry, jnp.zeros(keys.shape[0]))


def advance(
    target: Target, actor: Actor, moment: Moment, h: jax.Array, keys: jax.Array
) -> tuple[Moment, jax.Array]:
    """One step of every episode; also gives the actions taken."""
    seen = moment.carry, moment.observations, h
    carry, actions = actor.act(*seen) if target.traceable else _act(actor, *seen)
    state, observations, rewards = target.step(moment.state, actions, h, keys)
    if not target.traceable:
        refuse_failures(target, state)
    return Moment(state, observations, carry, moment.returns + rewards), actions


@jax.jit
def _start(actor: Actor, observations: jax.Array) -> Carry:
    return actor.start(observations)


@jax.jit
def _act(actor: Actor, *seen: Any) -> tuple[Carry, jax.Array]:
    return actor.act(*seen)


@jax.jit
def _step(target: Target, *given: Any) -> tuple[State, jax.Array, jax.Array]:
    return target.step(*given)


def stepper(target: Target) -> Callable[..., tuple[State, jax.Array, jax.Array]]:
    """`target.step` as a function of the target too, compiled where that can be: no actor."""
    return _step if target.traceable else lambda target, *given: target.step(*given)


def roll(target: Target, actor: Actor, keys: jax.Array, *, steps: Any) -> Moment:
    """Follow the actor for `steps` steps, a number that compiled code may learn at run time."""

    def body(h: jax.Array, moment: Moment) -> Moment:
        return advance(target, actor, moment, h, keys)[0]

    moment = begin(target, actor, keys)
    if target.traceable:
        return jax.lax.fori_loop(0, steps, body, moment)
    for h in range(int(steps)):
        moment = body(jnp.int32(h), moment)
    return moment


def trace(
    target: Target,
    actor: Actor,
    keys: jax.Array,
    *,
    record: Callable[[Moment, jax.Array, Moment, jax.Array], Any],
) -> tuple[Moment, Any]:
    """Whole episodes, with `record(before, actions, after, h)` of every step stacked to [H, …]."""

    def body(moment: Moment, h: jax.Array) -> tuple[Moment, Any]:
        after, actions = advance(target, actor, moment, h, keys)
        return after, record(moment, actions, after, h)

    moment = begin(target, actor, keys)
    steps = jnp.arange(target.horizon)
    if target.traceable:
        return jax.lax.scan(body, moment, steps)
    records = []
    for h in steps:
        moment, one = body(moment, h)
        records.append(one)
    return moment, jax.tree.map(lambda *xs: jnp.stack(xs), *records)
