"""Relatives of a target, for domain randomisation: what it may know, with the rest drawn anew.

Of a block MDP that is everything but the perturbation; of a lock, as in the paper (appendix), also
everything of the emission but its permutation. Such draws are JAX code, so that training on
thousands of them stays compiled. Of a wrapped environment only its user knows relatives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from tasid.targets.block import BlockMDP, BlockTarget
from tasid.targets.streams import DOMAINS
from tasid.targets.target import Target
from tasid.targets.worlds.combination_lock import NAME


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["member", "spared", "eta", "code"],
    meta_fields=[],
)
@dataclass(frozen=True)
class BlockFamily:
    """Block MDPs like a given one; a pytree, like its members."""

    member: BlockTarget
    """The target whose relatives are drawn."""
    spared: jax.Array
    """Which states are never perturbed, bool [S] or [H, S]."""
    eta: jax.Array
    code: jax.Array | None = None
    """Of a lock: every state's noiseless code before the permutation, [S, entries]."""
    traceable: ClassVar[bool] = True
    """A draw is JAX code."""

    def draw(self, key: jax.Array) -> BlockTarget:
        """A relative: new ξ, of a lock also a new permutation, everything else kept."""
        permuting, perturbing = jax.random.split(key)
        outcome = jnp.cumsum(self._perturbation(perturbing), axis=-1)
        if self.code is None:
            return replace(self.member, outcome=outcome)
        emission = self.member.emission
        mixing = emission.mixing[jax.random.permutation(permuting, emission.mixing.shape[0])]
        permuted = replace(emission, mixing=mixing, clean=self.code @ mixing)
        return replace(self.member, outcome=outcome, emission=permuted)

    def _perturbation(self, key: jax.Array) -> jax.Array:
        """ξ(a'|s,a) = η p(a') + (1−η) 1[a' = a], with p uniform in [0, 1] and normalised."""
        p = jax.random.uniform(key, self.member.outcome.shape)
        identity = jnp.broadcast_to(jnp.eye(p.shape[-1]), p.shape)
        xi = self.eta * p / p.sum(axis=-1, keepdims=True) + (1.0 - self.eta) * identity
        return jnp.where(self.spared[..., None, None], identity, xi)


def family_of(env: BlockMDP) -> BlockFamily:
    """The targets like this one."""
    target = env.target
    actions = jnp.arange(target.num_actions)
    identity = (actions[None, :] >= actions[:, None]).astype(jnp.float32)  # summed up along a'
    identity = jnp.broadcast_to(identity, target.outcome.shape)
    code = None
    if env.name == NAME:
        # The rows of the mixing are orthogonal: codes can be read off the noiseless mixtures.
        emission = target.emission
        code = jnp.round(emission.clean @ emission.mixing.T / emission.mixing.shape[-1])
    return BlockFamily(
        member=target,
        spared=(target.outcome == identity).all(axis=(-2, -1)),
        eta=jnp.float32(env.options["eta"]),
        code=code,
    )


@dataclass(frozen=True, eq=False)
class DrawnFamily:
    """What a function makes of random numbers: relatives of a wrapped environment.

    For example `DrawnFamily(lambda n: tasid.wrap("FrozenLake-v1", success_rate=0.5 + n % 5 / 10))`.
    """

    make: Callable[[int], Target]
    traceable: ClassVar[bool] = False
    """Anything may happen there."""

    def draw(self, key: jax.Array) -> Target:
        """The target of a number in 0 … 2³¹ − 1."""
        return self.make(int(jax.random.bits(key, dtype=jnp.uint32) >> 1))


Family = BlockFamily | DrawnFamily


@partial(jax.tree_util.register_dataclass, data_fields=["family"], meta_fields=["every"])
@dataclass(frozen=True)
class Randomized:
    """A source that gives a new member of a family every so many episodes."""

    family: Any
    every: int = 100

    @property
    def traceable(self) -> bool:
        """As the family is."""
        return bool(self.family.traceable)

    def target(self, key: jax.Array, episode: jax.Array) -> Target:
        """The member in whose turn the episode falls."""
        turn = jax.random.fold_in(jax.random.fold_in(key, DOMAINS), episode // self.every)
        return self.family.draw(turn)
