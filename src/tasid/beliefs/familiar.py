"""What is like nothing ever seen: a dead sensor is not a place.

The filter compares places with each other, and the least bad of them explains anything. So it is
remembered how far the observations that taught a policy were, at most, from the nearest place that
had been seen; what is much farther from all of them is strange, wherever one may be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tasid.beliefs.classes import Classes
from tasid.beliefs.episodes import Episodes
from tasid.beliefs.gaussian import Gaussians
from tasid.targets.device import on_device

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Array, Float

_SEEN = 1.0
"""Sightings from which on it is known what a class looks like."""
_FARTHER = 2.0
"""Strange is what is so many times as far from all classes as anything that taught them."""


def strange(scores: jax.Array, least: jax.Array) -> jax.Array:
    """Does no class explain it? For scores [L, N] and the least of each class [L], [N].

    Where nothing is known of any of them, nothing is strange.
    """
    short = (least[:, None] - scores).min(axis=0)
    return (short > 0) & jnp.isfinite(short)


def anything(number: int) -> Float[Array, " C"]:
    """The least of so many classes that nothing is known of."""
    return on_device(np.full(number, -np.inf, np.float32))


def least_scores(
    classes: Classes, emission: Any, counts: NDArray[np.float64], chunks: Sequence[Episodes]
) -> Float[Array, " C"] | None:
    """What an observation of a class scores at least, [C]; infinite for a class never seen.

    None for emissions that only compare classes, and for those that know none.
    """
    if not isinstance(emission, Gaussians) or not (np.asarray(emission.square) < 0).all():
        return None
    square, linear, constant = (
        np.asarray(x) for x in (emission.square, emission.linear, emission.constant)
    )
    peak = constant - (linear**2 / (4 * square)).sum(axis=1)
    best = np.where(counts >= _SEEN, peak, np.inf).astype(np.float32)
    if not np.isfinite(best).any():
        return None
    numbers: Classes = jax.device_get(classes)
    centre, directions = np.asarray(emission.centre), np.asarray(emission.directions)
    # Where observations have no noise, whatever differs at all would be far.
    farthest = -float(square.min(axis=0).sum())
    for chunk in jax.device_get(list(chunks)):
        live = chunk.live > 0
        along = (chunk.features - centre) @ directions
        for h in range(len(live)):
            rows = numbers.compared(h)
            y = along[h][live[h]].T
            scores = square[rows] @ (y * y) + linear[rows] @ y + constant[rows][:, None]
            short = np.asarray(best[rows][:, None] - scores).min(axis=0, initial=np.inf)
            farthest = max(farthest, short.max(initial=0, where=np.isfinite(short)))
    return on_device(best - np.float32(_FARTHER * farthest))
