"""What classes look like, by a classifier: scaled likelihoods.

A model of p(c | x) that is fitted to smoothed posteriors, divided by how often each class was
seen, is p(x | c) / p(x): all that a smoother asks for. It needs no Gaussians, but labels to begin
with, which an emission that has broken the symmetry gives. A class that was seen n times has its
ratio mixed with 1 by the weight 1 / (n + 1): one never seen is neither likely nor unlikely.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tasid.beliefs.episodes import Episodes

if TYPE_CHECKING:
    from jaxtyping import Array, Float

MOST_CLASSES = 2_048
"""With more classes than this, labels of all observations would not fit into memory."""
_LANES = 32
"""Rows that are classified at once where bits must not depend on how many there are."""
_LEAST = 1e-9

Floats = NDArray[np.float32]


class Classifier(Protocol):
    """p(c | x), fitted to soft labels; hashable, so that it can be compiled in."""

    def fit(self, features: Floats, labels: Floats) -> Any:
        """Parameters, a pytree, from features [n, D] and labels [n, C] whose rows sum to ≤ 1."""

    def __call__(self, parameters: Any, features: jax.Array) -> jax.Array:
        """ln p(c | x), [N, C], of features [N, D]."""


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["parameters", "log_prior", "trust"],
    meta_fields=["classifier", "size"],
)
@dataclass(frozen=True)
class Scaled:
    """A fitted classifier as an emission."""

    parameters: Any
    log_prior: Float[Array, " C"]
    """ln of the share of observations that each class has, [C]."""
    trust: Float[Array, " C"]
    """n / (n + 1) for a class seen n times, [C]."""
    classifier: Any
    size: int
    """How many features it looks at, D; further columns are not looked at."""

    @property
    def num_classes(self) -> int:
        """C."""
        return int(self.log_prior.shape[0])

    def scores(self, features: jax.Array, members: jax.Array) -> jax.Array:
        """ln p(x | c) / p(x), [L, N], for features [N, D], classes [L]."""
        told = self.classifier(self.parameters, features[:, : self.size])
        ratio = jnp.exp(jnp.minimum(told - self.log_prior[None], 30.0))
        trust = self.trust[None]
        return jnp.log(trust * ratio + (1 - trust) + _LEAST).T[members]

    def exact_scores(self, features: jax.Array, members: jax.Array) -> jax.Array:
        """The same, block by block: the same bits for any number of blocks."""
        rows = features.shape[0]
        blocks = jnp.pad(features, [(0, -rows % _LANES), (0, 0)])
        blocks = blocks.reshape(-1, _LANES, features.shape[1])
        scores = jax.lax.map(lambda block: self.scores(block, members), blocks)
        return jnp.moveaxis(scores, 0, 1).reshape(members.size, -1)[:, :rows]


def fit_scaled(
    classifier: Classifier, chunks: Sequence[Episodes], labels: Sequence[jax.Array]
) -> Scaled:
    """The classifier's emission, from labels [H+1, N, C] of every chunk."""
    features = np.concatenate([_rows(chunk.features, chunk) for chunk in chunks])
    told = np.concatenate([_rows(x, chunk) for x, chunk in zip(labels, chunks, strict=True)])
    counts = told.sum(axis=0, dtype=np.float64)
    prior = np.maximum(counts, 1e-3) / max(counts.sum(), 1e-3)
    return Scaled(
        parameters=classifier.fit(features, told),
        log_prior=jnp.asarray(np.log(prior), jnp.float32),
        trust=jnp.asarray(counts / (counts + 1), jnp.float32),
        classifier=classifier,
        size=features.shape[1],
    )


def _rows(values: jax.Array, chunk: Episodes) -> Floats:
    """What belongs to observations that were made, [n, …]."""
    return np.asarray(values, np.float32)[np.asarray(chunk.live) > 0]


@dataclass(frozen=True)
class Differentiable:
    """A model with `init(key, num_classes)` and `apply(parameters, x) → [B, C]`, fitted by Adam."""

    model: Any
    shape: tuple[int, ...] | None = None
    """Of one observation, if the model reads them as they are."""

    def fit(self, features: Floats, labels: Floats) -> Any:
        """Minimise the cross-entropy to the labels."""
        from tasid.beliefs.descent import ROWS, descend  # acting needs no optimiser

        key = jax.random.key(0)
        start = self.model.init(key, labels.shape[1])
        # Powers of two: compiled code then serves many numbers of rows.
        room = 1 << max(len(features) - 1, ROWS - 1).bit_length()
        more = room - len(features)
        x = jnp.asarray(np.pad(features, [(0, more), (0, 0)]))
        y = jnp.asarray(np.pad(labels, [(0, more), (0, 0)]))
        fitted: Any = descend(self, start, x, y, jnp.int32(len(features)), key)
        return fitted

    def __call__(self, parameters: Any, features: jax.Array) -> jax.Array:
        """ln p(c | x)."""
        x = features if self.shape is None else features.reshape(-1, *self.shape)
        return jax.nn.log_softmax(self.model.apply(parameters, x))


@dataclass(frozen=True)
class Layers:
    """A network of ours: one hidden layer over standard features."""

    inputs: int
    hidden: int = 128

    def init(self, key: jax.Array, num_classes: int) -> dict[str, jax.Array]:
        """Small random weights."""
        first, second = jax.random.split(key)
        wide, deep = (self.inputs, self.hidden), (self.hidden, num_classes)
        return {
            "w0": jax.random.normal(first, wide) / np.sqrt(self.inputs),
            "b0": jnp.zeros(self.hidden),
            "w1": 0.1 * jax.random.normal(second, deep) / np.sqrt(self.hidden),
            "b1": jnp.zeros(num_classes),
        }

    def apply(self, parameters: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        """Scores [B, C] of features [B, D]."""
        hidden = jax.nn.relu(x @ parameters["w0"] + parameters["b0"][None])
        return hidden @ parameters["w1"] + parameters["b1"][None]


class Predicting:
    """A classifier with `fit(X, y)` and `predict_proba(X)`; it need not be traceable.

    Labels are drawn from the posteriors, one for each observation, because `fit` takes no others.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self._fitted: list[Any] = []
        self._classes = 0

    def fit(self, features: Floats, labels: Floats) -> jax.Array:
        """Fit a copy; the parameters are its number."""
        mass = labels.sum(axis=1)
        known = mass > 0.5
        steps = np.cumsum(labels[known], axis=1) / mass[known, None]
        drawn = np.random.default_rng(0).random((int(known.sum()), 1))
        last = labels.shape[1] - 1
        fitted = copy.deepcopy(self.model)
        fitted.fit(features[known], np.minimum((steps < drawn).sum(axis=1), last))
        self._fitted.append(fitted)
        self._classes = labels.shape[1]
        return jnp.int32(len(self._fitted) - 1)

    def __call__(self, parameters: jax.Array, features: jax.Array) -> jax.Array:
        """ln p(c | x); classes that the copy was not shown have next to none."""
        result = jax.ShapeDtypeStruct((features.shape[0], self._classes), jnp.float32)
        return jax.pure_callback(self._predict, result, parameters, features)

    def _predict(self, number: Any, features: Any) -> Floats:
        fitted = self._fitted[int(number)]
        told = np.full((len(features), self._classes), _LEAST, np.float32)
        shown = np.asarray(fitted.classes_, int)
        told[:, shown] += fitted.predict_proba(np.asarray(features))
        return np.log(told)


def classifier_for(model: Any, shape: tuple[int, ...]) -> Classifier:
    """A user's model of what classes look like, or an error that says what it should be."""
    if hasattr(model, "fit") and hasattr(model, "predict_proba"):
        return Predicting(model)
    if not (hasattr(model, "init") and hasattr(model, "apply")):
        raise ValueError(
            f"model: {type(model).__name__} has neither init(key, num_classes) and "
            "apply(parameters, x) → [B, num_classes], nor fit(X, y) and predict_proba(X)"
        )
    needed = [
        name
        for name, one in inspect.signature(model.apply).parameters.items()
        if one.default is one.empty and one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
    ]
    if len(needed) != 2:
        raise ValueError(
            f"model: apply({', '.join(needed)}) should be apply(parameters, x): models see single "
            "observations now, not pairs, and tell classes apart, not actions"
        )
    return Differentiable(model, shape)
