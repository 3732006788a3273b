"""Several start states: which first observations belong together.

Random first steps are grouped by `learning.contrastive`: real transitions against imposters, in as
many groups as the map has starts. Which start a group is, `initial_state_test` finds out.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tasid.learning.paper.tasid import random_actions
from tasid.maps import AbstractSimulator
from tasid.models.contrastive import fit_groups
from tasid.models.networks import Clusterer, ClusterNetwork
from tasid.policies.decoder import WIDTH
from tasid.targets.batches import episode_tables
from tasid.targets.streams import ACTING, WANDERING
from tasid.targets.target import Target, episode_keys, seed_key, stream

_SHOWN = 512
"""First observations kept for pictures."""


@dataclass(frozen=True)
class Clusters:
    """φ̂, and how it was found."""

    clusterer: Clusterer
    shares: tuple[float, ...]
    """The fraction of first observations in each cluster."""
    error: float
    """Held-out squared error at telling real transitions from imposters, with clusters."""
    error_alone: float
    """The same without."""
    features: NDArray[np.float32]
    """Some first observations as the clusterer sees them, [m, d], for pictures."""
    members: NDArray[np.int64]
    """Their clusters, [m]."""


class Margin(NamedTuple):
    """How differently two starts go on: Γ, on the map."""

    one: int
    other: int
    mean: float
    """The share of actions whose successors differ; the paper does not say which it means."""
    least: float
    """1 if all of them do, else 0."""


def start_margins(sim: AbstractSimulator) -> list[Margin]:
    """Γ of every pair of starts; where it is 0, nothing that follows tells them apart."""
    table = sim.successor_at(0)
    pairs = combinations((int(start) for start in sim.starts), 2)
    differ = {pair: table[pair[0]] != table[pair[1]] for pair in pairs}
    return [Margin(*pair, float(row.mean()), float(row.min())) for pair, row in differ.items()]


def cluster_starts(target: Target, sim: AbstractSimulator, *, episodes: int, seed: int) -> Clusters:
    """φ̂ by the least held-out error at telling real transitions from imposters.

    The algorithm takes for granted that every start appears, so that a grouping with an empty group
    is out as long as there are others.
    """
    number = sim.starts.size
    seen = first_steps(target, seed=seed, episodes=episodes)
    glance = ClusterNetwork(seen.x.shape[1:], number)
    x, x_next = (np.asarray(glance.features(jnp.asarray(part))) for part in (seen.x, seen.x_next))
    contrast = fit_groups(x, seen.action, x_next, groups=number, actions=sim.num_actions, seed=seed)
    grouped = [Clusterer(jnp.asarray(one), glance) for one in contrast.parameters]
    groups = [np.asarray(one(jnp.asarray(seen.x)), np.int64) for one in grouped]
    sizes = np.stack([np.bincount(group, minlength=number) for group in groups])
    best = int(np.lexsort((contrast.errors, (sizes == 0).sum(axis=1)))[0])
    return Clusters(
        clusterer=grouped[best],
        shares=tuple((sizes[best] / sizes[best].sum()).tolist()),
        error=float(contrast.errors[best]),
        error_alone=contrast.alone,
        features=x[:_SHOWN],
        members=groups[best][:_SHOWN],
    )


class FirstSteps(NamedTuple):
    """Transitions from the start by random actions; all arrays are [n, …]."""

    x: NDArray[Any]
    action: NDArray[np.int32]
    x_next: NDArray[Any]


def first_steps(target: Target, *, seed: int, episodes: int) -> FirstSteps:
    """The first `episodes` episodes of the seed's random first steps."""
    key = seed_key(seed)
    return FirstSteps(*episode_tables(target, _first_steps, key, episodes=episodes, width=WIDTH))


def _first_steps(target: Any, key: jax.Array, first: Any) -> Any:
    keys = episode_keys(key, WANDERING, first + jnp.arange(WIDTH))
    state, x = target.reset(keys)
    action = random_actions(stream(stream(keys, ACTING), 0), target.num_actions)
    _, x_next, _ = target.step(state, action, jnp.int32(0), keys)
    return x, action, x_next
