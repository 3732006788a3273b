"""The filter: a belief, a command and an observation make the next belief.

Everything here is element by element over the episodes of a batch, products included, so that what
an episode's belief is does not depend, in any bit, on how many others are computed beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp

from tasid.beliefs.chain import Chain, after, at
from tasid.beliefs.classes import Classes
from tasid.beliefs.familiar import strange
from tasid.beliefs.smoother import likelihoods, normalised, spread

if TYPE_CHECKING:
    from jaxtyping import Array, Bool, Float

LEAP = 1e-5
"""The probability that a step leads anywhere at all: what being carried away is worth."""


class Looked(NamedTuple):
    """What single observations say, wherever one may be."""

    scores: Float[Array, "L N"]
    """ln p(x | c) up to what all classes share, [L, N], of `Classes.compared`."""
    strange: Bool[Array, " N"]
    """Is it like nothing ever seen? [N]"""


class Filtered(NamedTuple):
    """What the filter knows of its episodes."""

    belief: Float[Array, "M N"]
    """[M, N]."""
    surprise: Float[Array, " N"]
    """ln p(x | one is anywhere) − ln p(x | the belief before), [N]."""


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["chain", "classes", "emission", "eta", "leap", "least"],
    meta_fields=[],
)
@dataclass(frozen=True)
class BeliefFilter:
    """Chain, classes and emission, ready to track."""

    chain: Chain
    classes: Classes
    emission: Any
    eta: jax.Array
    leap: jax.Array
    least: Float[Array, " C"]
    """What an observation of a class scores at least (`familiar`)."""

    def look(self, features: jax.Array, h: jax.Array) -> Looked:
        """What all classes make of the observations of step h, features [N, D]."""
        members = self.classes.compared(h)
        scores = self.emission.exact_scores(features, members)
        return Looked(scores, strange(scores, self.least[members]))

    def first(self, seen: Looked) -> Filtered:
        """The belief after the first observation."""
        classes = self.classes
        scores = seen.scores if classes.kind == "place" else seen.scores[classes.first]
        prior = jnp.broadcast_to(self.chain.start[:, None], scores.shape)
        there = (at(self.chain.states, 0) >= 0)[:, None]
        return _weighed(prior, scores, there)

    def step(self, belief: jax.Array, commands: jax.Array, seen: Looked, h: jax.Array) -> Filtered:
        """From the belief [M, N] at step h, its commands [N] and what is seen then."""
        chain, classes = self.chain, self.classes
        edges = belief[:, None, :] * chain.prior(h, commands, self.eta)
        if classes.kind != "place":
            scores = seen.scores[: classes.members.shape[1]]
            look, _ = likelihoods(scores, jnp.bool_(True))
            mass, total = normalised(spread(chain, edges * look[at(classes.of_edge, h)], h))
            usual = jnp.log(look.sum(axis=0) / look.shape[0])
            return Filtered(mass, usual - jnp.log(total))
        there = (after(chain.states, h) >= 0)[:, None]
        anywhere = there / there.sum()
        prior = (1 - self.leap) * spread(chain, edges, h)
        return _weighed(prior + self.leap * anywhere, seen.scores, there)


def _weighed(prior: jax.Array, scores: jax.Array, there: jax.Array) -> Filtered:
    # An empty slot must not be the likeliest: the others are measured by that one.
    look, _ = likelihoods(
        jnp.where(there, scores, scores.min(axis=0, keepdims=True)), jnp.bool_(True)
    )
    mass, total = normalised(prior * look)
    usual = (look * there).sum(axis=0) / there.sum()
    return Filtered(mass, jnp.log(usual) - jnp.log(total))
