"""Floor 1 — what is known: finite worlds without observations."""

from tasid.mdp.evaluation import (
    Certificate,
    blind_value,
    certify,
    policy_value,
    worst_case,
    worst_case_value,
)
from tasid.mdp.perturbation import Membership, PerturbedMDP, is_perturbation, perturb
from tasid.mdp.robust_dp import RobustPlan, RouteStep, robust_dp, robust_plans
from tasid.mdp.simulator import AbstractSimulator, SimulatorError

__all__ = [
    "AbstractSimulator",
    "Certificate",
    "Membership",
    "PerturbedMDP",
    "RobustPlan",
    "RouteStep",
    "SimulatorError",
    "blind_value",
    "certify",
    "is_perturbation",
    "perturb",
    "policy_value",
    "robust_dp",
    "robust_plans",
    "worst_case",
    "worst_case_value",
]
