"""Maximum likelihood with early stopping: the supervised training loop of Algorithm 2, line 11.

Every epoch shuffles the training rows into minibatches for Adam; after it, the loss on the held-out
rows is computed. Training ends after `patience` epochs without a lower one, and the parameters of
the best epoch are returned. The loop is compiled whole.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from tasid.networks import FlatModel


class Fit(NamedTuple):
    """Parameters with the lowest validation loss."""

    parameters: jax.Array
    """[P]."""
    validation_loss: jax.Array
    """Mean of −ln f(a | x, x') over the held-out rows."""
    epochs: jax.Array
    """How many there were until training stopped."""


@partial(jax.jit, static_argnums=0, static_argnames=("training", "batch_size", "max_epochs"))
def fit(
    network: FlatModel,
    start: jax.Array,
    observations: jax.Array,
    actions: jax.Array,
    weights: jax.Array,
    key: jax.Array,
    *,
    training: int,
    batch_size: int,
    max_epochs: int,
    learning_rate: float,
    clip: float,
    patience: int,
) -> Fit:
    """argmax_f Σ ln f(a | x, x') from `start` [P], with a fresh Adam.

    Parameters
    ----------
    observations, actions
        Pairs (x, x') [n, 2, …] and actions [n].
    weights
        1 for data, 0 for rows to ignore, [n].
    training
        This many rows train, the rest are held out.
    clip
        Bound on the global norm of the gradient.
    """
    optimiser = optax.chain(optax.clip_by_global_norm(clip), optax.adam(learning_rate))
    batch_size = min(batch_size, training)
    part_size = min(batch_size, network.pairs_at_once)
    held_out = _batches(jnp.arange(training, len(actions)), network.pairs_at_once)
    prepared = network.prepare(observations[:, 0], observations[:, 1])

    def loss(parameters: jax.Array, rows: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Sums of losses and of weights over rows; −1 is no row."""
        chosen = jnp.maximum(rows, 0)
        pairs = jax.tree.map(lambda table: table[chosen], prepared)
        log_f = jax.nn.log_softmax(network.logits(parameters, pairs))
        losses = -jnp.take_along_axis(log_f, actions[chosen][:, None], axis=1)[:, 0]
        weight = weights[chosen] * (rows >= 0)
        return (losses * weight).sum(), weight.sum()

    def update(carry: Any, rows: jax.Array) -> Any:
        parameters, state = carry
        slope = partial(jax.grad(loss, has_aux=True), parameters)
        slopes, counts = jax.lax.map(slope, _batches(rows, part_size))
        gradient = slopes.sum(axis=0) / jnp.maximum(counts.sum(), 1)
        change, state = optimiser.update(gradient, state, parameters)
        return (optax.apply_updates(parameters, change), state), None

    def epoch(carry: Any) -> Any:
        number, stale, model, best = carry
        order = jax.random.permutation(jax.random.fold_in(key, number), training)
        model, _ = jax.lax.scan(update, model, _batches(order, batch_size))
        totals, counts = jax.lax.map(partial(loss, model[0]), held_out)
        now = model[0], totals.sum() / jnp.maximum(counts.sum(), 1)
        better = now[1] < best[1]
        best = jax.tree.map(partial(jnp.where, better), now, best)
        return number + 1, jnp.where(better, 0, stale + 1), model, best

    initial: Any = (0, 0, (start, optimiser.init(start)), (start, jnp.float32(jnp.inf)))
    epochs, _, _, best = jax.lax.while_loop(
        lambda carry: (carry[0] < max_epochs) & (carry[1] < patience), epoch, initial
    )
    return Fit(best[0], best[1], epochs)


def _batches(rows: jax.Array, size: int) -> jax.Array:
    """Rows as [batches, size], filled up with −1."""
    size = min(size, len(rows))
    count = math.ceil(len(rows) / size)
    return jnp.pad(rows, (0, count * size - len(rows)), constant_values=-1).reshape(count, size)
