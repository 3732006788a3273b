"""A user's own model: a network of two functions, or a classifier with scikit-learn's interface.

A network has `init(key) → parameters` (any pytree) and `apply(parameters, x, x_next) → scores
[B, L]`, in JAX. A classifier has `fit(inputs, labels)`, `predict_proba(inputs)` and `classes_`, and
sees x and x' flat, side by side; it runs outside compiled code and cannot be saved, because that
would take a format that executes code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from numpy.typing import NDArray

from tasid.learning.choices import Floats

_LEAST = 1e-6
"""Probability of labels that a classifier calls impossible."""


@runtime_checkable
class NetworkLike(Protocol):
    """What a user's network has."""

    def init(self, key: jax.Array) -> Any:
        """Fresh parameters."""

    def apply(self, parameters: Any, x: jax.Array, x_next: jax.Array) -> jax.Array:
        """Unnormalised log-scores [B, L] for raw observations [B, …] and [B, …]."""


@runtime_checkable
class ClassifierLike(Protocol):
    """What a user's classifier has."""

    def fit(self, X: Any, y: Any) -> Any:
        """Learn labels [n] from inputs [n, 2d], from nothing."""

    def predict_proba(self, X: Any) -> Any:
        """Probabilities [n, classes] in the order of `classes_`."""


Own = Callable[[tuple[int, ...], int], NetworkLike | ClassifierLike]
"""Makes a model for observations of a shape and a number of labels."""


class OwnNetwork:
    """A user's network over one flat parameter vector."""

    def __init__(self, made: NetworkLike, num_labels: int) -> None:
        self._made, self.num_labels = made, num_labels
        flat, self._unravel = ravel_pytree(made.init(jax.random.key(0, impl="threefry2x32")))
        self.num_parameters = int(flat.size)

    def init(self, key: jax.Array) -> jax.Array:
        """Fresh parameters [P]."""
        return ravel_pytree(self._made.init(key))[0].astype(jnp.float32)

    def apply(self, parameters: jax.Array, x: jax.Array, x_next: jax.Array) -> jax.Array:
        """Scores [B, L], with a word if they are not."""
        scores = self._made.apply(self._unravel(parameters), x, x_next)
        wanted = (x.shape[0], self.num_labels)
        if scores.shape != wanted:
            raise ValueError(
                f"model: apply gives scores of shape {scores.shape}; {wanted} would be right, one "
                "for every transition and label"
            )
        return scores

    def describe(self) -> dict[str, Any]:
        """Its name; whoever loads it has to bring it."""
        return {"kind": "own", "name": type(self._made).__name__}


class Classifiers:
    """Fitted classifiers behind the interface of a network; its one parameter says which."""

    num_parameters = 1

    def __init__(self, num_labels: int) -> None:
        self.num_labels = num_labels
        self._fitted: list[ClassifierLike] = []

    def add(self, fitted: ClassifierLike) -> Floats:
        """The parameters [1] under which this one is called."""
        self._fitted.append(fitted)
        return np.array([len(self._fitted) - 1], np.float32)

    def init(self, key: jax.Array) -> jax.Array:
        """Nobody: until one is fitted, all labels are alike."""
        return jnp.full(1, -1.0)

    def scores(self, parameters: NDArray[Any], inputs: NDArray[Any]) -> Floats:
        """ln of the probabilities [n, L] that the classifier gives."""
        number = int(parameters[0])
        if number < 0 or not self._fitted:
            return np.zeros((len(inputs), self.num_labels), np.float32)
        fitted = self._fitted[number]
        probabilities = np.full((len(inputs), self.num_labels), _LEAST, np.float32)
        classes = np.asarray(fitted.classes_, dtype=np.intp)  # type: ignore[attr-defined]
        given = np.asarray(fitted.predict_proba(inputs), np.float32)
        probabilities[:, classes] = np.maximum(given, _LEAST)
        return np.log(probabilities)

    def apply(self, parameters: jax.Array, x: jax.Array, x_next: jax.Array) -> jax.Array:
        """Scores [B, L], computed outside of compiled code."""

        def call(parameters: Any, x: Any, x_next: Any) -> Floats:
            pairs = [np.asarray(part, np.float32).reshape(len(part), -1) for part in (x, x_next)]
            return self.scores(np.asarray(parameters), np.concatenate(pairs, axis=1))

        shape = jax.ShapeDtypeStruct((x.shape[0], self.num_labels), jnp.float32)
        return jax.pure_callback(call, shape, parameters, x, x_next, vmap_method="sequential")

    def describe(self) -> dict[str, Any]:
        """It cannot be: there is no safe format for any classifier."""
        raise ValueError(
            "policy: it decodes with a classifier of your own, which cannot be saved without a "
            "format that executes code; learn again, or give a network with init and apply"
        )
