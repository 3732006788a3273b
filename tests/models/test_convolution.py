"""The convolutional network against plain convolutions, known shapes and its own description."""

from __future__ import annotations

import json
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tasid.models import FitConfig, Transitions, fit
from tasid.models.convolution import CNN
from tasid.models.networks import network_from

PAPER = CNN((56, 56, 3), 5)


def plain(network, parameters, x, x_next):
    """The same network by XLA's convolutions of the stacked images."""
    *convolutions, (weights, bias) = network.parts(parameters)
    hidden = jnp.concatenate([x, x_next], axis=-1).astype(jnp.float32) / 255
    for (kernel, shift), (_, _, stride) in zip(convolutions, network.layers, strict=True):
        hidden = jax.lax.conv_general_dilated(
            hidden, kernel, (stride, stride), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        hidden = jax.nn.relu(hidden + shift[None, None, None])
    return hidden.reshape(x.shape[0], -1) @ weights + bias[None]


def images(shape, number, seed=0):
    rng = np.random.default_rng(seed)
    pair = rng.integers(0, 256, (2, number, *shape), dtype=np.uint8)
    return jnp.asarray(pair[0]), jnp.asarray(pair[1])


def test_the_papers_sizes():
    """8 × 8 × 16 over 6 channels, 4 × 4 × 32, and 5 × 5 × 32 features to 5 labels."""
    kernels = [(kernel.shape, bias.shape) for kernel, bias in PAPER.parts(jnp.arange(18389.0))]
    assert kernels == [((8, 8, 6, 16), (16,)), ((4, 4, 16, 32), (32,)), ((800, 5), (5,))]
    assert PAPER.num_parameters == 8 * 8 * 6 * 16 + 16 + 4 * 4 * 16 * 32 + 32 + 800 * 5 + 5


@pytest.mark.parametrize(
    "network",
    [
        PAPER,
        CNN((56, 56, 3), 11),
        CNN((29, 40, 1), 3),  # sizes that leave pixels over at the edges
        CNN((30, 31, 3), 2, layers=((9, 5, 3), (3, 7, 1), (2, 4, 2))),
        CNN((12, 12, 4), 2, layers=((4, 3, 4),)),
    ],
)
def test_equals_plain_convolution(network):
    parameters = 3 * network.init(jax.random.key(1))
    x, x_next = images(network.observation_shape, 6)

    @partial(jax.jit, static_argnums=0)
    def scores_and_slope(apply, p):
        def total(p):
            scores = apply(p, x, x_next)
            return jnp.sum(jnp.sin(scores)), scores

        slope, scores = jax.grad(total, has_aux=True)(p)
        return scores, slope

    expected = scores_and_slope(partial(plain, network), parameters)
    got = scores_and_slope(network.apply, parameters)
    for one, other in zip(got, expected, strict=True):
        size = float(jnp.abs(other).max())
        assert size > 0.05
        np.testing.assert_allclose(one, other, atol=2e-5 * size)


def test_floats_and_bytes_are_the_same_pixels():
    parameters = PAPER.init(jax.random.key(2))
    x, x_next = images((56, 56, 3), 128)
    apply = jax.jit(PAPER.apply)
    floats = apply(parameters, x.astype(jnp.float32), x_next.astype(jnp.float32))
    np.testing.assert_array_equal(apply(parameters, x, x_next), floats)


def test_the_order_of_the_images_matters():
    parameters = PAPER.init(jax.random.key(2))
    x, x_next = images((56, 56, 3), 4)
    there, back = PAPER.apply(parameters, x, x_next), PAPER.apply(parameters, x_next, x)
    assert float(jnp.abs(there - back).max()) > 1e-3


def test_initialisation_is_pytorchs():
    """Uniform in ±1/√fan_in, kernels and biases alike."""
    parts = PAPER.parts(PAPER.init(jax.random.key(3)))
    for (kernel, bias), fan_in in zip(parts, (8 * 8 * 6, 4 * 4 * 16, 800), strict=True):
        bound = fan_in**-0.5
        for entries in (kernel, bias):
            assert float(jnp.abs(entries).max()) <= bound
        assert float(jnp.abs(kernel).max()) > 0.99 * bound
        assert float(kernel.std()) == pytest.approx(bound / 3**0.5, rel=0.03)
        assert abs(float(kernel.mean())) < 0.05 * bound
    assert not (PAPER.init(jax.random.key(3)) == PAPER.init(jax.random.key(4))).any()


def test_its_description_builds_it_again():
    for network in (PAPER, CNN((30, 31, 3), 2, layers=((9, 5, 3), (3, 7, 1)))):
        again = network_from(json.loads(json.dumps(network.describe())))
        assert again == network
        assert hash(again) == hash(network)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"observation_shape": (56, 56)}, r"observation_shape: \(56, 56\) is no image"),
        ({"layers": ((8, 16, 3),)}, "size 8 of layer 0 is no multiple of its stride 3"),
        ({"layers": ((8, 16, 4), (16, 8, 4))}, "size 16 of layer 1 is larger than its input of 13"),
    ],
)
def test_impossible_shapes(fields, message):
    with pytest.raises(ValueError, match=message):
        CNN(**{"observation_shape": (56, 56, 3), "num_labels": 5, **fields})


def test_it_learns_what_only_both_images_show():
    """A bright square moves one block left or right between noisy images, or stays."""
    rng = np.random.default_rng(5)
    number, shape = 1500, (24, 24, 3)
    x, x_next = rng.integers(50, 151, (2, number, *shape), dtype=np.uint8)
    label, place = rng.integers(0, 3, number), rng.integers(1, 5, number)
    for row in range(number):
        for image, at in ((x, place[row]), (x_next, place[row] + label[row] - 1)):
            image[row, 8:12, 4 * at : 4 * at + 4] = 255
    data = Transitions(
        x=jnp.asarray(x),
        x_next=jnp.asarray(x_next),
        label=jnp.asarray(label, jnp.int32),
        weight=jnp.ones(number),
    )
    network = CNN(shape, 3, layers=((8, 8, 4), (2, 16, 1)))
    config = FitConfig(learning_rate=3e-3, batch_size=64, clip=100.0, max_epochs=15)
    start = network.init(jax.random.key(0))
    fitted = jax.jit(lambda: fit(network, config, start, *config.split(data), jax.random.key(1)))()
    assert float(fitted.validation_loss) < 0.05 < np.log(3)
