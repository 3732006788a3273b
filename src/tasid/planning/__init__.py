"""Planning on abstract simulators: robust plans, perturbations and exact values."""

from tasid.planning.perturbation import PerturbationError as PerturbationError
from tasid.planning.perturbation import PerturbedMDP as PerturbedMDP
from tasid.planning.perturbation import check_eta as check_eta
from tasid.planning.perturbation import is_perturbation as is_perturbation
from tasid.planning.perturbation import perturb as perturb
from tasid.planning.perturbation import worst_case as worst_case
from tasid.planning.perturbation import worst_case_value as worst_case_value
from tasid.planning.robust_dp import RobustPlan as RobustPlan
from tasid.planning.robust_dp import robust_dp as robust_dp
from tasid.planning.values import best_case_value as best_case_value
from tasid.planning.values import blind_value as blind_value
from tasid.planning.values import certify as certify
from tasid.planning.values import optimal_value as optimal_value
from tasid.planning.values import policy_value as policy_value
from tasid.planning.values import return_range as return_range
from tasid.planning.values import simulator_problems as simulator_problems
