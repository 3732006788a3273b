"""A user's own model in a policy's file: its parameters, by their paths, and never its code.

What `apply` reads is a tree of arrays, which a file can hold. How it is read is the user's program,
so the model is given again when the policy is loaded, and `init` says what its tree looks like. A
classifier with `fit` and `predict_proba` keeps what it learned to itself: it cannot be stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tasid.beliefs.scaled import Differentiable, Scaled

PREFIX = "model"


class WrongModel(ValueError):
    """The model given with a stored policy is not the one it was learned with."""


def model_numbers(emission: Scaled) -> dict[str, NDArray[Any]]:
    """The parameters by name, or an error where there are none to be had."""
    classifier = emission.classifier
    if not isinstance(classifier, Differentiable):
        raise ValueError(
            f"save: this policy sees by a {class_name(emission)} of your own, which keeps what it "
            "learned to itself; to save a policy, learn it with a model that has init(key, "
            "num_classes) and apply(parameters, x), whose parameters a file can hold"
        )
    named, _ = _named(emission.parameters)
    return {name: np.asarray(leaf) for name, leaf in named.items()}


def class_name(emission: Scaled) -> str:
    """What the user calls the model."""
    return type(emission.classifier.model).__name__


def own_emission(model: Any, arrays: Mapping[str, NDArray[Any]], shape: tuple[int, ...]) -> Scaled:
    """The emission of a stored policy, by the model that its user gives again."""
    if not (hasattr(model, "init") and hasattr(model, "apply")):
        raise WrongModel(
            f"model: {type(model).__name__} has no init(key, num_classes) and apply(parameters, "
            "x); the model that the policy was learned with has"
        )
    classifier = Differentiable(model, shape)
    log_prior = jnp.asarray(arrays["emission.log_prior"])
    wanted, tree = _named(model.init(jax.random.key(0), log_prior.size))
    found = {n: x for n, x in arrays.items() if n == PREFIX or n.startswith(f"{PREFIX}.")}
    for name in sorted(wanted.keys() | found.keys()):
        ours = _said(found.get(name))
        theirs = _said(wanted.get(name))
        if ours != theirs:
            raise WrongModel(
                f"model: {type(model).__name__} has {theirs} for {name}, the policy {ours}; give "
                "the model that it was learned with"
            )
        if found[name].dtype.kind == "f" and not np.isfinite(found[name]).all():
            raise ValueError(f"{name}: not finite numbers")
    leaves = [jnp.asarray(found[name]) for name in wanted]
    return Scaled(
        jax.tree_util.tree_unflatten(tree, leaves),
        log_prior,
        jnp.asarray(arrays["emission.trust"]),
        classifier,
        int(np.prod(shape)),
    )


def _named(parameters: Any) -> tuple[dict[str, Any], Any]:
    """Leaves by their paths in the tree, and the tree."""
    leaves, tree = jax.tree_util.tree_flatten_with_path(parameters)
    paths = [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in leaves]
    names = [f"{PREFIX}.{path}" if path else PREFIX for path in paths]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"model: two of its parameters would be called {min(twice)} in a file")
    return {name: leaf for name, (_, leaf) in zip(names, leaves, strict=True)}, tree


def _said(leaf: Any) -> str:
    """What a leaf is, for comparing and for telling."""
    if leaf is None:
        return "nothing"
    array = np.asarray(leaf)
    return f"{array.dtype} {list(array.shape)}"
