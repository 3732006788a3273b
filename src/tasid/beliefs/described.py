"""What classes may be expected to look like before they are seen, by what the map says of them.

In a building, places with walls at the same distances look alike, whatever the sensor: how far one
can see on the plan tells what will be seen. The relation is learned from the places that were seen,
by a linear regression whose strength evidence decides, direction by direction. Where the map tells
nothing about looks, nothing is expected.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tasid.beliefs.chain import Chain
from tasid.maps import AbstractSimulator
from tasid.maps.views import views

Floats = NDArray[np.float64]
_MET = 1e-3
"""Sightings below which a class says nothing."""
_ROUNDS = 5
_WORTH = 12.0
"""Independent features that one look at a place of a building is worth, at most."""


def descriptions(sim: AbstractSimulator, chain: Chain) -> Floats | None:
    """What the map says of every place, in units of their spread, and a one [C, P]."""
    if sim.layout is None or chain.layered:
        return None
    seen = views(sim.layout)
    if seen is None:
        return None
    states = np.asarray(chain.states[0])
    known = seen[np.unique(states[states >= 0])]
    spread = known.std(axis=0)
    varies = spread > 1e-9
    if not varies.any():
        return None
    scaled = (known - known.mean(axis=0))[:, varies] / spread[varies]
    return np.column_stack([np.ones(len(scaled)), scaled])


def sharpness(described: Floats | None, features: int) -> float:
    """What log-likelihoods are multiplied by.

    Where a robot looks around in a building it never stands twice at the same point, and a step
    aside shifts all it sees together, in a way that differs from place to place. Scored as
    independent given the place, so many features would make it sure of what it cannot know.
    """
    return 1.0 if described is None else min(1.0, _WORTH / features)


def expected(
    described: Floats, counts: Floats, along: Floats, spread: Floats
) -> tuple[Floats, Floats]:
    """The mean and the variance that descriptions give every class along every direction [C, d].

    `along` are sums [C, d] in directions in which a class scatters with variance 1 and its mean
    with variance `spread` [d] around what its description says.
    """
    met = counts > _MET
    rows, often = described[met], counts[met, None]
    weight = 1 / (1 + often * spread)
    values, vectors = np.linalg.eigh(_unpacked((often * weight).T @ _pairs(rows)))
    values = np.maximum(values, 0.0)
    moment = np.einsum("dpq,pd->dq", vectors, rows.T @ (weight * along[met]))
    certainty = values + 1 / _strength(values, moment, spread)[:, None]
    mean = described @ np.einsum("dpq,dq->pd", vectors, moment / certainty)
    covariance = (vectors / certainty[:, None]) @ vectors.swapaxes(1, 2)
    return mean, _pairs(described) @ _packed(covariance).T


def _pairs(rows: Floats) -> Floats:
    """Products of all pairs of columns, each pair once: quadratic forms are then linear in them."""
    return np.concatenate([rows[:, i, None] * rows[:, i:] for i in range(rows.shape[1])], axis=1)


def _packed(matrices: Floats) -> Floats:
    """Coefficients of `_pairs` in quadratic forms [d, P, P], [d, P(P+1)/2]."""
    one, other = np.triu_indices(matrices.shape[1])
    return matrices[:, one, other] * np.where(one == other, 1.0, 2.0)


def _unpacked(sums: Floats) -> Floats:
    """The symmetric matrices [d, P, P] that sums of pairs are the entries of."""
    size = int(np.sqrt(2 * sums.shape[1]))
    one, other = np.triu_indices(size)
    matrices = np.empty((len(sums), size, size))
    matrices[:, one, other] = matrices[:, other, one] = sums
    return matrices


def _strength(values: Floats, moment: Floats, spread: Floats) -> Floats:
    """Variances of coefficients [d] that make the sightings most probable (MacKay's rule)."""
    strength = np.maximum(spread, 1e-6)
    for _ in range(_ROUNDS):
        certainty = values + 1 / strength[:, None]
        size = ((moment / certainty) ** 2).sum(axis=1)
        determined = (values / certainty).sum(axis=1)
        strength = np.clip(size / np.maximum(determined, 1e-9), 1e-9, 1e6)
    return strength
