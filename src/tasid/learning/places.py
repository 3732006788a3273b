"""Places told by what they look like: one mean per place, found in spite of wrong labels.

A label says which place was commanded; where the transition led is another one with probability η.
Expectation maximisation over a mixture of equal, round Gaussians sorts that out, and gives what a
classifier of labels lacks: a place that was never seen wins by exclusion, because what is seen is
unlike all the others. One good look at a place is enough if it looks like itself. Which commands
slip to which places is counted then: it says nothing about where one is, but without it a model
that only guesses commands better would win.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from tasid.learning.choices import Choices, Floats

_ROUNDS = 20
_SETTLED = 1e-3
"""Changes of all shares after which no more rounds follow."""
_SHRINKAGE = 0.5
"""Looks at the average place that every place starts with."""
_SHARPEST = 1e-3
"""The variance within places is at least this part of the variance of everything."""
_LEAST_ETA = 0.05
_USUAL = 5.0
"""Looks at the usual slip that the odds of every two places start with."""


@dataclass(frozen=True)
class Places:
    """Scores ln(p C) for every place, p = softmax(W z' + b) for what is seen of x'.

    C [L, L] holds the odds of every command against the right one, given where it led. The
    parameters are W [d, L], b [L] and C, in one vector.
    """

    observation_size: int
    num_labels: int

    @property
    def num_parameters(self) -> int:
        """Weights, biases and odds."""
        return (self.observation_size + 1 + self.num_labels) * self.num_labels

    def init(self, key: jax.Array) -> jax.Array:
        """All places look alike."""
        return jnp.zeros(self.num_parameters).at[-(self.num_labels**2) :].set(1.0)

    def apply(self, parameters: jax.Array, x: jax.Array, x_next: jax.Array) -> jax.Array:
        """Scores [B, L]."""
        weights, bias, odds = self._parts(parameters)
        seen = x_next.reshape(x_next.shape[0], -1).astype(jnp.float32)
        return jnp.log(jax.nn.softmax(seen @ weights + bias[None], axis=-1) @ odds)

    def _parts(self, parameters: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        seen, labels = self.observation_size, self.num_labels
        table = parameters.reshape(seen + 1 + labels, labels)
        return table[:seen], table[seen], table[seen + 1 :]

    def describe(self) -> dict[str, Any]:
        """The network as JSON."""
        return {"kind": "places", **asdict(self)}


def fit_places(seen: Floats, choices: Choices, *, eta: float) -> Floats:
    """The parameters of `Places`, from what was seen of x' [n, d] and the commanded labels."""
    eta, rows = max(eta, _LEAST_ETA), np.arange(len(seen))
    number = np.maximum(choices.number - 1, 1)[:, None]
    share = np.where(choices.valid, eta / number, 0.0)
    share[rows, choices.label] = 1.0 - eta
    with np.errstate(divide="ignore"):
        prior = np.log(share)
    centre = seen.mean(axis=0, dtype=np.float64)
    z = seen - centre
    everything = max(float((z**2).mean()), 1e-12)
    for _ in range(_ROUNDS):
        means = share.T @ z / (share.sum(axis=0) + _SHRINKAGE)[:, None]
        squares = (means**2).sum(axis=1)
        away = (z**2).sum(axis=1)[:, None] - 2 * z @ means.T + squares
        within = max(float((share * away).sum()) / z.size, _SHARPEST * everything)
        before = share
        share = np.exp(log_softmax((z @ means.T - squares / 2) / within + prior, axis=1))
        if np.abs(share - before).max() < _SETTLED:
            break
    weights = means.T / within
    bias = -squares / 2 / within - centre @ weights
    p = log_softmax(seen @ weights + bias, axis=1)

    def loss(floor: float) -> float:
        return float(choices.losses(np.logaddexp(p, floor)).sum())

    floor = float(minimize_scalar(loss, bounds=(-7.0, 0.0), method="bounded").x)
    odds = _odds(share, choices, usual=math.exp(floor), eta=eta)
    found: NDArray[Any] = np.concatenate([weights.ravel(), bias, odds.ravel()])
    return found.astype(np.float32)


def _odds(
    share: NDArray[Any], choices: Choices, *, usual: float, eta: float
) -> NDArray[np.float64]:
    """How much likelier than the right command every other one leads to a place; [place, command].

    Counted, beside a few looks at what is usual.
    """
    led, could = np.zeros((2, share.shape[1], share.shape[1]))
    np.add.at(led, choices.label, share)
    np.add.at(could, choices.label, choices.valid)
    right = (led.diagonal() + _USUAL * (1 - eta)) / (could.diagonal() + _USUAL)
    odds: NDArray[np.float64] = ((led + _USUAL * usual * right) / (could + _USUAL) / right).T
    np.fill_diagonal(odds, 1.0)
    return odds
