"""Locks that differ from a given one in two things only: the permutation and the perturbation.

This is what domain randomisation may know of the paper's target (appendix): the map, η, and all of
the emission but its permutation. A draw is JAX code, so that training on thousands of them stays
compiled.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp

from tasid.envs.block import BlockMDP, BlockTarget
from tasid.envs.combination_lock import NAME


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["member", "code", "spared", "eta"],
    meta_fields=[],
)
@dataclass(frozen=True)
class LockFamily:
    """A distribution over targets; a pytree, like its members."""

    member: BlockTarget
    """The lock whose relatives are drawn."""
    code: jax.Array
    """Every state's noiseless code before the permutation, [S, entries]."""
    spared: jax.Array
    """Which states are never perturbed, bool [S]."""
    eta: jax.Array

    @property
    def traceable(self) -> bool:
        """Always: a draw is JAX code."""
        return True

    def draw(self, key: jax.Array) -> BlockTarget:
        """A relative: new permutation, new ξ, everything else kept."""
        permuting, perturbing = jax.random.split(key)
        emission = self.member.emission
        mixing = emission.mixing[jax.random.permutation(permuting, emission.mixing.shape[0])]
        return replace(
            self.member,
            outcome=jnp.cumsum(self._perturbation(perturbing), axis=-1),
            emission=replace(emission, mixing=mixing, clean=self.code @ mixing),
        )

    def _perturbation(self, key: jax.Array) -> jax.Array:
        """ξ(a'|s,a) = η p(a') + (1−η) 1[a' = a], with p uniform in [0, 1] and normalised."""
        p = jax.random.uniform(key, self.member.outcome.shape)
        identity = jnp.broadcast_to(jnp.eye(p.shape[-1]), p.shape)
        xi = self.eta * p / p.sum(axis=-1, keepdims=True) + (1.0 - self.eta) * identity
        return jnp.where(self.spared[:, None, None], identity, xi)


def lock_family(env: BlockMDP) -> LockFamily:
    """The locks like this one."""
    if env.name != NAME:
        raise ValueError(f"env: {env.name!r} is no {NAME}; only locks have such relatives")
    target = env.target
    emission = target.emission
    # The rows of the mixing are orthogonal, so the codes can be read off the noiseless mixtures.
    code = jnp.round(emission.clean @ emission.mixing.T / emission.mixing.shape[-1])
    actions = jnp.arange(target.num_actions)
    identity = (actions[None, :] >= actions[:, None]).astype(jnp.float32)  # summed up along a'
    return LockFamily(
        member=target,
        code=code,
        spared=(target.outcome == identity[None]).all(axis=(1, 2)),
        eta=jnp.float32(env.options["eta"]),
    )
