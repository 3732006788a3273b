"""The network for pairs of images: equal to plain convolutions, its first layer measured."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tasid.learning.networks import network_from
from tasid.learning.siamese import SiameseCNN, fits

SHAPES = [(56, 56, 3), (64, 96, 1), (24, 24, 3), (8, 8, 4), (16, 40, 3), (120, 160, 3)]


def plain(network, parameters, x, x_next):
    """The same network with XLA's own convolution."""
    (kernel, shift), *layers, (hidden, start), (weights, bias) = network._parts(
        parameters, network._shapes
    )
    strides = [layer.stride for layer in network._convolutions]

    def convolve(image, kernel, start, stride):
        found = jax.lax.conv_general_dilated(
            image, kernel, (stride, stride), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        return found + start[None, None, None]

    seen = [
        convolve(jnp.asarray(image, jnp.float32), kernel, shift, strides[0])
        for image in (x, x_next)
    ]
    image = jnp.concatenate(seen, axis=-1)
    for (kernel, shift), stride in zip(layers, strides[1:], strict=True):
        image = jax.nn.relu(convolve(image, kernel, shift, stride))
    flat = jax.nn.relu(image.reshape(len(x), -1) @ hidden + start[None])
    return flat @ weights + bias[None]


def with_first_layer(network, images):
    """Parameters whose first layer was measured on these images."""
    parameters = network.init(jax.random.key(0))
    assert parameters.shape == (network.num_parameters,)
    return jnp.concatenate([network.measure(images), parameters[network.num_measured :]])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_equals_plain_convolutions(shape):
    network, rng = SiameseCNN(shape, 5), np.random.default_rng(0)
    x, x_next = (rng.integers(0, 256, (3, *shape), np.uint8) for _ in range(2))
    parameters = with_first_layer(network, x)
    with jax.numpy_rank_promotion("allow"):
        wanted = plain(network, parameters, x, x_next)
    np.testing.assert_allclose(
        network.apply(parameters, jnp.asarray(x), jnp.asarray(x_next)), wanted, atol=2e-4
    )
    floats = [jnp.asarray(image, jnp.float32) for image in (x, x_next)]
    np.testing.assert_allclose(network.apply(parameters, *floats), wanted, atol=2e-4)


def test_what_learns_and_what_is_measured_make_the_whole():
    network = SiameseCNN((24, 32, 3), 4)
    x, x_next = np.random.default_rng(1).integers(0, 256, (2, 5, 24, 32, 3), np.uint8)
    parameters = with_first_layer(network, x)
    measured, learned = jnp.split(parameters, [network.num_measured])
    seen, seen_next = network.look(measured, x), network.look(measured, x_next)
    assert seen.shape == (5, 3, 4, network.features)
    scores = network.comparison.apply(learned, seen, seen_next)
    np.testing.assert_allclose(scores, network.apply(parameters, x, x_next), atol=1e-4)
    assert network.comparison.num_parameters == learned.size
    assert network.comparison.init(jax.random.key(3)).shape == learned.shape


def tiles(rng, kinds, noise, pictures=60):
    """Pictures of 4 × 4 tiles, each of one kind [kinds, 8, 8, 3], with noise; and the kinds."""
    drawn = rng.integers(0, len(kinds), (pictures, 4, 4))
    images = kinds[drawn].transpose(0, 1, 3, 2, 4, 5).reshape(pictures, 32, 32, 3)
    return images + noise * rng.standard_normal(images.shape), drawn


def test_the_first_layer_tells_kinds_of_tiles_apart_in_noise():
    """Four patterns, noise that outweighs them in every pixel: in the features it does not."""
    rng = np.random.default_rng(0)
    kinds = 128 + 12 * rng.standard_normal((4, 8, 8, 3))
    images, drawn = tiles(rng, kinds, noise=15.0)
    network = SiameseCNN((32, 32, 3), 2)
    seen = np.asarray(network.look(network.measure(images[:40]), images[40:]))
    seen, drawn = seen.reshape(-1, network.features), drawn[40:].ravel()
    means = np.stack([seen[drawn == kind].mean(axis=0) for kind in range(4)])
    nearest = ((seen[:, None] - means) ** 2).sum(axis=-1).argmin(axis=1)
    assert (nearest == drawn).mean() > 0.99
    # Three directions hold all that differs between four kinds, and no noise is let through.
    spread = seen.std(axis=0)
    assert (spread[3:] < 0.2 * spread[2]).all()


def test_a_colour_that_was_never_seen_is_seen():
    rng = np.random.default_rng(2)
    grey = np.full((2, 8, 8, 3), 60.0)
    grey[1] += 80.0
    images, _ = tiles(rng, grey, noise=5.0)
    network = SiameseCNN((32, 32, 3), 2)
    measured = network.measure(images)
    red = images[:1].copy()
    red[:, :8, :8, 0] += 60.0
    change = np.asarray(network.look(measured, red) - network.look(measured, images[:1]))
    assert np.abs(change[0, 0, 0]).max() > 0.1
    assert np.abs(change[0, 1:]).max() == 0.0


def test_pictures_without_anything_in_them():
    network = SiameseCNN((16, 16, 1), 2)
    assert not network.measure(np.full((3, 16, 16, 1), 7, np.uint8)).any()


def test_which_picture_is_first_matters():
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
