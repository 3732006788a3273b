"""Ways to model outcomes, competing by evidence.

A candidate is a numbering of outcomes, a centring of the inputs and a model class. All of them
predict the same thing — which of the k outcomes of ŝ was commanded — so that their held-out
likelihoods can be compared, and the evidence is simply its sum over steps.
"""

from __future__ import annotations

from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tasid.algorithms.replay import LabelTables, Replay, concatenated
from tasid.learning import MLP, FitConfig, Transitions, fit
from tasid.learning.ridge import Examples, Floats, fit_ridge

_PENALTIES = (1.0, 10.0, 100.0, 1000.0)
_BEHIND = 10.0
"""Nats of evidence behind the best at which a setting is given up (odds of e^−10)."""
_NETWORK_CONFIG = FitConfig(learning_rate=1e-3, clip=1.0)


class Model(Protocol):
    """A model class that is refitted, warm, on all data so far."""

    @property
    def hidden(self) -> tuple[int, ...]:
        """The hidden layers of the `MLP` that it amounts to."""

    @property
    def start(self) -> Floats:
        """Parameters before any data, [P]."""

    def fit(self, h: int, train: Examples, held_out: Examples) -> tuple[Floats, Floats]:
        """Fit; the parameters for standardised inputs [P], and the scores [m, L] of held_out."""


class RidgeModel:
    """Linear, with the ridge penalty that has the best evidence."""

    hidden: tuple[int, ...] = ()

    def __init__(self, inputs: int, labels: int) -> None:
        self._weights = {
            penalty: np.zeros((inputs + 1, labels), np.float32) for penalty in _PENALTIES
        }
        self._evidence: dict[float, dict[int, float]] = {penalty: {} for penalty in _PENALTIES}
        self.start = np.zeros((inputs + 1) * labels, np.float32)

    def fit(self, h: int, train: Examples, held_out: Examples) -> tuple[Floats, Floats]:
        """Refit under every penalty still in the race."""
        scores = {}
        for penalty, start in self._weights.items():
            weights = fit_ridge(train, penalty=penalty, start=start)
            self._weights[penalty] = weights
            scores[penalty] = held_out.inputs @ weights[:-1] + weights[-1:]
            self._evidence[penalty][h] = float(held_out.losses(scores[penalty]).sum())
        total = {p: sum(self._evidence[p].values()) for p in self._weights}
        best = min(total, key=lambda penalty: total[penalty])
        self._weights = {
            penalty: weights
            for penalty, weights in self._weights.items()
            if total[penalty] <= total[best] + _BEHIND
        }
        return self._weights[best].ravel(), scores[best]


class NetworkModel:
    """A ReLU network, trained by the common loop with early stopping on a part of its data."""

    def __init__(self, inputs: int, labels: int, hidden: tuple[int, ...], key: jax.Array) -> None:
        self.hidden = hidden
        self._network = MLP(inputs // 2, labels, hidden)
        self._key = key
        self._parameters = self._network.init(jax.random.fold_in(key, 0))
        self.start = np.asarray(self._parameters)

    def fit(self, h: int, train: Examples, held_out: Examples) -> tuple[Floats, Floats]:
        """Warm-started from the step before; a fifth of the rows decides when to stop."""
        order = np.random.default_rng(h).permutation(train.label.size)
        cut = _NETWORK_CONFIG.training(order.size)
        found = _jitted_fit(
            self._network,
            _NETWORK_CONFIG,
            self._parameters,
            _padded(train, order[:cut]),
            _padded(train, order[cut:]),
            jax.random.fold_in(self._key, h + 1),
        )
        self._parameters = found.parameters
        x, x_next = np.split(held_out.inputs, 2, axis=1)
        scores = self._network.apply(self._parameters, jnp.asarray(x), jnp.asarray(x_next))
        return np.asarray(self._parameters), np.asarray(scores)


class Candidate:
    """One way to model outcomes, with its evidence and its models of the steps so far."""

    def __init__(self, tables: LabelTables, *, by_step: bool, model: Model) -> None:
        self.tables, self.by_step, self.model = tables, by_step, model
        self.losses: dict[int, Floats] = {}
        """Held-out −ln f of every step."""
        self.scores: dict[int, tuple[Floats, Examples]] = {}
        """Held-out scores of every step, and what they should have said."""
        self.parameters = model.start

    @property
    def name(self) -> str:
        """What it is, in words."""
        model = "linear" if not self.model.hidden else f"network {list(self.model.hidden)}"
        centring = "step" if self.by_step else "shared"
        return f"{model}, {self.tables.labels.kind}, {centring} centre"

    @property
    def evidence(self) -> float:
        """Nats lost on held-out transitions so far; lower is better."""
        return float(sum(losses.sum() for losses in self.losses.values()))

    def learn(self, h: int, replay: Replay) -> None:
        """Refit on all steps up to h, and be judged on the held-out part of step h."""
        parts = [
            replay.examples(
                step,
                self.tables,
                by_step=self.by_step,
                rows=~replay.steps[h].held_out if step == h else None,
            )
            for step in range(h + 1)
        ]
        held_out = replay.examples(
            h, self.tables, by_step=self.by_step, rows=replay.steps[h].held_out
        )
        train = concatenated(parts)
        if train.label.size == 0:
            self.losses[h] = np.zeros(0, np.float32)
            return
        self.parameters, scores = self.model.fit(h, train, held_out)
        self.losses[h] = held_out.losses(scores)
        self.scores[h] = (scores, held_out)

    def hindsight(self, replay: Replay) -> bool:
        """Would the model of all steps together have been better at every step's held-out part?

        If so, `parameters` are refitted on everything and serve all steps; if not, they stay.
        """
        last = len(replay.steps) - 1
        steps = range(last + 1)
        held_out = [
            replay.examples(h, self.tables, by_step=self.by_step, rows=replay.steps[h].held_out)
            for h in steps
        ]
        train = [
            replay.examples(h, self.tables, by_step=self.by_step, rows=~replay.steps[h].held_out)
            for h in steps
        ]
        judged = concatenated(held_out)
        if judged.label.size == 0:
            return False
        _, scores = self.model.fit(last + 1, concatenated(train), judged)
        if float(judged.losses(scores).sum()) >= self.evidence:
            return False
        self.parameters, _ = self.model.fit(last + 2, concatenated(train + held_out), judged)
        bounds = np.cumsum([part.label.size for part in held_out])[:-1]
        for h, (part, seen) in enumerate(zip(held_out, np.split(scores, bounds), strict=True)):
            self.scores[h], self.losses[h] = (seen, part), part.losses(seen)
        return True

    def folded(self, h: int, replay: Replay) -> Floats:
        """The current model as an MLP on raw observations of step h: scale and centre inside."""
        assert replay.scale is not None
        inputs = replay.scale.size
        first = (self.model.hidden or (self.tables.size,))[0]
        folded = self.parameters.copy()
        weights = folded[: inputs * first].reshape(inputs, first)
        weights /= replay.scale[:, None]
        centre = replay.centre(h, by_step=self.by_step)
        folded[inputs * first : (inputs + 1) * first] -= centre @ weights
        return folded


def _padded(examples: Examples, rows: NDArray[np.intp]) -> Transitions:
    """Rows filled up to a power of two with weight 0, so that few shapes are compiled."""
    size = max(32, 1 << (max(rows.size, 1) - 1).bit_length())
    filled = np.concatenate([rows, np.zeros(size - rows.size, rows.dtype)])
    x, x_next = np.split(examples.inputs[filled], 2, axis=1)
    return Transitions(
        jnp.asarray(x),
        jnp.asarray(x_next),
        jnp.asarray(examples.label[filled], jnp.int32),
        jnp.asarray(examples.valid[filled]),
        jnp.asarray(np.arange(size) < rows.size, jnp.float32),
    )


_jitted_fit = jax.jit(fit, static_argnums=(0, 1))
