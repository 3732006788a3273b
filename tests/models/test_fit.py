"""The training loop against a slow, obvious NumPy reference, and its stopping rule."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tasid.models import MLP, FitConfig, Transitions, fit
from tasid.models.fit import _minibatches, negative_log_likelihood
from tasid.targets.target import seed_key


def data_of(rows: int, labels: int = 3, size: int = 4, seed: int = 0) -> Transitions:
    """Transitions whose label can be learned: x' − x points at it."""
    rng = np.random.default_rng(seed)
    label = rng.integers(labels, size=rows)
    x = rng.normal(size=(rows, size))
    x_next = x + 0.7 * np.eye(size)[label] + 0.3 * rng.normal(size=(rows, size))
    return Transitions(
        jnp.asarray(x, jnp.float32),
        jnp.asarray(x_next, jnp.float32),
        jnp.asarray(label),
        jnp.ones(rows),
    )


class Reference:
    """Backpropagation, clipping and Adam written out in float64."""

    def __init__(self, network: MLP, flat: np.ndarray, config: FitConfig) -> None:
        self.sizes = [2 * network.observation_size, *network.hidden, network.num_labels]
        self.flat, self.config = flat.astype(np.float64), config
        self.m, self.v, self.t = np.zeros_like(self.flat), np.zeros_like(self.flat), 0

    def layers(self):
        offset = 0
        for rows, columns in zip(self.sizes, self.sizes[1:], strict=False):
            weights = self.flat[offset : offset + rows * columns].reshape(rows, columns)
            offset += rows * columns
            yield weights, self.flat[offset : offset + columns]
            offset += columns

    def forward(self, inputs):
        activations = [inputs]
        layers = list(self.layers())
        for number, (weights, bias) in enumerate(layers):
            out = activations[-1] @ weights + bias
            activations.append(out if number == len(layers) - 1 else np.maximum(out, 0))
        scores = activations[-1]
        log_f = scores - scores.max(axis=1, keepdims=True)
        log_f = log_f - np.log(np.exp(log_f).sum(axis=1, keepdims=True))
        return activations, log_f

    def update(self, inputs, label):
        activations, log_f = self.forward(inputs)
        delta = (np.exp(log_f) - np.eye(log_f.shape[1])[label]) / len(label)
        gradient = []
        for (weights, _), before in zip(
            reversed(list(self.layers())), reversed(activations[:-1]), strict=True
        ):
            gradient.append(np.concatenate([(before.T @ delta).ravel(), delta.sum(axis=0)]))
            delta = (delta @ weights.T) * (before > 0)
        step = np.concatenate(gradient[::-1])
        step *= min(1.0, self.config.clip / np.linalg.norm(step))
        self.t += 1
        self.m = 0.9 * self.m + 0.1 * step
        self.v = 0.999 * self.v + 0.001 * step**2
        hat = (self.m / (1 - 0.9**self.t)) / (np.sqrt(self.v / (1 - 0.999**self.t)) + 1e-8)
        self.flat = self.flat - self.config.learning_rate * hat


@pytest.mark.parametrize("hidden", [(), (5,), (7, 6)])
@pytest.mark.parametrize("clip", [0.05, 100.0])
def test_training_equals_the_reference(hidden, clip):
    """Three epochs, a ragged last batch, held-out losses to 1e-5 and parameters to 1e-4."""
    data = data_of(53)
    network = MLP(4, 3, hidden)
    config = FitConfig(learning_rate=3e-3, batch_size=8, clip=clip, max_epochs=3)
    start, key = network.init(seed_key(1)), seed_key(2)
    done = jax.jit(fit, static_argnums=(0, 1))(network, config, start, *config.split(data), key)

    train = config.training(53)
    inputs = np.concatenate([data.x, data.x_next], axis=1).astype(np.float64)
    label = np.asarray(data.label)
    reference = Reference(network, np.asarray(start), config)
    losses, kept = [], []
    for epoch in range(3):
        order = np.asarray(_minibatches(jax.random.fold_in(key, epoch), train, 8))
        for batch in order:
            rows = batch[batch >= 0]
            reference.update(inputs[rows], label[rows])
        _, log_f = reference.forward(inputs[train:])
        losses.append(-log_f[np.arange(53 - train), label[train:]].mean())
        kept.append(reference.flat)
    np.testing.assert_allclose(done.history[:3, 1], losses, atol=1e-5)
    np.testing.assert_allclose(done.parameters, kept[int(np.argmin(losses))], atol=1e-4)
    assert float(done.validation_loss) == pytest.approx(min(losses), abs=1e-5)


def test_an_epoch_sees_every_row_once():
    assert np.asarray(_minibatches(seed_key(3), 20, 256)).shape == (1, 20), "nothing to fill"
    order = np.asarray(_minibatches(seed_key(3), 101, 32))
    assert order.shape == (4, 32)
    assert sorted(order[order >= 0]) == list(range(101))


def test_stops_after_patience_and_keeps_the_best_epoch():
    data = data_of(60)
    noise = data._replace(label=jnp.asarray(np.random.default_rng(5).integers(3, size=60)))
    network, config = MLP(4, 3, (32,)), FitConfig(learning_rate=0.02, patience=4, clip=100.0)
    done = fit(network, config, network.init(seed_key(1)), *config.split(noise), seed_key(2))
    losses = np.asarray(done.history[:, 1])
    epochs = int(done.epochs)
    assert epochs < config.max_epochs, "noise cannot be fitted for ever"
    assert np.isnan(losses[epochs:]).all()
    assert int(np.nanargmin(losses)) == epochs - 1 - config.patience
    assert float(done.validation_loss) == pytest.approx(float(np.nanmin(losses)))
    held_out = jax.tree.map(lambda table: table[config.training(60) :], noise)
    again = negative_log_likelihood(network, done.parameters, held_out).mean()
    assert float(again) == pytest.approx(float(done.validation_loss), abs=1e-6)


def test_learns_a_known_answer():
    """Well separated classes: the held-out loss approaches that of the true posterior."""
    data = data_of(4_000, seed=8)
    network, config = MLP(4, 3, ()), FitConfig(learning_rate=1e-2, clip=100.0)
    done = fit(network, config, network.init(seed_key(1)), *config.split(data), seed_key(2))
    change = np.asarray(data.x_next - data.x, np.float64)
    energy = -((change[:, None] - 0.7 * np.eye(4)[None, :3]) ** 2).sum(axis=2) / (2 * 0.09)
    posterior = energy - np.log(np.exp(energy).sum(axis=1, keepdims=True))
    held_out = np.arange(config.training(4_000), 4_000)
    exact = -posterior[held_out, np.asarray(data.label)[held_out]].mean()
    assert float(done.validation_loss) == pytest.approx(exact, abs=0.03)


def test_rows_of_weight_zero_do_not_train():
    data = data_of(40)
    poisoned = data._replace(
        label=data.label.at[:10].set((data.label[:10] + 1) % 3), weight=data.weight.at[:10].set(0)
    )
    other = poisoned._replace(label=poisoned.label.at[:10].set(0))
    network, config = MLP(4, 3, (5,)), FitConfig(max_epochs=2)
    start = network.init(seed_key(1))
    one, two = (
        fit(network, config, start, *config.split(rows), seed_key(2)) for rows in (poisoned, other)
    )
    assert (one.parameters == two.parameters).all()


def test_initialisation_is_uniform_within_fan_in():
    network = MLP(50, 7, (56, 56))
    flat = np.asarray(network.init(seed_key(4)))
    assert flat.size == 101 * 56 + 57 * 56 + 57 * 7
    first, rest = flat[: 101 * 56], flat[101 * 56 :]
    assert np.abs(first).max() <= 1 / math.sqrt(100)
    assert np.abs(first).max() > 0.99 / math.sqrt(100)
    assert np.abs(rest).max() <= 1 / math.sqrt(56)
    assert np.abs(first.mean()) < 0.005
