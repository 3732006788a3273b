"""What is known: finite worlds without observations."""

from tasid.maps.planning.evaluation import (
    Certificate,
    best_case_value,
    blind_value,
    certify,
    policy_value,
    return_range,
    worst_case,
    worst_case_value,
)
from tasid.maps.planning.perturbation import Membership, PerturbedMDP, is_perturbation, perturb
from tasid.maps.planning.robust_dp import RobustPlan, RouteStep, robust_dp, robust_plans
from tasid.maps.simulator import AbstractSimulator, SimulatorError

__all__ = [
    "AbstractSimulator",
    "Certificate",
    "Membership",
    "PerturbedMDP",
    "RobustPlan",
    "RouteStep",
    "SimulatorError",
    "best_case_value",
    "blind_value",
    "certify",
    "is_perturbation",
    "perturb",
    "policy_value",
    "return_range",
    "robust_dp",
    "robust_plans",
    "worst_case",
    "worst_case_value",
]
