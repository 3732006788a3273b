"""The network for pairs of images: equal to plain convolutions, standardisation included."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tasid.learning.networks import network_from
from tasid.learning.siamese import SiameseCNN, fits

SHAPES = [(56, 56, 3), (64, 96, 1), (24, 24, 3), (8, 8, 4), (16, 40, 3), (120, 160, 3)]


def plain(network, parameters, x, x_next):
    """The same network with XLA's own convolution, pixels standardised beforehand."""
    channels = network.observation_shape[2]
    centre, scale = np.asarray(parameters[: 2 * channels]).reshape(2, channels)
    *layers, (hidden, shift), (weights, bias) = network._parts(parameters)
    strides = [layer.stride for layer in network._convolutions]

    def convolve(image, kernel, start, stride):
        found = jax.lax.conv_general_dilated(
            image, kernel, (stride, stride), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        return jax.nn.relu(found + start[None, None, None])

    seen = [
        convolve((jnp.asarray(image, jnp.float32) - centre) / scale, *layers[0], strides[0])
        for image in (x, x_next)
    ]
    image = jnp.concatenate(seen, axis=-1)
    for (kernel, start), stride in zip(layers[1:], strides[1:], strict=True):
        image = convolve(image, kernel, start, stride)
    flat = jax.nn.relu(image.reshape(len(x), -1) @ hidden + shift[None])
    return flat @ weights + bias[None]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_equals_plain_convolutions(shape):
    network, rng = SiameseCNN(shape, 5), np.random.default_rng(0)
    parameters = network.init(jax.random.key(0))
    assert parameters.shape == (network.num_parameters,)
    centre = rng.uniform(50, 150, shape[2]).astype(np.float32)
    scale = rng.uniform(20, 60, shape[2]).astype(np.float32)
    parameters = network.standardised(parameters, centre, scale)
    x, x_next = (rng.integers(0, 256, (3, *shape), np.uint8) for _ in range(2))
    with jax.numpy_rank_promotion("allow"):
        wanted = plain(network, parameters, x, x_next)
    np.testing.assert_allclose(
        network.apply(parameters, jnp.asarray(x), jnp.asarray(x_next)), wanted, atol=2e-4
    )
    floats = [jnp.asarray(image, jnp.float32) for image in (x, x_next)]
    np.testing.assert_allclose(network.apply(parameters, *floats), wanted, atol=2e-4)


def test_no_gradient_moves_the_standardisation():
    network = SiameseCNN((24, 24, 3), 2)
    parameters = network.standardised(
        network.init(jax.random.key(1)), np.full(3, 9.0), np.full(3, 2.0)
    )
    x = jax.random.uniform(jax.random.key(2), (4, 24, 24, 3))
    gradient = jax.grad(lambda p: (network.apply(p, x, x[::-1]) ** 2).sum())(parameters)
    assert (gradient[:6] == 0).all()
    assert (jnp.abs(gradient[6:]) > 0).mean() > 0.1


def test_which_picture_is_first_matters_but_not_to_the_first_layer():
    network = SiameseCNN((24, 24, 3), 2)
    parameters = network.init(jax.random.key(1))
    x = jax.random.uniform(jax.random.key(2), (4, 24, 24, 3))
    there, back = network.apply(parameters, x, x[::-1]), network.apply(parameters, x[::-1], x)
    assert not np.allclose(there, back)


def test_described_and_built_again():
    network = SiameseCNN((56, 56, 3), 7, hidden=32)
    assert network_from(network.describe()) == network


def test_what_is_an_image():
    assert fits((56, 56, 3))
    assert fits((8, 9, 1))
    for no in [(3, 56, 56), (56, 56), (7, 56, 3), (128,), (56, 56, 12)]:
        assert not fits(no)
    with pytest.raises(ValueError, match="is no image of at least one patch"):
        SiameseCNN((4, 4, 3), 2)
