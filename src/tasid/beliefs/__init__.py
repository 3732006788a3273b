"""Beliefs: the map as a hidden Markov model, filtered, smoothed and acted on."""

from tasid.beliefs.frontier import Frontier
from tasid.beliefs.inputs import BeliefInputError
from tasid.beliefs.public import filter_beliefs, smooth_beliefs
from tasid.beliefs.records import Beliefs, OutcomeCounts, SmoothedBeliefs

__all__ = [
    "Beliefs",
    "BeliefInputError",
    "Frontier",
    "OutcomeCounts",
    "SmoothedBeliefs",
    "filter_beliefs",
    "smooth_beliefs",
]
