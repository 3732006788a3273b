"""Networks for pairs of pictures: equal to plain convolutions, their first layer measured."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tasid.learning import MLP
from tasid.learning.networks import network_from
from tasid.learning.pictures import GridCNN, Patches, PictureNetwork, is_picture

SHAPES = [(56, 56, 3), (64, 96, 1), (24, 24, 3), (8, 8, 4), (16, 40, 3), (120, 160, 3), (8, 200, 1)]


def convolved(image, kernel, start, stride):
    """XLA's own convolution."""
    found = jax.lax.conv_general_dilated(
        image, kernel, (stride, stride), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return found + start[None, None, None]


def plain(network, parameters, x, x_next):
    """The same network with XLA's own convolution."""
    patches, head = network.patches, network.head
    measured, learned = jnp.split(parameters, [patches.num_parameters])
    patch = 8 * patches.block
    kernel = measured[: -patches.features].reshape(patch, patch, -1, patches.features)
    seen = [
        convolved(jnp.asarray(image, jnp.float32), kernel, measured[-patches.features :], patch)
        for image in (x, x_next)
    ]
    *layers, (hidden, start), (weights, bias) = head._parts(learned)
    image = jnp.concatenate(seen, axis=-1)
    for kernel, shift in layers:
        image = jax.nn.relu(convolved(image, kernel, shift, 1))
    flat = jax.nn.relu(image.reshape(len(x), -1) @ hidden + start[None])
    return flat @ weights + bias[None]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_equals_plain_convolutions(shape):
    rng, patches = np.random.default_rng(0), Patches(shape)
    network = PictureNetwork(patches, GridCNN(patches.grid, 5))
    x, x_next = (rng.integers(0, 256, (3, *shape), np.uint8) for _ in range(2))
    learned = network.init(jax.random.key(0))[patches.num_parameters :]
    parameters = jnp.concatenate([patches.measure(x), learned])
    assert parameters.shape == (network.num_parameters,)
    with jax.numpy_rank_promotion("allow"):
        wanted = plain(network, parameters, x, x_next)
    np.testing.assert_allclose(
        network.apply(parameters, jnp.asarray(x), jnp.asarray(x_next)), wanted, atol=2e-4
    )
    floats = [jnp.asarray(image, jnp.float32) for image in (x, x_next)]
    np.testing.assert_allclose(network.apply(parameters, *floats), wanted, atol=2e-4)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_no_more_than_ten_patches_in_a_row(shape):
    rows, columns, features = Patches(shape).grid
    assert 1 <= rows <= 10
    assert 1 <= columns <= (25 if shape[0] < 16 else 10)  # a patch is no higher than the picture
    assert features == 8


def test_large_pictures_are_seen_in_blocks():
    """A picture with every pixel doubled looks the same in patches of twice the size."""
    small = np.random.default_rng(3).integers(0, 256, (20, 48, 80, 3), np.uint8)
    large = small.repeat(2, axis=1).repeat(2, axis=2)
    one, two = Patches((48, 80, 3)), Patches((96, 160, 3))
    assert (one.block, two.block, one.grid) == (1, 2, two.grid)
    seen, again = (p.look(p.measure(x), x) for p, x in ((one, small), (two, large)))
    np.testing.assert_allclose(np.abs(again), np.abs(seen), atol=1e-3)


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
    patches = Patches((32, 32, 3))
    seen = np.asarray(patches.look(patches.measure(images[:40]), images[40:]))
    seen, drawn = seen.reshape(-1, patches.features), drawn[40:].ravel()
    means = np.stack([seen[drawn == kind].mean(axis=0) for kind in range(4)])
    nearest = ((seen[:, None] - means) ** 2).sum(axis=-1).argmin(axis=1)
    assert (nearest == drawn).mean() > 0.99


def test_noise_is_dimmed():
    """Three directions hold all that differs between four kinds, three more hold colours."""
    rng = np.random.default_rng(0)
    images, _ = tiles(rng, 128 + 12 * rng.standard_normal((4, 8, 8, 3)), noise=15.0, pictures=300)
    patches = Patches((32, 32, 3))
    kernel = patches.measure(images)[: -patches.features].reshape(-1, patches.features)
    strength = np.linalg.norm(kernel, axis=0)
    assert (strength[:3] > 0.9 * strength[0]).all()
    assert (strength[6:] < 0.5 * strength[0]).all()


def test_a_colour_that_was_never_seen_is_seen():
    rng = np.random.default_rng(2)
    grey = np.full((2, 8, 8, 3), 60.0)
    grey[1] += 80.0
    images, _ = tiles(rng, grey, noise=5.0)
    patches = Patches((32, 32, 3))
    measured = patches.measure(images)
    red = images[:1].copy()
    red[:, :8, :8] += [60.0, -30.0, -30.0]  # no lighter and no darker
    change = np.asarray(patches.look(measured, red) - patches.look(measured, images[:1]))
    assert np.abs(change[0, 0, 0]).max() > 0.1
    assert np.abs(change[0, 1:]).max() == 0.0


def test_pictures_without_anything_in_them():
    patches = Patches((16, 16, 1))
    assert not patches.measure(np.full((3, 16, 16, 1), 7, np.uint8)).any()


@pytest.mark.parametrize("head", [MLP(9 * 8, 4, ()), GridCNN((3, 3, 8), 4)], ids=["linear", "grid"])
def test_described_and_built_again(head):
    network = PictureNetwork(Patches((24, 24, 3)), head)
    assert network_from(network.describe()) == network
    x = np.random.default_rng(1).integers(0, 256, (5, 24, 24, 3), np.uint8)
    parameters = network.init(jax.random.key(1))
    parameters = parameters.at[: network.patches.num_parameters].set(network.patches.measure(x))
    there, back = network.apply(parameters, x, x[::-1]), network.apply(parameters, x[::-1], x)
    assert not np.allclose(there, back)  # which picture is first matters


def test_what_is_a_picture():
    assert is_picture((56, 56, 3))
    assert is_picture((8, 9, 1))
    for no in [(3, 56, 56), (56, 56), (7, 56, 3), (128,), (56, 56, 12)]:
        assert not is_picture(no)
    with pytest.raises(ValueError, match="is no picture of at least one patch"):
        Patches((4, 4, 3))
