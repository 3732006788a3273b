"""Forward–backward over whole episodes: where was one, given all that was seen?

    α_{h+1}(s') ∝ Σ_{(s,k) → s'} α_h(s) p(k | s, a_h) ℓ(x_{h+1} | class of (s,k)) e_h(s,k)
    β_h(s)      ∝ Σ_k p(k | s, a_h) ℓ(x_{h+1} | class) e_h(s,k) β_{h+1}(s'(s,k))

e_h is what rewards and ends say. It is floored: a target may pay averages, so what it pays must
never be able to rule a state out. With probability `leap` a step leads anywhere at all, which no
map has: what goes that way tells where the map is wrong, or that somebody carried the robot away.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from tasid.beliefs.chain import Chain, after, at
from tasid.beliefs.classes import Classes
from tasid.beliefs.episodes import Episodes
from tasid.targets.device import on_device

if TYPE_CHECKING:
    from jaxtyping import Array, Float

UNLIKELY = 0.05
"""How likely a reward or an end is where the map has none, beside where it has one."""
_LEAST = 1e-9
"""Added to likelihoods beside the largest, so that float32 never divides nothing by nothing."""
_TINY = 1e-30
MANY = 64
"""Slots from which a programme of its own is worth compiling."""
NEVER = 1e-16
"""Posteriors below this are none: they would not show in any sum."""


class Emission(Protocol):
    """What classes look like; a pytree."""

    def scores(self, features: jax.Array, members: jax.Array) -> jax.Array:
        """ln p(x | c) up to what all classes share, [L, N], for features [N, D], classes [L]."""


class Weights(NamedTuple):
    """How the parts of the evidence are weighed, [] each."""

    eta: jax.Array | float
    temper: jax.Array | float = 1.0
    """Log-likelihoods of observations are multiplied by this."""
    upto: jax.Array | int = 1 << 30
    """Only the first so many observations are looked at."""
    told: jax.Array | float = 1.0
    """1 to listen to rewards and ends, 0 not to."""
    leap: jax.Array | float = 0.0

    def arrays(self) -> Weights:
        """The same as arrays, so that compiled code serves all values."""
        numbers = (self.eta, self.temper, self.told, self.leap)
        eta, temper, told, leap = (on_device(x, np.float32) for x in numbers)
        return Weights(eta, temper, on_device(self.upto, np.int32), told, leap)


class Step(NamedTuple):
    """One step of all episodes, smoothed."""

    h: jax.Array
    edges: jax.Array
    """p(slot, outcome | everything), [M, K, N]; with `leaps` it sums up to 1."""
    leaps: jax.Array
    """p(slot, then anywhere | everything), [M, N]."""
    used: jax.Array
    """Was the observation after the step looked at? [N]"""

    @property
    def slots(self) -> jax.Array:
        """p(slot | everything), [M, N]."""
        return self.edges.sum(axis=1) + self.leaps


Gather = Callable[[Any, Step], Any]


def agreeing(chain: Chain, episodes: Episodes, h: jax.Array) -> jax.Array:
    """Does an edge agree with the reward, and with the end or none, after step h? [M, K, N]"""
    final = after(chain.final, h)[at(chain.successor, h)]
    said = Said.at(episodes, h, chain.horizon)
    said = Said(*(part[None, None] for part in said))
    return said.agrees(at(chain.pays, h)[:, :, None], final[:, :, None])


class Said(NamedTuple):
    """What rewards and ends say of one step, any shape."""

    paid: jax.Array
    """The number of the reward; −1 for nothing."""
    over: jax.Array
    """Did the episode end?"""
    tells: jax.Array
    """Does that mean anything? After an end it was said already, and the horizon ends them all."""

    @classmethod
    def at(cls, episodes: Episodes, h: jax.Array, horizon: int) -> Said:
        """Of step h, [N] each."""
        later = episodes.ended <= h
        tells = episodes.tells & ~later & (h + 1 < horizon)
        return cls(jnp.where(later, -1, episodes.paid[h]), episodes.ended <= h + 1, tells)

    def agrees(self, pays: jax.Array, final: jax.Array) -> jax.Array:
        """With what an edge pays (bits) and with whether it leads where nothing more happens."""
        right = ((pays >> jnp.maximum(self.paid, 0)) & 1 == 1) | (self.paid < 0)
        return right & ((final == self.over) | ~self.tells)


def likelihoods(scores: jax.Array, used: jax.Array) -> tuple[jax.Array, jax.Array]:
    """exp(scores − largest), floored, [L, N], and the largest [N]; flat where not used.

    `used` is shaped [1, N], [L, 1] or [].
    """
    scores = jnp.where(used, scores, 0.0)
    most = scores.max(axis=0)
    return jnp.exp(scores - most[None]) + _LEAST, most


def spread(chain: Chain, edges: jax.Array, h: jax.Array) -> jax.Array:
    """Mass on edges [M, K, N] summed up where they lead, [M, N]."""
    flat = edges.reshape(-1, edges.shape[-1])
    return jax.ops.segment_sum(flat, at(chain.successor, h).reshape(-1), chain.num_slots)


def normalised(mass: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Mass [M, N] that sums up to 1, and what it summed up to [N]."""
    total = mass.sum(axis=0) + _TINY
    return mass / total[None], total


class Forward(NamedTuple):
    """The forward pass, and what the backward pass needs of it."""

    beliefs: jax.Array
    """α_0 … α_H, [H+1, M, N]."""
    evidence: jax.Array
    """ln p(observations, rewards, ends | commands), up to what all classes share, [N]."""
    used: jax.Array
    """Which observations were looked at, [H+1, N]."""
    reach: Callable[[jax.Array], tuple[jax.Array, jax.Array]]
    """What the edges of step h pass on, [M, K, N], and leaps by where they land, [M, N]."""


class Smoothed(NamedTuple):
    """What one sweep over all episodes gives."""

    start: jax.Array
    """p(first slot | everything), [M, N]."""
    gathered: Any
    forth: Forward
    beliefs: jax.Array
    """p(slot at step h | everything), [H+1, M, N]."""


def forward_pass(
    chain: Chain, classes: Classes, emission: Emission, episodes: Episodes, weights: Weights
) -> Forward:
    """Filter all episodes."""
    looked = jnp.arange(chain.horizon + 1) < weights.upto
    used = (episodes.live > 0) & looked[:, None]
    anywhere = after_any(chain)

    def seen(h: jax.Array) -> tuple[jax.Array, jax.Array]:
        scores = emission.scores(episodes.features[h + 1], after(classes.members, h))
        return likelihoods(scores * weights.temper, used[h + 1][None])

    def passing(h: jax.Array, look: jax.Array) -> jax.Array:
        agrees = jnp.where(agreeing(chain, episodes, h), 1.0, UNLIKELY**weights.told)
        prior = (1 - weights.leap) * chain.prior(h, episodes.commands[h], weights.eta)
        return prior * agrees * look[at(classes.of_edge, h)]

    def landing(h: jax.Array, look: jax.Array) -> jax.Array:
        if classes.kind != "place":  # where a leap lands must have a look of its own
            return jnp.zeros((chain.num_slots, look.shape[1]))
        return weights.leap * after(anywhere, h)[:, None] * look

    def reach(h: jax.Array) -> tuple[jax.Array, jax.Array]:
        return passing(h, looks[h]), landing(h, looks[h])

    def forward(alpha: jax.Array, h: jax.Array) -> tuple[jax.Array, tuple[jax.Array, ...]]:
        look, most = seen(h)
        mass = spread(chain, alpha[:, None, :] * passing(h, look), h) + landing(h, look)
        mass, total = normalised(mass)
        return mass, (mass, jnp.log(total) + most, look)

    scores = emission.scores(episodes.features[0], classes.first)
    look, most = likelihoods(scores * weights.temper, used[0][None])
    first, total = normalised(chain.start[:, None] * look)
    _, (later, logs, looks) = jax.lax.scan(forward, first, jnp.arange(chain.horizon))
    evidence = jnp.log(total) + most + logs.sum(axis=0)
    return Forward(jnp.concatenate([first[None], later]), evidence, used, reach)


def sweep(
    chain: Chain,
    classes: Classes,
    emission: Emission,
    episodes: Episodes,
    weights: Weights,
    *,
    gather: Gather,
    first: Any,
) -> Smoothed:
    """Smooth all episodes; `gather` folds every smoothed step, the last one first."""
    forth = forward_pass(chain, classes, emission, episodes, weights)

    def backward(
        carry: tuple[jax.Array, Any], inputs: Any
    ) -> tuple[tuple[jax.Array, Any], jax.Array]:
        beta, gathered = carry
        h, alpha = inputs
        passing, landing = forth.reach(h)
        edges = passing * beta[at(chain.successor, h)]
        landed = (landing * beta).sum(axis=0)
        joint, leaps = alpha[:, None, :] * edges, alpha * landed[None]
        total = joint.sum(axis=(0, 1)) + leaps.sum(axis=0) + _TINY
        step = Step(h, joint / total[None, None], leaps / total[None], forth.used[h + 1])
        gathered = gather(gathered, step)
        beta = (edges.sum(axis=1) + landed[None]) / total[None]
        # Scaled by what α makes of it, β is as large as can be where one may be; elsewhere it would
        # overflow, and tell nothing.
        return (jnp.where(alpha * beta > NEVER, beta, 0.0), gathered), step.slots

    carry = (jnp.ones_like(forth.beliefs[0]), first)
    steps = jnp.arange(chain.horizon), forth.beliefs[:-1]
    (beta, gathered), beliefs = jax.lax.scan(backward, carry, steps, reverse=True)
    start = normalised(forth.beliefs[0] * beta)[0]
    beliefs = jnp.concatenate([beliefs, forth.beliefs[-1:]])
    return Smoothed(start, gathered, forth, beliefs)


def after_any(chain: Chain) -> jax.Array:
    """The belief of one who may be anywhere, shaped as `chain.states`."""
    there = chain.states >= 0
    return there / there.sum(axis=1, keepdims=True)


class Expected(NamedTuple):
    """What the smoother found, summed over steps; over episodes, too, where it says so."""

    counts: Float[Array, " C"]
    """How often each class was seen, over all episodes, [C]."""
    sums: Float[Array, "C D"]
    """Sums of the features of each class, over all episodes, [C, D]."""
    evidence: Float[Array, " N"]
    """ln p(observations, rewards, ends | commands) of each episode, up to `shared`, [N]."""
    foreseen: Float[Array, " N"]
    """Σ_h ln p(this reward, and this end or none, at step h | everything), floored, [N]."""
    regret: Float[Array, " N"]
    """Σ_h E[max_a Q̃_h(s, a) − Q̃_h(s, a_h)] of the policy's own commands, [N]."""


class Tally(NamedTuple):
    """How often commands had which outcome, [T, M, A, K], and how often none on the map."""

    outcomes: Float[Array, "T M A K"]
    leaps: Float[Array, "T M A"]
    """[T, M, A]."""


class Hindsight(NamedTuple):
    """All that a sweep over whole episodes tells, so that one compiled programme serves everybody.

    Compiling takes longer than most sweeps do.
    """

    expected: Expected
    before: Float[Array, "H+1 M N"]
    """p(slot at step h | observations up to step h), [H+1, M, N]."""
    after: Float[Array, "H+1 M N"]
    """p(slot at step h | everything), [H+1, M, N]."""
    tally: Tally
    """What the commands came to."""


def _hindsight(
    chain: Chain,
    classes: Classes,
    emission: Emission,
    episodes: Episodes,
    weights: Weights,
    advantage: jax.Array,
    features: jax.Array,
) -> Hindsight:
    """The expectation step: who looked how often, and how, and what that says of the policy.

    `features` [H+1, N, D] are summed up; they may be others than those that places are told by.
    """

    def gather(so_far: tuple[Expected, Tally], step: Step) -> tuple[Expected, Tally]:
        (counts, sums, evidence, foreseen, regret), came_to = so_far
        h, weight = step.h, step.used * episodes.weight
        right = (step.edges * agreeing(chain, episodes, h)).sum(axis=(0, 1))
        foreseen = foreseen + jnp.log(jnp.maximum(right, UNLIKELY))
        lost = step.slots * -advantage[h][:, episodes.commands[h]]
        regret = regret + lost.sum(axis=0) * episodes.own[h]
        members, told = _by_class(classes, step, weight)
        counts = counts.at[members].add(told.sum(axis=1))
        sums = sums.at[members].add(told @ features[h + 1])
        given = jax.nn.one_hot(episodes.commands[h], chain.num_actions) * weight[:, None]
        t = h if chain.successor.shape[0] > 1 else 0
        came_to = Tally(
            came_to.outcomes.at[t].add(jnp.einsum("mkn,na->mak", step.edges, given)),
            came_to.leaps.at[t].add(step.leaps @ given),
        )
        return Expected(counts, sums, evidence, foreseen, regret), came_to

    none = jnp.zeros(episodes.weight.shape[0])
    nobody = jnp.zeros(classes.number), jnp.zeros((classes.number, features.shape[-1]))
    steps, slots, number = chain.successor.shape
    shape = (steps, slots, chain.num_actions)
    nothing = Tally(jnp.zeros((*shape, number)), jnp.zeros(shape))
    first = Expected(*nobody, none, none, none), nothing
    found = sweep(chain, classes, emission, episodes, weights, gather=gather, first=first)
    told, came_to = found.gathered
    start = found.start * episodes.weight[None] * (jnp.asarray(weights.upto) > 0)
    expected = told._replace(
        counts=told.counts.at[classes.first].add(start.sum(axis=1)),
        sums=told.sums.at[classes.first].add(start @ features[0]),
        evidence=found.forth.evidence,
    )
    return Hindsight(expected, found.forth.beliefs, found.beliefs, came_to)


hindsight = jax.jit(_hindsight)


@jax.jit
def _expect(*given: Any) -> Expected:
    return _hindsight(*given).expected


def expect(
    chain: Chain,
    classes: Classes,
    emission: Emission,
    episodes: Episodes,
    weights: Weights,
    advantage: jax.Array,
    features: jax.Array,
) -> Expected:
    """Who looked how often, and how; `features` as in `hindsight`."""
    given = chain, classes, emission, episodes, weights, advantage, features
    if chain.num_slots >= MANY:  # what nobody asks for takes longer there than compiling without it
        return _expect(*given)
    return hindsight(*given).expected


def smoothed(
    chain: Chain, classes: Classes, emission: Emission, episodes: Episodes, weights: Weights
) -> Hindsight:
    """Where one was, as it seemed then and as it seems afterwards."""
    return hindsight(*_plain(chain, classes, emission, episodes, weights))


def tally(
    chain: Chain, classes: Classes, emission: Emission, episodes: Episodes, weights: Weights
) -> Tally:
    """What the commands came to, by slot."""
    return hindsight(*_plain(chain, classes, emission, episodes, weights)).tally


def _plain(chain: Chain, *given: Any) -> tuple[Any, ...]:
    """For those who do not ask what was lost."""
    advantage = np.zeros((chain.horizon, chain.num_slots, chain.num_actions), np.float32)
    return chain, *given, advantage, given[2].features


def _by_class(classes: Classes, step: Step, weight: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The classes that one may meet after a step, [L], and who looked how often, [L, N]."""
    members = after(classes.members, step.h)
    flat = (step.edges * weight[None, None]).reshape(-1, weight.size)
    of_edge = at(classes.of_edge, step.h).reshape(-1)
    return members, jax.ops.segment_sum(flat, of_edge, members.size)


@jax.jit
def labelled(
    chain: Chain, classes: Classes, emission: Emission, episodes: Episodes, weights: Weights
) -> jax.Array:
    """p(class of the observation at step h | everything), [H+1, N, C]; 0 where none was looked at.

    Leaps are left out, so that a row sums up to 1 at most.
    """
    number = episodes.weight.shape[0]

    def gather(so_far: jax.Array, step: Step) -> jax.Array:
        members, told = _by_class(classes, step, step.used * episodes.weight)
        return so_far.at[step.h + 1, :, members].add(told)

    first = jnp.zeros((chain.horizon + 1, number, classes.number))
    smoothed = sweep(chain, classes, emission, episodes, weights, gather=gather, first=first)
    start = smoothed.start * episodes.weight[None]
    return smoothed.gathered.at[0, :, classes.first].add(start)
