"""A traceable classifier, fitted by Adam."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import optax

from tasid.beliefs.scaled import Classifier

ROWS = 256
"""Of a minibatch."""
_STEPS, _RATE = 400, 3e-3


@partial(jax.jit, static_argnums=0)
def descend(
    classifier: Classifier,
    parameters: Any,
    x: jax.Array,
    y: jax.Array,
    rows: jax.Array,
    key: jax.Array,
) -> Any:
    """Parameters with little cross-entropy to the labels y of the first so many rows of x."""
    optimiser = optax.adam(optax.cosine_decay_schedule(_RATE, _STEPS))

    def loss(parameters: Any, chosen: jax.Array) -> jax.Array:
        return -(y[chosen] * classifier(parameters, x[chosen])).sum(axis=1).mean()

    def step(carry: tuple[Any, Any], key: jax.Array) -> tuple[tuple[Any, Any], None]:
        parameters, state = carry
        chosen = jax.random.randint(key, (ROWS,), 0, rows)
        change, state = optimiser.update(jax.grad(loss)(parameters, chosen), state)
        return (optax.apply_updates(parameters, change), state), None

    keys = jax.random.split(key, _STEPS)
    (fitted, _), _ = jax.lax.scan(step, (parameters, optimiser.init(parameters)), keys)
    return fitted
