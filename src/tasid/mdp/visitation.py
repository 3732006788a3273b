"""Where a plan is expected to be: the map's forward pass, as far as it needs no target."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tasid.mdp.outcomes import outcomes
from tasid.mdp.robust_dp import RobustPlan


def choice_mass(plan: RobustPlan) -> NDArray[np.float64]:
    """The probability, for every step, that the plan is where outcomes differ, [H].

    Computed on the map with the perturbation that knows nothing: with probability η a uniformly
    random action happens instead of the plan's. Where this is small — most episodes have reached
    a goal, or a dead end — episodes that explore the step teach little.
    """
    sim = plan.simulator
    number = outcomes(sim).number
    mass = np.zeros(sim.num_states)
    np.add.at(mass, sim.starts, sim.start_probabilities)
    found = np.zeros(sim.horizon)
    for h in range(sim.horizon):
        here = np.flatnonzero(mass)
        weight = mass[here]
        choices = (number if number.ndim == 1 else number[h])[here]
        found[h] = weight[choices > 1].sum()
        successor = sim.successor_at(h)[here]
        intended = successor[np.arange(here.size), plan.actions[h, here]]
        mass = np.zeros(sim.num_states)
        np.add.at(mass, intended, (1 - plan.eta) * weight)
        share = plan.eta / sim.num_actions * weight
        np.add.at(mass, successor, share[:, None])
    return found
