"""A classifier as an emission: scaled likelihoods (Bourlard and Morgan, 1994).

A model of p(c | x), fitted to smoothed posteriors and divided by how often each class was observed,
is p(x | c) / p(x), which is all that the smoother needs. It assumes no Gaussians, but needs labels,
which an emission that has broken the symmetry provides. A class observed n times has its ratio
mixed with 1 by the weight 1 / (n + 1): a class never observed is neither likely nor unlikely.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, Float64, Int
from numpy.typing import NDArray

from tasid.hmm.emissions import Emission

SMALLEST = 1e-9
PREFIX = "parameters."
"""Of the names of stored parameters."""

Array = NDArray[Any]


@dataclass(frozen=True)
class TrainingConfig:
    """How a differentiable classifier is trained: Adam with a cosine schedule."""

    steps: int = 400
    batch_size: int = 256
    learning_rate: float = 3e-3
    hidden: int = 128
    """Units of the built-in network's hidden layer."""


class Network:
    """The built-in classifier: one hidden layer over standardised features, in JAX."""

    def __init__(self, inputs: int, hidden: int) -> None:
        self.inputs, self.hidden = inputs, hidden

    def init(self, key: Any, num_classes: int) -> dict[str, Any]:
        """Small random weights."""
        import jax

        first, second = jax.random.split(key)
        shape = (self.inputs, self.hidden), (self.hidden, num_classes)
        return {
            "w0": jax.random.normal(first, shape[0]) / np.sqrt(self.inputs),
            "b0": np.zeros(self.hidden, np.float32),
            "w1": 0.1 * jax.random.normal(second, shape[1]) / np.sqrt(self.hidden),
            "b1": np.zeros(num_classes, np.float32),
        }

    def apply(self, parameters: Mapping[str, Any], x: Any) -> Any:
        """Logits [n, C] of features [n, D]; in NumPy if both are NumPy's."""
        hidden = x @ parameters["w0"] + parameters["b0"]
        return (hidden * (hidden > 0)) @ parameters["w1"] + parameters["b1"]


class DifferentiableClassifier:
    """A model with `init(key, num_classes)` and `apply(parameters, x) → logits`, in JAX."""

    def __init__(
        self, model: Any, shape: tuple[int, ...] | None = None, config: TrainingConfig | None = None
    ) -> None:
        self.model, self.shape = model, shape
        self.config = config or TrainingConfig()
        self._compiled: Any = None
        self._train: Any = None

    def fit(self, features: Float32[Array, "n D"], labels: Float32[Array, "n C"]) -> Any:
        """Parameters that minimise the cross-entropy to soft labels."""
        import jax

        key = jax.random.key(0)
        parameters = self.model.init(key, labels.shape[1])
        rows = len(features)
        # Powers of two, so that a compiled program serves many numbers of rows.
        room = 1 << max(rows - 1, self.config.batch_size - 1).bit_length()
        x = np.pad(features, [(0, room - rows), (0, 0)])
        y = np.pad(labels, [(0, room - rows), (0, 0)])
        if self._train is None:
            self._train = self._training_program()
        fitted = self._train(parameters, x, y, np.int32(rows), key)
        return jax.tree.map(np.asarray, fitted)

    def _training_program(self) -> Any:
        import jax
        import optax

        config = self.config
        schedule = optax.cosine_decay_schedule(config.learning_rate, config.steps)
        optimiser = optax.adam(schedule)

        def loss(parameters: Any, x: Any, y: Any) -> Any:
            log_p = jax.nn.log_softmax(self.logits(parameters, x))
            return -(y * log_p).sum(axis=1).mean()

        def train(parameters: Any, x: Any, y: Any, rows: Any, key: Any) -> Any:
            def step(carry: Any, key: Any) -> Any:
                parameters, state = carry
                chosen = jax.random.randint(key, (config.batch_size,), 0, rows)
                gradient = jax.grad(loss)(parameters, x[chosen], y[chosen])
                change, state = optimiser.update(gradient, state)
                return (optax.apply_updates(parameters, change), state), None

            keys = jax.random.split(key, config.steps)
            initial = parameters, optimiser.init(parameters)
            (parameters, _), _ = jax.lax.scan(step, initial, keys)
            return parameters

        return jax.jit(train)

    def log_probabilities(
        self, parameters: Any, features: Float32[Array, "n D"]
    ) -> Float32[Array, "n C"]:
        """ln p(c | x)."""
        from scipy.special import log_softmax

        if isinstance(self.model, Network):
            logits = self.model.apply(parameters, features)
        else:
            import jax

            rows = len(features)
            room = 1 << max(rows - 1, 7).bit_length()
            x = np.pad(features, [(0, room - rows), (0, 0)])
            if self._compiled is None:
                self._compiled = jax.jit(self.logits)
            logits = np.asarray(self._compiled(parameters, x))[:rows]
        return log_softmax(logits, axis=1)

    def logits(self, parameters: Any, features: Any) -> Any:
        """The model's output on flat features."""
        x = features if self.shape is None else features.reshape(-1, *self.shape)
        return self.model.apply(parameters, x)


@cache
def network_classifier(inputs: int, config: TrainingConfig) -> DifferentiableClassifier:
    """The built-in network; the same object for the same arguments, compiled once."""
    return DifferentiableClassifier(Network(inputs, config.hidden), None, config)


class PredictingClassifier:
    """A model with `fit(X, y)` and `predict_proba(X)`, as in scikit-learn.

    Labels are drawn from the posteriors, one for each observation, because `fit` takes no others.
    """

    def __init__(self, model: Any) -> None:
        self.model = model

    def fit(self, features: Float32[Array, "n D"], labels: Float32[Array, "n C"]) -> Any:
        """A fitted copy of the model and the number of classes."""
        mass = labels.sum(axis=1)
        known = mass > 0.5
        cumulative = np.cumsum(labels[known], axis=1) / mass[known, None]
        draws = np.random.default_rng(0).random((int(known.sum()), 1))
        drawn = np.minimum((cumulative < draws).sum(axis=1), labels.shape[1] - 1)
        fitted = copy.deepcopy(self.model)
        fitted.fit(features[known], drawn)
        return fitted, labels.shape[1]

    def log_probabilities(
        self, parameters: Any, features: Float32[Array, "n D"]
    ) -> Float32[Array, "n C"]:
        """ln p(c | x); classes that the copy was not shown have next to none."""
        fitted, number = parameters
        probabilities = np.full((len(features), number), SMALLEST, np.float32)
        probabilities[:, np.asarray(fitted.classes_, int)] += fitted.predict_proba(features)
        return np.log(probabilities)


@dataclass(frozen=True, eq=False)
class ClassifierEmission(Emission):
    """A fitted classifier as an emission."""

    classifier: DifferentiableClassifier | PredictingClassifier
    parameters: Any
    log_prior: Float32[Array, " C"]
    """ln of each class's share of the observations."""
    trust: Float32[Array, " C"]
    """n / (n + 1) for a class observed n times."""

    @property
    def num_classes(self) -> int:  # type: ignore[override]
        return len(self.trust)

    @property
    def counts(self) -> Float64[Array, " C"]:
        """Observations of each class."""
        trust = self.trust.astype(np.float64)
        return trust / (1 - trust)

    def log_prob(
        self, features: Float[Array, "n D"], classes: Int[Array, " L"]
    ) -> Float32[Array, "n L"]:
        log_p = self.classifier.log_probabilities(self.parameters, features)
        ratio = np.exp(np.minimum(log_p - self.log_prior, np.float32(30)))
        mixed = np.log(self.trust * ratio + (1 - self.trust) + np.float32(SMALLEST))
        return mixed[:, classes].astype(np.float32)

    def arrays(self) -> dict[str, NDArray[Any]]:
        if isinstance(self.classifier, PredictingClassifier):
            raise ValueError(
                f"save: {type(self.classifier.model).__name__} keeps its parameters to itself; "
                "learn with a model that has init and apply"
            )
        return {"log_prior": self.log_prior, "trust": self.trust, **_named(self.parameters)}

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, NDArray[Any]], model: Any, shape: tuple[int, ...]
    ) -> ClassifierEmission:
        """The inverse of `arrays`, for the built-in network (model None) or a user's model."""
        named = {name: x for name, x in arrays.items() if name.startswith(PREFIX)}
        prior, trust = arrays["log_prior"], arrays["trust"]
        if model is None:
            parameters = {name.removeprefix(PREFIX): x for name, x in named.items()}
            network = Network(*parameters["w0"].shape)
            return cls(DifferentiableClassifier(network), parameters, prior, trust)
        import jax

        classifier = classifier_from(model, shape)
        template = jax.eval_shape(lambda: model.init(jax.random.key(0), len(trust)))
        ours, theirs = (
            {n: x.shape for n, x in leaves.items()} for leaves in (_named(template), named)
        )
        if ours != theirs:
            raise ValueError(
                f"model: its parameters are {ours}, those stored are {theirs}; give the model that "
                "the policy was learned with"
            )
        leaves = [named[name] for name in ours]
        parameters = jax.tree.unflatten(jax.tree.structure(template), leaves)
        return cls(classifier, parameters, prior, trust)

    def select(self, rows: Int[Array, " kept"]) -> ClassifierEmission:
        """The emission of some classes of the built-in network; −1: a class never observed."""
        known, weights = rows >= 0, self.parameters
        parameters = {
            **weights,
            "w1": np.where(known, weights["w1"][:, rows], np.float32(0)),
            "b1": np.where(known, weights["b1"][rows], np.float32(-30)),
        }
        log_prior = np.where(known, self.log_prior[rows], np.float32(0))
        trust = np.where(known, self.trust[rows], np.float32(0))
        return ClassifierEmission(self.classifier, parameters, log_prior, trust)

    @classmethod
    def fit(
        cls,
        classifier: DifferentiableClassifier | PredictingClassifier,
        features: Float32[Array, "n D"],
        labels: Float32[Array, "n C"],
    ) -> ClassifierEmission:
        """Fit to features with soft labels whose rows sum to at most 1."""
        counts = labels.sum(axis=0, dtype=np.float64)
        prior = np.maximum(counts, 1e-3) / max(counts.sum(), 1e-3)
        return cls(
            classifier,
            classifier.fit(features, labels),
            np.log(prior).astype(np.float32),
            (counts / (counts + 1)).astype(np.float32),
        )


def _named(parameters: Any) -> dict[str, Any]:
    """Leaves of a parameter tree by their paths."""
    from jax.tree_util import keystr, tree_leaves_with_path

    leaves = tree_leaves_with_path(parameters)
    return {PREFIX + keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}


def classifier_from(model: Any, shape: tuple[int, ...]) -> Any:
    """A user's model as a classifier of observations of this shape, or an error that says why."""
    if hasattr(model, "fit") and hasattr(model, "predict_proba"):
        return PredictingClassifier(model)
    if not (hasattr(model, "init") and hasattr(model, "apply")):
        raise ValueError(
            f"model: {type(model).__name__} has neither init(key, num_classes) and "
            "apply(parameters, x) → [n, num_classes], nor fit(X, y) and predict_proba(X)"
        )
    import jax

    classifier, x = DifferentiableClassifier(model, shape), np.zeros((1, *shape), np.float32)
    try:
        logits = jax.eval_shape(lambda: classifier.logits(model.init(jax.random.key(0), 2), x))
    except TypeError as error:
        raise ValueError(f"model: its apply(parameters, x) fails: {error}") from error
    if logits.shape != (1, 2):
        raise ValueError(f"model: apply returns {logits.shape} for 1 observation and 2 classes")
    return classifier
