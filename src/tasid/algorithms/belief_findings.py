"""What whole episodes say about slips and about the map, once it is known what states look like.

On a right map a command misses its outcome with probability at most η in every place, so misses are
dominated by a binomial: too many in all mean that η was chosen too small, too many in one place
mean that the map is wrong there. Misses are posterior probabilities, not guesses: a transition of
which nothing is known counts as the prior has it, and speaks against nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from tasid.algorithms.surprise import EtaEstimate, MapError
from tasid.beliefs.chain import Chain, at
from tasid.beliefs.classes import Classes
from tasid.beliefs.episodes import Episodes
from tasid.beliefs.smoother import Emission, Tally, Weights, tally
from tasid.mdp import AbstractSimulator

_LEVEL = 0.01
_ALLOWANCE = 0.15
"""How far above η misses may lie in a place before the map is blamed: smoothing errs, too."""
_FEWEST = 8.0
"""Visits before a place is tested."""
_LEAP = 1e-4


@dataclass(frozen=True)
class Findings:
    """Slips and map errors."""

    eta: EtaEstimate
    map_errors: tuple[MapError, ...]


def findings(
    chain: Chain,
    classes: Classes,
    emission: Emission,
    chunks: Sequence[Episodes],
    sim: AbstractSimulator,
    *,
    eta: float,
    expected_eta: float,
) -> Findings:
    """Count what commands came to in these episodes; `eta` is what was planned for."""
    weights = Weights(eta=expected_eta, leap=_LEAP if classes.kind == "place" else 0.0).arrays()
    parts = [tally(chain, classes, emission, chunk, weights) for chunk in chunks]
    counted = Tally(*(np.sum(column, axis=0) for column in zip(*parts, strict=True)))
    return Findings(_estimate(chain, counted, eta), tuple(_errors(chain, counted, sim, eta)))


def _hits(chain: Chain, counted: Tally) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """How often commands were given, and how often they had their outcome, [T, M, A] each."""
    outcomes = np.asarray(counted.outcomes, np.float64)
    given = outcomes.sum(axis=-1) + np.asarray(counted.leaps, np.float64)
    intended = np.take_along_axis(outcomes, np.asarray(chain.outcome)[..., None], axis=-1)[..., 0]
    return given, intended


def _estimate(chain: Chain, counted: Tally, eta: float) -> EtaEstimate:
    given, hits = _hits(chain, counted)
    choice = (np.asarray(chain.share) > 0).sum(axis=-1) > 1
    given, hits = given[choice], hits[choice]
    number = round(float(given.sum()))
    misses = min(round(float((given - hits).sum())), number)
    return EtaEstimate.of(misses, number, planned=eta)


def _errors(chain: Chain, counted: Tally, sim: AbstractSimulator, eta: float) -> list[MapError]:
    given, hits = _hits(chain, counted)
    tested = given >= _FEWEST
    misses = given - hits
    allowed = min(eta + _ALLOWANCE, 0.9)
    p_values = binom.sf(np.ceil(misses - 1e-6) - 1, np.floor(given + 1e-6), allowed)
    found = []
    for t, m, a in np.argwhere(tested & (p_values * tested.sum() < _LEVEL)):
        state = int(np.asarray(at(chain.states, int(t)))[m])
        visits, missed = given[t, m, a], misses[t, m, a]
        found.append(
            MapError(
                step=int(t) if chain.successor.shape[0] > 1 else -1,
                state=sim.states[state],
                action=int(a),
                visits=round(float(visits)),
                surprises=round(float(missed)),
                p_value=float(p_values[t, m, a]),
            )
        )
    return sorted(found, key=lambda error: error.p_value)
