"""The limit of Algorithm 2 with unlimited data, computed exactly without an episode.

With unlimited data the model of step h is the exact posterior of the action given the observation
classes before and after it (states of one class have the same observations). It is taken over the
learner's own roll-ins, so the true state s and the tracked state ŝ are followed jointly: an
ambiguity misleads ŝ, and a misled ŝ chooses other actions.

On a map whose limit is far below the robust value, pairs of observations are not enough, however
many there are. Beliefs, which use all observations so far, are not bound by this limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

import tasid
from reproduction.pages import Page
from reproduction.records import Experiment, Job, Outcome, Record
from tasid.report.page import Section, Table, number

NEGLIGIBLE = 1e-12
"""Pairs of true and tracked state that are less likely than this are dropped: too many arise."""
TIE = 1e-9
"""Relative difference of probabilities that counts as a tie; otherwise rounding would decide."""


@dataclass(frozen=True, eq=False)
class PopulationLimit:
    """Value of TASID with perfect models, beside that of the robust plan."""

    value: float
    robust_value: float
    """Of the plan for an oracle that sees the true state."""
    tracked: NDArray[np.float64]
    """P(ŝ_h = s_h), [H]."""
    confusions: tuple[tuple[int, int, int, float], ...]
    """(state, successor, decoded successor, expected number per episode) of the most frequent
    errors in correctly tracked episodes."""
    dropped: float
    """Probability of episodes not followed to their end."""


class _Joint(NamedTuple):
    """Distribution of (s_h, ŝ_h): distinct pairs and their probabilities, [n] each."""

    states: NDArray[np.intp]
    tracked: NDArray[np.intp]
    mass: NDArray[np.float64]


def population_limit(
    world: tasid.PerturbedMDP, plan: tasid.RobustPlan, classes: ArrayLike, *, most: int = 10
) -> PopulationLimit:
    """Exact value of TASID with perfect models in a deterministic map's perturbation.

    Parameters
    ----------
    classes
        Observation class of each state, [S].
    most
        How many confusions to report.

    Ties of the posterior, and transitions that exploration never produces, go to the lowest action.
    """
    sim, classes = world.simulator, np.asarray(classes, np.intp)
    start = np.array([sim.start], np.intp)
    joint, value, tracked = _Joint(start, start, np.ones(1)), 0.0, []
    confused: dict[tuple[int, int, int], float] = {}
    for h in range(sim.horizon):
        outcomes = world.xi_at(h)[joint.states, plan.actions[h, joint.tracked]]
        value += float(joint.mass @ (outcomes * sim.reward_at(h)[joint.states]).sum(axis=1))
        tracked.append(float(joint.mass[joint.states == joint.tracked].sum()))
        joint = _advance(world, joint, outcomes, classes, h, confused)
    ranked = sorted(confused.items(), key=lambda item: -item[1])[:most]
    return PopulationLimit(
        value=value,
        robust_value=tasid.policy_value(world, plan),
        tracked=np.array(tracked),
        confusions=tuple((*where, mass) for where, mass in ranked),
        dropped=max(1.0 - float(joint.mass.sum()), 0.0),
    )


def _advance(
    world: tasid.PerturbedMDP,
    joint: _Joint,
    outcomes: NDArray[np.float64],
    classes: NDArray[np.intp],
    h: int,
    confused: dict[tuple[int, int, int], float],
) -> _Joint:
    """The joint distribution after step h and its decoding; adds to `confused`."""
    codes, best = _posterior(world, joint, classes, h)
    successor, size = world.simulator.successor_at(h), world.simulator.num_states
    pair, action = np.nonzero(outcomes > 0)
    states, tracked = joint.states[pair], joint.tracked[pair]
    after = successor[states, action].astype(np.intp)
    mass = joint.mass[pair] * outcomes[pair, action]
    code = _codes(classes, states, after)
    place = np.minimum(np.searchsorted(codes, code), codes.size - 1)
    decoded = np.where(codes[place] == code, best[place], 0)
    estimate = successor[tracked, decoded].astype(np.intp)
    for i in np.flatnonzero((states == tracked) & (estimate != after)):
        where = (int(states[i]), int(after[i]), int(estimate[i]))
        confused[where] = confused.get(where, 0.0) + float(mass[i])
    pairs, place = np.unique(after * size + estimate, return_inverse=True)
    total = np.bincount(place.ravel(), mass)
    kept = total >= NEGLIGIBLE
    return _Joint(pairs[kept] // size, pairs[kept] % size, total[kept])


def _posterior(
    world: tasid.PerturbedMDP, joint: _Joint, classes: NDArray[np.intp], h: int
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Sorted codes of all pairs of classes that exploration produces, and their likeliest command.

    Exploration rolls in with the policy and then commands a uniformly random action.
    """
    actions = world.simulator.num_actions
    chances = world.xi_at(h)[joint.states] / actions
    pair, command, outcome = np.nonzero(chances > 0)
    states = joint.states[pair]
    after = world.simulator.successor_at(h)[states, outcome].astype(np.intp)
    codes, row = np.unique(_codes(classes, states, after), return_inverse=True)
    mass = joint.mass[pair] * chances[pair, command, outcome]
    weights = np.bincount(row.ravel() * actions + command, mass, codes.size * actions)
    weights = weights.reshape(codes.size, actions)
    return codes, (weights >= weights.max(axis=1, keepdims=True) * (1 - TIE)).argmax(axis=1)


def _codes(classes: NDArray[np.intp], states: Any, after: Any) -> NDArray[np.intp]:
    codes: NDArray[np.intp] = classes[states] * (int(classes.max()) + 1) + classes[after]
    return codes


def observation_classes(env: tasid.BlockMDP) -> NDArray[np.intp]:
    """Observation class of each state of a lock or a lava crossing, [S]."""
    emission: Any = env.emission
    if env.name == "lava-crossing":
        return np.asarray(emission.picture_of, np.intp)
    return np.unique(np.asarray(emission.clean), axis=0, return_inverse=True)[1].ravel()


# The experiment

ETA = 0.1
SETTINGS: dict[str, list[tuple[str, str, dict[str, Any]]]] = {
    "smoke": [("lock-H5", "combination-lock", {"horizon": 5})],
    "quick": [
        *((f"lock-H{h}", "combination-lock", {"horizon": h}) for h in (5, 10, 20, 40)),
        *((f"lava-height{n}", "lava-crossing", {"height": n}) for n in (10, 11, 20)),
    ],
}
SETTINGS["full"] = [
    *SETTINGS["quick"],
    *((f"lava-height{n}", "lava-crossing", {"height": n}) for n in (30, 50, 100)),
    *(
        (f"lava-repeating{n}", "lava-crossing", {"height": n, "landmarks": "repeating"})
        for n in (20, 50, 100)
    ),
]


def jobs(size: str) -> list[Job]:
    """One job per world."""
    return [
        Job(setting, 0, {"method": "population", "environment": name, "options": options})
        for setting, name, options in SETTINGS[size]
    ]


def run(job: Job, folder: Path) -> Outcome:
    """The limit in one world."""
    asked = job.configuration
    env = tasid.make(asked["environment"], eta=ETA, seed=job.seed, **asked["options"])
    classes = observation_classes(env)
    limit = population_limit(env.latent.world, tasid.robust_dp(env.simulator, eta=ETA), classes)
    return Outcome(
        {
            "value": limit.value,
            "robust_value": limit.robust_value,
            "ratio": limit.value / limit.robust_value,
            "tracked": float(limit.tracked.min()),
            "states": env.simulator.num_states,
            "classes": int(np.unique(classes).size),
            "dropped": limit.dropped,
            "confusions": [list(confusion) for confusion in limit.confusions],
        }
    )


def page(size: str, records: Sequence[Record]) -> Page:
    """One table."""
    names = ("states", "classes", "value", "robust_value", "ratio", "tracked")
    rows = [(r.setting, *(number(r.result[name]) for name in names)) for r in records]
    columns = ("world", "states", "distinct observations", "limit", "robust", "ratio", "tracked")
    text = (
        "Exact value of Algorithm 2 with perfect models of pairs of observations, beside that of "
        "the robust plan. Tracked is the smallest probability over steps that the tracked state is "
        "the true one.",
    )
    section = Section("Limits", paragraphs=text, tables=[Table(columns, rows)])
    return Page([section], table=[{"setting": r.setting, **r.result} for r in records])


EXPERIMENT = Experiment("population", "Limits of Algorithm 2 with perfect models", jobs, run, page)
