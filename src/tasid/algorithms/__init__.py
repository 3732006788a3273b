"""Floor 4 — algorithms, one file each, and the policies they return."""

from tasid.algorithms.belief_policy import BeliefAgent, BeliefPolicy
from tasid.algorithms.evaluate import Score, evaluate
from tasid.algorithms.monitor import calibrate, estimate_eta
from tasid.algorithms.policy import Agent, Policy
from tasid.algorithms.policy_files import load

__all__ = [
    "Agent",
    "BeliefAgent",
    "BeliefPolicy",
    "Policy",
    "Score",
    "calibrate",
    "estimate_eta",
    "evaluate",
    "load",
]
