"""Grouping first observations by what happens next: real transitions against imposters.

Which x look different does not matter, only which x behave differently: a regressor g(φ(x), a, x')
has to tell real transitions from those whose x' comes from another episode, and sees of x no more
than its group φ(x) in [N] (Homer's bottleneck, on x rather than x'; appendix C of the paper). The
group enters softly while training, as the expected squared error over groups, whose minimum is a
hard grouping. There are local minima: several restarts compete by held-out error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import NDArray
from scipy.cluster.vq import ClusterError, kmeans2

from tasid.models.networks import Dense

Floats = NDArray[np.float32]
_IMPOSTERS = 16
"""Imposters of every held-out transition."""
_DIRECTIONS = 32
"""Of x, no more than so many principal directions are looked at."""
_HANDICAP = 5e-4
"""What descent has to gain over its proposal: its freedom is also one to fit noise."""
_SHARPNESS = 4.0
"""How decided the first groups are: the log-odds between a typical point's two nearest centres."""


_PROPOSALS = 8
"""First groupings: half are centres of k-means, half random observations. Each competes as it is,
and as descent improves it."""
_STEPS, _LEARNING_RATE = 200, 3e-2
_PENALTY = 3.0
"""On the regressor's squared weights, and on φ's distance from the proposal; divided by n."""
_FEATURES = 8
"""How many principal components of x' the regressor sees."""
_HOLD_OUT = 0.25


class Contrast(NamedTuple):
    """Groupings, and how well each tells real from imposter."""

    parameters: Floats
    """Each φ as flat parameters of a linear `Dense` on raw inputs, [R, P]."""
    errors: Floats
    """Held-out squared error of each, [R]; descent has a small handicap."""
    alone: float
    """The same with one group for all: what telling groups apart has to beat."""


class _Data(NamedTuple):
    x: jax.Array
    action: jax.Array
    seen: jax.Array
    """Features of x', [n, F]."""


class _Weights(NamedTuple):
    """φ's scores are linear in x; g's logit is u[group, a] · features of x' + b[group, a]."""

    scores: jax.Array
    u: jax.Array
    b: jax.Array


def fit_groups(
    x: Floats,
    action: NDArray[np.int32],
    x_next: Floats,
    *,
    groups: int,
    actions: int,
    seed: int,
) -> Contrast:
    """Groupings for transitions x [n, d], a [n], x' [n, d'] whose actions were uniformly random."""
    rng = np.random.default_rng(seed)
    centre, into = _coordinates(x)
    flat: Floats = ((x - centre) @ into).astype(np.float32)
    first = _proposals(flat, groups, rng)
    # One group for all is a grouping, too: the baseline.
    alone = np.zeros((1, first.shape[1]), np.float32)
    alone[0, -groups] = 1e3
    begin = np.concatenate([first, first, alone])
    free = np.arange(begin.shape[0]) < _PROPOSALS
    data = (flat, action, _principal(x_next))
    order = rng.permutation(x.shape[0])
    cut = max(1, round(x.shape[0] * _HOLD_OUT))
    training, held_out = (
        _Data(*(jnp.asarray(table[rows]) for table in data)) for rows in (order[cut:], order[:cut])
    )
    dense = Dense(flat.shape[1], groups, ())
    key = jax.random.key(seed, impl="threefry2x32")
    found, errors = _fit(
        dense, actions, training, held_out, jnp.asarray(begin), jnp.asarray(free), key
    )
    raw = [_on_raw(one, centre, into, groups) for one in np.asarray(found)[:-1]]
    handicap = _HANDICAP * free[:-1]
    errors = np.asarray(errors)
    return Contrast(np.stack(raw), errors[:-1] + handicap, float(errors[-1]))


def _principal(x: Floats) -> Floats:
    """The leading principal components of the rows, whitened, [n, ≤ _FEATURES]."""
    centred = x - x.mean(axis=0, keepdims=True)
    left, spread, _ = np.linalg.svd(centred, full_matrices=False)
    kept = spread[:_FEATURES] > 1e-6 * max(float(spread[0]), 1e-30)
    return (left[:, : kept.size][:, kept] * np.sqrt(x.shape[0])).astype(np.float32)


def _coordinates(x: Floats) -> tuple[Floats, Floats]:
    """Mean, and the leading principal directions [d, ≤ _DIRECTIONS] in a common scale."""
    mean = x.mean(axis=0, dtype=np.float64).astype(np.float32)
    _, spread, directions = np.linalg.svd(x - mean, full_matrices=False)
    number = min(_DIRECTIONS, x.shape[0], x.shape[1])
    typical = float(np.sqrt((spread**2).sum() / (x.shape[0] * x.shape[1])))
    return mean, (directions[:number].T / (typical or 1.0)).astype(np.float32)


def _proposals(x: Floats, groups: int, rng: np.random.Generator) -> Floats:
    """Linear scores whose argmax is the nearest of some centres, [_PROPOSALS, P]."""
    found = []
    for centres in _centres(x, groups, rng):
        distances = ((x[:, None] - centres[None]) ** 2).sum(axis=-1)
        near = np.sort(distances, axis=1)[:, :2]
        gap = float(np.median(near[:, -1] - near[:, 0])) or 1.0
        sharp = _SHARPNESS / gap
        weights = 2 * sharp * centres.T
        found.append(np.concatenate([weights.ravel(), -sharp * (centres**2).sum(axis=1)]))
    return np.asarray(found, np.float32)


def _centres(x: Floats, groups: int, rng: np.random.Generator) -> Iterator[Floats]:
    for proposal in range(_PROPOSALS):
        if proposal % 2:
            yield x[rng.choice(x.shape[0], groups, replace=False)]
            continue
        # The first is the best of many, the others vary more.
        tries = [_k_means(x, groups, rng) for _ in range(16 if proposal == 0 else 2)]
        yield min(tries, key=lambda found: found[0])[1]


def _k_means(x: Floats, groups: int, rng: np.random.Generator) -> tuple[float, Floats]:
    """Mean squared distance to the nearest centre, and the centres [N, d]."""
    first = [x[rng.integers(x.shape[0])]]
    distance = ((x - first[0]) ** 2).sum(axis=1)
    while len(first) < groups:
        total = distance.sum()
        chances = distance / total if total > 0 else None
        first.append(x[rng.choice(x.shape[0], p=chances)])
        distance = np.minimum(distance, ((x - first[-1]) ** 2).sum(axis=1))
    start = np.stack(first)
    try:
        centres, group = kmeans2(x, start, minit="matrix", missing="raise")
    except ClusterError:
        return math.inf, start  # one centre lost all its points
    return float(((x - centres[group]) ** 2).sum(axis=1).mean()), centres.astype(np.float32)


@partial(jax.jit, static_argnums=(0, 1))
def _fit(
    dense: Dense,
    actions: int,
    training: _Data,
    held_out: _Data,
    proposals: jax.Array,
    improved: jax.Array,
    key: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """φ's scores [R, P] and held-out errors [R]; all see the same imposters."""
    rows = training.action.shape[0]
    optimiser = optax.adam(_LEARNING_RATE)
    shape = (dense.outputs, actions, training.seen.shape[1])
    keys = jax.random.split(key, _STEPS)

    def one(first: jax.Array, free: jax.Array) -> tuple[jax.Array, jax.Array]:
        def loss(weights: _Weights, others: jax.Array) -> jax.Array:
            scores = jnp.where(free, weights.scores, first)
            belief = jax.nn.softmax(dense.apply(scores, training.x), axis=-1)
            size = (weights.u**2).sum() + (weights.b**2).sum() + ((scores - first) ** 2).sum()
            return _error(weights, training, belief, others) + _PENALTY * size / rows

        def step(carry: tuple[_Weights, optax.OptState], now: jax.Array):  # type: ignore[no-untyped-def]
            weights, state = carry
            gradient = jax.grad(loss)(weights, jax.random.permutation(now, rows))
            change, state = optimiser.update(gradient, state, weights)
            return (optax.apply_updates(weights, change), state), None

        weights = _Weights(first, jnp.zeros(shape), jnp.zeros(shape[:2]))
        (weights, _), _ = jax.lax.scan(step, (weights, optimiser.init(weights)), keys)
        return weights.scores, _held_out_error(weights, dense, held_out)

    return jax.vmap(one)(proposals, improved)


def _held_out_error(weights: _Weights, dense: Dense, data: _Data) -> jax.Array:
    group = jnp.argmax(dense.apply(weights.scores, data.x), axis=-1)
    belief = jax.nn.one_hot(group, dense.outputs)
    rows = data.action.shape[0]
    shifts = 1 + jnp.arange(_IMPOSTERS) * max(1, rows // _IMPOSTERS)
    others = (jnp.arange(rows)[None] + shifts[:, None]) % rows
    return jax.vmap(lambda rows: _error(weights, data, belief, rows))(others).mean()


def _error(weights: _Weights, data: _Data, belief: jax.Array, others: jax.Array) -> jax.Array:
    """Mean of (g − y)² over real and imposter transitions, expected over groups [n, N]."""
    u, b = weights.u[:, data.action], weights.b[:, data.action]

    def g(seen: jax.Array) -> jax.Array:
        return jax.nn.sigmoid(jnp.einsum("knf,nf->nk", u, seen) + b.T)

    errors = (1 - g(data.seen)) ** 2 + g(data.seen[others]) ** 2
    return 0.5 * (belief * errors).sum(axis=-1).mean()


def _on_raw(parameters: Floats, centre: Floats, into: Floats, groups: int) -> Floats:
    """The same scores as a linear network on raw inputs."""
    weights = into @ parameters[:-groups].reshape(-1, groups)
    bias = parameters[-groups:] - centre @ weights
    return np.concatenate([weights.ravel(), bias]).astype(np.float32)
