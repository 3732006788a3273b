"""How much of what a plan would meet has been seen in recorded episodes?

Episodes that never came where the plan goes cannot tell what it looks like there; the policy then
goes by its commands alone, and no judgement by the same episodes notices.
"""

from __future__ import annotations

import numpy as np

from tasid.beliefs.chain import after, at
from tasid.beliefs.classes import Classes
from tasid.beliefs.fitting import BeliefSetting, Floats

SEEN = 3.0
"""Sightings after which it is known what a class looks like."""


def coverage(setting: BeliefSetting, classes: Classes, counts: Floats) -> float:
    """The share of the plan's arrivals, slips as expected, whose class has been seen; counts [C].

    What happens in places where nothing more happens is left out.
    """
    chain, eta = setting.chain, float(setting.weights().eta)
    belief = np.asarray(chain.start, np.float64)
    slots = np.arange(chain.num_slots)
    met = seen = 0.0
    for h in range(chain.horizon):
        going = belief * ~np.asarray(at(chain.final, h))
        commands = np.asarray(setting.advantage[h]).argmax(axis=1)
        intended = np.asarray(at(chain.outcome, h))[slots, commands]
        happens = eta * np.asarray(at(chain.share, h), np.float64)
        happens[slots, intended] += 1 - eta
        edges = going[:, None] * happens
        which = np.asarray(after(classes.members, h))[np.asarray(at(classes.of_edge, h))]
        met += edges.sum()
        seen += (edges * (counts[which] >= SEEN)).sum()
        belief = np.zeros(chain.num_slots)
        np.add.at(belief, np.asarray(at(chain.successor, h)), edges)
    return float(seen / met) if met > 0 else 1.0
