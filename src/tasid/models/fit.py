"""Training on a flat parameter vector: steps of Adam, and the one supervised training loop.

`fit` is maximum likelihood with a held-out set and early stopping, written for one dataset and
compiled whole; the baselines take steps of `Descent`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import optax

from tasid.models.networks import Network

if TYPE_CHECKING:
    from jaxtyping import Array, Float, Int, Shaped


class NetworkState(NamedTuple):
    """A network's parameters [P] and what its optimiser remembers."""

    parameters: jax.Array
    optimiser: optax.OptState


@dataclass(frozen=True)
class Descent:
    """Adam for one network; hashable, so that it can be compiled in."""

    learning_rate: float = 3e-4
    clip: float = 0.25
    """Bound on the gradient's global norm."""

    @property
    def optimiser(self) -> optax.GradientTransformation:
        return optax.chain(optax.clip_by_global_norm(self.clip), optax.adam(self.learning_rate))

    def start(self, parameters: jax.Array) -> NetworkState:
        """The parameters with a fresh optimiser."""
        return NetworkState(parameters, self.optimiser.init(parameters))

    def step(self, weights: NetworkState, loss: Callable[[jax.Array], jax.Array]) -> NetworkState:
        """One step down the gradient of `loss`, a function of the parameters."""
        gradient = jax.grad(loss)(weights.parameters)
        change, state = self.optimiser.update(gradient, weights.optimiser, weights.parameters)
        return NetworkState(optax.apply_updates(weights.parameters, change), state)


ADAM = Descent()
"""The paper's, for the lock."""


class Transitions(NamedTuple):
    """Labelled transitions of one step; row i comes from episode i."""

    x: Shaped[Array, "n ..."]
    x_next: Shaped[Array, "n ..."]
    label: Int[Array, " n"]
    """int32 [n]."""
    weight: Float[Array, " n"]
    """1 for data, 0 for rows that only fill the shape, float32 [n]."""


@dataclass(frozen=True)
class FitConfig:
    """Hyper-parameters of the training loop; the defaults are the paper's for the lock."""

    learning_rate: float = 3e-4
    batch_size: int = 32
    clip: float = 0.25
    """Bound on the gradient's global norm."""
    patience: int = 10
    """Epochs without a lower validation loss before training stops."""
    max_epochs: int = 100
    validation: float = 0.2
    """Fraction of the episodes held out: the last ones (they are i.i.d.)."""

    def training(self, episodes: int) -> int:
        """How many of the episodes train."""
        return episodes - max(1, round(episodes * self.validation))

    def split(self, data: Transitions) -> tuple[Transitions, Transitions]:
        """The data to train on, and those held out."""
        rows = self.training(data.label.shape[0])
        return Transitions(*(t[:rows] for t in data)), Transitions(*(t[rows:] for t in data))


class Fit(NamedTuple):
    """The parameters with the lowest validation loss, and how training went."""

    parameters: Float[Array, " P"]
    validation_loss: Float[Array, ""]
    epochs: Int[Array, ""]
    history: Float[Array, "epochs 2"]
    """Training and validation loss after every epoch, [max_epochs, 2]; NaN after the last."""


class _Progress(NamedTuple):
    epoch: jax.Array
    stale: jax.Array
    parameters: jax.Array
    optimiser: optax.OptState
    best: jax.Array
    best_loss: jax.Array
    history: jax.Array


def negative_log_likelihood(
    network: Network, parameters: jax.Array, data: Transitions
) -> jax.Array:
    """−ln f(label | x, x') of every row [n]."""
    scores = network.apply(parameters, data.x, data.x_next)
    log_f = jax.nn.log_softmax(scores, axis=-1)
    return -jnp.take_along_axis(log_f, data.label[:, None], axis=-1)[:, 0]


def fit(
    network: Network,
    config: FitConfig,
    start: jax.Array,
    data: Transitions,
    held_out: Transitions,
    key: jax.Array,
) -> Fit:
    """Train from `start` [P] with a fresh Adam; keep the epoch that is best on `held_out`."""
    optimiser = Descent(config.learning_rate, config.clip).optimiser
    train_rows = data.label.shape[0]

    def mean_loss(parameters: jax.Array, rows: Transitions) -> jax.Array:
        losses = negative_log_likelihood(network, parameters, rows)
        return (losses * rows.weight).sum() / jnp.maximum(rows.weight.sum(), 1.0)

    def update(carry: tuple[jax.Array, optax.OptState], rows: jax.Array):  # type: ignore[no-untyped-def]
        parameters, state = carry
        batch = jax.tree.map(lambda table: table[jnp.maximum(rows, 0)], data)
        batch = batch._replace(weight=batch.weight * (rows >= 0))
        loss, gradient = jax.value_and_grad(mean_loss)(parameters, batch)
        change, state = optimiser.update(gradient, state, parameters)
        return (optax.apply_updates(parameters, change), state), loss

    def epoch(now: _Progress) -> _Progress:
        rows = _minibatches(jax.random.fold_in(key, now.epoch), train_rows, config.batch_size)
        (parameters, state), losses = jax.lax.scan(update, (now.parameters, now.optimiser), rows)
        loss = mean_loss(parameters, held_out)
        better = loss < now.best_loss
        return _Progress(
            epoch=now.epoch + 1,
            stale=jnp.where(better, 0, now.stale + 1),
            parameters=parameters,
            optimiser=state,
            best=jnp.where(better, parameters, now.best),
            best_loss=jnp.where(better, loss, now.best_loss),
            history=now.history.at[now.epoch].set(jnp.stack([losses.mean(), loss])),
        )

    def going(now: _Progress) -> jax.Array:
        return (now.epoch < config.max_epochs) & (now.stale < config.patience)

    done = jax.lax.while_loop(
        going,
        epoch,
        _Progress(
            epoch=jnp.int32(0),
            stale=jnp.int32(0),
            parameters=start,
            optimiser=optimiser.init(start),
            best=start,
            best_loss=jnp.float32(jnp.inf),
            history=jnp.full((config.max_epochs, 2), jnp.nan),
        ),
    )
    return Fit(done.best, done.best_loss, done.epoch, done.history)


def _minibatches(key: jax.Array, rows: int, size: int) -> jax.Array:
    """A random order of the rows as [batches, ≤ size]; −1 fills the last batch."""
    size = min(size, rows)
    batches = math.ceil(rows / size)
    order = jax.random.permutation(key, rows)
    return jnp.pad(order, (0, batches * size - rows), constant_values=-1).reshape(batches, size)
