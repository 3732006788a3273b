"""Ways to model outcomes, competing by evidence.

A candidate is a numbering of outcomes, a centring of the inputs and a model class. All of them
predict the same thing — which of the k outcomes of ŝ was commanded — so that their held-out
likelihoods can be compared, and the evidence is simply its sum over steps.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tasid.algorithms.replay import LabelTables, Replay
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

    def fit(self, h: int, examples: Examples, judged: NDArray[np.bool_]) -> tuple[Floats, Floats]:
        """Fit on the rows' weights; parameters [P], and the scores [m, L] of the judged rows."""


class RidgeModel:
    """Linear, with the ridge penalty that has the best evidence."""

    hidden: tuple[int, ...] = ()

    def __init__(self, inputs: int, labels: int) -> None:
        blank = np.zeros((inputs + 1, labels), np.float32)
        self._weights = dict.fromkeys(_PENALTIES, blank)
        self._evidence: dict[float, dict[int, float]] = {penalty: {} for penalty in _PENALTIES}
        self.start = blank.ravel()

    def fit(self, h: int, examples: Examples, judged: NDArray[np.bool_]) -> tuple[Floats, Floats]:
        """Refit under every penalty still in the race."""
        held_out, scores = examples.only(judged), {}
        for penalty, start in self._weights.items():
            weights = fit_ridge(examples, penalty=penalty, start=start)
            self._weights[penalty] = weights
            scores[penalty] = held_out.scores(weights)
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

    def fit(self, h: int, examples: Examples, judged: NDArray[np.bool_]) -> tuple[Floats, Floats]:
        """Warm-started from the step before; a fifth of the rows decides when to stop."""
        choice = (examples.weight > 0) & (examples.valid.sum(axis=1) > 1)
        rows = np.random.default_rng(h).permutation(np.flatnonzero(choice))
        cut = _NETWORK_CONFIG.training(rows.size)
        self._parameters = _fit(
            self._network,
            _NETWORK_CONFIG,
            self._parameters,
            _padded(examples, rows[:cut]),
            _padded(examples, rows[cut:]),
            jax.random.fold_in(self._key, h + 1),
        ).parameters
        asked = _padded(examples, np.flatnonzero(judged))
        scores = self._network.apply(self._parameters, asked.x, asked.x_next)
        return np.asarray(self._parameters), np.asarray(scores)[: int(judged.sum())]


class Candidate:
    """One way to model outcomes, with its evidence and its current model."""

    def __init__(self, tables: LabelTables, *, by_step: bool, model: Model) -> None:
        self.tables, self.by_step, self.model = tables, by_step, model
        self.judged: dict[int, Judged] = {}
        """What held-out transitions said about every step."""
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
        return float(sum(step.losses.sum() for step in self.judged.values()))

    def learn(self, h: int, replay: Replay) -> None:
        """Refit on all steps up to h, and be judged on the held-out part of step h."""
        judged = replay.held_out & (replay.step == h)
        self.judged.update(self._fit(h, replay, trained=~judged, judged=judged))

    def hindsight(self, replay: Replay) -> bool:
        """Would the model of all steps together have been better on all that was held out?

        If so, `parameters` are refitted on everything and serve all steps.
        """
        later, kept = replay.steps, self.parameters
        seen = self._fit(later, replay, trained=~replay.held_out, judged=replay.held_out)
        if sum(step.losses.sum() for step in seen.values()) >= self.evidence:
            self.parameters = kept
            return False
        self._fit(later + 1, replay, trained=np.ones_like(replay.held_out), judged=replay.held_out)
        self.judged = seen
        return True

    def _fit(
        self, h: int, replay: Replay, *, trained: NDArray[np.bool_], judged: NDArray[np.bool_]
    ) -> dict[int, Judged]:
        """Fit on the one part, score the other, and sort the scores by step."""
        weight = trained.astype(np.float32)
        examples = self.tables.examples(replay, by_step=self.by_step, weight=weight)
        choice = examples.valid.sum(axis=1) > 1
        judged = judged & choice
        if not (trained & choice).any():
            return {}
        self.parameters, scores = self.model.fit(h, examples, judged)
        held_out, where = examples.only(judged), replay.step[judged]
        losses = held_out.losses(scores)
        return {
            int(step): Judged(scores[here], held_out.only(here), losses[here])
            for step in np.unique(where)
            if (here := where == step).any()
        }

    def folded(self, replay: Replay) -> Floats:
        """The current model as MLPs on raw observations, scale and centre inside: [steps, P]."""
        inputs, first = replay.scale.size, (self.model.hidden or (self.tables.size,))[0]
        centres, _ = replay.centres(by_step=self.by_step)
        weights = self.parameters[: inputs * first].reshape(inputs, first)
        bias = self.parameters[inputs * first : (inputs + 1) * first]
        rest = self.parameters[(inputs + 1) * first :]
        raw = (weights / replay.scale[:, None]).ravel()
        models = [np.concatenate([raw, bias - centre @ weights, rest]) for centre in centres]
        return np.stack(models if self.by_step else models * replay.steps)


class Judged(NamedTuple):
    """Held-out transitions of one step, where there was a choice of outcomes."""

    scores: Floats
    examples: Examples
    losses: Floats
    """−ln f of the commanded outcome."""


def _padded(examples: Examples, rows: NDArray[np.intp]) -> Transitions:
    """Centred rows, filled up to a power of two with weight 0, so that few shapes are compiled."""
    size = max(32, 1 << (max(rows.size, 1) - 1).bit_length())
    filled = np.concatenate([rows, np.zeros(size - rows.size, rows.dtype)])
    inputs = examples.inputs[filled] - examples.centres[examples.group[filled]]
    x, x_next = np.split(inputs, 2, axis=1)
    return Transitions(
        jnp.asarray(x),
        jnp.asarray(x_next),
        jnp.asarray(examples.label[filled], jnp.int32),
        jnp.asarray(examples.valid[filled]),
        jnp.asarray(np.arange(size) < rows.size, jnp.float32),
    )


_fit = jax.jit(fit, static_argnums=(0, 1))
