"""What commands really come to, place by place: the perturbation ξ, estimated.

Smoothed episodes say how often a command had which outcome, n_k of n times. Shrunk to what was
expected beforehand these counts are probabilities,

    p(k | s, a) = (n_k + κ · p₀(k)) / (n + κ),   p₀(k) = (1 − η) · [k is a's outcome] + η · share,

the mean under a Dirichlet prior that is worth κ transitions. The same prior weighs the evidence:
how much likelier the counts are under it than if p₀ itself were right. The intended outcome is not
kept above 1 − η: where it lies below, that is what was found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from tasid.beliefs.chain import Chain
from tasid.maps import AbstractSimulator

FEWEST = 8.0
"""Visits without which nothing is estimated."""
MOST = 1_000
"""Places that are told of."""
_WORTH = 4.0
"""κ: the transitions that the prior is worth."""
_LEAST = 1e-6
"""A prior probability of nothing at all would be evidence without bounds."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Outcome:
    """One of the places that a command led to."""

    successor: Any
    """The label of the state."""
    actions: tuple[int, ...]
    """The commands that should lead there."""
    count: float
    """How often it came to that, by what whole episodes say."""
    probability: float
    expected: float
    """The same before anything was seen."""


@dataclass(frozen=True)
class Slip:
    """What one command came to in one place."""

    step: int
    """−1 where the map is the same at all steps."""
    state: Any
    action: int
    visits: int
    outcomes: tuple[Outcome, ...]
    """The likeliest first."""
    evidence: float
    """Nats that speak against what was expected; below 0 they speak for it."""

    @property
    def probabilities(self) -> dict[Any, float]:
        """Successor → probability."""
        return {outcome.successor: outcome.probability for outcome in self.outcomes}

    @property
    def astray(self) -> Outcome | None:
        """The unintended outcome that was met more often than expected; None if there is none."""
        total = sum(outcome.count for outcome in self.outcomes)
        others = [outcome for outcome in self.outcomes if self.action not in outcome.actions]
        worst = max(others, key=lambda one: one.count - total * one.expected)
        return worst if worst.count > total * worst.expected else None

    def sentence(self, names: Sequence[str] | None = None) -> str:
        """In plain words; `names` are those of the actions."""

        def said(action: int) -> str:
            if names is None or action not in range(len(names)):
                return f"action {action}"
            return f"“{names[action]}”"

        astray = self.astray
        where = f"state {self.state}" if str(self.state).isdigit() else self.state
        when = "" if self.step < 0 else f"at step {self.step} "
        if astray is None:
            kept = sum(o.count for o in self.outcomes if self.action in o.actions)
            came = f"as it should in {round(kept)}"
        else:
            instead = " or ".join(said(action) for action in astray.actions)
            came = f"as {instead} in {round(astray.count)}"
        return f"{when}in {where} {said(self.action)} came out {came} of {self.visits}"


def slips(
    chain: Chain, outcomes: Floats, given: Floats, sim: AbstractSimulator, *, eta: float
) -> tuple[Slip, ...]:
    """Estimates from outcomes [T, M, A, K] of commands [T, M, A], the most surprising first."""
    share = np.asarray(chain.share, np.float64)
    choice = (share > 0).sum(axis=-1) > 1
    places = np.argwhere((given >= FEWEST) & choice[..., None])
    if not places.size:
        return ()
    t, m, a = places.T
    counts, intended = outcomes[t, m, a], np.asarray(chain.outcome)[t, m, a]
    prior = eta * share[t, m]
    prior[np.arange(len(places)), intended] += 1 - eta
    prior = np.where(share[t, m] > 0, np.maximum(prior, _LEAST), 0.0)
    evidence = _evidence(counts, prior)
    total = counts.sum(axis=1, keepdims=True)
    likely = (counts + _WORTH * prior) / (total + _WORTH)
    first = np.argsort(-evidence, kind="stable")[:MOST]
    return tuple(
        _slip(chain, sim, places[i], given, counts[i], likely[i], prior[i], evidence[i])
        for i in first
    )


def with_doubts(found: tuple[Slip, ...], others: Sequence[tuple[Slip, ...]]) -> tuple[Slip, ...]:
    """The same estimates with as much evidence as all fits see for them; none, if one is silent."""
    seen = [{_place(one): one.evidence for one in each} for each in others]
    doubted = [
        replace(one, evidence=min([one.evidence, *(each.get(_place(one), 0.0) for each in seen)]))
        for one in found
    ]
    return tuple(sorted(doubted, key=lambda one: -one.evidence))


def _place(one: Slip) -> tuple[int, Any, int]:
    return one.step, one.state, one.action


def _evidence(counts: Floats, prior: Floats) -> Floats:
    """ln p(counts | Dirichlet(κ p₀)) − ln p(counts | p₀), rows of [R, K]."""
    there = prior > 0
    alpha = np.where(there, _WORTH * prior, 1.0)
    grown = np.where(there, gammaln(counts + alpha) - gammaln(alpha), 0.0).sum(axis=1)
    total = np.where(there, counts, 0.0).sum(axis=1)
    plain = np.where(there, counts * np.log(np.where(there, prior, 1.0)), 0.0).sum(axis=1)
    found: Floats = gammaln(_WORTH) - gammaln(total + _WORTH) + grown - plain
    return found


def _slip(
    chain: Chain,
    sim: AbstractSimulator,
    place: NDArray[np.intp],
    given: Floats,
    counts: Floats,
    likely: Floats,
    prior: Floats,
    evidence: float,
) -> Slip:
    """The record of one place."""
    t, m, a = place.tolist()
    states = np.asarray(chain.states)
    leads = states[min(t + 1, len(states) - 1)][np.asarray(chain.successor)[t, m]]
    of_action = np.asarray(chain.outcome)[t, m]
    outcomes = [
        Outcome(
            successor=sim.states[int(leads[k])],
            actions=tuple(np.flatnonzero(of_action == k).tolist()),
            count=float(counts[k]),
            probability=float(likely[k]),
            expected=float(prior[k]),
        )
        for k in np.flatnonzero(prior)
    ]
    return Slip(
        step=t if len(chain.successor) > 1 else -1,
        state=sim.states[int(states[min(t, len(states) - 1), m])],
        action=a,
        visits=round(float(given[t, m, a])),
        outcomes=tuple(sorted(outcomes, key=lambda one: -one.probability)),
        evidence=float(evidence),
    )
