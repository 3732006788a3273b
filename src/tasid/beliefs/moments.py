"""From what was seen to what classes look like: probabilistic linear discriminant analysis.

A class has a mean μ_c ~ N(m, B), and what is seen of it scatters with a covariance W that all
classes share. W and B are diagonalised together and the directions in which classes differ most are
kept. A class seen n times predicts with variance 1 + 1/(1/b + n) around its posterior mean, in
units of W: one never seen is scored by the broad prior, not by a wrong mean. Where the map
describes its places, m is what their description makes one expect, class by class (`described`).
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from tasid.beliefs.described import expected, sharpness
from tasid.beliefs.gaussian import Gaussians

if TYPE_CHECKING:
    from jaxtyping import Float64

Floats = NDArray[np.float64]
RIDGE = 1e-3
"""W is at least this part of the mean variance in every direction."""
_TRUSTED = 3.0
"""Sightings after which a class counts fully for B."""
_LEAST_SPREAD = 1e-3
_REMEMBERED = 30.0
"""Sightings of a class that an emission is taken to be worth, at most: enough for its mean, and few
enough for new ones to overrule it."""
_ROUNDS = 3

_ROUNDED = 0.1
"""Sightings that may be nothing but rounding, where they are read off an emission."""


class Moments(NamedTuple):
    """What a fit needs to know of the data."""

    counts: Float64[np.ndarray, " C"]
    """How often each class was seen, [C]."""
    sums: Float64[np.ndarray, "C D"]
    """Sums of the features of each class, [C, D]."""
    total: float
    """How many observations there were."""
    total_sum: Float64[np.ndarray, " D"]
    """[D]."""
    total_square: Float64[np.ndarray, "D D"]
    """Sum of x xᵀ, [D, D]."""

    def plus(self, others: Moments | None) -> Moments:
        """Of these observations and others."""
        if others is None:
            return self
        both: list[tuple[Any, Any]] = list(zip(self, others, strict=True))
        return Moments(*(one + other for one, other in both))


def moments_of(emission: Gaussians, described: Floats | None) -> Moments:
    """Observations of which the emission would be fitted again, at most so many of each class.

    Means and counts follow from what is predicted of a class; in directions that were not kept all
    classes have one mean. Where descriptions had a say, a class seen rarely is taken to be nearer
    to what was expected of it than it was.
    """
    numbers = {name: np.asarray(x, np.float64) for name, x in emission._asdict().items()}
    centre, spread = numbers["centre"], numbers["spread"]
    sharp = sharpness(described, spread.size)
    variance = -0.5 * sharp / numbers["square"]
    precision = 1 / np.maximum(variance - 1, 1e-6)
    counts = np.maximum(precision - 1 / spread, 0).max(axis=1)
    met = counts > _ROUNDED
    weight = precision if described is None else counts[:, None]
    along = numbers["linear"] / sharp * variance * weight / np.where(met, counts, 1)[:, None]
    back = np.linalg.inv(numbers["whitening"])
    means = along @ back[-spread.size :] + centre
    counts = np.where(met, np.minimum(counts, _REMEMBERED), 0)
    sums = counts[:, None] * means
    return Moments(
        counts=counts,
        sums=sums,
        total=float(counts.sum()),
        total_sum=sums.sum(axis=0),
        total_square=counts.sum() * back.T @ back + sums.T @ means,
    )


def fit_gaussians(
    moments: Moments,
    *,
    dimensions: int,
    ridge: float = RIDGE,
    described: Floats | None = None,
) -> Gaussians:
    """The emission that explains the moments, and what is known of each class [C, P]."""
    counts, total = moments.counts, max(moments.total, 1.0)
    centre = moments.total_sum / total
    scatter = moments.total_square - total * np.outer(centre, centre)
    sums = moments.sums - counts[:, None] * centre
    within, spread = _first_guess(counts, sums, scatter, total, ridge)
    for _ in range(_ROUNDS):
        within, spread = _improved(counts, sums, scatter, total, within, spread, ridge, described)
    values, whitening = _diagonalised(spread, within)
    # Descriptions may tell classes apart along directions in which little else does.
    kept = centre.size if described is not None else min(dimensions, centre.size)
    values, vectors = np.maximum(values[-kept:], _LEAST_SPREAD), whitening[:, -kept:]
    along = sums @ vectors
    guess, doubt = _expected(described, counts, along, values)
    precision = 1 / (values + doubt) + counts[:, None]
    mean, variance = (guess / (values + doubt) + along) / precision, 1 + 1 / precision
    sharp = sharpness(described, kept)
    constant = -0.5 * (mean**2 / variance + np.log(variance)).sum(axis=1)
    return Gaussians.of(
        {
            "centre": centre,
            "directions": vectors,
            "linear": sharp * mean / variance,
            "square": sharp * -0.5 / variance,
            "constant": sharp * constant,
            "spread": values,
            "log_volume": np.linalg.slogdet(whitening)[1],
            "whitening": whitening,
        }
    )


def _expected(
    described: Floats | None, counts: Floats, along: Floats, values: Floats
) -> tuple[Floats, Floats]:
    """What classes are expected to look like before they are seen: nothing, or as described."""
    if described is None:
        return np.zeros_like(along), np.zeros_like(along)
    return expected(described, counts, along, values)


def _first_guess(
    counts: Floats, sums: Floats, scatter: Floats, total: float, ridge: float
) -> tuple[Floats, Floats]:
    """W and B by the method of moments."""
    means = sums / np.maximum(counts, 1e-6)[:, None]
    free = max(total - np.minimum(counts, 1).sum(), 0.1 * total)
    within = _psd(scatter - (means * counts[:, None]).T @ means) / free
    trust = np.minimum(counts, _TRUSTED)
    spread = (means * (trust / max(trust.sum(), 1e-9))[:, None]).T @ means
    return within + _floor(scatter, total, ridge), spread


def _improved(
    counts: Floats,
    sums: Floats,
    scatter: Floats,
    total: float,
    within: Floats,
    spread: Floats,
    ridge: float,
    described: Floats | None,
) -> tuple[Floats, Floats]:
    """One round of expectation maximisation over the classes' means."""
    values, vectors = _diagonalised(spread, within)
    values = np.maximum(values, 1e-6)
    variance = 1 / (1 / values + counts[:, None])
    along = sums @ vectors
    guess, _ = _expected(described, counts, along, values)
    mean = (guess / values + along) * variance
    cross = mean.T @ along
    inside = vectors.T @ scatter @ vectors - cross - cross.T + (mean * counts[:, None]).T @ mean
    inside = (inside + np.diag((variance * counts[:, None]).sum(axis=0))) / total
    trust = np.minimum(counts, _TRUSTED)
    trust = trust / max(trust.sum(), 1e-9)
    odd = mean - guess
    between = (odd * trust[:, None]).T @ odd + np.diag(trust @ variance)
    back = within @ vectors
    within = back @ inside @ back.T
    spread = back @ between @ back.T
    return (within + within.T) / 2 + _floor(scatter, total, ridge), (spread + spread.T) / 2


def _diagonalised(spread: Floats, within: Floats) -> tuple[Floats, Floats]:
    """λ rising, and V with Vᵀ W V = I, Vᵀ B V = diag(λ)."""
    root = np.linalg.cholesky(within)
    solve = partial(solve_triangular, root, lower=True, check_finite=False)
    both = solve(solve(spread).T)
    values, vectors = np.linalg.eigh((both + both.T) / 2)
    return values, solve(vectors, trans="T")


def _floor(scatter: Floats, total: float, ridge: float) -> Floats:
    return (ridge * np.trace(scatter) / (total * len(scatter)) + 1e-8) * np.eye(len(scatter))


def _psd(matrix: Floats) -> Floats:
    """The nearest symmetric matrix without negative eigenvalues."""
    matrix = (matrix + matrix.T) / 2
    with suppress(np.linalg.LinAlgError):
        np.linalg.cholesky(matrix)  # where this succeeds there are none; it is quick
        return matrix
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.maximum(values, 0)) @ vectors.T
