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
    rows, often, sums = described[met], counts[met], along[met]
    mean, variance = np.empty_like(along), np.empty_like(along)
    for d, b in enumerate(spread):
        weight = 1 / (1 + often * b)
        values, vectors = np.linalg.eigh((rows * (often * weight)[:, None]).T @ rows)
        values = np.maximum(values, 0.0)
        moment = vectors.T @ (rows.T @ (weight * sums[:, d]))
        strength = _strength(values, moment, b)
        certainty = values + 1 / strength
        turned = described @ vectors
        mean[:, d] = turned @ (moment / certainty)
        variance[:, d] = turned**2 @ (1 / certainty)
    return mean, variance


def _strength(values: Floats, moment: Floats, spread: float) -> float:
    """The variance of coefficients under which the sightings are most probable (MacKay's rule)."""
    strength = max(spread, 1e-6)
    for _ in range(_ROUNDS):
        certainty = values + 1 / strength
        size = float(((moment / certainty) ** 2).sum())
        determined = float((values / certainty).sum())
        strength = min(max(size / max(determined, 1e-9), 1e-9), 1e6)
    return strength
