"""Places told by what they look like: one mean per place, found in spite of wrong labels.

A label says which place was commanded; where the transition led is another one with probability η.
Expectation maximisation over a mixture of equal, round Gaussians sorts that out, and gives what a
classifier of labels lacks: a place that was never seen wins by exclusion, because what is seen is
unlike all the others. One good look at a place is enough if it looks like itself.

Which commands slip to which places is counted, too. It says nothing about where one is and does not
help to decode, but evidence asks for the command, and a model that only guesses commands would win.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

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
    """Scores ln(p + floor) for every place, p = softmax(W z' + b) for what is seen of x'.

    The floor is what a label may be worth though the place is surely another one. The parameters
    are W [d, L], b [L] and the floor's logarithm, in one vector.
    """

    observation_size: int
    num_labels: int

    @property
    def num_parameters(self) -> int:
        """Weights, biases and the floor."""
        return (self.observation_size + 1) * self.num_labels + 1

    def init(self, key: jax.Array) -> jax.Array:
        """All places look alike."""
        return jnp.zeros(self.num_parameters)

    def apply(self, parameters: jax.Array, x: jax.Array, x_next: jax.Array) -> jax.Array:
        """Scores [B, L]."""
        weights, bias, floor = self.parts(parameters)
        seen = x_next.reshape(x_next.shape[0], -1).astype(jnp.float32)
        return jnp.logaddexp(jax.nn.log_softmax(seen @ weights + bias[None], axis=-1), floor)

    def parts(self, parameters: Any) -> tuple[Any, Any, Any]:
        """W [d, L], b [L] and ln floor, of either library."""
        size = self.observation_size * self.num_labels
        weights = parameters[:size].reshape(self.observation_size, self.num_labels)
        return weights, parameters[size:-1], parameters[-1]

    def describe(self) -> dict[str, Any]:
        """The network as JSON."""
        return {"kind": "places", **asdict(self)}


class Fit(NamedTuple):
    """Parameters of `Places`, and what guessing the command takes besides."""

    parameters: Floats
    odds: NDArray[np.float64]
    """How much likelier than the right command each one leads to a place; [place, command]."""


def fit_places(seen: Floats, choices: Choices, *, eta: float) -> Fit:
    """From what was seen of x' [n, d] and the commanded labels."""
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
    found: NDArray[Any] = np.concatenate([weights.ravel(), bias, [floor]])
    return Fit(found.astype(np.float32), _odds(share, choices, usual=math.exp(floor), eta=eta))


def command_scores(network: Places, fit: Fit, seen: Floats, valid: NDArray[np.bool_]) -> Floats:
    """ln of how likely each command was, [n, L]: over the places that it could lead to."""
    weights, bias, _ = network.parts(fit.parameters)
    p = softmax(np.where(valid, seen @ weights + bias, -np.inf), axis=1)
    return np.log(p @ fit.odds).astype(np.float32)


def _odds(
    share: NDArray[Any], choices: Choices, *, usual: float, eta: float
) -> NDArray[np.float64]:
    """Counted, beside a few looks at what is usual."""
    led, could = np.zeros((2, share.shape[1], share.shape[1]))
    np.add.at(led, choices.label, share)
    np.add.at(could, choices.label, choices.valid)
    right = (led.diagonal() + _USUAL * (1 - eta)) / (could.diagonal() + _USUAL)
    odds: NDArray[np.float64] = ((led + _USUAL * usual * right) / (could + _USUAL) / right).T
    np.fill_diagonal(odds, 1.0)
    return odds
