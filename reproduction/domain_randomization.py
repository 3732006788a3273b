"""Domain randomisation (Tobin et al., 2017): targets like a given one, drawn anew.

A learner that knows the map, η and the kind of emission may train on relatives of its target before
it enters it. A relative of a block MDP has a new perturbation ξ; a relative of a lock also has a
new permutation of the code in its observations (the paper's appendix). Everything else is kept.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np

import tasid


def relative(env: tasid.BlockMDP, seed: int) -> tasid.BlockMDP:
    """A relative of an environment made by `tasid.make`; `seed` picks which."""
    world = env.latent.world
    identity = np.eye(env.num_actions)
    unperturbed = (world.xi == identity).all(axis=(-2, -1))
    xi = tasid.perturb(world.simulator, eta=env.options["eta"], seed=seed).xi.copy()
    xi[unperturbed] = identity
    lock = env.name == "combination-lock"
    return tasid.BlockMDP(
        tasid.PerturbedMDP(world.simulator, xi),
        _permuted(env.emission, seed) if lock else env.emission,
        name=env.name,
        options=env.options,
        simulator=env.simulator,
        circumstances=env.circumstances,
    )


def _permuted(emission: Any, seed: int) -> Any:
    """A lock's emission with the entries of its code on other rows of the Hadamard matrix."""
    mixing, clean = np.asarray(emission.mixing), np.asarray(emission.clean)
    # The rows of the mixing are orthogonal, so that codes can be read from the noiseless mixtures.
    codes = np.round(clean @ mixing.T / mixing.shape[-1])
    mixing = np.random.default_rng(seed).permutation(mixing)
    return replace(emission, mixing=jax.device_put(mixing), clean=jax.device_put(codes @ mixing))
