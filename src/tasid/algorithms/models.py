"""Model classes of the outcome method: linear, networks of vectors and of images, a user's own.

Each is refitted, warm, on the randomised transitions of all steps so far, and ends up as a
`Network` on raw observations with everything it learned, its standardisation included, in one flat
vector per step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tasid.algorithms.replay import Replay
from tasid.learning import MLP, FitConfig, Network, Transitions, fit
from tasid.learning.choices import Choices, Floats
from tasid.learning.own import ClassifierLike, Classifiers, NetworkLike, Own, OwnNetwork
from tasid.learning.pictures import Patches, PictureNetwork
from tasid.learning.places import Places, command_scores, fit_places
from tasid.learning.ridge import Examples, fit_ridge

Mask = NDArray[np.bool_]

OCCAM = 10.0
"""Nats by which a model class must beat a simpler one to be taken (odds of e^10)."""
_PENALTIES = (1.0, 10.0, 100.0, 1000.0)
_BEHIND = 10.0
"""Nats of evidence behind the best at which a penalty is given up (odds of e^−10)."""
_RACE = 32
"""Steps after which the best penalty goes on alone, …"""
_GROWN = 1.05
"""… and is fitted again only when there are so many times the rows of its last fit."""
_VECTORS = FitConfig(learning_rate=1e-3, clip=1.0)
_IMAGES = FitConfig(learning_rate=1e-3, batch_size=32, clip=1.0, patience=3, max_epochs=6)
_HINDSIGHT = replace(_IMAGES, max_epochs=10)
_QUIETLY = FitConfig(learning_rate=2e-4, batch_size=64, clip=1.0, patience=2, max_epochs=2)
"""Images are learned briskly first and then with a steadier hand."""
_REMEMBERED, _FEWEST_REMEMBERED = 2, 4_000
"""Old transitions that an image network sees for every new one, and at least."""
_STOPPING = 768
"""Held-out transitions that decide which epoch was the best."""
_CHUNK = 512
"""Images looked at together where nothing is learned."""


class Model(Protocol):
    """A model class with its current parameters."""

    kind: str
    """The model class, in words."""
    centring: str
    """How its inputs are centred, in words."""
    remembers: bool
    """Does a fit depend on the ones before? Then what judges must never have been trained on."""
    handicap: float
    """Nats of evidence that it is behind from the start, for all that it could fit by chance."""
    parameters: Floats

    @property
    def network(self) -> Network:
        """What it amounts to on raw observations."""

    def fit(
        self, h: int, replay: Replay, choices: Choices, *, trained: Mask, judged: Mask
    ) -> Floats:
        """Fit on the one part of the rows; give the scores [m, L] of the other."""

    def models(self, replay: Replay) -> Floats:
        """Parameters of `network` for every step so far, [steps, P]."""


class RidgeModel:
    """Linear, with the ridge penalty that has the best evidence."""

    kind = "linear"
    remembers = False
    handicap = OCCAM

    def __init__(self, size: int, labels: int, *, by_step: bool, aversion: float = np.inf) -> None:
        self.network = MLP(size, labels, ())
        self.centring = _centring(by_step)
        self._by_step, self._aversion = by_step, aversion
        blank = np.zeros((2 * size + 1, labels), np.float32)
        self._weights = dict.fromkeys(_PENALTIES, blank)
        self._evidence: dict[float, dict[int, float]] = {penalty: {} for penalty in _PENALTIES}
        self._rows = 0
        self.parameters: Floats = blank.ravel()

    def fit(
        self, h: int, replay: Replay, choices: Choices, *, trained: Mask, judged: Mask
    ) -> Floats:
        """Refit under every penalty still in the race."""
        centres, group = replay.flat.centres(by_step=self._by_step)

        def examples(rows: Mask, aversion: float) -> Examples:
            chosen = replace(choices.only(rows), aversion=aversion)
            return Examples(replay.flat.inputs[rows], centres, group[rows], chosen)

        held_out, scores, number = examples(judged, np.inf), {}, int(trained.sum())
        if not (_RACE <= h < replay.steps and number < _GROWN * self._rows):
            self._rows, training = number, examples(trained, self._aversion)
            self._weights = {
                penalty: fit_ridge(training, penalty=penalty, start=start)
                for penalty, start in self._weights.items()
            }
        for penalty, weights in self._weights.items():
            scores[penalty] = held_out.scores(weights)
            self._evidence[penalty][h] = float(held_out.choices.losses(scores[penalty]).sum())
        total = {p: sum(self._evidence[p].values()) for p in self._weights}
        best = min(total, key=lambda penalty: total[penalty])
        allowed = _BEHIND if h < _RACE else 0.0
        self._weights = {
            penalty: weights
            for penalty, weights in self._weights.items()
            if total[penalty] <= total[best] + allowed
        }
        self.parameters = self._weights[best].ravel()
        return scores[best]

    def models(self, replay: Replay) -> Floats:
        """The current weights for every step, each with its own centre."""
        return _on_raw_inputs(self.network, self.parameters, replay, by_step=self._by_step)


class PlacesModel:
    """Every place by its looks; only for outcomes that are numbered by place."""

    kind = "places by their looks"
    centring = "shared centre"
    remembers = False
    handicap = 0.0

    def __init__(self, size: int, labels: int, *, eta: float) -> None:
        self.network = Places(size, labels)
        self._eta = eta
        self.parameters: Floats = np.zeros(self.network.num_parameters, np.float32)

    def fit(
        self, h: int, replay: Replay, choices: Choices, *, trained: Mask, judged: Mask
    ) -> Floats:
        """Anew, on all transitions so far."""
        seen = replay.pairs[:, 1].reshape(len(replay.pairs), -1)
        found = fit_places(seen[trained], choices.only(trained), eta=self._eta)
        self.parameters = found.parameters
        return command_scores(self.network, found, seen[judged], choices.valid[judged])

    def models(self, replay: Replay) -> Floats:
        """The current places, for every step."""
        return np.broadcast_to(self.parameters, (replay.steps, self.parameters.size))


class NetworkModel:
    """A ReLU network, trained by the common loop with early stopping on a part of its data."""

    remembers = True
    handicap = 2 * OCCAM

    def __init__(
        self, size: int, labels: int, hidden: tuple[int, ...], key: jax.Array, *, by_step: bool
    ) -> None:
        self.network = MLP(size, labels, hidden)
        self.kind = f"network {list(hidden)}"
        self.centring = _centring(by_step)
        self._by_step, self._key = by_step, key
        self.parameters: Floats = np.asarray(self.network.init(jax.random.fold_in(key, 0)))

    def fit(
        self, h: int, replay: Replay, choices: Choices, *, trained: Mask, judged: Mask
    ) -> Floats:
        """Warm-started from the step before; a fifth of the rows decides when to stop."""
        centres, group = replay.flat.centres(by_step=self._by_step)

        def transitions(rows: NDArray[np.intp]) -> Transitions:
            inputs = replay.flat.inputs[rows] - centres[group[rows]]
            return _padded(inputs.reshape(rows.size, 2, inputs.shape[1] // 2), choices, rows)

        rows = np.random.default_rng(h).permutation(np.flatnonzero(trained))
        cut = _VECTORS.training(rows.size)
        found = _fit(
            self.network,
            _VECTORS,
            jnp.asarray(self.parameters),
            transitions(rows[:cut]),
            transitions(rows[cut:]),
            jax.random.fold_in(self._key, h + 1),
        )
        self.parameters = np.asarray(found.parameters)
        asked = transitions(np.flatnonzero(judged))
        scores = self.network.apply(found.parameters, asked.x, asked.x_next)
        return np.asarray(scores)[: int(judged.sum())]

    def models(self, replay: Replay) -> Floats:
        """The current network for every step, each with its own centre."""
        return _on_raw_inputs(self.network, self.parameters, replay, by_step=self._by_step)


class PairModel:
    """A network of pairs, such as a user's own."""

    centring = "shared centre"
    remembers = True
    handicap = OCCAM

    def __init__(self, network: Network, kind: str, key: jax.Array) -> None:
        self.network, self.kind = network, kind
        self._key = key
        self.parameters: Floats = np.asarray(self.network.init(jax.random.fold_in(key, 0)))

    def fit(
        self, h: int, replay: Replay, choices: Choices, *, trained: Mask, judged: Mask
    ) -> Floats:
        """Warm-started; new transitions and a sample of the old ones, not all of them again."""
        training, stopping = (
            _padded(replay.pairs[rows], choices, rows)
            for rows in self._sample(h, replay, trained, judged | (~trained & (choices.number > 1)))
        )
        parameters, key = jnp.asarray(self.parameters), jax.random.fold_in(self._key, h + 1)
        for config in (_IMAGES if h < replay.steps else _HINDSIGHT, _QUIETLY):
            parameters = _fit(self.network, config, parameters, training, stopping, key).parameters
            key = jax.random.fold_in(key, 0)
        self.parameters = np.asarray(parameters)
        return scores_of(self.network, self.parameters, replay.pairs[judged])

    def models(self, replay: Replay) -> Floats:
        """The current network, for every step."""
        return np.broadcast_to(self.parameters, (replay.steps, self.parameters.size))

    def _sample(
        self, h: int, replay: Replay, trained: Mask, untrained: Mask
    ) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Rows to learn from, of the step and some earlier ones (in hindsight all), and to stop by.

        What decides when to stop is never learned from, so it may judge as well.
        """
        rng, found = np.random.default_rng(h), []
        new = int((trained & (replay.step == h)).sum())
        most = max(_REMEMBERED * new, _FEWEST_REMEMBERED) if h < replay.steps else trained.size
        for rows, old_ones in ((trained, most), (untrained, _STOPPING)):
            new_ones = np.flatnonzero(rows & (replay.step == h))
            some = rng.permutation(np.flatnonzero(rows & (replay.step != h)))[:old_ones]
            found.append(rng.permutation(np.concatenate([new_ones, some])))
        return found[0], found[1]


class PictureModel:
    """A model of what a measured layer sees of pictures, which is what the replay holds."""

    def __init__(self, head: Model, patches: Patches) -> None:
        self._head = head
        self.network = PictureNetwork(patches, head.network)
        self.kind, self.centring = head.kind, head.centring
        self.remembers, self.handicap = head.remembers, head.handicap

    @property
    def parameters(self) -> Floats:
        """What the head has learned."""
        return self._head.parameters

    @parameters.setter
    def parameters(self, parameters: Floats) -> None:
        self._head.parameters = parameters

    def fit(
        self, h: int, replay: Replay, choices: Choices, *, trained: Mask, judged: Mask
    ) -> Floats:
        """The head's."""
        return self._head.fit(h, replay, choices, trained=trained, judged=judged)

    def models(self, replay: Replay) -> Floats:
        """The measured layer and the head, for every step."""
        heads = self._head.models(replay)
        return np.concatenate([np.tile(replay.measured, (len(heads), 1)), heads], axis=1)


class ClassifierModel:
    """A user's classifier, fitted anew on all transitions so far."""

    centring = "raw"
    remembers = False
    handicap = OCCAM

    def __init__(self, make: Callable[[], ClassifierLike], labels: int) -> None:
        self.network = Classifiers(labels)
        self._make = make
        self.kind = type(make()).__name__
        self.parameters: Floats = np.full(1, -1.0, np.float32)

    def fit(
        self, h: int, replay: Replay, choices: Choices, *, trained: Mask, judged: Mask
    ) -> Floats:
        """Which labels exist where is only looked at when it is asked."""
        flat = replay.pairs.reshape(len(replay.pairs), -1).astype(np.float32)
        fitted = self._make()
        fitted.fit(flat[trained], choices.label[trained])
        self.parameters = self.network.add(fitted)
        return self.network.scores(self.parameters, flat[judged])

    def models(self, replay: Replay) -> Floats:
        """The current classifier, for every step."""
        return np.broadcast_to(self.parameters, (replay.steps, 1))


def own_model(own: Own, shape: tuple[int, ...], labels: int, key: jax.Array) -> Model:
    """The model that a user's function makes."""
    made = own(shape, labels)
    if isinstance(made, ClassifierLike):
        return ClassifierModel(lambda: own(shape, labels), labels)  # type: ignore[arg-type,return-value]
    if isinstance(made, NetworkLike):
        return PairModel(OwnNetwork(made, labels), type(made).__name__, key)
    raise TypeError(
        f"model: it made a {type(made).__name__}, which has neither fit and predict_proba (a "
        "classifier) nor init and apply (a network)"
    )


def scores_of(network: Network, parameters: Floats, pairs: NDArray[np.float32]) -> Floats:
    """Scores [n, L] of a replay's pairs [n, 2, …], a chunk at a time: images take room."""
    if isinstance(network, PictureNetwork):  # they are what its first layer saw
        parameters = parameters[network.patches.num_parameters :]
        network = network.head
    number, model = len(pairs), jnp.asarray(parameters)
    parts = []
    for first in range(0, number, _CHUNK):
        part = pairs[first : first + _CHUNK]
        filled = np.concatenate(
            [part, np.zeros((_size(len(part)) - len(part), *part.shape[1:]), part.dtype)]
        )
        scores = _apply(network, model, jnp.asarray(filled[:, 0]), jnp.asarray(filled[:, 1]))
        parts.append(np.asarray(scores)[: len(part)])
    return np.concatenate([np.zeros((0, network.num_labels), np.float32), *parts])


def _on_raw_inputs(network: MLP, parameters: Floats, replay: Replay, *, by_step: bool) -> Floats:
    """A network of scaled and centred inputs as one of raw inputs, for every step, [steps, P]."""
    scale, first = replay.flat.scale, (network.hidden or (network.num_labels,))[0]
    centres, _ = replay.flat.centres(by_step=by_step)
    weights = parameters[: scale.size * first].reshape(scale.size, first)
    bias = parameters[scale.size * first : (scale.size + 1) * first]
    rest = parameters[(scale.size + 1) * first :]
    raw = (weights / scale[:, None]).ravel()
    models = [np.concatenate([raw, bias - centre @ weights, rest]) for centre in centres]
    return np.stack(models if by_step else models * replay.steps)


def _padded(pairs: NDArray[np.float32], choices: Choices, rows: NDArray[np.intp]) -> Transitions:
    """Rows filled up with weight 0 to one of few sizes, so that few shapes are compiled."""
    size = _size(rows.size)
    filled = np.concatenate([np.arange(rows.size), np.zeros(size - rows.size, np.intp)])
    if not rows.size:
        filled, rows = np.zeros(size, np.intp), np.zeros(1, np.intp)
        pairs = np.zeros((1, *pairs.shape[1:]), pairs.dtype)
    return Transitions(
        jnp.asarray(pairs[filled, 0]),
        jnp.asarray(pairs[filled, 1]),
        jnp.asarray(choices.label[rows][filled], jnp.int32),
        jnp.asarray(choices.valid[rows][filled]),
        jnp.asarray(np.arange(size) < rows.size, jnp.float32),
    )


def _size(rows: int) -> int:
    """A power of two, or a multiple of 1024 if that is less."""
    power = max(32, 1 << (max(rows, 1) - 1).bit_length())
    return min(power, -(-rows // 1024) * 1024) if rows > 1024 else power


def _centring(by_step: bool) -> str:
    return "step centre" if by_step else "shared centre"


_fit = jax.jit(fit, static_argnums=(0, 1))
_apply = jax.jit(lambda network, *inputs: network.apply(*inputs), static_argnums=0)
