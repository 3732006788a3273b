"""The paper's network for images: two convolutions and a linear layer over both pictures.

A convolution whose kernel is r strides wide is a matrix product over stride × stride blocks of
pixels, each block meeting r × r parts of the kernel, and a sum of r × r shifted results. Written
so, it runs inside compiled loops on CPUs, where XLA's own convolution is far slower; the two agree.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

BRIGHTEST = 255.0
"""Pixels enter divided by this."""
Layers = list[tuple[int, int]]
"""Inputs of one output, and outputs, of every layer in turn."""


class Convolution(NamedTuple):
    """The shapes of one layer."""

    rows: int
    columns: int
    channels_in: int
    size: int
    channels: int
    stride: int

    @property
    def fan_in(self) -> int:
        return self.size * self.size * self.channels_in

    @property
    def output(self) -> tuple[int, int]:
        rows, columns = ((n - self.size) // self.stride + 1 for n in (self.rows, self.columns))
        return rows, columns


def num_parameters(layers: Layers) -> int:
    """Weights and biases, or kernels and biases, of all layers."""
    return sum((rows + 1) * columns for rows, columns in layers)


def fresh_parameters(layers: Layers, key: jax.Array) -> jax.Array:
    """PyTorch's default: every entry of a layer uniform in ±1/√fan_in."""
    keys = jax.random.split(key, len(layers))
    parts = []
    for layer_key, (rows, columns) in zip(keys, layers, strict=True):
        bound = 1.0 / math.sqrt(rows)
        shape = ((rows + 1) * columns,)
        parts.append(jax.random.uniform(layer_key, shape, jnp.float32, -bound, bound))
    return jnp.concatenate(parts)


@dataclass(frozen=True)
class CNN:
    """ReLU convolutions over the channels of two images, or of one, then a linear layer.

    Images are [rows, columns, channels] with values 0 … 255, uint8 or float alike. In the parameter
    vector every layer has its kernel [size, size, channels in, channels out], the first image's
    channels first, and then its biases.
    """

    observation_shape: tuple[int, int, int]
    num_labels: int
    layers: tuple[tuple[int, int, int], ...] = ((8, 16, 4), (4, 32, 2))
    """Size, output channels and stride of each kernel; sizes are multiples of strides."""
    images: int = 2
    """How many enter side by side."""

    def __post_init__(self) -> None:
        if len(self.observation_shape) != 3:
            raise ValueError(
                f"observation_shape: {self.observation_shape} is no image; give "
                "(rows, columns, channels)"
            )
        for number, (size, _, stride) in enumerate(self.layers):
            if size % stride:
                raise ValueError(
                    f"layers: size {size} of layer {number} is no multiple of its stride {stride}"
                )
        for number, layer in enumerate(self._convolutions):
            if min(layer.output) < 1:
                raise ValueError(
                    f"layers: size {layer.size} of layer {number} is larger than its input of "
                    f"{layer.rows} × {layer.columns}"
                )

    @property
    def _convolutions(self) -> list[Convolution]:
        rows, columns, channels = self.observation_shape
        found, channels = [], self.images * channels
        for size, width, stride in self.layers:
            found.append(Convolution(rows, columns, channels, size, width, stride))
            (rows, columns), channels = found[-1].output, width
        return found

    @property
    def _shapes(self) -> Layers:
        convolutions = self._convolutions
        last = convolutions[-1]
        flat = math.prod(last.output) * last.channels
        return [*((one.fan_in, one.channels) for one in convolutions), (flat, self.num_labels)]

    @property
    def num_parameters(self) -> int:
        return num_parameters(self._shapes)

    def init(self, key: jax.Array) -> jax.Array:
        return fresh_parameters(self._shapes, key)

    def parts(self, parameters: jax.Array) -> list[tuple[jax.Array, jax.Array]]:
        """Kernel and bias of every convolution, then weights and bias of the linear layer."""
        found, offset = [], 0
        kernels: list[tuple[int, ...]] = [
            (one.size, one.size, one.channels_in, one.channels) for one in self._convolutions
        ]
        for shape in [*kernels, self._shapes[-1]]:
            middle, end = offset + math.prod(shape), offset + math.prod(shape) + shape[-1]
            found.append((parameters[offset:middle].reshape(shape), parameters[middle:end]))
            offset = end
        return found

    def apply(self, parameters: jax.Array, *images: jax.Array) -> jax.Array:
        """Scores [B, L]."""
        *convolutions, (weights, bias) = self.parts(parameters)
        now = list(images)
        for number, (layer, (kernel, shift)) in enumerate(
            zip(self._convolutions, convolutions, strict=True)
        ):
            # Dividing the kernel spares a pass over the pixels.
            kernel = kernel if number else kernel / BRIGHTEST
            now = [jax.nn.relu(convolve(layer, now, kernel) + shift[None, None, None])]
        return now[0].reshape(now[0].shape[0], -1) @ weights + bias[None]

    def describe(self) -> dict[str, Any]:
        return {"kind": "cnn", **asdict(self)}

    @classmethod
    def from_description(cls, fields: dict[str, Any]) -> CNN:
        """The inverse of `describe`, its kind left out."""
        rows, columns, channels = fields["observation_shape"]
        layers = tuple((size, width, stride) for size, width, stride in fields["layers"])
        return cls(**{**fields, "observation_shape": (rows, columns, channels), "layers": layers})


def convolve(layer: Convolution, images: list[jax.Array], kernel: jax.Array) -> jax.Array:
    """The convolution of images [B, rows, columns, c], side by side, as [B, n, m, channels]."""
    stride, reach = layer.stride, layer.size // layer.stride
    n, m = layer.output
    high, wide = n + reach - 1, m + reach - 1
    blocks = jnp.concatenate([_blocks(image, high, wide, stride) for image in images], axis=-1)
    # A block's depth is (image, row, column, channel); the kernel has (…, image and channel).
    parted = kernel.reshape(reach, stride, reach, stride, len(images), -1, layer.channels)
    matrix = parted.transpose(4, 1, 3, 5, 0, 2, 6).reshape(blocks.shape[-1], -1)
    met = blocks.reshape(-1, blocks.shape[-1]).astype(jnp.float32) @ matrix
    met = met.reshape(-1, high, wide, reach, reach, layer.channels)
    total = met[:, :n, :m, 0, 0]
    for i in range(reach):
        for j in range(reach):
            if i or j:
                total = total + met[:, i : i + n, j : j + m, i, j]
    return total


def _blocks(image: jax.Array, high: int, wide: int, stride: int) -> jax.Array:
    """Blocks of stride × stride pixels laid out in depth: [B, high, wide, stride·stride·c]."""
    count, _, _, channels = image.shape
    used = image[:, : high * stride, : wide * stride]
    parted = used.reshape(count, high, stride, wide, stride, channels)
    return parted.transpose(0, 1, 3, 2, 4, 5).reshape(count, high, wide, -1)
