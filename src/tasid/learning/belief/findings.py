"""What whole episodes say about slips and about the map, once it is known what states look like.

On a right map a command misses its outcome with probability at most η in every place, so misses are
dominated by a binomial: too many in all mean that η was chosen too small, too many in one place
mean that the map is wrong there. Misses are posterior probabilities, not guesses: a transition of
which nothing is known counts as the prior has it, and speaks against nothing. What commands came
to instead is `tasid.learning.belief.slips`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasid.beliefs.chain import Chain, at
from tasid.beliefs.classes import Classes
from tasid.beliefs.episodes import Episodes
from tasid.beliefs.fitting import BeliefSetting
from tasid.beliefs.smoother import Emission, Tally, tally
from tasid.learning.belief.slips import FEWEST, Slip, slips, with_doubts
from tasid.learning.surprise import EtaEstimate, MapFault
from tasid.maps import AbstractSimulator
from tasid.theory.binomial import at_least

_LEVEL = 0.01
ALLOWANCE = 0.15
"""How far above η misses may lie in a place before the map is blamed: smoothing errs, too."""
_LEAP = 1e-4

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Findings:
    """Slips, map errors, and where the episodes were."""

    eta: EtaEstimate
    map_errors: tuple[MapFault, ...]
    visits: Floats
    """How often something was commanded in each state, [S]."""
    slips: tuple[Slip, ...]
    """What commands came to, place by place; the most surprising first."""


def findings(
    setting: BeliefSetting,
    classes: Classes,
    emission: Emission,
    chunks: Sequence[Episodes],
    sim: AbstractSimulator,
) -> Findings:
    """Count what commands came to in these episodes.

    Places where the map is wrong do not count as slips.
    """
    chain, eta = setting.chain, setting.eta
    weights = setting.weights(leap=_LEAP if classes.kind == "place" else 0.0)
    parts = [tally(chain, classes, emission, chunk, weights) for chunk in chunks]
    counted = Tally(*(np.sum(column, axis=0) for column in zip(*parts, strict=True)))
    given, hits = _hits(chain, counted)
    errors, blamed = _errors(chain, given, hits, sim, eta)
    estimate = _estimate(chain, given * ~blamed, hits * ~blamed, eta)
    happened = np.asarray(counted.outcomes, np.float64)
    came_to = slips(chain, happened, given, sim, eta=float(weights.eta))
    return Findings(estimate, errors, _visits(chain, given, sim.num_states), came_to)


def agreed(found: Sequence[Findings]) -> Findings:
    """What fits from all beginnings find, in the words of the first.

    A wrong labelling blames the map, too, but each in its own places.
    """
    first = found[0]
    common = set.intersection(*({_place(one) for one in each.map_errors} for each in found))
    errors = tuple(one for one in first.map_errors if _place(one) in common)
    eta = max((each.eta for each in found), key=lambda eta: eta.p_value)
    came_to = with_doubts(first.slips, [each.slips for each in found[1:]])
    return Findings(eta, errors, first.visits, came_to)


def _place(error: MapFault) -> tuple[int, object, int]:
    return error.step, error.state, error.action


def _hits(chain: Chain, counted: Tally) -> tuple[Floats, Floats]:
    """How often commands were given, and how often they had their outcome, [T, M, A] each."""
    outcomes = np.asarray(counted.outcomes, np.float64)
    given = outcomes.sum(axis=-1) + np.asarray(counted.leaps, np.float64)
    intended = np.take_along_axis(outcomes, np.asarray(chain.outcome)[..., None], axis=-1)[..., 0]
    return given, intended


def _visits(chain: Chain, given: Floats, states: int) -> Floats:
    slots = np.asarray(chain.states)[: len(given)]
    visits = np.zeros(states)
    np.add.at(visits, slots[slots >= 0], given.sum(axis=-1)[slots >= 0])
    return visits


def _estimate(chain: Chain, given: Floats, hits: Floats, eta: float) -> EtaEstimate:
    choice = (np.asarray(chain.share) > 0).sum(axis=-1) > 1
    number = round(float(given[choice].sum()))
    misses = min(round(float((given - hits)[choice].sum())), number)
    return EtaEstimate.of(misses, number, planned=eta)


def _errors(
    chain: Chain, given: Floats, hits: Floats, sim: AbstractSimulator, eta: float
) -> tuple[tuple[MapFault, ...], NDArray[np.bool_]]:
    """Places with too many misses, and which they are, [T, M, A]."""
    tested = given >= FEWEST
    misses = given - hits
    allowed = min(eta + ALLOWANCE, 0.9)
    p_values = at_least(np.ceil(misses - 1e-6), np.floor(given + 1e-6), allowed)
    blamed = tested & (p_values * tested.sum() < _LEVEL)
    found = [
        MapFault(
            step=int(t) if chain.successor.shape[0] > 1 else -1,
            state=sim.states[int(np.asarray(at(chain.states, int(t)))[m])],
            action=int(a),
            visits=round(float(given[t, m, a])),
            surprises=round(float(misses[t, m, a])),
            p_value=float(p_values[t, m, a]),
        )
        for t, m, a in np.argwhere(blamed)
    ]
    return tuple(sorted(found, key=lambda error: error.p_value)), blamed
