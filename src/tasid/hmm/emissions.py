"""Emissions: what observations look like in each class.

`GaussianEmission` is probabilistic linear discriminant analysis (Ioffe, 2006): a class has a mean
μ_c ~ N(m, B), observations of a class scatter with a covariance W that all classes share. W and B
are diagonalised together, and the directions in which classes differ most are kept. A class
observed n times predicts with variance 1 + 1 / (1/b + n) around its posterior mean, in units of W:
a class never observed is scored by the broad prior, not by a wrong mean.

Where the map describes its states, m depends on the description. In a building, poses with walls at
the same distances look alike, whatever the sensor: the free distances on the plan predict the
features. The relation is learned from the poses that were observed, by a Bayesian linear regression
whose prior variance the evidence decides, direction by direction (MacKay, 1992). Where the map
predicts nothing, nothing is expected.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Float32, Float64, Int, Num
from numpy.typing import NDArray
from scipy.linalg import eigh  # at the top: limits on BLAS threads skip what is loaded later

from tasid.hmm.transitions import TransitionGraph
from tasid.simulator import AbstractSimulator

Array = NDArray[Any]


@runtime_checkable
class SupportsLogProb(Protocol):
    """What filter and smoother need of an emission."""

    def log_prob(self, features: Array, classes: Array) -> Array:
        """ln p(x | c) up to what all classes share."""


class Emission(abc.ABC):
    """p(x | c) for features x and classes c."""

    num_classes: int

    @abc.abstractmethod
    def log_prob(
        self, features: Float[Array, "n D"], classes: Int[Array, " L"]
    ) -> Float32[Array, "n L"]:
        """ln p(x | c) up to what all classes share."""

    @abc.abstractmethod
    def arrays(self) -> dict[str, NDArray[Any]]:
        """The numbers that make up the emission, for storage."""


@dataclass(frozen=True)
class PLDAConfig:
    """Hyper-parameters of the Gaussian emission."""

    dimensions: int = 64
    """Directions in which classes are compared, at most. In directions left out all classes are
    one, and a class never observed would count as impossible."""
    ridge: float = 1e-3
    """W is at least this part of the mean variance in every direction."""
    iterations: int = 3
    """EM iterations over the class means."""
    trusted_count: float = 3.0
    """Observations after which a class counts fully for B."""
    effective_features: float = 12.0
    """Independent features that an observation is worth at most on maps with views: neighbouring
    beams or pixels are correlated."""
    prior_count: float = 30.0
    """Observations of a class that an emission is worth at most when learning continues from it:
    enough for its mean, few enough for new observations to overrule it."""


class Moments(NamedTuple):
    """Sufficient statistics of observations and their classes."""

    counts: Float64[Array, " C"]
    """Expected observations of each class."""
    sums: Float64[Array, "C D"]
    """Sums of their features."""
    total: float
    """Number of observations, whatever their class."""
    total_sum: Float64[Array, " D"]
    total_square: Float64[Array, "D D"]
    """Σ x xᵀ."""

    @classmethod
    def of(cls, features: Float[Array, "n D"], labels: Float[Array, "n C"]) -> Moments:
        """Of features with soft labels whose rows sum to at most 1."""
        x, y = features.astype(np.float64), labels.astype(np.float64)
        return cls(y.sum(axis=0), y.T @ x, float(len(x)), x.sum(axis=0), x.T @ x)

    def __add__(self, other: Any) -> Moments:
        pairs: Any = zip(self, other, strict=True)
        return Moments(*(a + b for a, b in pairs))


@dataclass(frozen=True, eq=False)
class MapViews:
    """Regressors of every class."""

    regressors: Float64[Array, "C P"]
    """Free distances in units of their spread, and a constant."""

    @classmethod
    def from_simulator(cls, sim: AbstractSimulator, graph: TransitionGraph) -> MapViews | None:
        """The views of the graph's states; None on maps without headings."""
        distances = None if sim.layout is None or graph.layered else sim.layout.views()
        if distances is None:
            return None
        distances = distances[graph.places]
        distances = distances[:, distances.std(axis=0) > 1e-9]
        if not distances.size:
            return None
        scaled = (distances - distances.mean(axis=0)) / distances.std(axis=0)
        return cls(np.column_stack([np.ones(len(scaled)), scaled]))

    def regress(
        self,
        counts: Float64[Array, " C"],
        sums: Float64[Array, "C d"],
        between: Float64[Array, " d"],
        doubts: bool = False,
    ) -> tuple[Float64[Array, "C d"], Float64[Array, "C d"]]:
        """Mean and, if asked for, variance that the regression predicts.

        `sums` are in directions in which observations scatter with variance 1, and class
        means with variance `between` around their prediction.
        """
        observed = counts > 1e-3
        rows, n = self.regressors[observed], counts[observed, None]
        weight = 1 / (1 + n * between)
        products = (rows[:, :, None] * rows[:, None]).reshape(len(rows), -1)
        gram = ((n * weight).T @ products).reshape(-1, rows.shape[1], rows.shape[1])
        values, vectors = np.linalg.eigh(gram)
        values = np.maximum(values, 0.0)
        moment = np.einsum("dpq,pd->dq", vectors, rows.T @ (weight * sums[observed]))
        variance = np.maximum(between, 1e-6)  # of the coefficients, by type-II maximum likelihood
        for _ in range(5):
            precision = values + 1 / variance[:, None]
            size = ((moment / precision) ** 2).sum(axis=1)
            determined = (values / precision).sum(axis=1)
            variance = np.clip(size / np.maximum(determined, 1e-9), 1e-9, 1e6)
        precision = values + 1 / variance[:, None]
        mean = self.regressors @ np.einsum("dpq,dq->pd", vectors, moment / precision)
        if not doubts:
            return mean, np.zeros_like(mean)
        roots = vectors / np.sqrt(precision)[:, None]  # of the covariances
        return mean, np.stack([((self.regressors @ r) ** 2).sum(axis=1) for r in roots], axis=1)


@dataclass(frozen=True, eq=False)
class GaussianEmission(Emission):
    """A fitted PLDA over C classes in d directions."""

    centre: Float32[Array, " D"]
    """m."""
    projection: Float32[Array, "D d"]
    """Columns that whiten W and diagonalise B."""
    linear: Float32[Array, "C d"]
    """mean / variance of each class along each direction."""
    quadratic: Float32[Array, "C d"]
    """−1 / (2 variance)."""
    constant: Float32[Array, " C"]
    between: Float32[Array, " d"]
    """b, the variance of class means in units of W."""
    whitening: Float32[Array, "D D"]
    """Columns that whiten W; the last d are `projection`."""
    log_det: float
    """ln |det whitening|: makes densities of different fits comparable."""
    sharpness: float = 1.0
    """Factor of log-likelihoods, below 1 where features are correlated."""

    @property
    def num_classes(self) -> int:  # type: ignore[override]
        return len(self.linear)

    def log_prob(
        self, features: Float[Array, "n D"], classes: Int[Array, " L"]
    ) -> Float32[Array, "n L"]:
        y = (features - self.centre) @ self.projection
        scores = (y * y) @ self.quadratic[classes].T
        scores += y @ self.linear[classes].T
        scores += self.constant[classes]
        return scores

    def log_prob_shared(self, features: Float[Array, "n D"]) -> Float32[Array, " n"]:
        """What `log_prob` leaves out because all classes share it."""
        centred = features - self.centre
        rest = ((centred @ self.whitening) ** 2).sum(axis=-1)
        rest -= ((centred @ self.projection) ** 2).sum(axis=-1)
        size = features.shape[-1]
        return np.float32(self.log_det) - 0.5 * rest - np.float32(0.5 * size * math.log(math.tau))

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {name: np.asarray(x, np.float32) for name, x in vars(self).items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> GaussianEmission:
        """The inverse of `arrays`."""
        numbers: dict[str, Any] = {field.name: arrays[field.name] for field in fields(cls)}
        scalars = {name: float(numbers[name]) for name in ("log_det", "sharpness")}
        return cls(**{**numbers, **scalars})

    @classmethod
    def flat(cls, num_classes: int, size: int, dimensions: int) -> GaussianEmission:
        """An emission that knows nothing: all classes are equally likely."""
        zeros: Any = partial(np.zeros, dtype=np.float32)
        kept = min(dimensions, size)
        return cls(
            centre=zeros(size),
            projection=zeros((size, kept)),
            linear=zeros((num_classes, kept)),
            quadratic=zeros((num_classes, kept)),
            constant=zeros(num_classes),
            between=zeros(kept),
            whitening=zeros((size, size)),
            log_det=0.0,
        )

    @classmethod
    def fit(
        cls,
        features: Float[Array, "n D"],
        labels: Float[Array, "n C"],
        config: PLDAConfig | None = None,
    ) -> GaussianEmission:
        """Fit to features with soft labels whose rows sum to at most 1."""
        return cls.from_moments(Moments.of(features, labels), config or PLDAConfig())

    @classmethod
    def from_moments(
        cls, moments: Moments, config: PLDAConfig, views: MapViews | None = None
    ) -> GaussianEmission:
        """The emission that explains the moments, by EM over the class means."""
        counts, total = moments.counts, max(moments.total, 1.0)
        centre = moments.total_sum / total
        scatter = moments.total_square - total * np.outer(centre, centre)
        sums = moments.sums - counts[:, None] * centre
        ridge = config.ridge * np.trace(scatter) / (total * len(scatter)) + 1e-8
        floor = ridge * np.eye(len(scatter))
        trust = np.minimum(counts, config.trusted_count)
        trust /= max(trust.sum(), 1e-9)

        # W and B by the method of moments.
        means = sums / np.maximum(counts, 1e-6)[:, None]
        free = max(total - np.minimum(counts, 1).sum(), 0.1 * total)
        within = _nearest_psd(scatter - (means * counts[:, None]).T @ means) / free + floor
        between = (means * trust[:, None]).T @ means

        for _ in range(config.iterations):
            values, vectors = _diagonalise(between, within)
            values = np.maximum(values, 1e-6)
            variance = 1 / (1 / values + counts[:, None])
            along = sums @ vectors
            expected = 0.0 if views is None else views.regress(counts, along, values)[0]
            mean = (expected / values + along) * variance
            cross = mean.T @ along
            inside = vectors.T @ scatter @ vectors - cross - cross.T
            inside += (mean * counts[:, None]).T @ mean
            inside = (inside + np.diag((variance * counts[:, None]).sum(axis=0))) / total
            deviation = mean - expected
            outside = (deviation * trust[:, None]).T @ deviation + np.diag(trust @ variance)
            back = within @ vectors
            within, between = back @ inside @ back.T, back @ outside @ back.T
            within = (within + within.T) / 2 + floor
            between = (between + between.T) / 2

        values, whitening = _diagonalise(between, within)
        # Views may tell classes apart along directions in which little else does.
        kept = centre.size if views is not None else min(config.dimensions, centre.size)
        values, vectors = np.maximum(values[-kept:], 1e-3), whitening[:, -kept:]
        along = sums @ vectors
        expected, doubt = (
            (0.0, 0.0) if views is None else views.regress(counts, along, values, True)
        )
        sharp = 1.0 if views is None else min(1.0, config.effective_features / kept)
        quadratic, linear, constant = posterior_predictive(
            counts[:, None], along, values + doubt, expected, sharp
        )
        return cls(
            centre=_single(centre),
            projection=_single(vectors),
            linear=linear,
            quadratic=quadratic,
            constant=constant,
            between=_single(values),
            whitening=_single(whitening),
            log_det=float(np.linalg.slogdet(whitening)[1]),
            sharpness=sharp,
        )

    def moments(self, config: PLDAConfig, has_views: bool) -> Moments:
        """Observations from which the emission would be fitted again, few of each class.

        Counts and means follow from the predictive variance of a class. Where views had a say, a
        class observed rarely is taken to be nearer to its expectation than it was.
        """
        numbers = {name: np.asarray(x, np.float64) for name, x in self.arrays().items()}
        between, sharp = numbers["between"], self.sharpness
        variance = -0.5 * sharp / numbers["quadratic"]
        precision = 1 / np.maximum(variance - 1, 1e-6)
        counts = np.maximum(precision - 1 / between, 0).max(axis=1)
        known = counts > 0.1  # fewer may be rounding
        weight = counts[:, None] if has_views else precision
        along = numbers["linear"] / sharp * variance * weight / np.where(known, counts, 1)[:, None]
        back = np.linalg.inv(numbers["whitening"])
        means = along @ back[-between.size :] + numbers["centre"]
        kept = np.where(known, np.minimum(counts, config.prior_count), 0)
        sums = kept[:, None] * means
        within = back.T @ back
        square = sums.T @ means + kept.sum() * within
        return Moments(kept, sums, float(kept.sum()), sums.sum(axis=0), square)

    def select(self, rows: Int[Array, " kept"]) -> GaussianEmission:
        """The emission of some classes; −1 stands for a class never observed."""
        known, half = (rows >= 0)[:, None], np.float32(-0.5 * self.sharpness)
        prior = half / (1 + self.between), half * np.log(1 + self.between).sum()
        return replace(
            self,
            linear=np.where(known, self.linear[rows], np.float32(0)),
            quadratic=np.where(known, self.quadratic[rows], prior[0]),
            constant=np.where(known[:, 0], self.constant[rows], prior[1]),
        )

    def least_log_prob(self, counts: Num[Array, " C"]) -> Float32[Array, " C"] | None:
        """The log-likelihood of each class at its mean; +∞ for classes never observed.

        None where nothing is known of any class.
        """
        if not (self.quadratic < 0).all():
            return None
        peak = self.constant - (self.linear**2 / (4 * self.quadratic)).sum(axis=1)
        best = np.where(counts >= 1.0, peak, np.float32(np.inf)).astype(np.float32)
        return best if np.isfinite(best).any() else None


def posterior_predictive(
    counts: Float64[Array, "C 1"],
    sums: Float64[Array, "C d"],
    between: Any,
    expected: Any = 0.0,
    sharpness: float = 1.0,
) -> tuple[Float32[Array, "C d"], Float32[Array, "C d"], Float32[Array, " C"]]:
    """Coefficients of y² and y, and constants, of ln p(y | c) in coordinates where W is 1.

    Class means scatter with variance `between` around `expected`.
    """
    precision = 1 / between + counts
    mean, variance = (expected / between + sums) / precision, 1 + 1 / precision
    constant = -0.5 * (mean**2 / variance + np.log(variance)).sum(axis=1)
    return (
        _single(sharpness * -0.5 / variance),
        _single(sharpness * mean / variance),
        _single(sharpness * constant),
    )


def _single(x: NDArray[Any]) -> NDArray[np.float32]:
    return x.astype(np.float32)


def _diagonalise(between: Array, within: Array) -> tuple[Array, Array]:
    """λ ascending, and V with Vᵀ W V = I and Vᵀ B V = diag(λ)."""
    values, vectors = eigh(between, within, check_finite=False)
    return values, vectors


def _nearest_psd(matrix: Array) -> Array:
    """The nearest symmetric matrix without negative eigenvalues."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    return (vectors * np.maximum(values, 0)) @ vectors.T
