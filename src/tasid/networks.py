"""Networks for inverse dynamics: f(a | x, x'), which action led from x to x'.

A model describes a function class. Users may bring their own: any object with `init` and `apply` as
in `PairModel`. `FlatModel` lays the parameters out as one float32 vector, so that clipping and Adam
are one operation each, and the models of all steps are one array.

A convolution whose kernel is r strides wide is a matrix product over blocks of stride × stride
pixels with r × r parts of the kernel, and a sum of r × r shifted products. In this form it runs
fast inside compiled loops on CPUs, where XLA's convolution does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

MAX_PIXEL = 255.0
"""Pixels enter networks divided by this."""
CACHE_BYTES = 3 << 20
"""Pairs that take more than this as float32 numbers are processed in parts that fit into caches."""


class PairModel(Protocol):
    """A function class F ⊂ {X² → Δ(A)}.

    A model may also have `fit(observations, actions, weights) -> parameters`, an optimisation
    oracle for F: the maximum-likelihood member for pairs [n, 2, …], actions [n] and weights [n] in
    {0, 1}. Without it, the paper's training loop is used. With `prepare(x, x_next)`, whatever that
    returns is computed once, and `logits(parameters, prepared)` for every use of the pairs.
    """

    def init(self, key: jax.Array, observation_shape: tuple[int, ...], num_actions: int) -> Any:
        """Initial parameters, any pytree of float arrays; traceable."""

    def apply(self, parameters: Any, x: jax.Array, x_next: jax.Array) -> jax.Array:
        """Logits [n, A] for observations [n, …] and [n, …]; traceable."""


def uniform_layers(key: jax.Array, shapes: Sequence[tuple[int, ...]]) -> list[Any]:
    """Weights of these shapes, and biases, uniform in ±1/√fan_in (PyTorch's default)."""
    layers = []
    for layer_key, shape in zip(jax.random.split(key, len(shapes)), shapes, strict=True):
        inputs, outputs = math.prod(shape[:-1]), shape[-1]
        bound = 1 / math.sqrt(inputs)
        drawn = jax.random.uniform(layer_key, (inputs + 1, outputs), jnp.float32, -bound, bound)
        layers.append((drawn[:-1].reshape(shape), drawn[-1]))
    return layers


@dataclass(frozen=True)
class MLP:
    """Dense ReLU layers over both observations; the paper's network for the lock."""

    hidden: tuple[int, ...] = (56, 56)

    def init(self, key: jax.Array, observation_shape: tuple[int, ...], num_actions: int) -> Any:
        sizes = (2 * math.prod(observation_shape), *self.hidden, num_actions)
        return uniform_layers(key, list(pairwise(sizes)))

    def apply(self, parameters: Any, x: jax.Array, x_next: jax.Array) -> jax.Array:
        flat = [observations.reshape(len(x), -1) for observations in (x, x_next)]
        values = jnp.concatenate(flat, axis=1).astype(jnp.float32)
        for number, (weights, bias) in enumerate(parameters):
            values = (jax.nn.relu(values) if number else values) @ weights + bias
        return values


@dataclass(frozen=True)
class CNN:
    """Convolutions over the channels of both images, then a linear layer (Table 4).

    Images are [rows, columns, channels] with values 0 … 255.
    """

    layers: tuple[tuple[int, int, int], ...] = ((8, 16, 4), (4, 32, 2))
    """Size, output channels and stride of each kernel; sizes are multiples of strides."""

    def shapes(self, observation_shape: tuple[int, ...]) -> list[tuple[int, int, int]]:
        """Rows, columns and channels: of the stacked images, then after each convolution."""
        rows, columns, channels = observation_shape
        shapes = [(rows, columns, 2 * channels)]
        for size, channels, stride in self.layers:
            rows, columns = ((length - size) // stride + 1 for length in (rows, columns))
            shapes.append((rows, columns, channels))
        return shapes

    def fits(self, observation_shape: tuple[int, ...]) -> bool:
        """Are these observations images on which the kernels fit?"""
        return len(observation_shape) == 3 and min(map(min, self.shapes(observation_shape))) > 0

    def init(self, key: jax.Array, observation_shape: tuple[int, ...], num_actions: int) -> Any:
        shapes = self.shapes(observation_shape)
        kernels = [
            (size, size, inputs, channels)
            for (size, channels, _), (_, _, inputs) in zip(self.layers, shapes[:-1], strict=True)
        ]
        return uniform_layers(key, [*kernels, (math.prod(shapes[-1]), num_actions)])

    def prepare(self, x: jax.Array, x_next: jax.Array) -> jax.Array:
        """Pairs in blocks for the first convolution: most of its time would go into making them."""
        stride = self.layers[0][2]
        return jnp.concatenate([to_blocks(image, stride) for image in (x, x_next)], axis=-1)

    def logits(self, parameters: Any, blocks: jax.Array) -> jax.Array:
        (kernel, shift), *convolutions, (weights, bias) = parameters
        strides = [stride for _, _, stride in self.layers]
        # Dividing the kernel saves a pass over the pixels.
        values = jax.nn.relu(convolve(blocks, kernel / MAX_PIXEL, strides[0], images=2) + shift)
        for (kernel, shift), stride in zip(convolutions, strides[1:], strict=True):
            values = jax.nn.relu(convolve(to_blocks(values, stride), kernel, stride) + shift)
        return values.reshape(len(blocks), -1) @ weights + bias


def convolve(blocks: jax.Array, kernel: jax.Array, stride: int, images: int = 1) -> jax.Array:
    """Valid convolution of images in blocks with a kernel [k, k, c, out].

    Parameters
    ----------
    blocks
        From `to_blocks`; of stacked images, side by side.
    images
        How many images are stacked.
    """
    size, _, _, channels = kernel.shape
    reach = size // stride
    high, wide = blocks.shape[1:3]
    rows, columns = high - reach + 1, wide - reach + 1
    # The depth of a block is (image, row, column, channel); a kernel's last inputs are (image,
    # channel).
    kernel = kernel.reshape(reach, stride, reach, stride, images, -1, channels)
    matrix = kernel.transpose(4, 1, 3, 5, 0, 2, 6).reshape(blocks.shape[-1], -1)
    products = blocks.reshape(-1, blocks.shape[-1]).astype(jnp.float32) @ matrix
    # Split before slicing: the gradient is then one concatenation, not a sum of padded arrays.
    parts = jnp.split(products.reshape(-1, high, wide, reach**2 * channels), reach**2, axis=-1)
    shifted = [
        part[:, i : i + rows, j : j + columns]
        for part, (i, j) in zip(parts, np.ndindex(reach, reach), strict=True)
    ]
    return sum(shifted[1:], start=shifted[0])


def to_blocks(image: jax.Array, stride: int) -> jax.Array:
    """Space to depth: blocks of stride × stride pixels, [n, high, wide, stride·stride·c]."""
    n, rows, columns, channels = image.shape
    high, wide = rows // stride, columns // stride
    used = image[:, : high * stride, : wide * stride]
    blocks = used.reshape(n, high, stride, wide, stride * channels)
    return blocks.transpose(0, 1, 3, 2, 4).reshape(n, high, wide, -1)


@dataclass(frozen=True, eq=False)
class PredictingModel:
    """A user's `fit(X, y)` and `predict_proba(X)`, as in scikit-learn, as a `PairModel`.

    Rows of X are both observations, flat. The parameter of a step is the number of its fitted copy.
    """

    model: Any
    num_actions: int
    copies: list[Any] = field(default_factory=list)

    def init(self, key: jax.Array, observation_shape: tuple[int, ...], num_actions: int) -> Any:
        return jnp.zeros(1)

    def fit(self, observations: Any, actions: Any, weights: Any) -> Any:
        rows = weights > 0
        self.copies.append(deepcopy(self.model))
        self.copies[-1].fit(observations.reshape(len(actions), -1)[rows], actions[rows])
        return jnp.full(1, len(self.copies) - 1)

    def apply(self, parameters: Any, x: Any, x_next: Any) -> Any:
        fitted, pairs = self.copies[int(parameters[0])], np.stack([x, x_next], axis=1)
        predicted = fitted.predict_proba(pairs.reshape(len(x), -1))
        every = np.zeros((len(x), self.num_actions))
        every[:, np.asarray(fitted.classes_, int)] = predicted
        return jnp.log(every + 1e-12)


def pair_model(model: Any, num_actions: int) -> Any:
    """A user's classifier of pairs as a `PairModel`, or an error that says what it lacks."""
    if hasattr(model, "init") and hasattr(model, "apply"):
        return model
    if hasattr(model, "fit") and hasattr(model, "predict_proba"):
        return PredictingModel(model, num_actions)
    raise ValueError(
        f"model: {type(model).__name__} has neither init(key, observation_shape, num_actions) and "
        "apply(parameters, x, x_next) → [n, num_actions], nor fit(X, y) and predict_proba(X)"
    )


@dataclass(frozen=True, eq=False)
class FlatModel:
    """A model of pairs for one target, over a flat parameter vector [P].

    Equal instances share compiled programs. Users' models are compared by identity, because they
    may hold arrays.
    """

    model: Any
    observation_shape: tuple[int, ...]
    num_actions: int

    @cached_property
    def _key(self) -> tuple[Any, ...]:
        model = self.model if isinstance(self.model, MLP | CNN) else id(self.model)
        return model, self.observation_shape, self.num_actions

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FlatModel) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @cached_property
    def _layout(self) -> tuple[int, Callable[[jax.Array], Any]]:
        """P, and the function from vectors [P] to parameters of the model."""
        tree = jax.eval_shape(self._init, jax.random.key(0, impl="threefry2x32"))
        zeros, unflatten = ravel_pytree(jax.tree.map(lambda leaf: np.zeros(leaf.shape, "f4"), tree))
        return zeros.size, unflatten

    @property
    def num_parameters(self) -> int:
        """P."""
        return self._layout[0]

    def _init(self, key: jax.Array) -> Any:
        return self.model.init(key, self.observation_shape, self.num_actions)

    @partial(jax.jit, static_argnums=0)
    def init(self, key: jax.Array) -> jax.Array:
        """Initial parameters [P]."""
        return self.flatten(self._init(key))

    def flatten(self, parameters: Any) -> jax.Array:
        """Parameters of the model as a vector [P]."""
        return ravel_pytree(parameters)[0].astype(jnp.float32)

    def prepare(self, x: jax.Array, x_next: jax.Array) -> Any:
        """What `logits` takes, a tree of arrays [n, …]."""
        prepare = getattr(self.model, "prepare", None)
        return (x, x_next) if prepare is None else prepare(x, x_next)

    def logits(self, parameters: jax.Array, prepared: Any) -> jax.Array:
        """Logits [n, A] of prepared pairs."""
        tree = self._layout[1](parameters)
        if hasattr(self.model, "prepare"):
            return self.model.logits(tree, prepared)
        return self.model.apply(tree, *prepared)

    def apply(self, parameters: jax.Array, x: jax.Array, x_next: jax.Array) -> jax.Array:
        """Logits [n, A]."""
        return self.logits(parameters, self.prepare(x, x_next))

    @property
    def pairs_at_once(self) -> int:
        """How many pairs to process together, a power of two up to 1 024."""
        pairs = CACHE_BYTES // (8 * math.prod(self.observation_shape))
        return 1 << min(max(pairs, 1).bit_length() - 1, 10)

    def describe(self) -> dict[str, Any]:
        """What `model_from` needs to build the model again, ready for JSON."""
        if isinstance(self.model, MLP | CNN):
            return {"name": type(self.model).__name__, **asdict(self.model)}
        if isinstance(self.model, PredictingModel):
            name = type(self.model.model).__name__
            raise ValueError(f"save: {name} keeps its parameters to itself; give init and apply")
        return {"name": "custom", "type": type(self.model).__name__}


def model_from(description: Mapping[str, Any], model: Any = None) -> Any:
    """The inverse of `FlatModel.describe`; a model of the user's own has to be given."""
    name = description["name"]
    if model is not None:
        return model
    if name == "MLP":
        return MLP(tuple(int(size) for size in description["hidden"]))
    if name == "CNN":
        return CNN(tuple((int(k), int(n), int(stride)) for k, n, stride in description["layers"]))
    kind = description.get("type")
    raise ValueError(f"model: the policy needs the user's own {kind}; give an equal one as model=")
